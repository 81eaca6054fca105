"""The exercises on the roofline: their figures are those of the package, and what holds for all."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dlsys.hardware import Device, Link
from dlsys.model import GPT
from dlsys.roofline import (
    Event,
    Operation,
    Processor,
    Tile,
    Trace,
    as_one,
    choose_tile,
    count_operations,
    decode_batch,
    diagnose,
    hfu,
    layer_norm,
    layer_operations,
    mfu,
    padding_share,
    price,
    tiled,
)
from dlsys.transformer import TransformerSpec
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved
from tests.exercises.wrong_answers import Wrong
from tests.exercises.wrong_answers.roofline import REPAIRS


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


def counted_intensity(program: Callable[[], object]) -> float:
    """FLOPs a byte of the only operation that a program runs."""
    (operation,) = count_operations(program).operations
    return operation.intensity


@pytest.mark.parametrize("size", DTYPES)
@pytest.mark.parametrize("shape", [(3, 8, 100), (64, 32, 16), (1, 40, 70)], ids=str)
def test_a_linear_layer_has_the_intensity_that_torch_runs(
    shape: tuple[int, int, int], size: int
) -> None:
    n, i, o = shape
    x, w, b = (torch.ones(each, dtype=DTYPES[size]) for each in ((n, i), (o, i), (o,)))
    own = solved("roofline")["intensity"]("linear", shape, size)
    assert own == pytest.approx(counted_intensity(lambda: F.linear(x, w, b)))


@pytest.mark.parametrize("size", DTYPES)
@pytest.mark.parametrize("shape", [(2, 6, 3, 4, 10, 8), (3, 4, 4, 7, 7, 16), (5, 8, 1, 1, 20, 4)])
def test_scores_have_the_intensity_that_torch_runs(shape: tuple[int, ...], size: int) -> None:
    b, heads, kv_heads, n, met, d = shape
    shared = b * kv_heads, heads // kv_heads * n, d
    queries, keys = (torch.ones(each, dtype=DTYPES[size]) for each in (shared, (shared[0], d, met)))
    own = solved("roofline")["intensity"]("scores", shape, size)
    assert own == pytest.approx(counted_intensity(lambda: queries @ keys))


@pytest.mark.parametrize("shape", [(24, 512), (3, 40), (100, 8)], ids=str)
def test_a_norm_has_the_intensity_that_torch_runs(shape: tuple[int, int]) -> None:
    x, w, b = torch.ones(shape), torch.ones(shape[1]), torch.ones(shape[1])
    own = solved("roofline")["intensity"]
    counted = counted_intensity(lambda: F.layer_norm(x, w.shape, w, b))
    assert own("norm", shape, 4) == pytest.approx(counted)
    # A processor keeps the mean of BF16 in BF16; the package's plan does not, as devices do not.
    assert own("norm", shape, 2) == pytest.approx(layer_norm(*shape).intensity)


def test_the_measured_roof_of_the_exercises_is_what_copies_and_products_move() -> None:
    answers = solved("roofline")
    x, square = torch.ones(250), torch.ones(1024, 1024)
    copy = as_one(lambda x: x.clone(), x)
    assert answers["bandwidth"] * 1e9 == pytest.approx(300_000 * copy.nbytes / 25e-3)
    (product_,) = count_operations(lambda: square @ square).operations
    peak = product_.flops / 17.9e-3
    assert answers["corner"] == pytest.approx(peak / (answers["bandwidth"] * 1e9))
    assert answers["small_copy"] == pytest.approx(4e-6 * answers["bandwidth"] * 1e9 / copy.nbytes)
    (gelu,) = count_operations(lambda: F.gelu(x)).operations
    assert gelu.flops == 5 * 250
    reached = 200_000 * gelu.flops / 41e-3
    assert answers["share"] == pytest.approx(
        reached / (gelu.intensity * answers["bandwidth"] * 1e9)
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_exercises_place_a_step_as_the_package_does(seed: int) -> None:
    answers = solved("roofline")
    machine = {"product": 2000.0, "other": 250.0, "memory": 20.0, "network": 1.5}
    operations = [one for one in answers["drawn_step"](seed, 11) if one[1]]
    device = Device("toy", {"bf16": 2000.0, "fp32": 250.0}, 1.0, 20.0)
    link = Link("toy", latency=0.0, bandwidth=1.5)
    plan = [Operation("o", f, b, 0, s, is_product) for f, b, s, is_product in operations]
    priced, own = price(plan, device, link=link), answers["placed"](operations, machine)
    for ours, theirs in (
        ("compute", "compute"),
        ("memory", "bandwidth"),
        ("network", "network"),
    ):
        assert own[ours] == pytest.approx(priced.share(theirs) * priced.seconds)
    assert own["rate"] == pytest.approx(priced.flops / priced.seconds)


def test_no_operation_of_the_exercises_has_two_roofs_that_take_equally_long() -> None:
    answers = solved("roofline")
    for question, check, draws in contract.hidden_draws("roofline"):
        for one in draws if question == "roofs-test" else ():
            assert "drawn_step" in check.expression
            for flops, nbytes, sent, is_product in eval(
                one.expression.split("placed, ")[1].split(", {")[0], answers
            ):
                rate = 2000 if is_product else 250
                *_, second, first = sorted([flops / rate, nbytes / 20, sent / 1.5])
                assert second < 0.999 * first, one.expression


LLAMA = TransformerSpec(
    40, 5120, 40, 1000, sequence=3000, ffn_hidden=17_408, kv_heads=8, gated=True
)
DEVICE = Device("decoder", {"bf16": 800e12}, 96e9, 4e12)


def decode_seconds(batch: int) -> float:
    """A step of the question: weights as one product, and attention as the package counts it."""
    rate, bandwidth = DEVICE.rate("bf16"), DEVICE.memory_bandwidth
    products = max(2 * 14e9 * batch / rate, 14e9 / bandwidth)
    layer = layer_operations(LLAMA, batch, tokens=1, context=3000)
    scores, summed = (o for o in layer if o.name in ("scores", "weighted sum"))
    # Of attention's bytes the question counts keys and values alone.
    cache = batch * 2 * LLAMA.kv_heads * LLAMA.head_size * 3000 * 2
    assert cache == pytest.approx(scores.nbytes + summed.nbytes, rel=0.05)
    attention = max((scores.flops + summed.flops) / rate, cache / bandwidth)
    return products + 40 * attention


def test_the_figures_of_decoding_are_those_of_the_package() -> None:
    answers = solved("roofline")
    assert answers["tokens_64"] == pytest.approx(64 / decode_seconds(64))
    assert answers["tokens_most"] == pytest.approx(1e7 / decode_seconds(10_000_000))
    weights, cache = 14e9, answers["cache_bytes"]
    assert (answers["cache_from"] - 1) * cache <= weights < answers["cache_from"] * cache
    taken = weights + 6e9
    assert answers["fit"] * cache + taken <= DEVICE.memory < (answers["fit"] + 1) * cache + taken
    at = answers["compute_from"]
    assert at == pytest.approx(decode_batch(DEVICE, itemsize=1))


def test_the_caches_bytes_are_those_that_torch_reads() -> None:
    keys = torch.zeros(8, 128, 3000, dtype=torch.bfloat16, device="meta")
    assert solved("roofline")["cache_bytes"] == 40 * 2 * keys.nbytes


def counted_flops(hidden: int, layers: int, vocab: int, tokens: int) -> int:
    """FLOPs in the products of a sequence's step, as torch runs it; nothing is computed."""
    spec = TransformerSpec(layers, hidden, hidden // 64, vocab, sequence=tokens)
    model = GPT(spec, device="meta")
    batch = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    return count_operations(lambda: model(batch, batch).backward()).product_flops


def test_the_utilization_of_the_exercises_counts_what_a_model_runs() -> None:
    answers = solved("roofline")
    run = {"layers": 2, "hidden": 128, "vocab": 300, "row": 64, "lengths": [64, 40, 12]}
    run |= {"recompute": False, "seconds": 2.0, "devices": 3, "peak": 1e9}
    each = {n: counted_flops(128, 2, 300, n) for n in run["lengths"]}
    found = answers["utilization"](run)
    assert found[0] == pytest.approx(mfu(sum(each.values()), 2.0, 1e9, 3))
    assert found[1] == pytest.approx(mfu(3 * each[64], 2.0, 1e9, 3))
    recomputed = counted_flops(128, 2, 300, 64) / 3 - 2 * 64 * 128 * 300
    again = answers["utilization"](run | {"recompute": True})
    assert again[0] == found[0]
    assert again[1] == pytest.approx(hfu(3 * each[64], 3 * recomputed, 2.0, 1e9, 3))


def test_a_function_that_empties_its_run_leaves_the_next_call_its_lengths() -> None:
    answers = solved("roofline")

    def emptied(run: dict[str, Any]) -> list[float]:
        number = len([run["lengths"].pop() for _ in list(run["lengths"])])
        return [float(number), 0.0]

    said = [answers["of_run"](emptied, answers["RUNS"]["both"]) for _ in range(2)]
    assert said == [[256.0, 0.0]] * 2


def test_what_is_reported_is_impossible_for_one_run_and_hides_the_padding_of_another() -> None:
    answers = solved("roofline")
    said = {name: answers["reported"](run)[0] for name, run in answers["RUNS"].items()}
    right = {name: answers["utilization"](run) for name, run in answers["RUNS"].items()}
    assert said["small model"] > 1 > right["small model"][0]
    assert said["half empty"] == said["full rows"]
    assert right["half empty"][0] < 0.5 * right["full rows"][0]
    assert said["recomputed"] > said["full rows"]
    assert right["recomputed"][0] < right["full rows"][0]


@pytest.mark.parametrize("m", [100, 900, 2048])
@pytest.mark.parametrize("sms", [20, 108, 132])
def test_the_fastest_width_is_that_of_the_packages_waves(m: int, sms: int) -> None:
    answers, toy = solved("roofline"), Processor("toy", sms, 3e14, 2e12)
    sizes = [Tile(256, 64), Tile(256, 128), Tile(192, 32)]
    waves = {tile: tiled(tile.m, 512, tile.n, tile, toy).seconds for tile in sizes}
    tiles = [(*tile, seconds * 1e9) for tile, seconds in waves.items()]
    n, high, wide = answers["fastest"](m, 1004, 1400, tiles, sms)
    useful = {width: m * width / choose_tile(m, 512, width, toy, sizes).seconds
              for width in range(1004, 1401, 8)}  # fmt: skip
    assert n == next(each for each in useful if useful[each] > max(useful.values()) * (1 - 1e-12))
    chosen = tiled(m, 512, n, Tile(high, wide), toy)
    assert m * n / chosen.seconds == pytest.approx(useful[n])


def test_no_two_widths_of_the_exercises_are_nearly_as_fast() -> None:
    """Whoever multiplies in another order should not be told that another width is better."""
    answers = solved("roofline")
    for question, _, draws in contract.hidden_draws("roofline"):
        for one in draws if question == "waves-test" else ():
            arguments = one.expression.removeprefix("width(fastest, ").removesuffix(")")
            m, least, most, sms, *tiles = eval(f"[{arguments}]")
            useful = sorted(
                m * n / (-(-(-(-m // high) * -(-n // wide)) // sms) * time)
                for n in range(least, most + 1, 8)
                for high, wide, time in (tiles[0] if tiles else answers["TILES"])
            )
            assert useful[-2] < useful[-1] * (1 - 1e-9) or useful[-2] == useful[-1]


@pytest.mark.parametrize("seed", range(6))
def test_fused_bytes_are_those_that_the_package_counts(seed: int) -> None:
    """Lines of one size, all of the kind "each": the package's own count of one fused kernel."""
    answers, random = solved("roofline"), Random(seed)
    lines, names = [], ["x", "y"]
    for k in range(5):
        lines.append((f"t{k}", random.choices(names[-3:], k=2), "each"))
        names.append(f"t{k}")
    kept = ["t4", random.choice(["t1", "t2"])]
    used = {name for _, read, _ in lines for name in read}
    inputs = [name for name in ("x", "y") if name in used]

    def program(*tensors: Tensor) -> tuple[Tensor, ...]:
        held = dict(zip(inputs, tensors, strict=True))
        for made, read, _ in lines:
            held[made] = held[read[0]] + held[read[1]]
        return tuple(held[name] for name in kept)

    tensors = [torch.ones(100) * (i + 1) for i in range(len(inputs))]
    apart, fused = answers["through_memory"](lines, dict.fromkeys(names, 400), kept)
    assert apart == count_operations(lambda: program(*tensors)).total.nbytes
    assert fused == as_one(program, *tensors).nbytes


@pytest.mark.parametrize(("seed", "number"), [*product(range(5), (6, 14))])
def test_a_program_that_is_fused_in_parts_moves_what_its_kernels_move(
    seed: int, number: int
) -> None:
    """Each kernel run by itself, its inputs handed in: the same bytes in all."""
    answers = solved("roofline")
    lines, _, results = answers["drawn_program"](seed, number)
    names = ["x", "y", *(made for made, *_ in lines)]
    held = {name: torch.ones(50) for name in names}
    kernels: list[list[Any]] = []
    for before, line in pairwise([("", [], "alone"), *lines]):
        if before[2] == line[2] == "each":
            kernels[-1].append(line)
        else:
            kernels.append([line])
    total = 0
    for place, kernel in enumerate(kernels):
        made = [line[0] for line in kernel]
        used = {name for line in kernel for name in line[1]}
        needed = {n for later in kernels[place + 1 :] for line in later for n in line[1]}
        out = [name for name in made if name in needed | set(results)]
        read = sorted(used - set(made))
        total += sum(held[name].nbytes for name in [*read, *out])
    sizes = dict.fromkeys(names, 200)
    assert answers["through_memory"](lines, sizes, results)[1] == total


SILENT = Device("silent", {"bf16": 1.0}, 1.0, 1.0)
CATEGORY = {"kernel": "kernel", "message": "communication", "wait": "input", "launch": "host"}


@pytest.mark.parametrize(("seed", "number"), [*product(range(4), (5, 30))])
def test_the_parts_of_a_trace_are_those_that_the_package_finds(seed: int, number: int) -> None:
    answers = solved("roofline")
    events = answers["drawn_events"](seed, number)
    trace = Trace(tuple(Event(kind, CATEGORY[kind], *times) for kind, *times in events))
    found, own = diagnose(trace, SILENT), answers["parts"](events)
    shares = [found.busy, *(found.shares[x] for x in ("network", "input", "launch", "idle"))]
    assert list(own.values()) == pytest.approx([trace.seconds * each for each in shares])


def test_the_words_for_the_six_steps_are_what_their_traces_and_counters_say() -> None:
    answers = solved("roofline")
    limits, found = answers["limits"], {}
    for name, events in answers["STEPS"].items():
        own = answers["parts"](events)
        found[name] = max(own, key=lambda kind: own[kind])
        assert own["kernel"] + own["message"] + own["wait"] + own["launch"] + own["idle"] == max(
            end for *_, end in events
        )
    assert sorted(limits.values()) == sorted(answers["LIMITS"])
    assert found == dict.fromkeys("ABCF", "kernel") | {"D": "launch", "E": "wait"}
    a = answers["parts"](answers["STEPS"]["A"])
    waits = sum(end - start for kind, start, end in answers["STEPS"]["A"] if kind == "wait")
    assert a["wait"] == 0 < a["message"] < waits, "the symptom is longer than the cause"
    assert a["kernel"] > waits, "batches are there in time, once the messages are hidden"


def without_messages(events: list[Any]) -> int:
    """Microseconds of a trace, its messages cut where the last kernel ends."""
    last = max(end for kind, _, end in events if kind == "kernel")
    return last - min(start for _, start, _ in events)


def test_the_gains_of_two_steps_are_those_of_traces_that_were_mended() -> None:
    answers = solved("roofline")
    steps = answers["STEPS"]
    assert answers["faster_a"] == pytest.approx(40_000 / without_messages(steps["A"]))
    later = [(kind, start - 30_000, end - 30_000) for kind, start, end in steps["E"] if start]
    assert answers["faster_e"] == pytest.approx(57_006 / sum(answers["parts"](later).values()))


def test_the_best_design_is_found_by_trying_every_one_and_alone() -> None:
    answers = solved("roofline")
    milliseconds, gigabytes, days = (
        answers[name] for name in ("milliseconds", "gigabytes", "days")
    )
    every = [
        dict(zip(answers["CHOICES"], one, strict=True))
        for one in product(*answers["CHOICES"].values())
    ]
    assert len(every) == 3 * 2**5
    fits = sorted(
        (one for one in every if days(one) <= 4 and gigabytes(one) <= 3), key=milliseconds
    )
    assert fits[0] == answers["design"]
    assert milliseconds(fits[0]) < 0.95 * milliseconds(fits[1])
    single = [one for one in fits if sum(one[name] for name in answers["DAYS"]) == 1]
    assert single[0]["fuse"], "the best single repair is none of the best design's"
    assert not fits[0]["fuse"]
    looser = {
        "days": min(milliseconds(o) for o in every if days(o) <= 5 and gigabytes(o) <= 3),
        "memory": min(milliseconds(o) for o in every if days(o) <= 4 and gigabytes(o) <= 4.5),
    }
    assert min(looser, key=lambda name: looser[name]) == answers["worth_more"]
    assert looser["memory"] < 0.9 * looser["days"]
    assert answers["falls"] == pytest.approx(1 - looser["memory"] / milliseconds(fits[0]))
    both = min(milliseconds(o) for o in every if days(o) <= 5 and gigabytes(o) <= 4.5)
    assert both == looser["memory"], "then loosening both would be a wrong answer without a hint"


def test_fusing_a_layer_saves_bytes_and_no_flops() -> None:
    answers = solved("roofline")
    one = answers["design"] | {"batch": 8}
    apart, fused = (answers["layer_of"](one | {"fuse": each}) for each in (False, True))
    assert sum(o.flops for o in apart) == sum(o.flops for o in fused)
    # The scores are written, read, written and read again; the rest is elementwise.
    scores, acted = 8 * 16 * 256**2 * 2, 8 * 256 * 4096 * 2
    once = 8 * 256 * 1024 * 2
    assert sum(o.nbytes for o in apart) - sum(o.nbytes for o in fused) == (
        4 * scores + 2 * acted + 2 * 2 * once
    )


def test_every_worse_design_is_told_so_before_words_on_the_best_are_looked_at() -> None:
    answers = solved("roofline")
    for one in answers["every"]:
        fits = answers["days"](one) <= 4 and answers["gigabytes"](one) <= 3
        if fits and one != answers["design"]:
            done = [name for name in answers["DAYS"] if one[name]]
            own = max(shares := answers["shares"](one), key=shares.get)
            words = "network", own, "memory", 0.19
            wrong = Wrong("", REPAIRS.format(one["batch"], done, *words), "")
            message = contract._said_of("roofline", "repairs", wrong.cell)
            assert message.startswith("WrongAnswer: milliseconds(design) is not right"), message


def test_the_words_for_the_design_are_the_largest_shares() -> None:
    answers = solved("roofline")
    shares = partial(answers["shares"])
    found = {"at_first": answers["every"][0] | {"batch": 16}, "in_design": answers["design"]}
    for name, one in found.items():
        first, second = sorted(shares(one).values(), reverse=True)[:2]
        assert shares(one)[answers[name]] == first > second + 0.01


def test_the_figures_of_the_model_answer_on_utilization_are_right() -> None:
    text = model_answer("roofline")
    padded = padding_share([75, 75], 100)
    reported, tokens = 0.24, 1 - padded
    without = mfu(6.0, 1.0, 8.0 / reported)
    assert "with 6 it is 18 %, and of tokens that somebody wanted 13.5 %" in text
    assert (round(100 * without, 1), round(100 * without * tokens, 1)) == (18.0, 13.5)
    shares = {"bandwidth": 0.58, "compute": 0.30, "messages": 0.08, "gaps": 0.04}
    assert sum(shares.values()) == pytest.approx(1)
    new = sum(shares.values()) - shares["compute"] / 2
    assert "takes 85 % of the time, so it is 1.18 times as fast, and the MFU falls to 7.9 %" in text
    assert round(100 * new) == 85
    assert round(1 / new, 2) == 1.18
    assert abs(100 * without * tokens / new / 2 - 7.9) < 0.05
    recomputed = (shares["bandwidth"] + shares["compute"]) / 4
    assert "that is 22 % of the step, so without it the step is 1.28 times as fast" in text
    assert round(100 * recomputed) == 22
    assert round(1 / (1 - recomputed), 2) == 1.28
    assert "1.33 times the wanted tokens" in text
    assert round(1 / tokens, 2) == 1.33
    fused = shares["bandwidth"] * 4 / 7
    assert "would make 33 of the 58 %, and the step 1.33 times as fast" in text
    assert round(100 * fused) == 33
    assert round(1 / (1 - shares["bandwidth"] + fused), 2) == 1.33
