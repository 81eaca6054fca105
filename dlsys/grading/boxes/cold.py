"""The first program in the box of a Jupyter kernel: it gives up privileges and becomes the kernel.

On its standard input it finds JSON: "limits", "user", "connection" (what the kernel's connection
file holds) and "files" for the working folder (by name, base 64).
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

from dlsys.grading.boxes import sandbox
from dlsys.grading.boxes.sandbox import Limits

CONNECTION = Path("/tmp/kernel.json")


def main() -> None:
    """Start the kernel."""
    told = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    sandbox.confine(Limits(**told["limits"]), told["user"])
    for name, content in told["files"].items():
        Path(sandbox.HOME, name).write_bytes(base64.b64decode(content))
    CONNECTION.write_text(json.dumps(told["connection"]))
    kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", str(CONNECTION)]
    os.execve(kernel[0], kernel, sandbox.environment())


if __name__ == "__main__":
    main()
