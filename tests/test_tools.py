"""What stands around the code: checks before a commit and on a server, and what a run of tests says."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent

SKIPS = """
import pytest

@pytest.mark.skipif(True, reason="there is no Chromium")
@pytest.mark.parametrize("n", range(3))
def test_page(n):
    pass

@pytest.fixture
def box():
    pytest.skip("Nothing is kept apart. Install bubblewrap; on Debian: sudo apt install bubblewrap.")

@pytest.mark.parametrize("n", range(4))
def test_box(box, n):
    pass

@pytest.mark.skip(reason="the book is not built: run make book")
def test_book():
    pass

def test_fine():
    pass
"""


def run_tests(folder: Path, code: str, *options: str) -> list[str]:
    (folder / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    (folder / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()


def test_a_run_ends_with_what_was_skipped_and_what_to_install_for_it(tmp_path):
    *_, packages, other, _ = run_tests(tmp_path, SKIPS, "-p", "xdist", "-n", "2")
    assert packages == (
        "Skipped: 4 need bubblewrap, 3 need chromium. "
        "On Debian and Ubuntu: sudo apt install bubblewrap chromium"
    )
    assert other == "Skipped: 1, as the book is not built: run make book"


def test_nothing_is_said_where_nothing_is_skipped(tmp_path):
    lines = run_tests(tmp_path, "def test_fine():\n    pass\n")
    assert not any("Skipped" in line for line in lines)


def test_a_commit_is_held_to_make_lint_and_the_server_to_the_script_that_anyone_can_run():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [hook["entry"] for repo in hooks for hook in repo["hooks"]] == ["make lint"]
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    steps = [step for job in flow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
