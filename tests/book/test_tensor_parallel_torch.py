"""What the chapter says of PyTorch: its plan beside one device, and what the compiler keeps."""

import functools

import jupytext
import torch
from functorch.compile import aot_function, make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy, rms_norm, silu

from dlsys import world
from dlsys.model import GPT
from dlsys.transformer import TransformerSpec
from tests.contents import ROOT

PAGE = ROOT / "chapters" / "tensor_parallel.md"
LLAMA = TransformerSpec(
    layers=2,
    hidden=16,
    heads=4,
    kv_heads=2,
    vocab=34,
    sequence=8,
    ffn_hidden=48,
    gated=True,
    norm="rms",
    positions="rotary",
    bias=False,
    tied=False,
)


def whole(x: Tensor | DTensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def test_the_chapters_plan_for_pytorch_makes_another_loss_or_gradient_than_one_device():
    cells = [cell.source for cell in jupytext.read(PAGE).cells if cell.cell_type == "code"]
    plan = "\n".join(source for source in cells if "parallelize_module" in source)

    def program(comm):
        one, model = GPT(LLAMA, flash=True), GPT(LLAMA, flash=True)
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        names: dict = {}
        exec(plan, names)
        names["cut_model"](model, mesh)
        tokens = torch.arange(32).view(4, 8) * 7 % 34
        targets = tokens.roll(-1, 1)
        (expected := one(tokens, targets)).backward()
        mine = slice(2 * (comm.rank // 2), 2 * (comm.rank // 2) + 2)  # neighbors share sequences
        with loss_parallel():
            loss = cross_entropy(model(tokens[mine]).flatten(0, 1), targets[mine].flatten())
            loss.backward()
        means = comm.all_reduce(whole(loss).detach()) / comm.size
        torch.testing.assert_close(means, expected.detach())
        for (name, cut), parameter in zip(model.named_parameters(), one.parameters(), strict=True):
            torch.testing.assert_close(whole(cut.grad), parameter.grad, msg=name)
        up, down = (model.layers[0].get_submodule(f"ffn.{name}").weight for name in ("up", "down"))
        return mesh["tp"].mesh.tolist(), *(tuple(each.to_local().shape) for each in (up, down))

    # A quarter of each matrix: by tp along its own dimension, and by dp along the first.
    shapes = (12, 16), (8, 24)
    groups = [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert world.launch(program, 4).results == [(group, *shapes) for group in groups]


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
