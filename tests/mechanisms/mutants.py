"""What could be wrong in a mechanism's plan, check and price without a test of it noticing.

`make mutants CHAPTER=slug` changes one small thing at a time in plan.py, check.py and price.py of a
slug, and in what `MORE` names (a mutant: `+` becomes `-`, `<` becomes `<=`), and runs the tests of
the slug against each. It
shows every mutant that no test noticed, and fails unless mutants.toml lists it with a reason, as

    [[tensor_parallel]]
    where = "price.activation_bytes"
    change = '''
    - the line as it is
    + the line as it was made'''
    reason = "both give the same, because ..."

Everything is written in _build/mutants, where `mutmut browse` looks further into it.
"""

import argparse
import ast
import contextlib
import functools
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent.parent
SCRATCH = ROOT / "_build" / "mutants"
MECHANISMS = Path(__file__).parent
LISTED = MECHANISMS / "mutants.toml"
FILES = ("plan.py", "check.py", "price.py")
MORE = {  # what else has formulas, by slug
    "attention": ("laws.py", "plain_price.py"),
    "collectives": (
        "choose.py",
        "halving.py",
        "hierarchical.py",
        "naive.py",
        "ring.py",
        "ring_plan.py",
        "tree.py",
    ),
    "composing_axes": ("laws.py", "memory.py", "strategies.py"),
    "context_parallel": ("laws.py",),
    "data_parallel": ("compression.py", "hooks.py", "laws.py", "local_sgd.py", "noise.py"),
    "expert_parallel": ("laws.py",),
    "input_pipeline": (
        *("dealing.py", "laws.py", "ordering.py", "packing.py", "shuffling.py"),
        *("simulation.py", "timeline.py"),
    ),
    "memory_wall": ("fitting.py", "when_to_scale.py"),
    "pipeline_parallel": ("dual_pipe.py", "laws.py", "weight_versions.py"),
    "precision": ("block_formats.py", "number_line.py", "recipe.py"),
    "recomputation": ("chain.py", "fitting.py", "keeping.py", "laws.py", "lifetimes.py"),
    "resilience": ("boxes.py", "failures.py", "laws.py"),
    "roofline": ("diagnosis.py", "kernels.py", "laws.py", "tiles.py", "utilization.py"),
    "scaling_laws": ("counting.py", "optimum.py", "quality.py", "repetition.py"),
    "tensor_parallel": ("laws.py", "pieces.py"),
    "training_loop": ("laws.py", "noise.py", "schedules.py", "update_rule.py"),
    "zero": ("flat.py", "laws.py"),
}
# What tests read.
READ = (
    *("LICENSE", "_toc.yml", "bench/h100.py", "bench/scaling_sweep.py"),
    *(f"chapters/{name}.md" for name in ("collectives", "data_parallel", "memory_wall")),
    "chapters/collectives_more.md",
    "chapters/tensor_parallel_more.md",
)
KEEPS = type(functools.cache(int))
CACHES: list[Any] = []  # of the package, in the tests' process
QUICK = "MUTANTS_QUICK"  # set in the first round, which most mutants do not outlive
NOTICED = {"killed", "timeout"}  # one that never ends is noticed, too
SETTINGS = """
[tool.mutmut]
source_paths = ["dlsys"]
only_mutate = {files}
pytest_add_cli_args_test_selection = {tests}
also_copy = {read}
pytest_add_cli_args = ["-p", "tests.mechanisms.mutants", "-p", "no:cacheprovider", "-k", {slug}]
process_isolation = "forkserver"  # threads of PyTorch do not survive a fork
timeout_multiplier = 5.0
timeout_constant = 5.0
use_git_change_detection = false

[tool.pytest.ini_options]
"""


@dataclass(frozen=True, order=True)
class Change:
    """A mutant as a person knows it: the function it is in, and the lines that differ."""

    where: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, where: str, diff: str) -> "Change":
        """Read it from a diff, or from the text of mutants.toml; indentation does not count."""
        lines = (line for line in diff.splitlines() if line[:1] in {"-", "+"})
        changed = [line for line in lines if not line.startswith(("---", "+++"))]
        return cls(where, tuple(f"{line[0]} {line[1:].strip()}" for line in changed))

    def __str__(self) -> str:
        return "\n    ".join((self.where, *self.lines))

    @property
    def of_strictness(self) -> bool:
        """Whether a `zip(..., strict=True)` alone is lax in it.

        What is zipped is of one length by construction; strict says so, and would tell of a slip.
        """
        was, *now = (re.sub(r",? *(strict=\w+)?\)", ")", line[2:]) for line in self.lines)
        return "strict=True" in self.lines[0] and now == [was]


# --- in the tests' process: `-p tests.mechanisms.mutants` ------------------------------------------


