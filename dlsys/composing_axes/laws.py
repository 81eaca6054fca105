"""What to remember of composing two axes: how wide each is, and from how many tokens both hide."""

from __future__ import annotations

import math

from dlsys.annotated import checked
from dlsys.checks import positive


@checked
def sharding_degree(
    tokens: float,
    devices: float,
    neurons: float,
    sharding_bandwidth: float,
    tensor_bandwidth: float,
) -> float:
    """Over how many of the devices to shard weights, and to cut layers over those that are left.

    With X ranks that shard and N/X that cut, a feed-forward layer of F neurons gathers 4 h F X / N
    bytes of weights, and sends 4 B h / X bytes of a batch of B tokens: wider sharding leaves a rank
    fewer tokens and more weights. Their seconds are equal, and the sum least, at

        X = sqrt(B N / F x sharding bandwidth / tensor bandwidth).

    Bandwidths are in bytes a second of a device. Austin et al. 2025, "How to Scale Your Model",
    training, where they are numbers M_X and M_Y of equal links.
    """
    positive("tokens", tokens)
    positive("devices", devices)
    positive("neurons", neurons)
    ratio = _ratio(sharding_bandwidth, tensor_bandwidth)
    return math.sqrt(tokens * devices / neurons * ratio)


@checked
def tokens_to_hide(
    neurons: float, rate: float, sharding_bandwidth: float, tensor_bandwidth: float
) -> float:
    """Tokens a device from which a layer's products take longer than both axes' messages.

        B / N = 4 rate^2 / (F x sharding bandwidth x tensor bandwidth),

    at the best `sharding_degree`: products take 4 B h F / (N rate) seconds, and messages 8 h sqrt(F
    B / (N x both bandwidths)). Wider layers need fewer tokens, and both links count alike.
    """
    positive("neurons", neurons)
    positive("rate", rate)
    _ratio(sharding_bandwidth, tensor_bandwidth)
    return 4 * rate**2 / (neurons * sharding_bandwidth * tensor_bandwidth)


def _ratio(sharding_bandwidth: float, tensor_bandwidth: float) -> float:
    positive("sharding_bandwidth", sharding_bandwidth)
    positive("tensor_bandwidth", tensor_bandwidth)
    return sharding_bandwidth / tensor_bandwidth
