"""The numbers of the quiz on roofs, computed."""

import pytest

from dlsys.hardware import DEVICES, LINKS, Device
from dlsys.roofline import (
    Event,
    Step,
    Trace,
    axis_ridge,
    decode_batch,
    diagnose,
    elementwise,
    hfu,
    layer_operations,
    matmul,
    mfu,
    price,
    wave_utilization,
)
from dlsys.transformer import CATALOGUE
from tests.book.quizzes import contract

H100, H200 = DEVICES["h100-sxm"], DEVICES["h200"]
PRODUCT = matmul(1024, 256, 4096)
TILES = (2048 // 128) * (1408 // 128)
TOKEN = 6 * 70e9 * 1.9e6
CLUSTER = {"seconds": 1.0, "peak_flops": H100.rate("bf16"), "devices": 2048}
RATE = 0.5 * H100.rate("bf16")
CARD = LINKS["infiniband-ndr"].bandwidth


def percent(model_flops: float) -> float:
    """MFU of so many FLOPs a second."""
    return 100 * mfu(model_flops, **CLUSTER)


def tokens(rate: float = RATE, bandwidth: float = CARD) -> float:
    """Of stage 3, on sixteen devices."""
    return axis_ridge("zero", rate, bandwidth, 16)


NUMBERS = {
    "roofline-product": PRODUCT.intensity,
    "roofline-decode": decode_batch(H200, itemsize=1),
    "roofline-waves": 100 * wave_utilization(TILES, 132),
    "roofline-mfu": percent(TOKEN),
    "roofline-tokens": tokens(),
}

MISCONCEPTIONS = {
    "roofline-product": {
        "How many bytes has one": 2 * PRODUCT.intensity,
        "are two FLOPs": PRODUCT.intensity / 2,
        "shortest side alone": 256,
        "The result has to be written": PRODUCT.flops / PRODUCT.read,
        "One of the operands": PRODUCT.flops / (PRODUCT.nbytes - 2 * 256 * 4096),
    },
    "roofline-decode": {
        "weights of two bytes": decode_batch(H200),
        "not more": decode_batch(H200, itemsize=4),
        "could be done while": 1,
        "Half of it": decode_batch(H200, itemsize=1) / 2,
    },
    "roofline-waves": {
        "How many waves": 100 * TILES / 132,
        "Turned over": 100 * 132 / TILES,
        "of the second wave": 100 * (TILES - 132) / 132,
        "No tile is cut": 100,
    },
    "roofline-mfu": {
        "That is HFU": 100 * hfu(TOKEN, TOKEN / 3, **CLUSTER),
        "forward alone": percent(TOKEN / 3),
        "has to be taken off": percent(TOKEN * 3 / 4),
        "backward alone": percent(TOKEN * 2 / 3),
    },
    "roofline-tokens": {
        "at the peak": tokens(2 * RATE),
        "a sixteenth of the weights": tokens() * 16 / 15,
        "in one direction": tokens(bandwidth=2 * CARD),
        "they cancel": 2 * tokens() * 16 / 15,
    },
}


class TestQuiz(contract.Quiz): ...


def test_more_sequences_do_not_move_attention_and_shared_keys_do() -> None:
    spec = CATALOGUE["llama2-7b"]
    few, many = (layer_operations(spec, batch, 1, 2048)[2] for batch in (1, 64))
    assert few.intensity == many.intensity
    shared = layer_operations(CATALOGUE["llama2-70b"], 1, 1, 2048)[2]
    assert shared.intensity > 7 * few.intensity


def test_twice_the_peak_takes_a_fifth_from_a_step_of_60_and_40() -> None:
    compute = matmul(8192, 8192, 8192)
    seconds = price([compute], H100).seconds
    moved = elementwise(round(seconds * 1.5 * H100.memory_bandwidth / 6), 0, 2)
    twice = Device("twice", {"bf16": 2 * H100.rate("bf16")}, 80e9, H100.memory_bandwidth)
    before, after = (price([compute, moved], device) for device in (H100, twice))
    assert before.share("bandwidth") == pytest.approx(0.6)
    assert after.seconds / before.seconds == pytest.approx(0.8)
    both = [mfu(p.flops, p.seconds, d.rate("bf16")) for p, d in ((before, H100), (after, twice))]
    assert both[1] < both[0]


def test_waits_for_input_and_launches_lower_what_a_counter_of_kernels_says() -> None:
    adding = (elementwise(10**8, 1, 2),) * 10
    assert diagnose(Step(adding).profile(H100), H100).busy > 0.99
    assert diagnose(Step(adding, input_seconds=0.01).profile(H100), H100).busy < 0.5
    assert diagnose(Step((elementwise(10),) * 10).profile(H100), H100).busy < 0.1
    late = Trace((Event("all-reduce that waits", "kernel", 0.0, 1.0),))
    assert diagnose(late, H100).busy == 1
