"""Loss curves of the small GPT under recipes for its linear layers, all else the same bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse_what, some, whole
from dlsys.checks import text as is_text
from dlsys.model import GPT
from dlsys.precision.linear import QuantizedLinear, multiply, quantize_linears
from dlsys.precision.recipe import LinearRecipe
from dlsys.tensors import in_one_thread
from dlsys.transformer import TransformerSpec

TINY = TransformerSpec(
    layers=1, hidden=64, heads=2, vocab=256, sequence=32, tied=False, name="tiny"
)
"""Reads bytes; one layer and 85 thousand parameters, which learn a page in tens of steps."""


@checked
def loss_curve(
    recipe: LinearRecipe,
    text: str,
    steps: int = 40,
    spec: TransformerSpec = TINY,
    batch: int = 8,
    learning_rate: float = 3e-3,
    seed: int = 0,
    outlier: float = 1.0,
    loss_scale: Callable[[int], float] | None = None,
) -> list[float]:
    """The loss of each of `steps` steps of AdamW on bytes of `text`, with the recipe's products.

    Everything is FP32 but the operands of the linear layers that the recipe names. With the same
    seed all recipes begin at the same weights and read the same bytes.

    Two burdens change nothing without rounding, not one bit, where they are powers of two:
    `outlier` multiplies one channel of each linear layer's input, and divides its weights;
    `loss_scale` gives a step's factor of the loss, by which gradients are divided afterwards.
    Raises ValueError for a text of less than a sequence.
    """
    model = GPT(spec, seed=seed)
    quantize_linears(model, recipe, seed)
    positive("outlier", outlier)
    if outlier != 1:
        _burden(model, outlier)
    return train_on(model, text, steps, batch, learning_rate, seed, loss_scale)


@checked
def train_on(
    model: GPT,
    text: str,
    steps: int = 40,
    batch: int = 8,
    learning_rate: float = 3e-3,
    seed: int = 0,
    loss_scale: Callable[[int], float] | None = None,
) -> list[float]:
    """The loss of each of `steps` steps of AdamW, for those parameters that are not frozen.

    A step reads `batch` sequences of bytes from places of `text` that `seed` alone decides.
    """
    tokens, length = _tokens(text, model.spec), model.spec.sequence
    batch, steps = count("batch", batch, 1, 4096), count("steps", steps, 1, 10_000)
    positive("learning_rate", learning_rate)
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=learning_rate)
    stream = torch.Generator().manual_seed(whole("seed", seed))
    losses = []
    for step in in_one_thread(range(steps)):
        start = torch.randint(len(tokens) - length, (batch, 1), generator=stream)
        read = tokens[start + torch.arange(length + 1)]
        factor = loss_scale(step) if loss_scale is not None else 1.0
        loss = model(read[:, :-1], read[:, 1:])
        optimizer.zero_grad()
        (loss * factor).backward()
        for parameter in learning:
            if parameter.grad is not None:
                parameter.grad /= factor
        optimizer.step()
        losses.append(loss.item())
    return losses


@checked
def loss_curves(
    recipes: Mapping[str, LinearRecipe],
    text: str,
    steps: int = 40,
    spec: TransformerSpec = TINY,
    outlier: float = 1.0,
) -> dict[str, list[float]]:
    """`loss_curve` of each named recipe: `loss_curves(LINEAR_RECIPES, text)` for all."""
    some("recipes", recipes)
    return {n: loss_curve(r, text, steps, spec, outlier=outlier) for n, r in recipes.items()}


class _Burdened(nn.Module):
    """A linear layer whose first input channel is an outlier, and its weights as much smaller."""

    def __init__(self, linear: QuantizedLinear, factor: float) -> None:
        super().__init__()
        self.linear = linear
        self.scale = torch.ones(linear.in_features)
        self.scale[0] = factor

    def forward(self, x: Tensor) -> Tensor:
        y = multiply(x * self.scale, self.linear.weight / self.scale, self.linear)
        return y if self.linear.bias is None else y + self.linear.bias


def _burden(model: nn.Module, factor: float) -> None:
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, QuantizedLinear)]
    for name, linear in found:
        model.set_submodule(name, _Burdened(linear, factor))


def _tokens(text: str, spec: TransformerSpec) -> Tensor:
    """The bytes of a text, as tokens (n,)."""
    is_text("text", text)
    data = text.encode()
    if len(data) <= spec.sequence + 1:
        refuse_what("text", f"of {len(data)} bytes", f"of more than {spec.sequence + 1}")
    if spec.vocab < 256:
        refuse_what("spec", f"of a vocab of {spec.vocab}", "of at least 256, for all bytes")
    return torch.tensor(list(data))
