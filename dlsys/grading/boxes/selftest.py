"""A box that looks around: what the grader asks of the sandbox before it trusts it.

`main` runs inside and reports facts; `failures` says which of them should not be.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlsys.grading.boxes import sandbox
from dlsys.grading.boxes.sandbox import Limits

PROCESSES = 8  # the limit under which the box is tested
OUTSIDE = ("192.0.2.1", 80)  # an address that nobody has


def failures(line: socket.socket, limits: Limits) -> list[str]:
    """What is wrong with the box at the other end of `line`, in sentences; none if it holds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own = {
            "addresses": [listener.getsockname(), OUTSIDE],
            "hidden": [str(path) for path in hidden()],
            "needed": [str(path) for path in sandbox.libraries()],
            "fixed": [*map(str, sandbox.libraries()), "/", "/etc", "/dev", "/proc", "/home"],
        }
        line.sendall(json.dumps(own).encode() + b"\n")
        with line.makefile() as lines:
            said = lines.readline()
    return wrong(json.loads(said), limits) if said else ["Nothing ran in it."]


def wrong(facts: dict[str, Any], limits: Limits) -> list[str]:
    """What should not be of the facts that `main` reports, in sentences."""
    extra = set(facts["environment"]) - set(sandbox.environment())
    return [
        sentence
        for is_so, sentence in (
            (facts["user"] == 0, "The code in it is root."),
            (facts["privileges"] != [0, 0, 0, 1, 2], "The code in it keeps privileges."),
            (facts["interfaces"] != ["lo"], f"It has a network: {facts['interfaces']}."),
            (facts["reached"], f"It reaches the network: {facts['reached']}."),
            (
                facts["seen"],
                f"It shows files that must not lie below /usr or Python: {facts['seen'][:3]}.",
            ),
            (facts["closed"], f"Python cannot read {', '.join(facts['closed'])} in it."),
            (facts["written"], f"It can write to {', '.join(facts['written'])}."),
            (facts["processes"] > 4, "It shows the processes of this computer."),
            (extra, f"It knows variables of your environment: {', '.join(sorted(extra))}."),
            (facts["forks"] >= PROCESSES, "There is no limit on processes in it."),
            (facts["room"] > limits.file_bytes, "Its working folder has no limit."),
        )
        if is_so
    ]


def hidden() -> Iterator[Path]:
    """Files that exist here and must not in a box: the user's, the course's, those beside us."""
    needed = sandbox.libraries()
    for folder in {Path.home(), Path.cwd(), sandbox.PACKAGE.parent} - {Path("/")}:
        # Packages lie beside an installed package, and are seen; solutions lie beside a course.
        ours = any(folder.is_relative_to(one) for one in (sys.prefix, sandbox.PACKAGE))
        if not ours or (folder / "pyproject.toml").exists():
            with contextlib.suppress(OSError):
                for path in folder.iterdir():
                    if not any(one.is_relative_to(path) for one in needed):
                        yield path


def main(line: socket.socket, limits: Limits) -> None:
    """Look around and report."""
    with line.makefile("rw") as lines:
        asked = json.loads(lines.readline())
        status = dict(
            row.split(":\t") for row in Path("/proc/self/status").read_text().splitlines()
        )
        facts: dict[str, Any] = {
            "user": min(os.getresuid() + os.getresgid()),
            "privileges": [
                int(status[name], 16)
                for name in ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
            ],
            "interfaces": [name for _, name in socket.if_nameindex()],
            "reached": [address for address in asked["addresses"] if _reaches(*address)],
            "seen": [path for path in asked["hidden"] if os.path.lexists(path)],
            "closed": [path for path in asked["needed"] if not os.access(path, os.R_OK | os.X_OK)],
            "written": [folder for folder in asked["fixed"] if _writes(folder)],
            "processes": sum(name.isdigit() for name in os.listdir("/proc")),
            "environment": list(os.environ),
            "forks": _forks(),
            "room": shutil.disk_usage(".").total,
        }
        Path("mine").write_text("A box can write here.")
        lines.write(json.dumps(facts) + "\n")


def _reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=0.1).close()
    except OSError:
        return False
    return True


def _writes(folder: str) -> bool:
    place = Path(folder, "dlsys-box-was-here")
    try:
        place.touch()
    except OSError:
        return False
    place.unlink()
    return True


def _forks() -> int:
    """How many processes can be started, no more than one above the limit."""
    wait, hold = os.pipe()
    children: list[int] = []
    with contextlib.suppress(OSError):
        while len(children) < PROCESSES:
            if child := os.fork():
                children.append(child)
            else:
                os.read(wait, 1)
                os._exit(0)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(hold)
    return len(children)


def advice(trouble: str = "") -> str:
    """What to install or switch on where boxes cannot be had because of `trouble`."""
    ways = []
    if sys.platform != "linux":
        ways = ["Boxes need Linux: use a virtual machine, a container, or WSL2 on Windows."]
    elif shutil.which("bwrap") is None:
        ways = ["Install bubblewrap; on Debian and Ubuntu: sudo apt install bubblewrap."]
    elif "Unknown option" in trouble:
        ways = ["Install bubblewrap 0.7 or later; this one is too old."]
    else:
        if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
            options = " ".join(
                f"--security-opt {one}=unconfined" for one in ("seccomp", "apparmor", "systempaths")
            )
            ways.append(f"Start the container with: --cap-add SYS_ADMIN {options}.")
        for name, value in (
            ("kernel.apparmor_restrict_unprivileged_userns", "1"),
            ("kernel.unprivileged_userns_clone", "0"),
            ("user.max_user_namespaces", "0"),
        ):
            setting = Path("/proc/sys", name.replace(".", "/", 1))
            if os.geteuid() != 0 and setting.exists() and setting.read_text().strip() == value:
                allowed = {"1": "0", "0": "1"}[value] if name.startswith("kernel") else "10000"
                ways.append(f"Allow user namespaces: sudo sysctl {name}={allowed}.")
        if not ways:
            ways.append("Linux 5.14 or later, bubblewrap 0.7 or later, user namespaces are needed.")
    return " ".join(ways)
