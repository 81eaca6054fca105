"""Odd notebooks of honest students: right in every question, so each keeps all its points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.exercises.notebooks import load
from tests.grading.attacks import (
    NAMES,
    Attack,
    Notebook,
    cell,
    function,
    is_answer,
    own_cell,
    position,
)

FREE = "free_bytes(parameters, memory_gib)"
RIGHT = "return memory_gib * 2**30 - 16 * parameters"

# Answers to memory_wall's questions, right in an unusual way.
ANSWERS: dict[str, dict[str, str]] = {
    "numbers of NumPy": {
        "state": "import numpy as np\nstate_bytes = np.float64(208e9)\ndevices = np.int64(3)",
        "free": "import numpy as np\n\n" + function("return np.int64(memory_gib) * 2**30 - 16 * np.int64(parameters)", FREE),
        "layer": "import numpy as np\n\n" + function("s = np.array([(6 + 2 * kv_heads / heads) * hidden, 4 * ffn, heads * sequence])\nreturn np.int64(2 * batch * sequence * s.sum())", "layer_activations(batch, sequence, hidden, heads, kv_heads, ffn)"),
    },
    "numbers in tensors": {
        "state": "state_bytes = torch.tensor(208e9, dtype=torch.float64)\ndevices = torch.tensor(3)",
        "free": function("return torch.tensor(memory_gib) * 2**30 - 16 * torch.tensor(parameters)", FREE),
    },
    "rounded values": {"state": "state_bytes = 2.081e11\ndevices = 3.0"},
    "tuples for lists and lists for tuples": {
        "cost": "def training_cost(parameters, tokens, devices, peak, utilization, dollars):\n    if utilization > 1:\n        raise ValueError('too much')\n    seconds = 6 * parameters * tokens / (devices * peak * utilization)\n    return [seconds / 86400, devices * seconds / 3600 * dollars]",
    },
    "a dictionary of another order and kind": {
        "alive": "from collections import OrderedDict\npredicted_alive = dict(OrderedDict(G=2.0, F=4, E=3, D=2, C=4.0, B=1, A=1))",
        "fit": "design = dict(recompute='selective', zero_stage=2)",
    },
    "an error of one's own": {
        "cost": "class TooMuch(ValueError):\n    def __init__(self, value, limit):\n        super().__init__(f'{value} > {limit}')\n        self.value = value\n\n\ndef training_cost(parameters, tokens, devices, peak, utilization, dollars):\n    if utilization > 1:\n        raise TooMuch(utilization, 1)\n    seconds = 6 * parameters * tokens / (devices * peak * utilization)\n    return seconds / 86400, devices * seconds / 3600 * dollars",
    },
    "recursion": {"free": function("return memory_gib * 2**30 if parameters == 0 else free_bytes(parameters // 2, memory_gib) - 16 * (parameters - parameters // 2)", FREE)},
    "a dictionary with a default": {"alive": "from collections import defaultdict\n\npredicted_alive = defaultdict(lambda: 1, C=4, D=2, E=3, F=4, G=2)\npredicted_alive['A'], predicted_alive['B']"},
    "an ordered dictionary": {"frozen": "from collections import OrderedDict\n\npredicted = OrderedDict({'layer 3': 10, 'layer 2': 10, 'layer 1': 5, 'layer 0': 0}, weights=4 * 220_544, gradients=4 * 256 * 64, moments=8 * 256 * 64)"},
    "a module written by a cell": {"free": "get_ipython().run_cell_magic('writefile', 'of_my_own.py', 'PER = 16')\nfrom of_my_own import PER\n\n" + function(RIGHT.replace("16", "PER"), FREE)},
    "a lambda": {"free": "free_bytes = lambda parameters, memory_gib: memory_gib * 2**30 - 16 * parameters"},
    "a partial function": {"free": "from functools import partial\nfree_bytes = partial(lambda per, p, gib: gib * 2**30 - per * p, 16)"},
    "a cached function": {"free": "from functools import lru_cache\n\n@lru_cache\n" + function(RIGHT, FREE)},
    "a method": {"free": "class Card:\n    per = 16\n    def free(self, parameters, memory_gib):\n        return memory_gib * 2**30 - self.per * parameters\n\nfree_bytes = Card().free"},
    "a callable object": {"free": "class Free:\n    def __call__(self, parameters, memory_gib):\n        return memory_gib * 2**30 - 16 * parameters\n\nfree_bytes = Free()"},
    "types and docs": {"free": "from __future__ import annotations\nimport typing as t\n\ndef free_bytes(parameters: t.Union[int, float], memory_gib: 'int' = 80, *, per: int = 16) -> t.Optional[int]:\n    '''Bytes.'''\n    return memory_gib * 2**30 - per * parameters"},
    "a print in a function": {"free": function("print('called with', parameters)\n" + RIGHT, FREE)},
    "a gigabyte of prints": {"free": "for _ in range(100_000):\n    print('x' * 10_000)\n\n" + function(RIGHT, FREE)},
    "a warning in a function": {"free": "import warnings\n\n" + function("warnings.warn('careful')\n" + RIGHT, FREE)},
    "threads in a function": {"free": "from concurrent.futures import ThreadPoolExecutor\n\n" + function("with ThreadPoolExecutor(2) as pool:\n    return sum(pool.map(int, [memory_gib * 2**30, -16 * parameters]))", FREE)},
    "a process in a function": {"free": "import subprocess, sys\n\n" + function("return int(subprocess.check_output(['expr', str(memory_gib * 2**30), '-', str(16 * parameters)]))", FREE)},
    "a file in a function": {"free": "import json, tempfile\n\n" + function("with tempfile.TemporaryFile('w+') as file:\n    json.dump(memory_gib * 2**30 - 16 * parameters, file)\n    file.seek(0)\n    return json.load(file)", FREE)},
    "a file written by a cell": {"free": "with open('per.txt', 'w') as file:\n    file.write('16')\n\n" + function("with open('per.txt') as file:\n    return memory_gib * 2**30 - int(file.read()) * parameters", FREE)},
    "coroutines": {"free": "import asyncio\n\nawait asyncio.sleep(0)\nper = await asyncio.to_thread(int, '16')\n\n" + function("return memory_gib * 2**30 - per * parameters", FREE)},
    "helpers in the same cell": {"free": "PER = 16\n\ndef state(p):\n    return PER * p\n\ndef memory(g):\n    return g << 30\n\n" + function("return memory(memory_gib) - state(parameters)", FREE)},
    "a slow cell": {"state": "import time\ntime.sleep(0.5)\nstate_bytes, devices = 208e9, 3"},
    "a timed cell": {"state": "%%time\nstate_bytes, devices = 208e9, 3"},
    "a shell command": {"state": "!ls -la\nfiles = !echo 3\nstate_bytes, devices = 208e9, int(files[0])"},
    "magics": {"state": "%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\n%timeit -n 1 -r 1 sum(range(10))\n%pwd\n%env X=3\nimport os\nstate_bytes, devices = 208e9, int(os.environ['X'])"},
    "reloading": {"state": "%load_ext autoreload\n%autoreload 2\nstate_bytes, devices = 208e9, 3"},
    "a seed": {"state": "import random, numpy\nrandom.seed(3)\nnumpy.random.seed(3)\ntorch.manual_seed(3)\nstate_bytes, devices = 208e9, 3"},
    "names in other letters": {"state": "größe = 208e9\nゼロ = 0\nstate_bytes, devices = größe + ゼロ, 3  # 😀"},
    "a generator": {"free": "from itertools import count, takewhile\n\n" + function("return next(memory_gib * 2**30 - n for n in takewhile(bool, count(16 * parameters)))", FREE)},
    "many prints": {"state": "for k in range(20_000):\n    print(k, 'x' * 100)\nstate_bytes, devices = 208e9, 3"},
    "a global that changes": {"free": "calls = 0\n\n" + function("global calls\ncalls += 1\n" + RIGHT, FREE)},
}  # fmt: skip

# Cells of the student's own, after the imports.
CELLS = {
    "warnings": "import sys, warnings\nwarnings.warn('deprecated')\nprint('careful', file=sys.stderr)\nimport logging\nlogging.warning('x')",
    "an error in a cell of one's own": "raise RuntimeError('a try')",
    "a syntax error in a cell of one's own": "for in range(3)",
    "a plot": "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    "displays": "from IPython.display import HTML, Markdown, clear_output, display\ndisplay(HTML('<b>x</b>'), Markdown('x'), {'a': 1})\nclear_output()",
    "widgets": "import ipywidgets as widgets\nslider = widgets.IntSlider()\ndisplay(slider)\nwidgets.interact(lambda x: x, x=(0, 3));",
    "printing of tensors changed": "import torch\ntorch.set_printoptions(precision=2)\ntorch.Tensor.__repr__ = lambda self: 'tensor'",
    "torch of another default": "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_num_threads(1)\ntorch.use_deterministic_algorithms(True)",
    "gradients switched off": "import torch\ntorch.set_grad_enabled(False)\ntorch.set_grad_enabled(True)",
    "a help text": "sum?\nlen??\n?print\n%lsmagic",
    "an html cell": "%%html\n<b>x</b>",
    "a shell cell": "%%bash\necho x\nls /",
    "a captured cell": "%%capture kept\nprint('x')",
    "last results": "3 + 4\n_ + 1\nIn[-1]\nOut",
    "a debugger switched on": "%xmode Verbose\n%pdb off",
    "everything imported": "from math import *\nfrom numpy import *",
    "names of builtins": "list, sum, max = [1], 3, 4\ninput = 'x'",
    "a system that is asked": "import os, platform, sys, getpass\nplatform.platform(), os.cpu_count(), sys.version, os.getcwd(), os.listdir()",
    "threads that go on": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "an event loop": "import asyncio\ntask = asyncio.ensure_future(asyncio.sleep(60))\nawait asyncio.sleep(0.01)",
    "a process that goes on": "import subprocess\nsleeping = subprocess.Popen(['sleep', '60'])",
    "a matrix product of some size": "import torch\na = torch.randn(500, 500)\n(a @ a).sum()",
}  # fmt: skip

# These use a name that a cell of one's own takes from all later cells, answers among them.
CLOBBER = {"names of builtins", "everything imported"}


def cells(source: str, *, before: str) -> Any:
    def edit(notebook: Notebook) -> None:
        notebook["cells"].insert(position(notebook, before), own_cell(source, "own"))

    return edit


def added_to(name: str, source: str) -> Any:
    def edit(notebook: Notebook) -> None:
        cell(notebook, name)["source"] = "".join(cell(notebook, name)["source"]) + source

    return edit


def split(notebook: Notebook) -> None:
    """A helper in a cell of its own, before the answer that uses it."""
    cells("def state(p):\n    return 16 * p", before="free")(notebook)
    cell(notebook, "free")["source"] = function(
        "return memory_gib * 2**30 - state(parameters)", FREE
    )


def moved(notebook: Notebook) -> None:
    """The answer in a new cell, its own left empty."""
    answer = cell(notebook, "free")
    cells(answer["source"], before="free-test")(notebook)
    answer["source"] = ""


def colab(notebook: Notebook) -> None:
    """As Colab writes it: ids in the metadata, nbformat 4.0, metadata of its own."""
    notebook["nbformat_minor"] = 0
    notebook["metadata"] = {
        "colab": {"provenance": []},
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
    }
    for one in notebook["cells"]:
        one["metadata"]["id"] = one.pop("id")
        one["source"] = "".join(one["source"])


def new_ids(notebook: Notebook) -> None:
    for number, one in enumerate(notebook["cells"]):
        one["id"] = f"{number:08x}"


def lines(notebook: Notebook) -> None:
    """Every source as a list of lines."""
    for one in notebook["cells"]:
        one["source"] = "".join(one["source"]).splitlines(keepends=True)


def line_ends(notebook: Notebook) -> None:
    for one in notebook["cells"]:
        one["source"] = "".join(one["source"]).replace("\n", "\r\n")


def markdown(notebook: Notebook) -> None:
    for place in range(len(notebook["cells"]), 0, -1):
        text = {"cell_type": "markdown", "id": f"note{place}", "metadata": {}, "source": "My note"}
        notebook["cells"].insert(place, text)


def outputs(notebook: Notebook) -> None:
    """As it is saved after a run, with a picture of some megabytes."""
    for one in notebook["cells"]:
        if one["cell_type"] == "code":
            one["execution_count"] = 7
            one["outputs"] = [
                {
                    "output_type": "display_data",
                    "metadata": {},
                    "data": {"image/png": "A" * 100_000},
                }
            ]


def whole(answers: dict[str, str]) -> dict[str, str]:
    """The same answers with the functions that stand below the values in the solution."""
    found = {}
    for question, source in answers.items():
        solution = "".join(cell(load("solutions", "memory_wall"), question)["source"])
        _, _, below = solution.partition("### END SOLUTION\n")
        found[question] = f"{source}\n{below}"
    return found


def restless(notebook: Notebook) -> None:
    """A loop after an answer uses the answer's names for something else."""
    cells(
        "for state_bytes in range(3):\n    devices = state_bytes\nfree_bytes = None",
        before="layer-question",
    )(notebook)


