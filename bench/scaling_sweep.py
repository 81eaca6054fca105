"""The sweep of tiny models that the chapter on scaling laws fits: every row, trained on one thread.

    python bench/scaling_sweep.py              all rows that sweep.json lacks, in two processes
    python bench/scaling_sweep.py --jobs 1     in one
    python bench/scaling_sweep.py --again      none is taken from sweep.json
    python bench/scaling_sweep.py --freeze     first the text anew, from the chapters as they are

Writes dlsys/scaling_laws/sweep.json after every row, so that it may be stopped and started again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import multiprocessing
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
HOME = ROOT / "dlsys" / "scaling_laws"
TABLE, TEXT = HOME / "sweep.json", HOME / "tokens.xz"

import torch  # noqa: E402

from dlsys.input_pipeline import train_tokenizer  # noqa: E402
from dlsys.scaling_laws.sweep import SEQUENCE, STEP, Run, text  # noqa: E402
from dlsys.scaling_laws.tiny import train, windows  # noqa: E402

LAYERS, MERGES = 2, 256
QUARTER, SOME = 59_904, 51_200
"""Tokens of a quarter of the text, and of runs that are compared with each other."""
BUDGETS = {  # FLOPs, and the widths that share them
    2e9: (4, 8, 16, 24, 32),
    4e9: (4, 8, 16, 24, 32, 48),
    9e9: (8, 16, 24, 32, 48, 64),
    2e10: (16, 24, 32, 48, 64, 96),
    4e10: (24, 32, 48, 64, 96),
    8e10: (48, 64, 96),
}


def run_of(hidden: int, tokens: float, **settings: Any) -> Run:
    """A run of whole steps that sees each token once, where nothing else is said."""
    whole = round(tokens / STEP) * STEP
    usual = {"learning_rate": round(0.08 / hidden**0.5, 4), "unique": whole}
    return Run(LAYERS, hidden, whole, **(usual | settings))


def iso_flop() -> Iterator[Run]:
    for budget, widths in BUDGETS.items():
        for hidden in widths:
            flops = run_of(hidden, STEP).spec.training_flops_per_token()
            yield run_of(hidden, budget / flops)


def again() -> Iterator[Run]:
    """Rows of the groups, with other seeds."""
    for run in iso_flop():
        if (run.hidden, round(run.tokens, -4)) in ((8, 100_000), (24, 120_000), (64, 50_000)):
            yield from (replace(run, seed=seed) for seed in (1, 2))


def repeated() -> Iterator[Run]:
    for hidden in (16, 48):
        for epochs in (1, 2, 4, 8):
            yield run_of(hidden, epochs * QUARTER, unique=QUARTER)


def corrupted() -> Iterator[Run]:
    for tokens in (SOME, 2 * SOME):
        for share in (0.0, 0.1, 0.2, 0.4):
            yield run_of(32, tokens, corrupted=share)


def transfer() -> Iterator[Run]:
    for hidden in (16, 32, 64, 128):
        for parametrization in ("standard", "mup"):
            for rate in (0.005, 0.01, 0.02, 0.04, 0.08, 0.16):
                settings = {"learning_rate": rate, "parametrization": parametrization}
                yield run_of(hidden, SOME // 2, **settings)


def plan() -> list[tuple[str, Run]]:
    """Every row's kind and run."""
    kinds = {
        "iso_flop": iso_flop(),
        "held_back": [run_of(192, 238_976)],
        "corrupted": corrupted(),
        "repeated": repeated(),
        "transfer": transfer(),
        "seed": again(),
    }
    return [(kind, run) for kind, runs in kinds.items() for run in runs]


def found(kind: str, run: Run) -> dict[str, Any]:
    """A row: what was run, and what came out."""
    counts = run.spec.parameter_counts()
    outside = counts["token_embedding"] + counts["head"]
    return {
        "kind": kind,
        **asdict(run),
        "parameters": run.spec.parameters(),
        "non_embedding": run.spec.parameters() - outside,
        "flops": run.tokens // SEQUENCE * run.spec.training_flops(1),
        "loss": round(train(run), 5),
    }


def work(task: tuple[str, Run]) -> dict[str, Any]:
    torch.set_num_threads(1)
    return found(*task)


def key(row: dict[str, Any]) -> str:
    held = {"kind", *Run.__dataclass_fields__}
    return json.dumps({name: row[name] for name in sorted(held)})


def write(rows: list[dict[str, Any]]) -> None:
    data = text().encode()
    trained, held = (len(part) * SEQUENCE for part in windows())
    head = {"tokens": trained, "held_out": held, "sha256": hashlib.sha256(data).hexdigest()}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    TABLE.write_text(f'{json.dumps(head)[:-1]},\n "rows": [\n{lines}\n ]}}\n', encoding="utf-8")


def freeze() -> None:
    """The chapters without their heads, and without what is not ASCII."""
    pages = [path.read_text("utf-8") for path in sorted(ROOT.glob("chapters/*.md"))]
    bodies = [p.split("\n---\n", 1)[1].lstrip() if p.startswith("---\n") else p for p in pages]
    plain = "\n".join(bodies).encode("ascii", "ignore")
    tokenizer = train_tokenizer(plain, MERGES)
    ids = tokenizer.encode(plain)
    used = sorted(set(ids))
    place = {old: new for new, old in enumerate(used)}
    pieces = [tokenizer.decode([old]).decode("ascii") for old in used]
    data = json.dumps(pieces).encode() + b"\n"
    data += struct.pack(f"<{len(ids)}H", *map(place.__getitem__, ids))
    TEXT.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--freeze", action="store_true")
    given = parser.parse_args()
    if given.freeze:
        freeze()
    old = [] if given.again or not TABLE.exists() else json.loads(TABLE.read_text())["rows"]
    wanted = [{"kind": kind, **asdict(run)} for kind, run in plan()]
    done = {key(row): row for row in old}
    todo = [task for task, row in zip(plan(), wanted, strict=True) if key(row) not in done]
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for row in pool.imap_unordered(work, todo):
            done[key(row)] = row
            write([done[key(row)] for row in wanted if key(row) in done])
            print(
                row["kind"],
                row["hidden"],
                row["tokens"],
                row["learning_rate"],
                row["loss"],
                flush=True,
            )


if __name__ == "__main__":
    main()
