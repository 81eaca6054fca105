"""Ranks that start processes of every sort; then they return, fail or wait until somebody stops
the script, as the name of a file says, where the numbers of all processes are written. There is a
run for each file that is given; after it the script waits for a line.
"""

import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

from dlsys import world
from dlsys.world.real import fork_server


def note(path, number):
    with path.open("a") as file:
        file.write(f"{number}\n")


def sleep_apart(path, depth):
    """A child that sleeps in a session of its own, or its orphaned child: a daemon."""
    with warnings.catch_warnings(action="ignore"):  # of threads, which a child does not have
        child = os.fork()
    if child == 0:
        os.setsid()
        if depth == 0:
            note(path, os.getpid())
            time.sleep(120)
            os._exit(0)
        sleep_apart(path, depth - 1)
        os._exit(0)


def program(comm, path):
    note(path, os.getpid())
    note(path, subprocess.Popen(["sleep", "120"], start_new_session=True).pid)
    sleep_apart(path, 0)
    sleep_apart(path, 1)
    while comm.rank == 0 and len(path.read_text().split()) < 8:
        time.sleep(0.01)
    comm.barrier()
    print("running", flush=True)
    if path.name == "fail":
        os._exit(3)
    if path.name == "wait":  # one rank busy, one in a call of the library
        while comm.rank == 0:
            pass
        comm.barrier()


def fork_a_sleeper():
    """A process that Python forks once there is a server, and that prints nowhere."""
    world.launch(lambda comm: None, 1)
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        time.sleep(120)
        os._exit(0)
    print(fork_server._server.process.pid, child, flush=True)


for path in map(Path, sys.argv[1:]):
    if path.name == "wait":
        fork_a_sleeper()
    try:
        world.launch(program, 2, args=(path,))
    except world.WorldError as error:
        print(str(error).splitlines()[0])
    print(path.name, "is over", flush=True)
    sys.stdin.readline()
