"""The numbers of the quiz on tensor parallel, computed."""

from dlsys.collectives import ring_all_reduce
from dlsys.hardware import LINKS
from dlsys.tensor_parallel import activation_bytes, layout, step_bytes
from dlsys.transformer import CATALOGUE
from tests.book.quizzes import contract

CUT = layout(CATALOGUE["gpt3-175b"], 8)
LAYER = CUT.layer.forward + CUT.layer.backward
BRANCH = ring_all_reduce(8).price(LAYER[0].nbytes(1), LINKS["nvlink4"]).bytes_per_rank / 1e6
KEPT = activation_bytes(CUT.spec, 1, 8)

NUMBERS = {
    "tp-message": BRANCH,
    "tp-count": CUT.spec.layers * len(LAYER),
    "tp-layer-memory": KEPT.total / 1e9,
}

MISCONCEPTIONS = {
    "tp-message": {
        "the size of a weight matrix": BRANCH * CUT.spec.hidden / CUT.spec.sequence,
        "That is the buffer": LAYER[0].nbytes(1) / 1e6,
        "one phase": BRANCH / 2,
        "the whole layer": BRANCH * len(LAYER),
    },
    "tp-count": {
        "the forward pass alone": CUT.spec.layers * len(CUT.layer.forward),
        "full recomputation": CUT.spec.layers * len(LAYER + CUT.layer.forward),
    },
    "tp-layer-memory": {
        "as with sequence parallelism": activation_bytes(CUT.spec, 1, 8, True).total / 1e9,
        "scores are missing": (KEPT.between + KEPT.inside) / 1e9,
        "scores are divided and nothing else": (
            activation_bytes(CUT.spec, 1)._replace(scores=KEPT.scores).total / 1e9
        ),
        "what they keep with them": activation_bytes(CUT.spec, 1).total / 1e9,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_feedback_on_nodes_gives_the_bytes_of_both_kinds_of_parallelism() -> None:
    gradients = 2 * 12 * 96 * 8192**2 / 8
    assert f"{step_bytes(96, 8, 2048, 8192) / 1e9:.1f}" == "22.5"
    assert f"{2 * gradients / 1e9:.1f}" == "38.7"
