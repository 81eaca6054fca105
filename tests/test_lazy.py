"""A package's public names: listed once, shown by `dir` and Tab, loaded where asked for, refused where misspelt."""

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys

import pytest

from tests.contents import ROOT, SLUGS

LAZY = sorted(
    path.parent.name
    for path in (ROOT / "dlsys").glob("*/__init__.py")
    if "lazy.exports(__name__)" in path.read_text("utf-8")
)
HIDDEN_ONCE = {
    "data_parallel": ["DataParallel", "PowerSGD", "draw_overlap"],
    "memory_wall": ["measure_state", "explore"],
    "pipeline_parallel": ["Pipeline", "split", "zero_bubble"],
    "tensor_parallel": ["ColumnParallelLinear", "vocab_parallel_cross_entropy"],
    "world": ["simulate", "launch", "DeadlockError"],
}


def run(program: str) -> list[str]:
    """What a fresh interpreter prints, without the packages that are installed."""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}",
        ],
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    return done.stdout.split()


def test_every_mechanism_lists_its_names_so():
    assert {slug for slug in SLUGS if (ROOT / "dlsys" / slug).is_dir()} <= set(LAZY)


@pytest.mark.parametrize("package", HIDDEN_ONCE)
def test_tab_shows_what_needs_torch_before_torch_is_loaded(package):
    shown = run(f"import dlsys.{package} as package; print(*dir(package))")
    assert set(HIDDEN_ONCE[package]) < set(shown)
    assert shown == sorted(n for n in shown if not n.startswith("_")), "nothing but public names"


@pytest.mark.parametrize("package", LAZY)
def test_every_listed_name_loads_and_is_no_submodule_of_that_name(package):
    module = importlib.import_module(f"dlsys.{package}")
    for _, submodule, _ in pkgutil.iter_modules(module.__path__, f"dlsys.{package}."):
        importlib.import_module(submodule)  # which binds its own name in the package
    everything: dict[str, object] = {}
    exec(f"from dlsys.{package} import *", everything)
    assert dir(module)
    for name in dir(module):
        assert not inspect.ismodule(getattr(module, name)), f"{name} is hidden by a file's name"
        assert everything[name] is getattr(module, name)


def test_a_name_that_its_file_bears_too_is_the_name_whoever_was_there_first():
    for first in ("pipeline_parallel.partition", "pipeline_parallel"):
        program = f"""
import dlsys.{first}
from dlsys.pipeline_parallel import partition
import dlsys.pipeline_parallel.schedules
from dlsys.pipeline_parallel import zero_bubble
print(partition.__class__.__name__, zero_bubble.__class__.__name__)"""
        assert run(program) == ["function", "function"]


def test_a_misspelt_name_is_refused_with_the_names_that_are_near():
    from dlsys import tensor_parallel, world

    sentence = "no 'ColumParallelLinear'; did you mean ColumnParallelLinear or RowParallelLinear?"
    with pytest.raises(AttributeError, match=f"dlsys.tensor_parallel has {sentence}"):
        _ = tensor_parallel.ColumParallelLinear
    with pytest.raises(AttributeError, match=r"dlsys.world has no 'zzz'; it has CallRecord, .*"):
        _ = world.zzz
    with pytest.raises(ImportError, match="cannot import name 'ColumParallelLinear'"):
        from dlsys.tensor_parallel import ColumParallelLinear  # noqa: F401


def test_mypy_knows_every_name_and_refuses_any_other(tmp_path):
    """The packages' lists alone: nothing else is followed, so that this takes a second."""
    pytest.importorskip("mypy")
    lists = ",".join(f"dlsys.{package}" for package in LAZY)
    settings = f"[mypy]\nfollow_imports = skip\n[mypy-{lists}]\nfollow_imports = normal\n"
    (tmp_path / "mypy.ini").write_text(settings)
    right = [
        f"from dlsys.{package} import {name}"
        for package in LAZY
        for name in dir(importlib.import_module(f"dlsys.{package}"))
    ]
    wrong = [f"from dlsys.{package} import misspelt" for package in LAZY]
    (tmp_path / "names.py").write_text("\n".join([*wrong, *right]))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", f"--cache-dir={os.devnull}", "names.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    refused = [line.split(" error: ")[1] for line in done.stdout.splitlines() if "error:" in line]
    sentence = 'Module "dlsys.{}" has no attribute "misspelt"  [attr-defined]'
    assert refused == [sentence.format(package) for package in LAZY]
