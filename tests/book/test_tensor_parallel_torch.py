"""What the chapter says of PyTorch: its plan beside one device, and what the compiler keeps."""

import functools
import re

import torch
from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.functional import rms_norm, silu

from dlsys import world
from tests.contents import ROOT

PAGE = (ROOT / "chapters" / "tensor_parallel.md").read_text("utf-8")
STYLES = {
    style.__name__: style
    for style in (ColwiseParallel, PrepareModuleInput, Replicate, RowwiseParallel, SequenceParallel)
} | {"Shard": Shard, "parallelize_module": parallelize_module}


class Gated(nn.Module):
    """A gated feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(silu(self.gate(x)) * self.up(x))


class Branch(nn.Module):
    """A norm, the network, and the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.ffn = nn.LayerNorm(8), Gated()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.ffn(self.norm(x))


def whole(x: Tensor | DTensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def test_the_chapters_plan_for_pytorch_makes_another_result_or_gradient_than_one_device():
    (plan,) = re.findall(r"```python\n(plan = .*?)```", PAGE, re.S)

    def program(comm):
        torch.manual_seed(0)
        one, layer = Branch(), Branch()
        layer.load_state_dict(one.state_dict())
        mesh = init_device_mesh("cpu", (comm.size,), mesh_dim_names=("tp",))
        exec(plan, {**STYLES, "layer": layer, "mesh": mesh})
        x = torch.randn(2, 6, 8)
        expected, tokens = one(x), layer(x.chunk(comm.size, 1)[comm.rank])
        for result in (expected, tokens):
            result.square().sum().backward()
        mine = expected.chunk(comm.size, 1)[comm.rank]
        torch.testing.assert_close(
            tokens.to_local() if isinstance(tokens, DTensor) else tokens, mine
        )
        for (name, cut), parameter in zip(layer.named_parameters(), one.parameters(), strict=True):
            torch.testing.assert_close(whole(cut.grad), parameter.grad, msg=name)
        return tuple(layer.ffn.up.weight.to_local().shape)

    assert world.launch(program, 2).results == [(8, 8)] * 2


def test_the_compiler_keeps_more_of_a_branch_than_what_products_read_and_the_gate():
    kept: list[int] = []
    tokens, h, f = 30, 64, 224

    def branch(x, scale, gate, up, down):
        n = rms_norm(x, (h,), scale)
        return x + (silu(n @ gate) * (n @ up)) @ down

    def forward(graph, _):
        (outputs,) = next(node for node in graph.graph.nodes if node.op == "output").args
        kept.extend(node.meta["val"].numel() for node in outputs[1:])  # the first is the result
        return make_boxed_func(graph.forward)

    compiled = aot_function(
        branch,
        fw_compiler=forward,
        bw_compiler=lambda graph, _: make_boxed_func(graph.forward),
        partition_fn=functools.partial(min_cut_rematerialization_partition, compiler="inductor"),
    )
    shapes = (2, tokens // 2, h), (h,), (h, f), (h, f), (f, h)
    compiled(*(torch.randn(shape, requires_grad=True) for shape in shapes)).sum().backward()
    activations = sorted(size for size in kept if size not in (h, h * f))
    # A length for each token, x, the norm's output; the outputs of gate and up, and the product's.
    assert activations == [tokens, *[tokens * h] * 2, *[tokens * f] * 3]
