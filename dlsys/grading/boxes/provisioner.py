"""Jupyter kernels in boxes: every program that runs notebooks can use them, nbgrader among them.

Two settings choose it: the environment variable, and in nbgrader_config.py (or on the command
line, as --KernelManager.transport=ipc) the transport, because a box has no network:

    export JUPYTER_DEFAULT_PROVISIONER_NAME=dlsys-sandbox
    c.KernelManager.transport = "ipc"

The kernel's sockets lie in the box, and are reached through /proc/PROCESS/root: so no folder of
this computer can be written from inside, and nothing is left to remove. A kernel gets a copy of
the files beside its notebook, and is Python whatever the notebook asks for. Restarted, it is in a
new box: clients have to be made anew.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner

from dlsys.grading.boxes import cold, sandbox, seccomp
from dlsys.grading.boxes.memory import uses_more
from dlsys.grading.boxes.sandbox import Limits, SandboxError
from dlsys.grading.boxes.warm import Boxes

SOCKETS = "/tmp/kernel"  # their names in the box, up to a number
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class SandboxProvisioner(LocalProvisioner):
    """Starts each kernel in a box of its own; see the module."""

    limits = Limits(open_files=256)  # a kernel that does nothing has 65

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Refuse what cannot be isolated; raises SandboxError."""
        if (transport := getattr(self.parent, "transport", None)) != "ipc":
            raise SandboxError(
                f"A kernel in a box has no network, and the transport is {transport!r}: "
                'set c.KernelManager.transport = "ipc", or pass --KernelManager.transport=ipc.'
            )
        _test()
        # A signal would end the box, and not the cell.
        self.kernel_spec.interrupt_mode = "message"
        return await super().pre_launch(**kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel with the files of the folder `cwd`; the connection to it."""
        ports: Any = {name: number for number, name in enumerate(PORTS, 1)}
        inside = {**self.connection_info, **ports, "ip": SOCKETS}
        inside["key"] = inside["key"].decode()
        told, tell = os.pipe()
        user = sandbox.user_for(secrets.randbelow(1 << 22))
        with tempfile.TemporaryFile("w+") as start:
            parts = {"limits": asdict(self.limits), "user": user, "connection": inside}
            files = _files(Path(kwargs.get("cwd") or "."), self.limits.file_bytes)
            json.dump({**parts, "files": files}, start)
            start.seek(0)
            bwrap = shutil.which("bwrap") or "bwrap"
            python = [sys.executable, "-P", "-m", cold.__name__]
            rules = seccomp.filter_file()  # for bubblewrap's own process in the box
            numbers = ["--info-fd", str(tell), "--seccomp", str(rules)]
            self.process = subprocess.Popen(
                [*sandbox.command(bwrap, self.limits), *numbers, *python],
                stdin=start,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[tell, rules],
                start_new_session=True,
            )
        os.close(tell)
        os.close(rules)
        with os.fdopen(told) as info:
            first = json.load(info)["child-pid"]
        self.pid = first
        self._first = psutil.Process(first)
        outside: Any = {"ip": f"/proc/{first}/root{SOCKETS}"}
        self.connection_info = {**self.connection_info, **ports, **outside}
        return self.connection_info

    async def poll(self) -> int | None:
        """As for other kernels; one that holds too much memory is ended here."""
        if self.process and uses_more(
            [self._first], self.limits.memory_bytes, self.limits.socket_bytes
        ):
            await self.send_signal(signal.SIGKILL)
        return await super().poll()

    async def send_signal(self, signum: int) -> None:
        """End the box, whatever the signal; an interrupt is none of these, but a message."""
        if self.process and signum != signal.SIGINT:
            # Bubblewrap waits for the box's first process and then ends too.
            with contextlib.suppress(psutil.NoSuchProcess):
                self._first.kill()


@functools.cache
def _test() -> None:
    """See once whether boxes hold on this computer; raises SandboxError."""
    with Boxes():
        pass


def _files(folder: Path, most: int) -> dict[str, str]:
    """The regular files of a folder, in base 64, as long as they have `most` bytes together."""
    found = {}
    for path in sorted(folder.iterdir()):
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_size <= most:
            most -= about.st_size
            found[path.name] = base64.b64encode(path.read_bytes()).decode()
    return found
