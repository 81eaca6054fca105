"""The plan that the chapter gives to PyTorch for a model of one's own, run beside one device."""

import re

import torch
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
from torch.nn.functional import silu

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
