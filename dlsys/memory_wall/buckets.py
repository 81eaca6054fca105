"""The four buckets, counted while a model trains: what lives, whenever something comes or goes."""

import weakref

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def held_state(model, optimizer) -> list[int]:
    """Bytes of weights, optimizer state and gradients that there are now."""
    weights = set(model.parameters())
    updated = {p for group in optimizer.param_groups for p in group["params"]}
    masters = updated - weights
    averages = [t for of in optimizer.state.values() for t in of.values() if t.ndim]
    gradients = [p.grad for p in updated | weights if p.grad is not None]
    buckets = weights, [*masters, *averages], gradients
    return [sum(t.nbytes for t in bucket) for bucket in buckets]


class Buckets:
    """Notes, whenever something comes or goes, the phase of the step and what lives then:
    bytes of weights, optimizer state, gradients and activations."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.kept, self.noted, self.phase = {}, [], ""
        fixed = [*model.parameters(), *model.buffers()]
        self.fixed = {t.untyped_storage().data_ptr() for t in fixed}
        self.hooks = [p.register_post_accumulate_grad_hook(self.note)
                      for p in model.parameters()]  # fmt: skip

    def note(self, changed=None) -> None:
        """Add up each bucket; also called when a gradient is complete."""
        activations = sum(nbytes for nbytes, _ in self.kept.values())
        state = held_state(self.model, self.optimizer)
        self.noted.append((self.phase, *state, activations))

    def keep(self, tensor: Tensor) -> Tensor:
        """Autograd saves a tensor: count its storage until nobody holds it any more."""
        storage = tensor.untyped_storage()
        place, is_data = storage.data_ptr(), tensor.dtype == torch.int64  # tokens
        if not is_data and place not in self.fixed and place not in self.kept:
            watch = weakref.ref(storage, lambda _: self.free(place))
            self.kept[place] = storage.nbytes(), watch
            self.note()
        return tensor.detach()

    def free(self, place: int) -> None:
        """A storage is gone."""
        del self.kept[place]
        self.note()

    def enter(self, phase: str) -> None:
        """A phase of the step begins."""
        self.phase = phase
        self.note()


def train_step(buckets: Buckets, model, optimizer, micro_batches) -> None:
    """One training step, counted."""
    for tokens in micro_batches:
        buckets.enter("forward")
        with saved_tensors_hooks(buckets.keep, lambda tensor: tensor):
            loss = model(tokens, tokens) / len(micro_batches)
        buckets.enter("backward")
        loss.backward()
    buckets.enter("update")
    optimizer.step()
    buckets.note()
    model.zero_grad()
    buckets.note()
