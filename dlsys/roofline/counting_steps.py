"""Counting a training step of a model of any size: torch dispatches it, nothing is computed."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.nn import Parameter

from dlsys.annotated import checked
from dlsys.checks import count
from dlsys.model import GPT
from dlsys.roofline.counter import Counted, count_operations
from dlsys.transformer import TransformerSpec


@checked
def count_step(
    spec: TransformerSpec,
    batch: int,
    flash: bool = False,
    fused: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Counted:
    """The operations of a GPT's training step with AdamW: forward, backward, update.

    - flash: attention in one kernel. fused: one operation updates all parameters, not nine each.

    Raises ValueError for a spec that GPT has no parts for.
    """
    rows, model = count("batch", batch), GPT(spec, flash=flash, device="meta", dtype=dtype)
    passes, update = _passes(model, rows, flash), _update(model, fused)
    return Counted(passes.operations + update.operations, passes.views + update.views)


def _passes(model: GPT, rows: int, flash: bool) -> Counted:
    """Forward and backward."""
    # The meta device has no attention in one kernel. Fake tensors, which say that they lie on a
    # processor, do; but autograd goes other ways with them where attention is plain.
    device, mode = ("cpu", FakeTensorMode()) if flash else ("meta", nullcontext())
    with mode:
        held: dict[str, torch.Tensor] = {
            name: Parameter(torch.empty(each.shape, dtype=each.dtype, device=device))
            for name, each in model.named_parameters()
        }
        shape = (rows, model.spec.sequence + 1)
        text = torch.empty(shape, dtype=torch.long, device=device)
        inputs = text[:, :-1], text[:, 1:]
        return count_operations(lambda: functional_call(model, held, inputs).backward())


def _update(model: GPT, fused: bool) -> Counted:
    """AdamW, after a first step that makes its state."""
    with FakeTensorMode():
        held = [Parameter(torch.empty(p.shape, dtype=p.dtype)) for p in model.parameters()]
        for parameter in held:
            parameter.grad = torch.empty_like(parameter)
        optimizer = torch.optim.AdamW(held, foreach=False if not fused else None, fused=fused)
        optimizer.step()
        return count_operations(optimizer.step)
