"""The whole programs on the pages run under torchrun as they stand, and give what the pages say for the bytes that
our prices say.
"""

import json
import re
from collections import Counter

import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader

from dlsys.collectives import plan_for
from dlsys.expert_parallel import count_copies
from dlsys.hardware import LINKS
from dlsys.memory_wall import model_state
from dlsys.pipeline_parallel import message_bytes, one_f_one_b
from dlsys.tensor_parallel import all_reduce_bytes
from dlsys.zero import price, sent, step_plan
from tests import torchrun
from tests.book import counting
from tests.contents import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork


def program(page: str, name: str) -> str:
    """The program that a page tells its reader to save under a name."""
    text = (ROOT / "chapters" / f"{page}.md").read_text("utf-8")
    [found] = re.findall(rf"^```python\n(# {name}\n.*?)^```", text, re.S | re.M)
    return found


RANKS = 2


def run(
    folder, page: str, name: str, ranks: int = RANKS
) -> tuple[list[str], list[tuple[str, int, int]]]:
    """What the program prints on its processes, and the collectives that all of them call."""
    lines, (one, *others) = run_apart(folder, page, name, ranks)
    assert others == [one] * (ranks - 1)
    return lines, one


def run_apart(
    folder, page: str, name: str, ranks: int = RANKS
) -> tuple[list[str], list[list[tuple[str, int, int]]]]:
    """The same of a program whose processes send unequal parts: the collectives of each."""
    (folder / name).write_text(program(page, name))
    options, counted = ["--nproc-per-node", f"{ranks}"], [counting.__file__, name]
    ended, errors = torchrun.ended(folder, run=torchrun.begin(folder, "run", options, counted))
    status, lines = ended["run"]
    assert status == 0, errors
    assert "Warning" not in errors, errors
    each = [json.loads((folder / f"counted-{r}.json").read_text()) for r in range(ranks)]
    return lines, [[tuple(one) for one in calls] for calls in each]


def bytes_sent(kind: str, part: int, whole: int) -> float:
    """What a rank sends by the sizes of its buffers: its part to each of the others, or twice so."""
    if kind == "all_reduce":
        return 2 * (RANKS - 1) * whole / RANKS
    assert whole == RANKS * part
    return (RANKS - 1) * part


def trained_alone(model: torch.nn.Module) -> float:
    """The loss of the third step on one device, on numbers that are drawn after the model."""
    batch, targets = torch.randn(16, 64), torch.randn(16, 64)
    adamw = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        adamw.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), targets)
        loss.backward()
        adamw.step()
    return loss.item()


def test_the_sums_of_torchs_own_collectives_are_those_that_the_page_prints(tmp_path):
    page = (ROOT / "chapters" / "collectives.md").read_text("utf-8")
    [line], counted = run(tmp_path, "collectives", "sums.py")
    assert line == f"True True {839.0 * 3}"
    assert f"prints `{line}`" in page
    kinds = ["all_reduce", "reduce_scatter", "all_gather", "all_reduce"]
    assert [kind for kind, *_ in counted] == kinds
    for each in counted:
        kind, _, nbytes = each
        assert nbytes == 840 * 4
        assert bytes_sent(*each) == plan_for(kind, RANKS).price(nbytes, None).bytes_per_rank


def test_two_processes_shard_and_train_what_one_device_trains(tmp_path):
    [line], counted = run(tmp_path, "zero", "shard.py")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 64)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    shape, _, found = line.rpartition(" ")
    assert shape == "(32, 64)"  # half of the rows
    assert float(found) == pytest.approx(loss.item(), abs=6e-5)
    units, steps = {f"{i}": sum(p.numel() for p in m.parameters()) for i, m in enumerate(model)}, 3
    cost = price(3, sum(p.nbytes for p in model.parameters()), RANKS)
    halves = [each for each in counted if each[0] != "all_reduce"]
    assert Counter(kind for kind, *_ in halves) == Counter(cost.collectives * len(units) * steps)
    assert sum(bytes_sent(*each) for each in halves) == steps * cost.bytes_per_rank
    assert cost.bytes_per_rank == sent(step_plan(3, units, RANKS), itemsize=4)
    # What the price leaves out: a number for each parameter, to clip by, and at the end the loss.
    lengths, loss_bytes = 4 * len([*model.parameters()]), 4
    summed = [whole for kind, _, whole in counted if kind == "all_reduce"]
    assert summed == [lengths] * steps + [loss_bytes]


