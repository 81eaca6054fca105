"""torchrun in a fork of the process that tests, which has imported already what torchrun needs.

    torchrun ... torchrun.py PROGRAM ...

runs a program as it stands, and ends there. A thread of gloo may still be letting go of a tensor when Python comes to
its own end, and is ended then in the middle of it: "terminate called without an active exception", status -6, about
once in a hundred runs beside others (PyTorch 2.13; its pull request 179291 says how).
"""

import gc
import multiprocessing
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def begin(
    folder: Path, name: str, options: Sequence[str], program: Sequence[str], **environment: str
) -> multiprocessing.Process:
    """Start a program, with its arguments, on one node in `folder`, its output in files of this name.

    The ranks meet by a file: `--standalone` listens at all addresses of the machine, and torch
    unpickles what anybody sends there.
    """
    from torch.distributed import run

    from dlsys.world.real.rank_process import loopback

    place = folder / f"{name}.meeting"
    place.unlink(missing_ok=True)  # of a run before, which has ended
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", str(place)]
    meeting += ["--rdzv-id", name, "--rdzv-conf", "store_type=file"]

    def torchrun() -> None:
        gc.freeze()  # what was garbage before the fork may hold on to threads that are not here
        gc.enable()
        for number, kind in enumerate(("out", "err"), 1):
            os.dup2(
                os.open(folder / f"{name}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number
            )
        os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": loopback(), **environment}
        os.environ["AGENT"] = str(os.getpid())
        os.chdir(folder)
        run.main(["--local-addr", "127.0.0.1", *meeting, *options, __file__, *program])

    process = multiprocessing.get_context("fork").Process(target=torchrun, daemon=True)
    gc.disable()
    try:
        process.start()
    finally:
        gc.enable()
    return process


def ended(
    folder: Path, **processes: multiprocessing.Process
) -> tuple[dict[str, tuple[int | None, list[str]]], str]:
    """How they have ended, and what was printed: by name (status, lines), and all errors."""
    for process in processes.values():
        process.join(300)
    for process in processes.values():
        if process.is_alive():  # so that nothing hangs for ever: it ends its workers, too
            process.terminate()
            process.join()
    said = {
        name: (process.exitcode, (folder / f"{name}.out").read_text().splitlines())
        for name, process in processes.items()
    }
    return said, "".join((folder / f"{name}.err").read_text() for name in processes)


def as_it_stands() -> None:
    """Run the program that this process was given, with its arguments."""
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent.resolve())
    runpy.run_path(sys.argv[0], run_name="__main__")


def end() -> None:
    """End this process without what Python does at its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    as_it_stands()
    end()