def written_with(**options: Any) -> Any:
    def lay(path: Path, text: str) -> None:
        encoding = options.get("encoding", "utf-8")
        written = json.dumps(json.loads(text), indent=options.get("indent"), ensure_ascii=False)
        path.write_bytes(
            (written.replace("\n", options.get("end", "\n")) + "\n\n").encode(encoding)
        )

    return lay


EDITS = {
    "helpers in a cell before": split,
    "an answer in a new cell": moved,
    "Colab": colab,
    "new ids for all cells": new_ids,
    "sources as lists of lines": lines,
    "line ends of Windows in sources": line_ends,
    "notes between all cells": markdown,
    "outputs kept": outputs,
    "names used again later": restless,
    "imports added to a locked cell": lambda n: (
        added_to("imports", "\nimport math\nPER = 16")(n),
        added_to("free", "\nmath.sqrt(PER)")(n),
    ),
    "spaces at the ends of lines": lambda n: [
        one.update(source="".join(one["source"]).replace("\n", "   \n")) for one in n["cells"] if not is_answer(one)
    ],
    "answers run twice in the notebook": lambda n: cells("".join(cell(n, "free")["source"]), before="layer-test")(n),
    "a title of one's own": lambda n: n["cells"].insert(0, {"cell_type": "markdown", "id": "me", "metadata": {}, "source": "# Ada Lovelace"}),
    "metadata of editors": lambda n: n["metadata"].update(vscode={"interpreter": {"hash": "x"}}, toc={"base_numbering": 1}, widgets={}),
}  # fmt: skip

