"""Ranks that start processes of every sort; then they return, fail or wait until somebody stops
the script, as its first argument says. Its second one is a file for the numbers of all processes.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from dlsys import world

how, path = sys.argv[1:]


def note(number):
    with open(path, "a") as file:
        file.write(f"{number}\n")


def sleep_apart(depth):
    """A child that sleeps in a session of its own, or its orphaned child: a daemon."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if depth == 0:
            note(os.getpid())
            time.sleep(600)
        sleep_apart(depth - 1)
        os._exit(0)


def program(comm):
    note(os.getpid())
    note(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
    sleep_apart(0)
    sleep_apart(1)
    while comm.rank == 0 and len(Path(path).read_text().split()) < 8:
        time.sleep(0.01)
    comm.barrier()
    print("running", flush=True)
    if how == "fail":
        os._exit(3)
    while how == "wait":
        time.sleep(0.1)


try:
    world.launch(program, 2)
except world.WorldError as error:
    print(str(error).splitlines()[0])
print("over", flush=True)
sys.stdin.read()
