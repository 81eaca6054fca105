"""A training run killed 200 times; fails unless every run ends as if nobody had touched it.

    python -m tests.mechanisms.soak [kills] [seed]

Some minutes. Runs of two and three ranks, that save as they go or beside, are killed ten times each
at moments that `seed` draws, and a part of their checkpoints is torn by hand; `killing.py` says how.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from tests.mechanisms.killing import Job, Told, campaign, never_killed
from tests.mechanisms.trained import difference

JOBS = [Job(ranks, beside=beside) for ranks in (2, 3) for beside in (False, True)]
EACH, DAMAGE = 10, 0.3


def main(kills: int = 200, seed: int = 0) -> int:
    """Print what came of it; returns 1 where anything differs, else 0."""
    random, begun, told, wrong = Random(seed), time.monotonic(), list[Told](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        never = {job.ranks: never_killed(Path(folder), job) for job in JOBS}
        while (done := sum(each.kills.total() for each in told)) < kills:
            job, root = JOBS[len(told) % len(JOBS)], Path(folder) / f"run-{len(told)}"
            root.mkdir()
            one = campaign(root, job, min(EACH, kills - done), random, DAMAGE)
            told.append(one)
            pairs = zip(one.state, never[job.ranks], strict=True)
            found = [each for pair in pairs if (each := difference(*pair))]
            found += [*one.unexpected, *(f"{name} is torn" for name in one.torn_by_kills)]
            wrong += [f"run {len(told)}, {job}: {each}" for each in found]
            how = "; ".join(found) or "ends as the run that was never killed"
            print(f"run {len(told)}, {job}: killed {dict(one.kills)}; {how}", flush=True)
    places = sum((each.kills for each in told), Counter[str]())
    print(f"{places.total()} kills in {len(told)} runs, {time.monotonic() - begun:.0f} s")
    print(f"  planned: {places['save']} in a save, {places['step']} in a step, ", end="")
    print(f"{places['outside']} from outside")
    print(f"  {sum(each.cut_short for each in told)} cut a save short and left its folder")
    print(f"  {sum(len(each.torn_by_kills) for each in told)} left a torn checkpoint")
    print(f"  {sum(each.damaged for each in told)} checkpoints torn by hand afterwards; ", end="")
    print(f"refused {sum(each.skipped for each in told)} times")
    print(f"{len(wrong)} differences", *wrong, sep="\n  ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
