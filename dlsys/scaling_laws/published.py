"""Laws as others have published them: constants, what they count, and where they stand.

None of them is this book's: they were fitted on other text, tokenizers and architectures, so their
losses compare with no other one's. Their optima do, as far as they count alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.plain_data import plain_data
from dlsys.scaling_laws.plan import ChinchillaLaw, Frontier, KaplanLaw
from dlsys.units import Catalogue

PETAFLOP_DAY = 1e15 * 86_400
ALL, BODY = "all parameters", "parameters without embeddings"


@checked
@plain_data
@dataclass(frozen=True)
class Published:
    """A law with its source, and which parameters its N counts."""

    name: str
    law: ChinchillaLaw | KaplanLaw | Frontier
    counts: str
    source: str


PUBLISHED = Catalogue(
    "published law",
    {
        "hoffmann-2022": Published(
            "Hoffmann 2022",
            ChinchillaLaw(1.6934, 406.4, 410.7, 0.3392, 0.2849),
            ALL,
            "the numbers of the TeX source of arXiv 2203.15556, as read by Besiroglu et al. 2024",
        ),
        "hoffmann-2022-rounded": Published(
            "Hoffmann 2022, rounded",
            ChinchillaLaw(1.69, 406.4, 410.7, 0.34, 0.28),
            ALL,
            "arXiv 2203.15556, equation 10, as printed",
        ),
        "besiroglu-2024": Published(
            "Besiroglu 2024",
            ChinchillaLaw(1.8172, 482.01, 2085.43, 0.3478, 0.3658),
            ALL,
            "arXiv 2404.10102, from 240 points of Hoffmann et al.'s figure 4",
        ),
        "muennighoff-2023": Published(
            "Muennighoff 2023",
            ChinchillaLaw(1.87, 521.0, 1488.0, 0.353, 0.353),
            ALL,
            "arXiv 2305.16264, appendix A; alpha and beta tied",
        ),
        "kaplan-2020": Published(
            "Kaplan 2020, L(N, D)",
            KaplanLaw(6.4e13, 1.8e13, 0.076, 0.103),
            BODY,
            "arXiv 2001.08361, table 2; the parts alone: 8.8e13 and 0.076, 5.4e13 and 0.095",
        ),
        "kaplan-2020-frontier": Published(
            "Kaplan 2020, frontier",
            Frontier(1.3e9 / PETAFLOP_DAY**0.73, 0.73),
            BODY,
            "arXiv 2001.08361, table 6: 1.3e9 parameters at one petaFLOP-day, growing as C^0.73",
        ),
        "deepseek-2024": Published(
            "DeepSeek 2024",
            Frontier(0.1715 / 6, 0.5243),
            "FLOPs a token without embeddings, a sixth of them",
            "arXiv 2401.02954, equation 4: 0.1715 C^0.5243 FLOPs a token",
        ),
        "llama3-2024": Published(
            "Llama 3, figure",
            Frontier(1 / (6 * 0.299), 1 - 0.537),
            ALL,
            "arXiv 2407.21783, figure 3: 0.299 C^0.537 tokens",
        ),
        "llama3-2024-rounded": Published(
            "Llama 3, text",
            Frontier(1 / (6 * 0.29), 1 - 0.53),
            ALL,
            "arXiv 2407.21783, section 3.2.1: 0.29 C^0.53 tokens",
        ),
    },
)


class TableRow(NamedTuple):
    """A row of Hoffmann et al.'s table of optimal runs: parameters, FLOPs, tokens as printed."""

    N: float
    flops: float
    D: float


CHINCHILLA_TABLE = (
    TableRow(1e9, 1.21e20, 20.2e9),
    TableRow(10e9, 1.23e22, 205.1e9),
    TableRow(67e9, 5.76e23, 1.5e12),
    TableRow(175e9, 3.85e24, 3.7e12),
)
"""Approach 1: Hoffmann et al. 2022, table 3, in part."""
