"""Opens two boxes with processes that would outlive them, says who they are, and waits."""

import json
import signal
import sys
import time

from dlsys.grading.boxes.warm import Boxes

STRAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
"""

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what started it may ignore that
    sys.path.append(__file__.rpartition("/tests/")[0])
    with Boxes(trust_students=sys.argv[1] == "folder") as boxes:
        opened = [boxes.open("tests.grading.programs.boxed") for _ in range(2)]
        for box in opened:
            box.socket.sendall(json.dumps(STRAY).encode() + b"\n")
            box.socket.recv(1)
        print("open", flush=True)
        time.sleep(1000)
