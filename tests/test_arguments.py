"""Whatever is passed to whatever is public ends in a sentence that helps, or in a right result.

Every parameter of every public callable (`tests.public_api`) gets each wrong value in turn, with right
ones for the others. What its annotation does not allow has to be refused by a ValueError or TypeError
that calls the parameter by its name; what it allows may give a result, in which all is finite. Which
numbers it may be is in one table, `tests.public_api.REFUSED`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import re
import sys
import typing
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

import pytest
import torch

import dlsys
from dlsys import hardware, units, world
from dlsys.collectives import ring_all_reduce
from dlsys.data_parallel import buckets
from dlsys.exercises import WrongAnswer, same
from dlsys.hardware import DEVICES, LINKS, Device, dgx_h100
from dlsys.memory_wall import activations, fits, should_scale
from dlsys.pipeline_parallel import partition
from dlsys.scaling_laws import PUBLISHED, purchase
from dlsys.tensor_parallel import layout, vocab_parallel_cross_entropy
from dlsys.transformer import CATALOGUE
from dlsys.zero import step_plan
from tests.public_api import (
    ARGUMENTS,
    FREE,
    IN_A_WORLD,
    INSTEAD,
    NOT_CALLED,
    PASSED_ON,
    PROBES,
    REFUSED,
    Public,
    public,
    reason,
)
from tests.sweep.calling import admits, hints_of, in_its_place, limits, names

pytestmark = pytest.mark.usefixtures("one_thread")

CALLED = [each for each in public() if reason(each.name) is None]
WRONG: list[Any] = [
    *(None, True, "4", "", object(), abs, -0.5, 2.0, *PROBES, 10**12, 1e30),
    *(math.nan, math.inf, -math.inf, [], {}, [None], [-1], [math.nan]),
]
TENSORS = [
    torch.ones(2, 3).to_sparse(),
    torch.ones(2, 3).to(torch.float8_e4m3fn),
    torch.ones(0),
    torch.ones(2, 3, device="meta"),
    torch.full((2, 3), 7),
]


def infinite(result: Any, depth: int = 4) -> bool:
    """Whether a number in it is no finite one."""
    if isinstance(result, float):
        return not math.isfinite(result)
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = vars(result)
    if isinstance(result, dict):
        result = list(result.values())
    inside = result[:100] if isinstance(result, list | tuple) and depth else ()
    return any(infinite(part, depth - 1) for part in inside)


def numbers_refused(each: Public, name: str, hint: Any) -> dict[float, bool]:
    """The numbers that a parameter of numbers has to refuse, and the least ones, which it takes."""
    kinds = [kind for kind in (int, float) if kind in (hint, *typing.get_args(hint))]
    if not kinds or not isinstance(each.said.get(name, ""), int | float | None):
        return {}
    refused = REFUSED.get(name, (-1,) if float in kinds else (-1, 0))
    refused = REFUSED.get(f"{each.name}.{name}", refused)
    return dict.fromkeys((-1, 0), False) | dict.fromkeys(refused, True)


def ending(each: Public, name: str, hint: Any, bad: Any) -> str:
    """What is wrong with how a call with one bad argument ends; "" where it ends well."""
    arguments = {**each.arguments(), name: bad}
    to_refuse = numbers_refused(each, name, hint).get(bad) if type(bad) in (int, float) else None
    try:
        with limits(), contextlib.redirect_stdout(io.StringIO()):
            result = each.call(**arguments)
    except WrongAnswer:
        return ""  # what `same` is for
    except (ValueError, TypeError) as error:
        if not names(name, error):
            return f"{type(error).__name__} does not name it: {error}"
        shown = not to_refuse or re.search(rf"(?<![\d.]){bad!r}(?!\d)", str(error))
        if to_refuse is False:
            return f"is refused: {error}"
        return "" if shown else f"is refused without being shown: {error}"
    except (Exception, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    if to_refuse or not (bad is each.parameters[name].default or admits(hint, bad)):
        return f"is taken without a word: {result!r:.80}"
    if type(bad) is str and FREE.isdisjoint((name, f"{each.name}.{name}")):
        return f"is taken, as any text would be: {result!r:.80}"
    if infinite(result) and f"{each.name}.{name}" not in PASSED_ON:
        return f"gives what is not finite: {result!r:.80}"
    return ""


def tries(each: Public) -> Iterator[tuple[str, Any, Any]]:
    """Each parameter with its annotation and each wrong value."""
    hints = hints_of(each)
    for name in each.parameters:
        hint = hints.get(name, Any)
        tensors = TENSORS if torch.Tensor in (hint, *typing.get_args(hint)) else []
        # What a function of one's own does is one's own business.
        yield from (
            (name, hint, bad)
            for bad in WRONG + tensors
            if not (callable(bad) and admits(hint, bad))
        )


def faults(each: Public) -> list[str]:
    """A line for each call that ends badly."""
    ended = ((name, bad, ending(each, name, hint, bad)) for name, hint, bad in tries(each))
    return [f"{each.name}({name}={bad!r:.40}) {why:.200}" for name, bad, why in ended if why]


@pytest.fixture(scope="module", autouse=True)
def _where_files_may_lie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For what saves: any text is the name of a file."""
    with contextlib.chdir(tmp_path_factory.mktemp("saved")):
        yield


@pytest.mark.parametrize("each", CALLED, ids=lambda each: each.name)
def test_right_arguments_are_taken_and_a_bad_one_ends_in_a_sentence_that_names_it(each):
    with contextlib.redirect_stdout(io.StringIO()):
        in_its_place(each, lambda each: str(each.call(**each.arguments())))
    found = in_its_place(each, faults)
    assert not found, "\n".join(found)


