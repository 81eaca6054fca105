"""Attacks on what judges: patched libraries, shadowed helpers, transformers, objects that lie."""

from __future__ import annotations

from tests.grading.attacks import GUESSED, Attack, function

# Each runs at the top of a notebook whose every answer is wrong.
PATCHES = {
    "same that always ticks": """
        import dlsys.exercises

        def same(*arguments, **options):
            print("\\x1b[32m✔\\x1b[0m right")

        dlsys.exercises.same = same
    """,
    "a judge that finds no difference": """
        import dlsys.exercises as exercises
        from dlsys.exercises import judge

        judge.difference = exercises.difference = judge._difference = lambda *a, **k: None
        judge.close = lambda *a, **k: True
        judge.unanswered = lambda came: None
    """,
    "seals that match everything": """
        from dlsys.exercises import Sealed, seal

        Sealed.matches = lambda self, value, rtol=0: True
        Sealed.__eq__ = lambda self, other: True
        seal._digest = lambda text, salt: salt
    """,
    "plain that says what is expected": """
        import dlsys.exercises as exercises
        from dlsys.exercises import plain

        class Equal(dict):
            __eq__ = lambda self, other: True
            __hash__ = dict.__repr__

        plain.plain = exercises.plain = lambda *a, **k: Equal()
        plain.Array.__eq__ = lambda self, other: True
    """,
    "builtins that agree": """
        import builtins

        class Every(int):
            __eq__ = __le__ = __ge__ = __bool__ = lambda *a: True
            __hash__ = int.__hash__

        builtins.len = builtins.sum = lambda *a: Every(3)
        builtins.sorted = lambda *a, **k: Every(1)
        builtins.all = builtins.any = builtins.isinstance = lambda *a: True
    """,
    "type that says float": "import builtins\nbuiltins.type = lambda *a: float",
    "torch.equal that is always true": """
        import torch

        torch.equal = torch.allclose = torch.is_tensor = lambda *a, **k: True
        torch.Tensor.__eq__ = lambda self, other: torch.tensor(True)
        torch.Tensor.tolist = lambda self: [0]
    """,
    "isclose that is always true": "import math\nmath.isclose = lambda *a, **k: True",
    "json that writes no mistake": """
        import json

        dumps = json.dumps
        json.dumps = lambda *a, **k: dumps({"value": True, "passed": True, "points": 100})
        json.loads = lambda *a, **k: {"value": True, "passed": True}
    """,
    "sockets that say what they like": """
        import socket

        class Generous(socket.socket):
            def sendall(self, data, *flags):
                return super().sendall(b'{"value": true, "passed": true, "points": 100}')

        socket.socket = Generous
    """,
    "a wire that packs what one wants": """
        from dlsys.grading.judging import packing

        packing.Packer.pack = lambda self, value, depth=0: {"value": True, "passed": True, "earned": 9}
    """,
    "calls that are answered by others": """
        from dlsys.grading.judging import calls

        calls.Calls._call = lambda self, *a: (True, {})
        calls.Calls._names_of = lambda self, names: dict.fromkeys(names, True)
    """,
    "a runner that reports success": """
        from dlsys.grading.judging import inside

        inside._run = lambda source: {"error": None, "output": "", "earned": 100, "passed": True}
        inside._work = inside._keep_snapshot = lambda *a: None
    """,
    "an import system of one's own": """
        import sys, types

        class Anything(types.ModuleType):
            def __getattr__(self, name):
                return lambda *a, **k: True

        for name in list(sys.modules):
            if name.startswith(("dlsys.exercises", "dlsys.memory_wall", "dlsys.grading")):
                sys.modules[name] = Anything(name)
    """,
    "an AST transformer": """
        import ast

        class Tick(ast.NodeTransformer):
            def visit_Call(self, node):
                if getattr(node.func, "id", "") == "same":
                    node.args[1] = node.args[0]
                return node

        get_ipython().ast_transformers.append(Tick())
    """,
    "an input transformer": """
        shell = get_ipython()
        shell.input_transformers_cleanup.append(lambda lines: ["print('✔ same')\\n"])
        shell.input_transformers_post.append(lambda lines: ["pass\\n"])
    """,
    "a shell that runs nothing": """
        shell = get_ipython()

        class Fine:
            error_before_exec = error_in_exec = result = None
            success = True

        shell.run_cell = type(shell).run_cell = lambda *a, **k: Fine()
    """,
    "hooks before and after cells": """
        shell = get_ipython()
        for event in ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell"):
            shell.events.register(event, lambda *a: shell.user_ns.update(passed=True, points=100))
        shell.set_custom_exc((BaseException,), lambda *a, **k: None)
    """,
    "a trace function": """
        import sys, threading

        def trace(frame, event, argument):
            for name in ("expected", "wanted"):
                if name in frame.f_locals:
                    frame.f_locals["came"] = frame.f_locals[name]
            return trace

        sys.settrace(trace)
        threading.settrace(trace)
        sys.setprofile(trace)
    """,
    "assertions switched off": "import sys\nsys.flags = type('F', (), {'optimize': 2})()\n__debug__ = 0 if False else None",
}