FILES = {
    "a byte-order mark": written_with(encoding="utf-8-sig"),
    "indented by four": written_with(indent=4),
    "line ends of Windows": written_with(indent=1, end="\r\n"),
}

MEANS = {
    "a ring of lists": """
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        total = [part.clone() for part in x.tensor_split(comm.size)]
        print("rank", comm.rank)
        for step in range(2 * comm.size - 2):
            send, take = (comm.rank - step) % comm.size, (comm.rank - step - 1) % comm.size
            box = torch.empty(total[take].shape, dtype=total[take].dtype)
            handles = [comm.isend(total[send].contiguous(), dst=right), comm.irecv(box, src=left)]
            [handle.wait() for handle in handles]
            total[take] = total[take] + box if step < comm.size - 1 else box.clone()
        return torch.cat(total).div(comm.size)
    """,
}

BANK = [
    *(
        Attack(name, answers=whole(answers), shares="several odd ones")
        for name, answers in ANSWERS.items()
    ),
    *(
        Attack(name, cells={f"{list(NAMES)[number % 8]}-question": text}, shares="several odd ones")
        for number, (name, text) in enumerate(CELLS.items())
        if name not in CLOBBER
    ),
    *(Attack(name, cells={"frozen-test": text}) for name, text in CELLS.items() if name in CLOBBER),
    *(Attack(name, edit=edit) for name, edit in EDITS.items()),
    *(Attack(name, lay=lay) for name, lay in FILES.items()),
    *(
        Attack(name, "collectives", answers={"mean": function(body, "ring_mean(comm, x)")})
        for name, body in MEANS.items()
    ),
    Attack("nothing unusual in memory_wall"),
    Attack("nothing unusual in collectives", "collectives"),
    Attack(
        "a plan for an answer",
        "collectives",
        answers={
            "fault": "fault_round, fault_src = 1, 1\nrepaired = [[tuple(t) for t in each] for each in broken]\nrepaired[1][1] = (1, 2, 0, 1, True)\n\n\n"
            + function("for k, transfers in enumerate(rounds[: ranks - 1]):\n    for src, _, _, _, adds in transfers:\n        if not adds:\n            return [k, src]", "stored(rounds, ranks)"),
            "broadcast": "from dlsys.collectives import Transfer\n\n"
            + function("rounds, have = [], 1\nwhile have < ranks:\n    rounds.append([Transfer(s, s + have, 0, 1) for s in range(min(have, ranks - have))])\n    have *= 2\nreturn rounds", "broadcast_rounds(ranks)"),
        },
    ),
]  # fmt: skip
