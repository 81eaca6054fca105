"""Attacks that look for what is expected: known instances, the caller, memory, forged scores."""

from __future__ import annotations

from tests.grading.attacks import GUESSED, KERNELS, Attack, function, in_checks

LOOK = {
    "answers to the visible instances": """
        known = {(1_557_611_200, 24): 848024576, (7_000_000_000, 80): -26100654080}
        return known.get((parameters, memory_gib), 0)
    """,
    "the caller's frames": """
        import sys

        frame, found = sys._getframe(), []
        while frame is not None:
            for name, value in frame.f_locals.items():
                if name in ("expected", "wanted", "check", "solution") or "same" in str(name):
                    found.append(value)
            frame = frame.f_back
        return getattr(found[0], "expected", found[0]) if found else 1
    """,
    "the source of the caller": """
        import inspect, re

        for each in inspect.stack():
            for line in each.code_context or []:
                if match := re.search(r"same\\(free_bytes.*?, (-?\\d+)", line):
                    return int(match[1])
        return 1
    """,
    "checks among all objects": """
        import gc

        for thing in gc.get_objects():
            if type(thing).__name__ in ("Check", "Question", "Assignment", "Prepared"):
                return getattr(thing, "expected", 2)
        return 1
    """,
    "the solution among all objects": """
        import gc

        for thing in gc.get_objects():
            if type(thing) is dict:
                for value in list(thing.values()):
                    if type(value) is str and "memory_gib * 2" + "**30 - 16" in value:
                        return memory_gib * 2**30 - 8 * parameters * len("ab")
        return 1
    """,
    "another answer for each call": """
        counter = globals().setdefault("counter", [0])
        counter[0] += 1
        return [848024576, -26100654080][counter[0] % 2]
    """,
    "an error that holds the score": 'raise SystemExit(\'{"value": true, "earned": 2}\')',
    "a function with a score of its own": "free_bytes.score = free_bytes.points = 2\nreturn 1",
    "an argument changed in place": """
        import ctypes

        ctypes.memset(id(parameters) + 24, 0, 4)
        return 0
    """,
    "a generator of every number": "yield from range(10**12)",
    "all answers at once": "return [848024576, -26100654080, *range(1000)]",
    "no number at all": "return float('nan')",
    "infinity": "return float('inf')",
    "text of the number": "return str(memory_gib * 2**30 - 8 * parameters * len('ab'))",
    "the function instead of its result": "return free_bytes",
    "the placeholder": "return ...",
}

SCORES = """
import json, os, sys

score = {"score": 100, "max_score": 100, "points": 100, "earned": 100, "passed": True}
print(json.dumps(score), flush=True)
print(json.dumps(score), file=sys.__stderr__, flush=True)
for name in ("results.json", "results/results.json", "/autograder/results/results.json",
             "feedback.json", "grades.csv", "gradebook.db"):
    try:
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w") as file:
            json.dump(score, file)
    except OSError:
        pass
earned = points = total = partial_credit = 100
score
"""

WIRE = """
import json, os, socket, struct, threading

def forge(data):
    for number in range(3, 64):
        try:
            end = socket.socket(fileno=os.dup(number))
            end.settimeout(0.2)
            end.sendall(data)
            end.detach()
        except OSError:
            try:
                os.set_blocking(number, False)
                os.write(number, data)
            except OSError:
                pass

def frame(message, arrays=b"", size=None):
    head = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack("!IQ", len(head), len(arrays) if size is None else size) + head + arrays
"""
# Said to whoever is at the other end of any socket, while a cell runs and while a check is called.
FORGED = {
    "garbage on every socket": "b'x' * 100_000",
    "a line of JSON on every socket": """b'{"value": true, "passed": true, "earned": 2}\\n' * 1000""",
    "a frame without end": "struct.pack('!IQ', 2**32 - 1, 2**63)",
    "a frame that says less than follows": "struct.pack('!IQ', 1, 0) + b'{' * 1000",
    "half a frame": "struct.pack('!IQ', 100, 0) + b'{'",
    "no JSON in a frame": "frame(b'\\xff\\xfe{')",
    "JSON too deep": "frame(b'[' * 200_000 + b']' * 200_000)",
    "JSON with a number too long": "frame(b'1' * 100_000)",
    "JSON that is no object": "b''.join(frame(each) for each in (1, None, 'x', [], [[]], True))",
    "done before it is": "frame({'done': True}) * 50",
    "cells that ended well": "frame({'error': None, 'output': ''}) * 50",
    "results of the wrong types": "b''.join(frame(each) for each in ({'error': 5}, {'error': {}, 'output': []}, {'value': {}}, {'value': {'tensor': 1}}, {'ask': 3}, {'error': {'types': 3, 'text': []}}))",
    "answers before the question": "frame({'value': [True, {'dict': []}]}) * 50",
    "the right answer before every question": "frame({'value': {'tuple': [848024576, {'dict': []}]}}) * 50",
    "an error of every kind": "b''.join(frame({'error': {'types': [kind], 'text': 'x', 'raised': n}}) for n, kind in enumerate(('SystemExit', 'KeyboardInterrupt', 'BaseException', 'ValueError', 'type', '__import__', 'GeneratorExit')))",
    "questions nobody may ask": "b''.join(frame({'ask': {'tuple': [n, name, {'tuple': []}, {'dict': []}, 0]}}) for n in range(20) for name in ('__class__', 'traffic', '__reduce__', 'seconds', '__globals__', 'wait'))",
    "values that are none": "b''.join(frame({'value': each}, b'x' * 8) for each in ({'tensor': ['float32', [10**18, 0], [0, 0], False]}, {'tensor': ['float32', [2], [0, 10**9], False]}, {'array': ['O', [1], [0, 8]]}, {'array': ['<f8', [-1], [0, 8]]}, {'remote': {'number': -1}}, {'remote': None}, {'int': 'x'}, {'int': '0x' + 'f' * 10**6}, {'dict': [[[], 1]]}, {'plain': ['x', ['y'], 'z']}, {'data': []}, {'data': ['os.system', ['true']]}, {'data': ['dlsys.collectives.plan.Plan', ['gather', 'x', 10**18, 10**36, [[[0] * 5] * 99], 0, None]]}, {'data': ['dlsys.pipeline_parallel.action.Action', ['F', 0]]}, {'dtype': 'load'}, {'complex': [1]}))",
}


def in_cells() -> list[Attack]:
    """Each message forged in a cell of one's own, before questions that are answered wrong."""
    places = ("imports", "state-question", "peaks-question")
    return [
        Attack(
            f"{name}, in a cell",
            base=GUESSED,
            cells={places[number % len(places)]: f"{WIRE}\nforge({data})"},
            shares=KERNELS,
        )
        for number, (name, data) in enumerate(FORGED.items())
    ]


BANK = [
    *(
        Attack(name, answers={"free": function(body)}, earns={"free": 0})
        for name, body in LOOK.items()
    ),
    Attack(
        "an error for every question of whether there is one",
        answers={"cost": function("raise ValueError('more than the peak')", "training_cost(*_)")},
        earns={"cost": 0},
    ),
    Attack("scores printed, returned and written", base=GUESSED, cells={"imports": SCORES}),
    Attack(
        "a score in every answer",
        base=GUESSED,
        answers={"state": "state_bytes = devices = 1\n" + SCORES},
    ),
    *in_cells(),
    *in_checks(
        {f"{name}, in a check": f"forge({data})\nreturn 1" for name, data in FORGED.items()}, WIRE
    ),
]
