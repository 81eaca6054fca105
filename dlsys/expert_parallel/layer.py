"""The layer that stands where a feed-forward network would: router, experts, shared experts."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import at_least, divisor, positive, refuse_what
from dlsys.expert_parallel import routing
from dlsys.expert_parallel.dispatch import dispatched
from dlsys.expert_parallel.mixture import Experts, all_of, grouped
from dlsys.model import at_least_float32
from dlsys.tensors import features
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator
from dlsys.world.environment import current_or_none

Choose = Callable[[Tensor, int, Tensor | None], Tensor]
"""From scores (tokens, E), k and biases (E,) or None, a choice (tokens, k)."""
Weigh = Callable[[Tensor, Tensor], Tensor]
"""From scores (tokens, E) and a choice (tokens, k), the weights of the chosen (tokens, k)."""


class MoE(nn.Module):
    """The mixture of experts that `spec.moe` asks for, its experts shared out over `comm`.

    It is called as a feed-forward network is, each rank with tokens of its own, and equals the
    mixture on one device: outputs, and gradients once they are averaged (`average_gradients`). Rank
    r holds the r-th E/n of the experts; the router and shared experts are on every rank. An expert
    that no token has chosen gets a gradient of zeros.

    - everyone: the ranks whose tokens make up the batch; None means those of `comm`. Loads are
      counted over all of them.
    - choose: `routing.choose`, or `partial(routing.choose_near, nodes=8, most=4)`.
    - weigh: `routing.softmax_after`, `softmax_before`, `sigmoids` or a function like them. None:
      the first; for k = 1, where that has no gradient, the second.
    - capacity_factor: an expert reads at most ceil(factor k tokens / E) copies of one rank's
      tokens, the first ones, and what is dropped adds nothing to its token. None: drop nothing.
    - auxiliary_loss, z_loss: factors of `routing.auxiliary_loss` and `routing.z_loss`, whose sum
      the last forward pass in training leaves in `.loss` (None in evaluation).
    - balance_step: by how much each call of `rebalance` moves an expert's bias, where above 0; then
      experts are chosen by sigmoids of their scores plus these.

    Scores are computed in float32 or better (Switch, section 2.4). comm=None means the world that
    the caller is in; outside of any, this device alone. Raises ValueError for a spec without a
    mixture, a number of experts that the ranks cannot share out, factors below 0 (a capacity factor
    of 0), and in the forward pass for scores that are NaN.
    """

    @checked
    def __init__(
        self,
        spec: TransformerSpec,
        comm: Communicator | None = None,
        everyone: Communicator | None = None,
        choose: Choose = routing.choose,
        weigh: Weigh | None = None,
        capacity_factor: float | None = None,
        auxiliary_loss: float = 0.0,
        z_loss: float = 0.0,
        balance_step: float = 0.0,
    ) -> None:
        super().__init__()
        if spec.moe is None:
            refuse_what("spec", "one without a mixture", "given with moe=MixtureOfExperts(8, 2)")
        if capacity_factor is not None:
            positive("capacity_factor", capacity_factor)
        for name, value in (("auxiliary_loss", auxiliary_loss), ("z_loss", z_loss)):
            at_least(name, value, 0)
        at_least("balance_step", balance_step, 0)
        mixture = spec.moe
        self.comm = current_or_none() if comm is None else comm
        self.everyone = self.comm if everyone is None else everyone
        self.number, self.k = mixture.experts, mixture.experts_per_token
        ranks = 1 if self.comm is None else self.comm.size
        held = self.number // divisor("number of ranks", ranks, {"experts": self.number})
        shape = (spec.hidden, mixture.ffn_hidden or spec.ffn_hidden, spec.gated, spec.bias)
        self.router = nn.Linear(spec.hidden, self.number, bias=False)
        self.experts = Experts(held, *shape)
        self.shared = Experts(mixture.shared, *shape) if mixture.shared else None
        self.capacity_factor, self.balance_step = capacity_factor, balance_step
        self.choose = choose
        self.weigh = weigh or (routing.softmax_before if self.k == 1 else routing.softmax_after)
        self.auxiliary_loss, self.z_loss = auxiliary_loss, z_loss
        self.loss: Tensor | None = None
        self.moves: Tensor | None
        self.loads: Tensor
        # Whole numbers, which no conversion of the module rounds.
        counts = torch.zeros(self.number, dtype=torch.int64)
        self.register_buffer("moves", counts.clone() if balance_step else None)
        self.register_buffer("loads", counts, persistent=False)
        self.reset_parameters()

    def reset_buffers(self) -> None:
        """Forget the biases, and what was chosen."""
        for buffer in self.buffers():
            buffer.zero_()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw every matrix as nn.Linear does, biases from 0; all ranks call it.

        Each expert has a random stream of its own, seeded by rank 0's random state, so it starts
        from the same values whichever rank it is on.
        """
        if self.router.weight.is_meta:
            return
        drawn = torch.randint(2**31, ())
        seed = int(drawn if self.everyone is None else self.everyone.broadcast(drawn))
        rank = 0 if self.comm is None else self.comm.rank
        for name, p in self.named_parameters():
            parts = [p] if name.startswith("router") else [*p]
            first = rank * len(parts) if name.startswith("experts") else 0
            for i, part in enumerate(parts, first):
                stream = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name} {i}".encode()))
                bound = 0 if name.endswith("bias") else part.shape[-1] ** -0.5
                part.copy_(torch.empty(part.shape).uniform_(-bound, bound, generator=stream))

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """x (..., hidden) -> (..., hidden)."""
        features("x", x, self.router.in_features)
        tokens = x.reshape(-1, x.shape[-1])
        return self.read(tokens, *self.route(tokens)).view_as(x)

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The experts chosen for tokens (tokens, hidden), and their weights, (tokens, k) each."""
        scores = at_least_float32(self.router(tokens))
        self._check(scores)
        chosen = self.choose(scores, self.k, self.bias)
        weights = self.weigh(scores, chosen)
        self._account(scores, chosen)
        if self.capacity_factor is not None:
            most = routing.capacity(self.capacity_factor, len(tokens), self.k, self.number)
            chosen = routing.drop(chosen, self.number, most)
        return chosen, weights

    def read(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """What the chosen experts and the shared ones make of the tokens (tokens, hidden)."""
        mixture = (tokens, chosen, weights, self.experts, self.number)
        y = grouped(*mixture) if self.comm is None else dispatched(self.comm, *mixture)
        if self.shared is not None:
            y = y + all_of(self.shared, tokens).sum(0)
        return y

    @property
    def bias(self) -> Tensor | None:
        """What is added to each expert's sigmoid (E,) for the choice; None without balance_step."""
        return None if self.moves is None else self.balance_step * self.moves

    def rebalance(self) -> None:
        """Move the biases against the loads since the last call; all ranks call it after a step."""
        if self.moves is not None:
            loads = self._summed(self.loads).double()
            self.moves.copy_(routing.rebalance(self.moves, loads, 1))
        self.loads.zero_()

    def _account(self, scores: Tensor, chosen: Tensor) -> None:
        """Count what was chosen, and set the loss of it."""
        self.loss = None
        if not self.training:
            return
        counts = chosen.flatten().bincount(minlength=self.number)
        self.loads += counts
        self.loss = scores.new_zeros(())
        if self.auxiliary_loss:
            # Over all ranks: with each one's own shares the mean loss would be another.
            counts = self._summed(counts).to(scores.dtype)
            loss = routing.auxiliary_loss(scores, counts / counts.sum())
            self.loss = self.loss + self.auxiliary_loss * loss
        if self.z_loss:
            self.loss = self.loss + self.z_loss * routing.z_loss(scores)

    def _summed(self, counts: Tensor) -> Tensor:
        return counts if self.everyone is None else self.everyone.all_reduce(counts)

    @staticmethod
    def _check(scores: Tensor) -> None:
        """Raise ValueError where experts cannot be chosen."""
        wrong = int(scores.isnan().any(-1).sum())
        if wrong:
            raise ValueError(
                f"The router's scores have NaN for {wrong} of {len(scores)} tokens, which then "
                "choose no experts: look for what made their x, or the router's weight, NaN before."
            )