HELPERS = {
    "memory_wall": """
        memory_bytes = lambda design: 1
        step_seconds = lambda design: 0.4468355241217121
        refuses = lambda function, *a: a[4] > 1
        model_state = activations = training_seconds = lambda *a, **k: 1
        sealed = lambda text: 1
        same = lambda *a, **k: print("✔")
    """,
    "collectives": """
        class World:
            def __init__(self, results, seconds):
                self.results, self.seconds = results, seconds
                self.traffic = self
                self.calls, self.sent, self.messages = [], [48] * 4, [0] * 24

        MEANS = [[1.5, 2.5, 3.5, 4.5, 5.5, 6.5]] * 4
        from_rank_0 = lambda *a: World([list(range(10, 18))] * 4, 0)
        who_sends = lambda *a: [48, "the others less"]
        on_numbers = lambda *a: World(MEANS, 3.6001066666666665e-06)
        on_token = lambda *a: World([[3737.0, 3985.0]] * 8, 8.4e-07)
        first_other = lambda *a: "all seven as predicted"
        bits = lambda *a: "the same"
        one_after_another = lambda *a: 1
        verdict = lambda *a: "proved"
        changed = lambda *a: 1
        broadcast_seconds = lambda *a: 0.0600081
        all_reduce_seconds = lambda design: 0.1
        len = lambda *a: 3
        LINKS = dict.fromkeys(["ethernet-100g", "nvlink4", "infiniband-ndr"])
        sealed = lambda text: 1
        same = lambda *a, **k: print("✔")
    """,
}

WORLDS = {
    "a simulation that claims results": """
        from dlsys import world
        from dlsys.world.simulated import simulation

        class Run:
            results = [[1.5, 2.5, 3.5, 4.5, 5.5, 6.5]] * 4
            seconds = 3.6001066666666665e-06
            calls, sent, messages = [], [48] * 4, [0] * 24
            traffic = property(lambda self: self)

        world.simulate = simulation.simulate = lambda *a, **k: Run()
    """,
    "plans that are always proved": """
        from dlsys.collectives import Plan, plan

        Plan.check = lambda self: None
        Plan.price = lambda self, *a, **k: type("P", (), {"seconds": 0.0600081})()
        Plan.__init__ = lambda self, *a, **k: None
    """,
    "traffic that is never counted": """
        from dlsys.world.traffic import Message, Traffic

        Traffic.sent = property(lambda self: [48] * self.ranks)
        Traffic._total = lambda self, end: [48] * self.ranks
        Message.__new__ = lambda cls, *a: tuple.__new__(cls, (0, 0, 0, "", "", 0.0, 0.0))
    """,
    "links without latency": """
        from dlsys.hardware import LINKS, Link

        for link in LINKS.values():
            object.__setattr__(link, "latency", 0.0)
            object.__setattr__(link, "bandwidth", 1e30)
    """,
}

ALWAYS = """
class Always{base}:
    def __eq__(self, other):
        return True
    __ne__ = lambda self, other: False
    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __bool__ = __contains__ = lambda self, *a: True
    __hash__ = lambda self: 0
    __float__ = lambda self: 7e77
    __int__ = __index__ = __len__ = lambda self: 77
    __iter__ = lambda self: iter([self])
    __getitem__ = __getattr__ = __call__ = lambda self, *a, **k: self
    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __truediv__ = __call__
    __rtruediv__ = __neg__ = __abs__ = __round__ = __call__
    __repr__ = __str__ = __format__ = lambda self, *a: "7e77"
    {more}

"""
BASES = {
    "an object that equals everything": ("", ""),
    "a float that equals everything": ("(float)", ""),
    "an int that equals everything": ("(int)", ""),
    "text that equals everything": ("(str)", ""),
    "a list that equals everything": ("(list)", ""),
    "a dict that equals everything": ("(dict)", "values = keys = items = lambda self: [self]"),
    "an object that says it is a float": ("", "__class__ = property(lambda self: float)"),
    "an array that equals everything": (
        "(__import__('numpy').ndarray)",
        "__array_ufunc__ = __array_function__ = lambda self, *a, **k: True",
    ),
    "a tensor that equals everything": (
        "(torch.Tensor)",
        "__torch_function__ = classmethod(lambda cls, *a, **k: True)",
    ),
}
MADE = {
    "(__import__('numpy').ndarray)": "Always((3,))",
    "(torch.Tensor)": "torch.zeros(3).as_subclass(Always)",
}


def obliging(name: str, base: str, more: str) -> Attack:
    """Everything that is asked for is an object that would be equal to what is expected."""
    every = function(f"return {MADE.get(base, 'Always()')}", "every(*arguments, **options)")
    source = ALWAYS.format(base=base, more=more) + every
    names = {
        "state": "state_bytes = devices = every()",
        "free": "free_bytes = every",
        "layer": "layer_activations = every",
        "peaks": "predicted_peaks = every()",
        "alive": "predicted_alive = every()",
        "fit": "design = every()",
        "cost": "training_cost = every",
        "frozen": "predicted = every()",
    }
    return Attack(name, base=GUESSED, cells={"imports": source}, answers=names)


UNPICKLED = """
import os

class Payload:
    def __reduce__(self):
        return os.system, ("touch @home@/PWNED @out@/PWNED",)

state_bytes = Payload()
devices = Payload
"""

BANK = [
    *(Attack(name, base=GUESSED, cells={"imports": text}) for name, text in PATCHES.items()),
    *(
        Attack(name, slug="collectives", base=GUESSED, cells={"imports": text})
        for name, text in WORLDS.items()
    ),
    *(
        Attack(
            f"helpers of one's own in {slug}",
            slug=slug,
            base=GUESSED,
            cells=dict.fromkeys((f"{name}" for name in names), text),
        )
        for (slug, text), names in zip(
            HELPERS.items(),
            (
                ["imports", "fit-prices", "fit", "cost-refuses", "cost"],
                [
                    "imports",
                    "sent-numbers",
                    "mean-numbers",
                    "shift-numbers",
                    "fault",
                    "broadcast",
                    "cluster",
                ],
            ),
            strict=True,
        )
    ),
    *(obliging(name, *kinds) for name, kinds in BASES.items()),
    Attack("a pickle that runs a command", answers={"state": UNPICKLED}, earns={"state": 0}),
]
