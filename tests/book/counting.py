"""Run a program as it stands, and write down what its rank gives to collectives.

    torchrun ... counting.py PROGRAM

leaves `counted-RANK.json`: of each collective the kind, and the bytes of its smaller and its larger buffer. torch's
own CommDebugMode counts calls alone, and its module hooks fail where FSDP2 runs a module a second time.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

KINDS = {
    "c10d::allreduce_": "all_reduce",
    "c10d::_allgather_base_": "all_gather",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "_c10d_functional::all_reduce": "all_reduce",
    "c10d::alltoall_base_": "all_to_all",
    "_c10d_functional::all_to_all_single": "all_to_all",
    "c10d::send": "send",
    "c10d::recv_": "recv",
    # Of objects, as a checkpoint's plan.
    "c10d::allgather_": "objects",
    "c10d::gather_": "objects",
    "c10d::scatter_": "objects",
    "c10d::broadcast_": "objects",
}
SEND_NOTHING = {"_c10d_functional::_wrap_tensor_autograd", "_c10d_functional::wait_tensor"}


class Counting(TorchDispatchMode):
    """Notes each collective in `counted`; one that it does not know is a KeyError."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[str, int, int]] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # it calls its collectives itself, and they come here
        name = function._schema.name
        if "c10d" in name and name not in SEND_NOTHING:
            sizes = [leaf.nbytes for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
            self.counted.append((KINDS[name], min(sizes), max(sizes)))
        return function(*args, **(kwargs or {}))


if __name__ == "__main__":
    with Counting() as counting:
        runpy.run_path(sys.argv[1], run_name="__main__")
    Path(f"counted-{os.environ['RANK']}.json").write_text(json.dumps(counting.counted))