def test_what_is_public_is_called_or_says_why_not():
    lacking = {
        each.name: missing
        for each in CALLED
        if (missing := each.parameters.keys() - each.said.keys())
    }
    assert not lacking, "give right arguments, or a reason, in tests/public_api.py"
    assert len(CALLED) > 150
    assert sum(1 for each in CALLED for _ in tries(each)) >= 1500


def test_a_new_package_is_tried_without_being_named(tmp_path, monkeypatch):
    (tmp_path / "joined").mkdir()
    source = "__all__ = ['ask', 'take']\ndef ask(other): ...\ndef take(ranks: int): return ranks\n"
    (tmp_path / "joined" / "__init__.py").write_text(source)
    monkeypatch.setattr(dlsys, "__path__", [*dlsys.__path__, str(tmp_path)])
    try:
        found = {each.name: each for each in set(public.__wrapped__()) if "joined" in each.name}
    finally:
        sys.modules.pop("dlsys.joined", None)
        vars(dlsys).pop("joined", None)
    ask, take = (found[f"joined.{name}"] for name in ("ask", "take"))
    assert (reason(ask.name), reason(take.name)) == (None, None)
    assert not ask.said  # so that right arguments are asked for
    assert "joined.take(ranks='4') is taken without a word: '4'" in faults(take)


def test_every_entry_of_the_tables_is_of_something_public():
    called, every = ({each.name for each in some} for some in (CALLED, public()))
    tables = [(ARGUMENTS, called), (IN_A_WORLD, called), (INSTEAD, called), (NOT_CALLED, every)]
    stale = [p for table, names in tables for p in table if not any(fnmatch(n, p) for n in names)]
    assert not stale, "take them out of tests/public_api.py"


LOGITS, TARGETS = torch.ones(2, 4, 16), torch.zeros(2, 4, dtype=torch.long)


def loss(logits: torch.Tensor, targets: torch.Tensor, **more: Any) -> Any:
    return world.simulate(
        lambda comm: vocab_parallel_cross_entropy(logits, targets, comm, **more), 1
    )


SENTENCES: list[tuple[Callable[[], object], str]] = [
    (lambda: units.format_bytes("4"), "bytes is '4'; it must be a finite number of at least 0."),
    (
        lambda: hardware.Link("x", 0.0, math.inf),
        "The bandwidth of link x in bytes per second is inf; it must be a finite number above zero.",
    ),
    (
        lambda: units.parse_bytes("1e999 GB"),
        "'1e999 GB' is more than can be computed with; write 80 GB",
    ),
    (
        lambda: ring_all_reduce(4).price("1e9", LINKS["nvlink4"]),
        "nbytes is '1e9'; it must be a finite",
    ),
    (lambda: dgx_h100(2).node(1.5), "rank is 1.5; there is no rank 1.5"),
    (
        lambda: activations(CATALOGUE["gpt2-small"], 1, flash="no"),
        "flash is 'no'; it must be True or False.",
    ),
    (lambda: partition([], 1), "costs is []; it must have at least one."),
    (lambda: layout("gpt2-small", 2), "spec is 'gpt2-small'; it must be a TransformerSpec such as"),
    (lambda: buckets([1, 2]), "sizes is [1, 2]; it must be a dictionary"),
    (
        lambda: Device("x", None, 1.0, 1.0),
        "flops is None; it must be a dictionary, of a number each.",
    ),
    (lambda: same(4, 4, hint=5), "hint is 5; it must be text, a dictionary, of text each or"),
    (lambda: loss(LOGITS.to_sparse(), TARGETS), "logits is of layout torch.sparse_coo; it must be"),
    (lambda: loss(LOGITS.to(torch.float8_e4m3fn), TARGETS), "logits is of torch.float8_e4m3fn; it"),
    (lambda: loss(LOGITS, TARGETS[:1]), "targets is of shape (1, 4) and torch.int64; it must be"),
    (lambda: loss(LOGITS, TARGETS + 16), "targets has 16; a target is a word, from 0 to 15, or"),
    (
        lambda: loss(LOGITS, TARGETS.float()),
        "targets is of shape (2, 4) and torch.float32; it must",
    ),
    (lambda: loss(LOGITS, TARGETS, vocab=17), "logits has 16 columns on rank 0; of a vocab of 17"),
    (lambda: step_plan(3, iter([1, 2]), 2), "units is <list_iterator"),
    (
        lambda: should_scale(CATALOGUE["gpt2-small"], DEVICES["h100-sxm"], 1e9, utilization=5e-324),
        "utilization is 5e-324; it must be more: such a run never ends.",
    ),
    (
        lambda: purchase(PUBLISHED["hoffmann-2022"].law, 1e6, 2.0, 1e308, 0.4),
        "peak_flops is 1e+308",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), SENTENCES, ids=[words for _, words in SENTENCES])
def test_the_sentence_is_true_of_the_value(call, sentence):
    with pytest.raises((ValueError, world.RankError)) as caught:
        call()
    assert sentence in str(caught.value)


def test_a_very_long_word_in_the_place_of_a_device_is_refused_at_once():
    with pytest.raises((TypeError, ValueError), match=r"^device is 'aaa") as caught:
        fits(CATALOGUE["gpt2-small"], "a" * 200_000)
    assert len(str(caught.value)) < 400
