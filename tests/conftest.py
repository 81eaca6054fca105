"""What holds for every run: memory that is not searched in vain, ranks that need no module of tests,
one thread where more would wait, and a last word on skipped tests."""

import gc
import os
import re
from collections import Counter
from collections.abc import Iterator

import cloudpickle
import hypothesis
import pytest

import tests

# Real ranks get functions of tests whole: to import their module takes half a second of each rank.
cloudpickle.register_pickle_by_value(tests)

# A test that calls make, elsewhere, is not told what this run was called with: VENV=... would be
# made anew from there.
for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
    os.environ.pop(name, None)

# A slow moment of the machine is no fault of the code.
hypothesis.settings.register_profile("patient", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("patient")

# What tests import stays; to look for garbage among it takes a part of the time of its import.
gc.disable()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tensors so small that threads would wait for each other longer than they compute."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# Packages of Debian and Ubuntu, by what tests say that skip for want of them.
PACKAGES = {"bubblewrap": "Install bubblewrap", "chromium": "(?i)no chromium"}


def pytest_collection_finish() -> None:
    """Look no more for garbage among all that was imported, which takes a tenth of the run."""
    gc.freeze()
    gc.enable()


def summarize(reasons: Counter[str]) -> Iterator[str]:
    """Yield the lines to show for the reasons of skips, each with the number of its tests."""
    by_package: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for reason, number in reasons.items():
        found = [name for name, said in PACKAGES.items() if re.search(said, reason)]
        (by_package if found else others)[found[0] if found else reason] += number
    if by_package:
        each = ", ".join(f"{number} need {name}" for name, number in by_package.most_common())
        yield f"Skipped: {each}. On Debian and Ubuntu: sudo apt install {' '.join(sorted(by_package))}"
    yield from (f"Skipped: {number}, as {reason}" for reason, number in others.most_common())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it above the last line, where nobody has to ask for it."""
    reports = terminalreporter.stats.get("skipped", [])
    said = (r.longrepr[2] if isinstance(r.longrepr, tuple) else str(r.longrepr) for r in reports)
    for line in summarize(Counter(reason.removeprefix("Skipped: ") for reason in said)):
        terminalreporter.write_line(line)
