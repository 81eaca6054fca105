"""Whatever is passed to whatever is public: a sentence that helps, or a right result."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import inspect
import io
import math
import re
import resource
import signal
import threading
import time
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dlsys import world
from dlsys.exercises import WrongAnswer
from tests.public_api import FREE, IN_A_WORLD, WORDS, Public, fnmatch, public, reason

CALLED = [each for each in public() if reason(each.name) is None]
WRONG: list[Any] = [
    *(None, True, "4", "", object(), [], {}, abs, 1.5, -1, 0, 10**12, 1e30, -0.5),
    *(math.nan, math.inf, -math.inf, [None], ["4"], [-1], [math.nan]),
]
TENSORS = [
    torch.ones(2, 3).to_sparse(),
    torch.ones(2, 3).to(torch.float8_e4m3fn),
    torch.ones(0),
    torch.ones(2, 3, device="meta"),
    torch.full((2, 3), 7),
]


def wrong_values(parameter: inspect.Parameter, hint: Any) -> list[Any]:
    tensors = TENSORS if torch.Tensor in (hint, *typing.get_args(hint)) else []
    return [bad for bad in WRONG + tensors if not (callable(bad) and admits(hint, bad))]


def admits(hint: Any, value: Any) -> bool:
    """Whether a value is of what an annotation says, and finite."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar) or hint is object:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(admits(part, value) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if hint in (int, typing.SupportsIndex):
        return type(value) is int
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if hint is None or hint is types.NoneType:
        return value is None
    if origin in (tuple, list, collections.abc.Sequence, collections.abc.Iterable):
        if not isinstance(value, list | tuple):
            return False
        inner = (
            parts
            if origin is tuple and parts[-1] is not ... and len(parts) == len(value)
            else parts[:1] * len(value)
        )
        return all(map(admits, inner, value))
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, dict) and all(
            admits(parts[0], k) and admits(parts[1], v) for k, v in value.items()
        )
    if origin is collections.abc.Callable or hint is Callable:
        return callable(value)
    return isinstance(value, origin or hint)


def hints_of(each: Public) -> dict[str, Any]:
    function = each.call.__init__ if inspect.isclass(each.call) else inspect.unwrap(each.call)
    if inspect.isclass(each.call) and issubclass(each.call, tuple):
        function = each.call
    function = getattr(function, "__func__", function)
    names = {"Tensor": torch.Tensor, "torch": torch}
    for other in public():
        if inspect.isclass(other.call):
            names.setdefault(other.call.__name__, other.call)
    from dlsys import hardware, network

    names |= {n: getattr(hardware, n) for n in ("Link", "Cluster", "Device")} | {
        "Where": network.Where,
        "Overlap": object,
        "Figure": object,
        "Price": object,
    }
    return typing.get_type_hints(function, None, names | {"Communicator": world.Communicator})


class TooLongError(Exception):
    pass


@contextlib.contextmanager
def limits(memory: int = 2**30, seconds: float = 1.0) -> Iterator[None]:
    """Processor time and memory that a call may take."""

    def stop(*_: Any) -> None:
        raise TooLongError(f"takes more than {seconds:g} s")

    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, before[1]))
    old = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
        resource.setrlimit(resource.RLIMIT_AS, before)


def infinite(result: Any, depth: int = 4) -> bool:
    """Whether a number in it is no finite one."""
    if isinstance(result, float):
        return not math.isfinite(result)
    if not depth:
        return False
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = vars(result)
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return any(infinite(part, depth - 1) for part in result[:100])
    return False


def fault(each: Public, name: str, hint: Any, bad: Any) -> str | None:
    """What is wrong with how a call with one bad argument ends; None where it ends well."""
    arguments = {**each.arguments(), name: bad}
    positional = [
        arguments.pop(n) for n, p in each.parameters().items() if p.kind is p.POSITIONAL_ONLY
    ]
    try:
        with limits() if threading.current_thread() is threading.main_thread() else contextlib.nullcontext(), contextlib.redirect_stdout(io.StringIO()):
            result = each.call(*positional, **arguments)
    except WrongAnswer:
        return None
    except (ValueError, TypeError) as error:
        said = str(error)
        words = [name, name.replace("_", " "), name.replace("_", "-"), *WORDS.get(name, ())]
        if not any(re.search(rf"(?<![a-z]){re.escape(word)}", said, re.I) for word in words):
            return f"{type(error).__name__} does not name {name}: {said[:160]}"
        return None
    except TooLongError as error:
        return str(error)
    except (Exception, MemoryError) as error:
        return f"{type(error).__name__}: {str(error)[:160]}"
    if bad is each.parameters()[name].default:
        return None
    if not admits(hint, bad):
        return f"takes it without a word, and gives {str(result)[:80]}"
    if type(bad) is str and name not in FREE:
        return f"takes any text, and gives {str(result)[:80]}"
    if infinite(result):
        return f"gives {str(result)[:80]}"
    return None


COUNT = [0]


def faults(each: Public) -> list[str]:
    found, hints = [], hints_of(each)
    for name, parameter in each.parameters().items():
        for bad in wrong_values(parameter, hints.get(name, Any)):
            COUNT[0] += 1
            if why := fault(each, name, hints.get(name, Any), bad):
                found.append(f"{each.name}({name}={str(bad)[:40]!r}): {why}")
    return found


def checked(each):
    if any(fnmatch(each.name, pattern) for pattern in IN_A_WORLD):
        return world.simulate(lambda comm: faults(each), 1).results[0]
    return faults(each)


if __name__ == "__main__":
    import sys

    bad = 0
    for each in CALLED:
        if len(sys.argv) > 1 and not any(fnmatch(each.name, a) for a in sys.argv[1:]):
            continue
        t = time.process_time()
        try:
            f = checked(each)
        except BaseException as e:
            f = [f"{each.name}: HARNESS {type(e).__name__} {e}"]
        t = time.process_time() - t
        bad += len(f)
        if f or t > 0.5:
            print("==", each.name, f"{t:.2f}s", len(f))
        for line in f:
            print("  ", line)
    print(COUNT[0], "calls", bad, "faults", time.process_time(), "s")
