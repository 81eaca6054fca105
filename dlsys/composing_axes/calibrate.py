"""Finding a machine's constants in measured runs, yours for example:

    python -m dlsys.composing_axes.calibrate runs.csv --device h100-sxm --intra nvlink4 \
        --inter infiniband-ndr

The first line of the file names its columns: `seconds` of a step, `layers`, `hidden`, `heads`,
`vocab`, `sequence` and whatever else of a TransformerSpec is not its default (`ffn_hidden`,
`kv_heads`, `gated`, `tied`), `batch` (sequences of a step, over all devices) and what of DEGREES is
not its default: `tp`, `dp`, `pp`, `sequences` (of a micro-batch), `flash`, ... With `bytes`, what a
device held at most, memory is calibrated, too.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dlsys.checks import refuse_what, unknown
from dlsys.composing_axes.memory import stage_bytes
from dlsys.composing_axes.runs import DEGREES, Array, Runs, runs_of
from dlsys.composing_axes.step_time import FRACTIONS, Constants, Machine, step_seconds, total
from dlsys.hardware import DEVICES, LINKS, Cluster
from dlsys.transformer import TransformerSpec

SPREAD = {
    "products": 0.7,
    "half_work": 1.0,
    "passes": 0.7,
    "intra": 0.7,
    "inter": 0.7,
    "latency": 1.5,
    "floor": 1.0,
    "logits": 0.7,
    "fixed": 1.5,
}
"""How unsure each constant is before any run was seen: the standard deviation of its logarithm, or
of a fraction's log odds. Without runs they make the interval of `interval`."""
NAMES = tuple(SPREAD)
DELTA, NOISE, STEPS = 0.15, 0.1, 60
"""Relative errors above the first count by their size, not their square; what a run scatters; at
most so many steps."""
SPEC = ("layers", "hidden", "heads", "vocab", "sequence", "ffn_hidden", "kv_heads", "gated", "tied")


def calibrated(
    runs: Runs, seconds: Array, machine: Machine, names: Sequence[str] = NAMES
) -> Machine:
    """The machine with the constants that fit best; what runs do not tell stays near its own.

    Minimised are Huber losses of ln(predicted / measured), so that a few bad runs do not rule, and
    the squares of how far each constant moved, in units of SPREAD.
    """
    if len(runs) != len(seconds):
        refuse_what("seconds", f"{len(seconds)} numbers", f"one for each of {len(runs)} runs")
    start = machine.constants

    def residuals(x: Array) -> Array:
        return np.log(step_seconds(runs, machine.having(_bound(start, names, x))) / seconds)

    found = _minimise(residuals, _free(start, names), np.array([SPREAD[name] for name in names]))
    measured = machine.having(_bound(start, names, found))
    return dataclasses.replace(measured, source=f"{len(runs)} runs")


def calibrated_memory(runs: Runs, nbytes: Array, machine: Machine) -> Machine:
    """The machine with the `slack` that fits bytes measured on a pipeline's first stage."""
    tried = [machine.having(dataclasses.replace(machine.constants, slack=s)) for s in _SLACKS]
    errors = [np.abs(np.log(total(stage_bytes(runs, m, True)) / nbytes)) for m in tried]
    return tried[int(np.argmin([np.minimum(each, 3 * DELTA).mean() for each in errors]))]


_SLACKS = np.arange(1.0, 2.0, 0.01).tolist()


def interval(runs: Runs, machine: Machine, draws: int = 400, seed: int = 0) -> tuple[Array, Array]:
    """Seconds between which nine of ten steps would lie on a machine of which no run was seen.

    Each constant is drawn from the spread that it has before any run.
    """
    stream = np.random.default_rng(seed)
    middle, spread = _free(machine.constants, NAMES), np.array(list(SPREAD.values()))
    each = [
        step_seconds(runs, machine.having(_bound(machine.constants, NAMES, x)))
        for x in stream.normal(middle, spread, (draws, len(NAMES)))
    ]
    low, high = np.quantile(each, (0.05, 0.95), axis=0)
    return low, high


def ablation(runs: Runs, seconds: Array, machine: Machine) -> dict[str, float]:
    """Mean absolute error in percent where a constant is left as it was, by its name; "": none."""
    kept = {"": NAMES} | {name: tuple(n for n in NAMES if n != name) for name in NAMES}
    return {
        name: error(runs, seconds, calibrated(runs, seconds, machine, names))
        for name, names in kept.items()
    }


def error(runs: Runs, seconds: Array, machine: Machine) -> float:
    """Mean absolute error of predicted seconds, in percent of the measured ones."""
    return float(100 * np.abs(step_seconds(runs, machine) / seconds - 1).mean())


