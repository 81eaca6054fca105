"""Laws of tensor parallelism: communication for each second of compute, and when it is hidden."""

from __future__ import annotations

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive
from dlsys.hardware import Link


@checked
def communication_over_compute(hidden: int, tp: int, rate: float, link: Link) -> float:
    """Seconds in a layer's four all-reduces for each second of its products: 2/9 (t-1) R beta / h.

    - hidden: h; tp: t ranks; rate: R, FLOP/s of one device's products; link: that of the slowest
      hop of the ring, beta seconds a byte. Activations have two bytes.

    Rings send 4 x 2(t-1)/t x 2bsh bytes, and 12h^2 weights take 6 x 12h^2 bs/t FLOPs: b, s and the
    number of layers cancel. Latencies, attention's scores and the model's ends are left out, and a
    feed-forward network of another width than 4h; `Layout.price` has them.
    """
    positive("rate", rate)
    return 2 / 9 * (count("tp", tp) - 1) * rate / link.bandwidth / count("hidden", hidden)


@checked
def seconds_in_pieces(compute_seconds: float, nbytes: float, tp: int, link: Link) -> float:
    """Seconds of a product and its all-gather or reduce-scatter where both go in t pieces.

    C/t + (t-1) max(C/t, alpha + S beta/t): a piece is computed while another one travels.

    - compute_seconds: C, of a rank's whole product; nbytes: S, the collective's full buffer;
      tp: t ranks in a ring of `link`.

    One after the other they take C + (t-1)(alpha + S beta/t). Of a product of bs tokens with a
    matrix of which the rank has f/t columns (or rows), a piece takes as long as its message where
    f/t = R beta, for two bytes an activation: above that all hides but latency, whatever b, s and
    h are. Wang et al. 2023 (doi 10.1145/3567955.3567959), section 3.
    """
    at_least("compute_seconds", compute_seconds, 0)
    at_least("nbytes", nbytes, 0)
    t = count("tp", tp)
    piece, message = compute_seconds / t, link.seconds(nbytes / t)
    return piece + (t - 1) * max(piece, message)