def test_copies_of_sharded_weights_gather_in_bf16_and_add_up_shards_in_fp32(tmp_path):
    [line], counted = run(tmp_path, "zero_more", "copies.py", ranks=4)
    assert line == "(32, 64) torch.float32"
    assert f"prints `{line}`" in (ROOT / "chapters" / "zero_more.md").read_text("utf-8")
    units, each = 4, 64 * 64 + 64
    expected = {
        ("all_gather", 2 * each // 2, 2 * each): 2 * units,  # of BF16
        ("reduce_scatter", 4 * each // 2, 4 * each): units,
        ("all_reduce", 4 * each // 2, 4 * each // 2): units,  # of this rank's part, among copies
    }
    assert Counter(call for call in counted if call[0] != "objects") == expected
    saved = FileSystemReader(tmp_path / "saved").read_metadata().state_dict_metadata
    sizes = [part.size.numel() for part in saved.values() if hasattr(part, "size")]
    steps = 2 * units  # a number for each weight and each bias
    assert sum(sizes) == 3 * units * each + steps


def test_two_processes_with_half_of_the_experts_each_differentiate_what_one_device_does(tmp_path):
    [line], counted = run_apart(tmp_path, "expert_parallel", "experts.py")
    experts, k, hidden, width, tokens = 8, 2, 64, 128, 16
    torch.manual_seed(0)
    router = torch.randn(hidden, experts, requires_grad=True)
    up, down = torch.randn(experts, hidden, width) / 8, torch.randn(experts, width, hidden) / 8
    up.requires_grad_()
    x = torch.randn(RANKS, tokens, hidden)
    scores, chosen = (x.flatten(0, 1) @ router).topk(k)
    every = torch.relu(torch.einsum("th,ehf->etf", x.flatten(0, 1), up)) @ down
    table = torch.zeros(RANKS * tokens, experts).scatter(1, chosen, scores.softmax(-1))
    torch.einsum("te,eth->th", table, every).square().mean().backward()
    shape, norms = line.split(") ")
    assert shape == "(4, 64, 128"  # half of the experts
    expected = (router.grad.norm().item(), up.grad[: experts // RANKS].norm().item())
    assert [float(n) for n in norms.split()] == pytest.approx(expected, abs=6e-4)
    plan = count_copies(chosen.view(RANKS, tokens, k).tolist(), experts)
    row = 4 * hidden
    leaving = max(plan.copies[rank][1 - rank] for rank in range(RANKS))
    assert plan.price(LINKS["nvlink4"], hidden, 4).dispatch_bytes == leaving * row
    for rank, calls in enumerate(counted):
        given = [plan.read[rank] * row, sum(plan.copies[rank]) * row]  # to combine, to dispatch
        rows = [most for kind, _, most in calls if kind == "all_to_all"]
        # Counts; forward; backward of combine. The tokens themselves ask for no gradient.
        assert rows == [8 * experts, given[1], given[0], given[1]]
    assert [kind for kind, *_ in counted[0]].count("all_reduce") == 1


@pytest.mark.parametrize("ranks", [4, 8])
def test_torchs_engines_train_together_over_three_axes_what_one_device_trains(tmp_path, ranks):
    lines, each = run_apart(tmp_path, "composing_axes", "compose.py", ranks)
    page = program("composing_axes", "compose.py")
    assert f"it prints `{lines[0]}`" in (ROOT / "chapters" / "composing_axes.md").read_text("utf-8")
    space = {"nn": torch.nn}
    exec(re.search(r"^class Layer.*?^$(?=\n^gpu)", page, re.S | re.M)[0], space)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[space["Layer"](64) for _ in range(4)])
    loss = trained_alone(model)
    assert [float(line) for line in lines] == [pytest.approx(loss, abs=6e-5)]
    tp, micro_batches, steps, layers = ranks // 4, 4, 3, 2  # layers of a stage
    rows = message_bytes(2, 1, 64, 4)  # two of a micro-batch
    cut = [p.numel() // (1 if p.numel() == 64 else tp) for p in model[0].parameters()]
    nbytes = 4 * sum(cut)  # of a layer, of which norm and second bias are on all tp ranks
    for calls in map(Counter, each):
        assert calls["reduce_scatter", nbytes // 2, nbytes] == layers * steps
        assert calls["all_gather", nbytes // 2, nbytes] >= layers * steps * micro_batches
        assert calls["send", rows, rows] == calls["recv", rows, rows] == micro_batches * steps
        reduced = calls["all_reduce", rows, rows]  # forward, backward, and where shapes are found
        assert reduced // (2 * layers * micro_batches * steps) == tp - 1


@pytest.mark.parametrize("ranks", [2, 4])
def test_torchs_pipeline_trains_what_one_device_trains_and_sends_two_messages_a_boundary(
    tmp_path, ranks
):
    [line], each = run_apart(tmp_path, "pipeline_parallel", "pipe.py", ranks)
    assert f"It prints `{line}`" in (ROOT / "chapters" / "pipeline_parallel.md").read_text("utf-8")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
    loss = trained_alone(model)
    assert float(line) == pytest.approx(loss, abs=6e-5)
    micro_batches, steps = 8, 3
    rows = message_bytes(2, 1, 64, 4)  # two of a micro-batch
    messages = one_f_one_b(ranks, micro_batches).messages
    for calls, of_step in zip(map(Counter, each), messages, strict=True):
        assert calls["send", rows, rows] == calls["recv", rows, rows] == steps * of_step


def test_fsdp_holds_half_of_sixteen_bytes_on_each_of_two_processes_and_computes_in_sixteen_bits(
    tmp_path,
):
    [line], counted = run(tmp_path, "memory_wall", "fit.py")
    assert f"It prints `{line}`" in (ROOT / "chapters" / "memory_wall.md").read_text("utf-8")
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0)
    n = 4 * sum(p.numel() for p in layer.parameters())
    state = model_state(n, "fp32-adam", zero_stage=3, data_parallel=RANKS)
    held = [float(each) * n for each in re.findall(r"[\d.]+", line)]
    assert held == [state.weights, state.gradients, state.moments]
    moved = Counter()
    for kind, _, whole in counted:
        moved[kind] += whole
    steps, passes = 2, 2  # a layer is gathered for forward, and again for backward
    assert moved == {"all_gather": steps * passes * 2 * n, "reduce_scatter": steps * 4 * n}


def test_branches_that_torch_cuts_train_what_one_device_trains_and_sum_twice_each(tmp_path):
    [line], counted = run(tmp_path, "tensor_parallel", "cut.py")
    page = program("tensor_parallel", "cut.py")
    assert f"It prints `{line}`" in (ROOT / "chapters" / "tensor_parallel.md").read_text("utf-8")
    space = {"nn": torch.nn}
    exec(re.search(r"^class Branch.*?^$(?=\n^torch)", page, re.S | re.M)[0], space)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[space["Branch"](64) for _ in range(4)])
    loss = trained_alone(model)
    assert float(line.split(",")[0]) == pytest.approx(loss, abs=6e-5)
    message = all_reduce_bytes(16, 64, itemsize=4)
    steps, branches = 3, 4
    reduced = [call for call in counted if call[0] == "all_reduce"]
    assert reduced == [("all_reduce", message, message)] * (2 * branches * steps)