def read(path: Path) -> tuple[Runs, dict[str, Array]]:
    """Runs of a file, and its columns `seconds` and `bytes` as far as it has them."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise ValueError(f"{path} has no runs: a line of names, then one line a run.")
    known = {*SPEC, *DEGREES, "batch", "seconds", "bytes"} - {"micro_batches"}
    odd = [name for name in rows[0] if name not in known]
    if odd:
        raise ValueError(unknown("column", odd[0] or "after the last name", sorted(known)))
    lacking = [name for name in (*SPEC[:5], "batch", "seconds") if name not in rows[0]]
    if lacking:
        raise ValueError(f"{path} has no column {lacking[0]!r}.")
    columns = {
        name: np.array([_number(path, i, name, r[name]) for i, r in enumerate(rows, 2)])
        for name in rows[0]
    }
    fields: dict[str, type] = dict.fromkeys(SPEC[:7], int) | dict.fromkeys(SPEC[7:], bool)
    given = {name: kind for name, kind in fields.items() if name in columns}
    specs = [
        TransformerSpec(**{name: kind(columns[name][i]) for name, kind in given.items()})
        for i in range(len(rows))
    ]
    how = {name: columns[name] for name in DEGREES if name in columns}
    one = how.get("dp", 1.0) * how.get("sequences", 1.0)
    runs = runs_of(specs, **how, micro_batches=columns["batch"] / one)
    return runs, {name: columns[name] for name in ("seconds", "bytes") if name in columns}


def _number(path: Path, line: int, name: str, cell: str | None) -> float:
    """The number in a cell: positive seconds and bytes, none below 0 elsewhere."""
    try:
        value = float(cell or "")
        if value > 0 or (value == 0 and name not in ("seconds", "bytes")):
            return value
    except ValueError:
        pass
    raise ValueError(f"Line {line} of {path} has {cell!r} as {name}; it must be a number above 0.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the constants that fit a file of runs, how well they do, and what each of them buys."""
    parser = argparse.ArgumentParser("dlsys.composing_axes.calibrate", description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--device", default="h100-sxm", choices=sorted(DEVICES))
    parser.add_argument("--intra", default="nvlink4", choices=sorted(LINKS))
    parser.add_argument("--inter", default="infiniband-ndr", choices=sorted(LINKS))
    parser.add_argument("--devices-per-node", type=int, default=8)
    parser.add_argument("--cards", type=int, help="network cards of a node")
    given = parser.parse_args(arguments)
    runs, measured = read(given.runs)
    nodes = -(-int((runs.tp * runs.data * runs.pp).max()) // given.devices_per_node)
    links = LINKS[given.intra], LINKS[given.inter]
    per = given.devices_per_node
    cluster = Cluster(DEVICES[given.device], nodes, per, *links, given.cards)
    machine = calibrated(runs, measured["seconds"], Machine(cluster))
    if "bytes" in measured:
        machine = calibrated_memory(runs, measured["bytes"], machine)
    print(json.dumps(dataclasses.asdict(machine.constants), indent=1))
    print(
        f"{len(runs)} runs, mean absolute error {error(runs, measured['seconds'], machine):.1f} %"
    )
    for name, percent in ablation(runs, measured["seconds"], Machine(cluster)).items():
        print(f"{percent:8.1f} %  {'without ' + name if name else 'with all'}")


def _minimise(residuals: Callable[[Array], Array], start: Array, spread: Array) -> Array:
    """Levenberg and Marquardt's steps, with weights that make Huber losses of squares."""

    def cost(of: Array, x: Array) -> float:
        size = np.abs(of)
        huber = np.where(size <= DELTA, size**2, 2 * DELTA * size - DELTA**2)
        return float(huber.sum() / NOISE**2 + (((x - start) / spread) ** 2).sum())

    x, now, damping = start.copy(), residuals(start), 1e-2
    best = cost(now, x)
    for _ in range(STEPS):
        slopes = np.stack([(residuals(x + 1e-4 * unit) - now) / 1e-4 for unit in np.eye(len(x))], 1)
        weights = 1 / np.maximum(1, np.abs(now) / DELTA) / NOISE**2
        curve = slopes.T @ (weights[:, None] * slopes) + np.diag(1 / spread**2)
        pull = slopes.T @ (weights * now) + (x - start) / spread**2
        step = np.linalg.solve(curve + damping * np.diag(np.diag(curve)), pull)
        tried = x - np.clip(step, -1, 1)
        then = residuals(tried)
        gain = best - cost(then, tried)
        if gain > 0:
            x, now, best, damping = tried, then, best - gain, damping / 3
        else:
            damping *= 4
        if 0 < gain < 1e-7 * best or damping > 1e6:
            break
    return x


def _free(constants: Constants, names: Sequence[str]) -> Array:
    """Constants as numbers that may be anything: logarithms, or log odds of fractions."""
    values = {name: getattr(constants, name) for name in names}
    odds = [v / (1 - v) if name in FRACTIONS else v for name, v in values.items()]
    return np.log(odds)


def _bound(start: Constants, names: Sequence[str], x: Array) -> Constants:
    values = {
        name: float(1 / (1 + np.exp(-v)) if name in FRACTIONS else np.exp(v))
        for name, v in zip(names, x, strict=True)
    }
    return dataclasses.replace(start, **values)


if __name__ == "__main__":
    main()
