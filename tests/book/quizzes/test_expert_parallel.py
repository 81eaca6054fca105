"""The numbers of the quiz on expert parallelism, computed."""

import math

import torch

from dlsys.expert_parallel import copies_leaving, volume_ratio, width_to_hide
from dlsys.expert_parallel.routing import capacity, choose, softmax_after, softmax_before
from tests.book.quizzes import contract

SCORES = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64).log()
BEST = choose(SCORES, 2)
WEIGHTS = softmax_after(SCORES, BEST)[0].tolist()


def width(faster: float, wider: float, itemsize: int) -> float:
    """Neurons to hide, where they are 3,000 in two bytes."""
    rate = 3000 / width_to_hide(1.0, 1.0, 8)
    return round(width_to_hide(faster * rate, wider, 8, itemsize=itemsize), 6)


NUMBERS = {
    "expert_parallel-weight": WEIGHTS[0],
    "expert_parallel-capacity": capacity(1.25, 8192, 2, 16),
    "expert_parallel-volume": volume_ratio(4, 16, 4),
    "expert_parallel-hide": width(2, 4, 1),
}

MISCONCEPTIONS = {
    "expert_parallel-weight": {
        "before the choice": round(softmax_before(SCORES, BEST)[0, 0].item(), 9),
        "second best": WEIGHTS[1],
        "softmax of probabilities": math.exp(0.5) / (math.exp(0.5) + math.exp(0.3)),
        "one expert a token": softmax_after(SCORES, choose(SCORES, 1)).item(),
    },
    "expert_parallel-capacity": {
        "That is the mean": capacity(1, 8192, 2, 16),
        "two copies": capacity(1.25, 8192, 1, 16),
        "share the copies": 1.25 * 8192,
        "not below it": int(1024 / 1.25),
    },
    "expert_parallel-volume": {
        "rule of thumb": 4 / 2,
        "in rows": copies_leaving(4, 16),
        "twice three quarters": copies_leaving(4, 16) / (3 / 4),
        "stays on its rank": 4 / (2 * 3 / 4),
    },
    "expert_parallel-hide": {
        "counted twice": 2 * width(2, 4, 1),
        "shorter rows help": width(2, 1, 2),
        "beside the products": width(2, 4, 1) / 2,
        "do not cancel": width(1, 1, 2),
    },
}


class TestQuiz(contract.Quiz): ...
