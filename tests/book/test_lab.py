"""JupyterLab as `make lab` starts it: it says where it is, and nothing else."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.contents import ROOT

pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")


@pytest.fixture
def lab() -> Iterator[subprocess.Popen[str]]:
    lab = subprocess.Popen(
        ["make", "lab"],
        cwd=ROOT,
        # Without what a make around this test would have it do and say.
        env={k: v for k, v in os.environ.items() if "MAKE" not in k} | {"BROWSER": "true"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield lab
    os.killpg(lab.pid, signal.SIGKILL)
    lab.wait()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.skipif(
    not (ROOT / ".venv" / "installed").exists(), reason="make would install everything first"
)
def test_a_newcomer_sees_where_jupyterlab_is_and_nothing_else(lab):
    said = []
    for line in lab.stdout:
        said.append(line.strip())
        if "http://127.0.0.1" in line:
            break
    assert [re.sub(r"\S*://\S+|^\[C .*\]$", "...", line) for line in said] == [
        "...",
        "",
        "To access the server, open this file in a browser:",
        "...",
        "Or copy and paste one of these URLs:",
        "...",
        "...",
    ]
