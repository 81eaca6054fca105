"""The direction of imports: `make lint` holds a mechanism to it from its first file on."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ABOVE_A_PLAN = {"check": "check", "price": "price", "draw": "draw", "animate": "draw"}  # its verb
PLANS = [
    pytest.param(path, id=slug)
    for path in sorted((ROOT / "dlsys").glob("*/plan.py"))
    if (slug := path.parent.name)
]


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """What import-linter says of this package with a new mechanism, `made_up`, and a
    new file of grading that break every rule."""
    pytest.importorskip("importlinter")
    copy = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "pyproject.toml", copy)
    (copy / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "layers.py", copy / "tests")
    shutil.copytree(ROOT / "dlsys", copy / "dlsys", ignore=shutil.ignore_patterns("__pycache__"))
    files = {
        "__init__": "",
        "plan": "from dlsys.made_up.shards import cut",
        "shards": "from dlsys.made_up.ring import shard",
        "price": "from dlsys.made_up.laws import weak",
        "laws": "",
        "ring": "from dlsys.data_parallel.ddp import DataParallel\nfrom dlsys.made_up.buckets import fill",
        "buckets": "from dlsys.made_up.units import wrap",
        "units": "from dlsys.made_up.buckets import fill",
        "sharded_optimizer/__init__": "from dlsys.made_up.fsdp.gather import gather",
        "fsdp/__init__": "",
        "fsdp/gather": "from dlsys.made_up.draw import draw",
        "draw": "",
    }
    for room in ("sharded_optimizer", "fsdp"):
        (copy / "dlsys" / "made_up" / room).mkdir(parents=True)
    for name, text in files.items():
        (copy / "dlsys" / "made_up" / f"{name}.py").write_text(text)
    with (copy / "dlsys" / "units.py").open("a") as spine:
        spine.write("\nfrom dlsys.made_up.plan import cut\n")
    (copy / "dlsys" / "grading" / "stray.py").write_text("")
    with (copy / "dlsys" / "grading" / "judging" / "wire.py").open("a") as wire:
        wire.write("\nfrom dlsys.grading.judging.examine import examine\n")
    with (copy / "dlsys" / "grading" / "boxes" / "memory.py").open("a") as room:
        room.write("\nfrom dlsys.grading.collecting.naming import Label\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode, done.stdout
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "sentence",
    [
        "dlsys.made_up is not allowed to import dlsys.data_parallel",
        "dlsys.units is not allowed to import dlsys.made_up",
        "dlsys.made_up.plan is not allowed to import dlsys.made_up.ring",
        "dlsys.made_up.price is not allowed to import dlsys.made_up.laws",
        "dlsys.made_up.sharded_optimizer is not allowed to import dlsys.made_up.fsdp",
        "dlsys.made_up.fsdp is not allowed to import dlsys.made_up.draw",
        "No cycles are allowed in dlsys.made_up. It could be made acyclic by removing 1 dependency",
    ],
)
def test_a_mechanism_that_no_list_names_is_refused(refused, sentence):
    assert sentence in refused


@pytest.mark.parametrize(
    "sentence",
    [
        "not listed as layers: - dlsys.grading.stray",
        "dlsys.grading.boxes is not allowed to import dlsys.grading.collecting",
        "No cycles are allowed in dlsys.grading.judging. It could be made acyclic",
    ],
)
def test_a_file_in_no_room_of_grading_and_a_wrong_way_between_rooms_are_refused(refused, sentence):
    assert sentence in refused


@pytest.mark.parametrize("path", PLANS)
def test_a_plan_reaches_up_only_in_the_method_of_that_verb(path):
    """What the contracts except: `check`, `price` and `draw` of a plan hand on to their files."""
    above = {f"dlsys.{path.parent.name}.{file}": verb for file, verb in ABOVE_A_PLAN.items()}
    tree = ast.parse(path.read_text("utf-8"))
    for part in ast.walk(tree):
        if isinstance(part, ast.Module | ast.FunctionDef):
            lines = part.body if isinstance(part, ast.Module) else ast.walk(part)
            modules = [line.module for line in lines if isinstance(line, ast.ImportFrom)]
            verbs = {above[module] for module in modules if module in above}
            assert verbs <= {getattr(part, "name", "")}, f"{path.name}: {ast.unparse(part)[:200]}"
