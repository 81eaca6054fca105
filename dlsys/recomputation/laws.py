"""The laws of recomputation: what is dropped and paid for, and when something else is less.

Each stands beside the exact price, and `Law.error` says how far it is off.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive
from dlsys.hardware import Link
from dlsys.recomputation.chain import chain_of, uniform
from dlsys.recomputation.plan import Layer, every_layer, keep_all, selective, square_root
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import activations


class Law(NamedTuple):
    """What a rule of thumb says, and what the exact price is."""

    law: float
    exact: float

    @property
    def error(self) -> float:
        """How much more the law says, as a part of the exact price."""
        return self.law / self.exact - 1 if self.exact else self.law


@checked
def core_bytes_share(spec: TransformerSpec) -> Law:
    """The part of a layer's bytes that the core has: 5as / (34h + 5as), with GPT-2's dropout.

    80 of 114 at GPT-3's width and 2,048 tokens. It grows with the sequence and falls with a head's
    size h/a, and with neither depth nor batch. Grouped queries and gated FFNs change the 34.
    Source: Korthikanti et al. 2022 (arXiv 2205.05198), section 5.
    """
    scores = 5 * spec.heads * spec.sequence
    kept = activations(spec, 1)
    bare = activations(spec, 1, recompute="selective")
    return Law(scores / (34 * spec.hidden + scores), 1 - bare.per_layer / kept.per_layer)


@checked
def core_flops_share(spec: TransformerSpec) -> Law:
    """What running all cores again adds to a step: s / (6h + s) of a forward, so a third of that.

    24bsh^2 + 4bs^2h FLOPs has a layer's forward, 4bs^2h of them the core. The head, which the law
    leaves out, is in the exact price. Early stop halves it: backward needs no weighted sum again.
    Source: Korthikanti et al. 2022 (arXiv 2205.05198), section 5.
    """
    n = spec.layers
    plan = keep_all(1) + selective(n) + keep_all(1)
    law = spec.sequence / (6 * spec.hidden + spec.sequence) / 3
    return Law(law, plan.price(chain_of(spec, 1), early_stop=False).share_of_step)


def square_root_peak(layers: int) -> Law:
    """Bytes at the peak of `square_root` where every layer keeps its input, A: 2 sqrt(L) A.

    The exact one is lower by about A, for the input of the segment that is rebuilt is no second
    tensor. What is paid is at most a forward pass, (L - sqrt(L)) / 3L of a step.
    Source: Chen et al. 2016 (arXiv 1604.06174), section 4.1.
    """
    n = count("layers", layers)
    return Law(2 * math.sqrt(n), square_root(n).price(uniform(n)).peak_bytes)


def least_peak(layers: int) -> int:
    """The lowest peak of such a chain, in A: the least P with P (P + 1) / 2 >= L, about sqrt(2L).

    Backward has freed the inputs of later segments when it rebuilds an earlier one, so segments of
    P, P - 1, ..., 1 layers all reach the same peak: 1.41 sqrt(L), not 2 sqrt(L), for nothing.
    """
    n = count("layers", layers)
    return (math.isqrt(8 * n - 7) + 1) // 2


@checked
def width_to_offload(rate: float, bandwidth: float) -> float:
    """Width h of a transformer from which on a link hides offloading it: 34/24 C/W.

    - rate: C, FLOP/s that the device achieves; bandwidth: W, of the link, one direction.

    A layer without its core keeps 34h bytes a token and takes 24h^2 FLOPs forward, beside which
    they leave; backward takes twice that. Batch, depth and, but for the scores, the sequence do not
    matter. Tensor and sequence parallelism together divide both by t, so the width stays.
    """
    positive("rate", rate)
    positive("bandwidth", bandwidth)
    return 34 / 24 * rate / bandwidth


@checked
def recompute_beats_offload(layer: Layer, rate: float, link: Link) -> bool:
    """Whether running a layer again takes less than what its copies expose, both ways.

    - rate: cost units a second of the device; link: to the host, one direction.

    Running again takes forward/rate. Out and back take bytes/bandwidth each, beside forward/rate
    and backward/rate. With backward twice forward: where a byte has less than C/2W FLOPs.
    """
    positive("rate", rate)
    copy = link.seconds(layer.saved_bytes)
    passes = layer.forward / rate, layer.backward / rate
    return layer.forward / rate < sum(max(0.0, copy - each) for each in passes)


@checked
def micro_batch_overhead(share: float, seconds: float, parts: int) -> float:
    """Seconds of overhead a micro-batch from which on recomputation beats smaller micro-batches.

    - share: of a step that is run again; seconds: the step's compute; parts: by which the
      micro-batch would be divided, to keep as little.

    Each more micro-batch costs what does not shrink with it: weights gathered or read, launches,
    products too narrow for the device. Recomputation costs share x seconds, (parts - 1) more
    micro-batches as many overheads.
    """
    at_least("share", share, 0)
    positive("seconds", seconds)
    return share * seconds / (count("parts", parts, least=2) - 1)


def stage_layers(layers: int, stages: int, micro_batches: int) -> float:
    """Layers' bytes that the first stage of a 1F1B pipeline holds: L/p of min(p, m) micro-batches.

    With m >= p that is L, whatever p: more stages save weights and no activations, so they never
    stand in for recomputation.
    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.1.
    """
    n, p = count("layers", layers), count("stages", stages)
    return n / p * min(p, count("micro_batches", micro_batches))


@checked
def against_tensor_parallel(spec: TransformerSpec, tensor_parallel: int) -> dict[str, float]:
    """Bytes of a layer as a part of those with tensor parallelism alone, by what is done besides.

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), table 2 and figure 7.
    """
    t = tensor_parallel
    base = activations(spec, 1, t)
    ways = {
        "sequence parallel": activations(spec, 1, t, True),
        "selective": activations(spec, 1, t, False, "selective"),
        "both": activations(spec, 1, t, True, "selective"),
        "full": activations(spec, 1, t, False, "full"),
    }
    return {name: kept.per_layer / base.per_layer for name, kept in ways.items()}


@checked
def full_share(spec: TransformerSpec) -> Law:
    """What running every layer again adds to a step: a third, for backward is two forwards.

    The exact price has the head, which is not run again. Early stop leaves out nothing: a layer
    ends with a dropout, as Megatron-LM's.
    """
    plan = keep_all(1) + every_layer(spec.layers) + keep_all(1)
    return Law(1 / 3, plan.price(chain_of(spec, 1)).share_of_step)