def pytest_configure() -> None:
    """Try the same examples on each mutant, and in each run of this command."""
    settings.register_profile(
        "mutants", max_examples=25, deadline=None, derandomize=True, database=None
    )
    settings.load_profile("mutants")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the quickest tests first, as one that fails ends the trial of a mutant.

    In the first round, run these alone.
    """
    stats = Path("mutmut-stats.json")
    seconds = json.loads(stats.read_text())["duration_by_test"] if stats.exists() else {}
    its_own = [item for item in items if "__mutmut_" in item.name]  # in our classes
    config.hook.pytest_deselected(items=its_own)  # or mutmut takes them for new tests
    items[:] = [item for item in items if item not in its_own]
    for item in items:
        item._nodeid = item.nodeid  # which mutmut 3.8 reads, and pytest 9 has no more
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    if QUICK in os.environ and seconds:
        items[:] = [item for item in items if seconds.get(item.nodeid, 0.0) < 0.2]
    CACHES[:] = [each for each in gc.get_objects() if isinstance(each, KEEPS) and _ours(each)]


def _ours(cached: Any) -> bool:
    return str(cached.__module__).startswith("dlsys.") and cached.__module__ != "dlsys.annotated"


def pytest_runtest_setup() -> None:
    """Forget what functions gave in earlier tests: mutmut tries a mutant with those tests alone
    that called its function, and a test that is given an old plan calls no builder."""
    for cached in CACHES:
        cached.cache_clear()


# --- the command ----------------------------------------------------------------------------------


def prepare(slug: str, files: list[str]) -> None:
    """Copy the package, the tests and what they read to where mutmut may write."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    for folder in ("dlsys", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, SCRATCH / folder, ignore=ignored)
    for name in files:
        (SCRATCH / name).write_text(bare((ROOT / name).read_text("utf-8")), "utf-8")
    for name in READ:
        (SCRATCH / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, SCRATCH / name)
    tests = [str(path.relative_to(ROOT)) for path in sorted(MECHANISMS.glob(f"test_{slug}*.py"))]
    tests.append("tests/test_arguments.py")  # of which -k leaves what is of the slug
    given = {"files": files, "tests": tests, "read": [name.partition("/")[0] for name in READ]}
    given["slug"] = slug
    text = SETTINGS.format(**{name: json.dumps(each) for name, each in given.items()})
    (SCRATCH / "pyproject.toml").write_text(text)


def bare(source: str) -> str:
    """Put decorators below what they decorate (`f = checked(f)`): mutmut changes no function that
    has one."""
    lines = source.splitlines()
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for node in sorted(functions, key=lambda node: -node.lineno):  # from the last line up
        above = [ast.unparse(each) for each in node.decorator_list]
        if above and {"checked", "property"} >= set(above):
            indent = " " * node.col_offset
            below = [f"{indent}{node.name} = {each}({node.name})" for each in reversed(above)]
            lines[node.end_lineno : node.end_lineno] = below
            del lines[node.decorator_list[0].lineno - 1 : node.lineno - 1]
    return "\n".join(lines) + "\n"


def run(files: list[str]) -> dict[str, str]:
    """Try every mutant, and return what became of each ("killed", "survived", ...) by its name.

    First with the quick tests; then what these leave, with all of them.
    """
    _mutmut({QUICK: "1"})
    left = [name for name, fate in _fates(files).items() if fate not in NOTICED]
    if left:
        _mutmut({}, *left)
    return _fates(files)


def _mutmut(environment: dict[str, str], *names: str) -> None:
    threads = {"OMP_NUM_THREADS": "1"}  # two mutants at a time need no more
    command = [sys.executable, "-m", "mutmut", "run", *names]
    if subprocess.run(command, cwd=SCRATCH, env=os.environ | threads | environment).returncode:
        raise SystemExit("mutmut did not come to its end; what it said stands above.")


def _fates(files: list[str]) -> dict[str, str]:
    from mutmut.stats import status_by_exit_code

    metas = [SCRATCH / "mutants" / f"{name}.meta" for name in files]
    codes = [json.loads(meta.read_text())["exit_code_by_key"] for meta in metas if meta.exists()]
    return {name: status_by_exit_code[code] for each in codes for name, code in each.items()}


def read_change(name: str) -> Change:
    """Return what a mutant changes, from its name: `dlsys.slug.price.x_function__mutmut_7`."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    module, _, function = name.partition("__mutmut_")[0].rpartition(".")
    with contextlib.chdir(SCRATCH):
        diff = get_diff_for_mutant(name, path=f"{module.replace('.', '/')}.py")
    function = function.replace("ǁ", ".").removeprefix("x.").removeprefix("x_")
    return Change.of(f"{module.rpartition('.')[2]}.{function}", diff)


def read_listed(slug: str) -> list[Change]:
    """Return the mutants of a slug that a person has judged; each needs a reason."""
    entries = tomllib.loads(LISTED.read_text("utf-8")).get(slug, [])
    for entry in entries:
        if not entry["reason"].strip():
            raise SystemExit(f"mutants.toml lists {entry['where']} without a reason.")
    return [Change.of(entry["where"], entry["change"]) for entry in entries]


def report(survivors: Counter[Change], listed: Iterable[Change]) -> list[str]:
    """Return what is left to do: survivors that nobody judged, and entries that none needs."""
    known = set(listed)
    unknown = [change for change in sorted(survivors.elements()) if change not in known]
    lines = [str(change) for change in unknown if not change.of_strictness]
    gone = sorted(known - survivors.keys())
    return lines + [f"listed in mutants.toml, but does not survive: {change}" for change in gone]


def main() -> None:
    """Try the mutants of one slug."""
    parser = argparse.ArgumentParser(prog="make mutants", usage="make mutants CHAPTER=slug")
    parser.add_argument("slug", nargs="?", default="")
    slug = parser.parse_args().slug
    names = [*FILES, *MORE.get(slug, ())]
    files = [f"dlsys/{slug}/{name}" for name in names if (ROOT / "dlsys" / slug / name).is_file()]
    if not slug or not files:
        parser.error(f"name a chapter with one of {', '.join(FILES)} in dlsys/, not {slug!r}")
    listed = read_listed(slug)
    prepare(slug, files)
    fates = run(files)
    by_fate = Counter(fates.values())
    survivors = Counter(read_change(n) for n, fate in fates.items() if fate not in NOTICED)
    left = report(survivors, listed)
    print(*left, sep="\n\n")
    counts = ", ".join(f"{number} {fate}" for fate, number in by_fate.most_common())
    print(f"\n{slug}: {len(fates)} mutants: {counts}.")
    print(f"{survivors.total()} unnoticed, of which {len(left)} to be killed or listed.")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
