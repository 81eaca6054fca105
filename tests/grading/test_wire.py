"""What comes out of a student's box: exact for whoever is honest, and harmless from everybody."""

import contextlib
import dataclasses
import io
import json
import math
import pickle
import re
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dlsys
from dlsys.collectives import Plan, Transfer, ring_all_reduce
from dlsys.exercises.plain import Array
from dlsys.grading.judging.once import Once, reaches
from dlsys.grading.judging.packing import DEEPEST, Packer, Pickler, Unpickler, unpack
from dlsys.grading.judging.wire import Channel, Closed, Garbled, TooLate
from dlsys.pipeline_parallel import Action, one_f_one_b

PACKAGE = Path(dlsys.__file__).parent
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("tensor", "array", "scalar", "tuple", "set", "dict", "int", "data", "plain"),
                    *("dtype", "remote", "complex", "ellipsis", "frozenset", "other"),
                ]
            ),
            inner,
            max_size=2,
        )
    ),
    max_leaves=20,
)
HASHABLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    HASHABLE | st.just(...) | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE | st.tuples(HASHABLE, HASHABLE), inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
    ),
    max_leaves=12,
)


def refuse(said: Any) -> Any:
    raise Garbled("nothing remote")


def across(value: Any) -> Any:
    """The value after it has been packed, written as JSON, read and unpacked."""
    packer = Packer(lambda value: {"name": None, "number": 0, "type": type(value).__name__})
    packed = json.loads(json.dumps(packer.pack(value)))
    return unpack(packed, memoryview(b"".join(packer.arrays)), lambda said: ("remote", said))


@given(VALUES)
def test_plain_values_arrive_as_they_are(value: Any) -> None:
    came = across(value)
    assert came == value
    assert type(came) is type(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1 / 3, 2**-1074])
def test_floats_are_exact(value: float) -> None:
    assert struct.pack("d", across(value)) == struct.pack("d", value)


def test_a_number_with_more_digits_than_python_writes_arrives() -> None:
    assert across(1 << 30_000) == 1 << 30_000


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8])
def test_tensors_arrive_bit_for_bit_with_their_dtype_and_shape(dtype: torch.dtype) -> None:
    tensor = (torch.arange(12).reshape(3, 4) / 7).to(dtype)
    for each in (tensor, tensor.T, tensor[1:2, ::2], tensor[1:2, 1], tensor[:0], tensor[0, 0]):
        came = across(each)
        assert came.dtype is dtype
        assert came.shape == each.shape
        assert torch.equal(came, each)
    meta = across(torch.empty(3, 2, device="meta", dtype=dtype))
    assert meta.is_meta
    assert meta.shape == (3, 2)


OTHERS = 1234.5678901  # what the ranks have beside the one that is called
EVERY = [torch.full((4, 6), value, dtype=torch.float64) for value in (OTHERS, 0.5, OTHERS)]
RANKS = torch.stack(EVERY)
ARRAYS = np.stack([each.numpy() for each in EVERY])


@dataclasses.dataclass
class Given:
    """An argument that holds another."""

    part: Any


def module_of(weight: torch.Tensor) -> torch.nn.Module:
    """A module whose parameter and buffer are parts of something larger."""
    module = torch.nn.Linear(6, 4, bias=False)
    module.weight = torch.nn.Parameter(weight)
    module.register_buffer("mask", weight[1:3])
    return module


PARTS: dict[str, Any] = {
    "a row": RANKS[1],
    "some of a row": RANKS[1, 1:3, ::2],
    "columns": RANKS[1].T[2:4],
    "a number": RANKS[1, 0, 0],
    "one number, repeated": RANKS[1, :1, :1].expand(30, 30),
    "nothing": RANKS[1, :0],
    "other types' bytes": RANKS[1].view(torch.int32),
    "real parts": torch.complex(RANKS[1], RANKS[0]).real,
    "a conjugate": torch.complex(RANKS, RANKS)[1].conj(),
    "what is differentiated": RANKS[1].detach().requires_grad_(),
    "what was computed": (RANKS.clone().requires_grad_() * 1)[1],
    "a parameter": torch.nn.Parameter(RANKS[1]),
    "a module": module_of(RANKS[1]),
    "a list": [RANKS[1], (RANKS[1, 0], {"x": RANKS[1, 1]})],
    "a dataclass": Given(RANKS[1]),
    "a sparse tensor": torch.sparse_coo_tensor(
        torch.tensor([[0, 2]]), RANKS[1, 0, :2], (3,), check_invariants=True
    ),
    "an array": ARRAYS[1],
    "some of an array": ARRAYS[1, 1:3, ::2],
    "an array of a tensor": RANKS[1].detach().numpy(),
    "a number of an array": ARRAYS[1, 0, 0],
}


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The strided tensors and the arrays that a value holds."""
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    if isinstance(value, Given):
        return tensors_in(value.part)
    if isinstance(value, list | tuple | dict):
        items = value.values() if isinstance(value, dict) else value
        return [each for item in items for each in tensors_in(item)]
    if isinstance(value, torch.Tensor) and value.is_sparse:
        return [value.coalesce().values()]
    return [value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))]


@pytest.mark.parametrize("name", PARTS)
def test_what_is_called_with_a_part_is_not_sent_the_rest(name: str) -> None:
    file = io.BytesIO()
    Pickler(file, lambda value: None).dump(PARTS[name])
    assert struct.pack("=d", OTHERS) not in file.getvalue()
    came = Unpickler(io.BytesIO(file.getvalue()), lambda said: None).load()
    assert type(came) is type(PARTS[name])
    for mine, its in zip(tensors_in(PARTS[name]), tensors_in(came), strict=True):
        assert its.untyped_storage().nbytes() == its.numel() * its.itemsize
        assert torch.equal(mine, its)
        assert mine.requires_grad == its.requires_grad


def test_what_is_whole_goes_as_it_is() -> None:
    whole, file = torch.arange(6.0), io.BytesIO()
    whole.mark = "mine"  # type: ignore[attr-defined]
    Pickler(file, lambda value: None).dump([whole, whole, whole.view(2, 3).T])
    one, other, turned = Unpickler(io.BytesIO(file.getvalue()), lambda said: None).load()
    assert one is other
    assert one.mark == "mine"
    assert turned.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert turned.stride() == (1, 3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_tensors_that_are_no_plain_numbers_in_memory_arrive_as_theirs_or_stay() -> None:
    number = torch.tensor([1 + 2j])
    assert across(number.conj()).tolist() == [1 - 2j]
    assert across(number.conj().imag).tolist() == [-2.0]  # a view with its sign turned
    assert across(torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]))[0] == "remote"
    assert across(torch.eye(2).to_sparse())[0] == "remote"


def test_a_call_is_made_once_also_with_what_is_nested_too_deep_to_be_told() -> None:
    deep: list[Any] = []
    for _ in range(DEEPEST + 5):
        deep = [deep]
    made: list[float] = []

    def note(value: Any, factor: float, *, name: str) -> None:
        made.append(factor)

    once = Once()
    for factor in "12":
        once(note, deep, float("1.5"), name="".join(["a", "b"]))
        once(note, deep, float(factor), name="ab")
    assert made == [1.5, 1.0, 2.0]


def test_calls_that_are_not_the_same_are_each_made() -> None:
    made: list[Any] = []

    def note(*args: Any, **options: Any) -> int:
        made.append((args, options))
        return len(made)

    once = Once()
    calls: list[tuple[Any, ...]] = [(), (1,), (1.0,), (True,), ("a", 1), ("a",), ([1],), ((1,),)]
    given = [*((args, {}) for args in calls), ((), {"a": 1}), ((1,), {"a": 1}), (("a",), {"a": 1})]
    for _ in range(2):
        assert [once(note, *args, **options) for args, options in given] == [*range(1, 12)]


@pytest.mark.parametrize("held", [torch.zeros(4), np.zeros(4), torch.zeros(4).numpy()])
def test_memory_is_known_by_whatever_looks_at_it(held: Any) -> None:
    tensor = torch.as_tensor(held)
    for view in (tensor, tensor[1:], tensor.numpy(), tensor[1:].numpy(), tensor.numpy()[2:].T):
        assert reaches([{"held": [held]}], view)
        assert reaches([view], held)
        assert not reaches([{"other": np.zeros(4)}, torch.zeros(4)], view)
    assert reaches([torch.eye(2).to_sparse(), held], torch.from_numpy(tensor.numpy()[1:]))


def test_other_values_of_these_exercises_arrive() -> None:
    assert type(across(torch.nn.Parameter(torch.ones(2)))) is torch.nn.Parameter
    assert across(torch.tensor([True, False])).tolist() == [True, False]
    assert across(torch.float32) is torch.float32
    for array in (np.arange(3), np.array([1.5]), np.array(["ab", "c"]), np.array([True])):
        came = across(array)
        assert (came == array).all()
        assert came.dtype == array.dtype
    assert type(across(np.float32(0.1))) is np.float32
    assert across(Transfer(0, 1, 2, 3, True)) == Transfer(0, 1, 2, 3, True)
    assert across(Array("floating", (2,), [1.0, 2.0])) == Array("floating", (2,), [1.0, 2.0])


def test_a_plan_arrives_without_what_it_claims_about_its_own_price() -> None:
    plan = across(ring_all_reduce(4))
    assert isinstance(plan, Plan)
    assert plan.symmetry is None
    plan.check()


def test_plans_of_every_mechanism_arrive_without_a_word_of_them_in_the_grader() -> None:
    schedule = one_f_one_b(3, 4)
    assert across([schedule, schedule.order]) == [schedule, schedule.order]
    assert type(across(schedule.order[0])) is Action
    for file in (PACKAGE / "grading").rglob("*.py"):
        for plan in PACKAGE.glob("*/plan.py"):
            name = plan.parent.name
            # "zero" is an English word, too.
            named = name if "_" in name else rf"dlsys[./]{name}\b|\bimport\b.*\b{name}\b"
            assert not re.search(named, file.read_text("utf-8")), (file, name)


def test_a_plan_that_is_none_is_refused_in_a_sentence_by_whoever_reads_it() -> None:
    wrong = {"data": ["dlsys.pipeline_parallel.action.Action", ["F", 0.5, 0]]}
    with pytest.raises(Garbled, match=r"Action.stage is 0.5; it must be a whole number."):
        unpack(wrong, memoryview(b""), refuse)
    unknown = {"data": ["subprocess.Popen", [["true"]]]}
    with pytest.raises(Garbled, match=r"Nothing is offered as plain data .*'subprocess.Popen'"):
        unpack(unknown, memoryview(b""), refuse)


def test_both_sides_know_every_mechanism_before_anything_is_said() -> None:
    program = "import sys; from dlsys.grading.judging.packing import prepare; prepare(); print(*sys.modules)"
    known = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout
    for plan in PACKAGE.glob("*/plan.py"):
        assert f"dlsys.{plan.parent.name}.plan" in known.split()


class Lying(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_containers_of_a_class_of_their_own_arrive_as_what_they_hold() -> None:
    counted = Counter("aab")
    for value in (counted, defaultdict(list, counted), OrderedDict(counted)):
        assert across(value) == {"a": 2, "b": 1}
    assert across(namedtuple("Two", "x y")(1, [counted])) == (1, [{"a": 2, "b": 1}])


def test_what_is_not_plain_stays_behind() -> None:
    for value in (Lying(3), print, object(), type("Lies", (torch.Tensor,), {})()):
        kind, said = across(value)
        assert kind == "remote"
        assert said["type"] == type(value).__name__


@given(JSON, st.binary(max_size=64))
def test_whatever_comes_is_a_value_or_garbled_and_nothing_else(said: Any, data: bytes) -> None:
    with contextlib.suppress(Garbled):
        unpack(said, memoryview(data), refuse)


@pytest.mark.parametrize(
    "said",
    [
        {"tensor": ["float32", [1 << 40, 1 << 40], [0, 4], False]},
        {"tensor": ["float32", [-1], [0, 4], False]},
        {"tensor": ["load", [1], [0, 4], False]},
        {"tensor": ["float32", [1], [-4, 4], False]},
        {"tensor": ["float32", [1] * 99, [0, 4], False]},
        {"array": ["|O", [1], [0, 8]]},
        {"array": ["<f8,<f8", [1], [0, 16]]},
        {"array": ["V9999999999", [1], [0, 8]]},
        {"dtype": "__doc__"},
        {"data": ["dlsys.collectives.plan.Plan", ["all_reduce", "x", -1, 1, [], 0, None]]},
        {"data": ["dlsys.pipeline_parallel.plan.Plan", ["x", 1, 1, [[["F", 5, 0]]]]]},
        {"data": ["dlsys.pipeline_parallel.price.Price", [1.0]]},
        {"data": ["os.system", ["true"]]},
        {"data": []},
        {"data": ["dlsys.collectives.plan.Transfer", [0, 1, 0, 1, False], 3]},
        {"set": [[]]},
        {"dict": [[[], 1]]},
        {"int": "not hexadecimal"},
        {"exec": "1"},
        {},
        {"tuple": [], "set": []},
    ],
)
def test_values_that_cannot_be_are_refused(said: Any) -> None:
    with pytest.raises(Garbled):
        unpack(said, memoryview(bytes(64)), refuse)


def test_a_value_that_is_too_deep_is_refused_on_either_side() -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(Garbled, match="nested"):
        across(deep)
    with pytest.raises(Garbled, match="deep"):
        unpack(deep, memoryview(b""), refuse)


MODULUS = sys.hash_info.modulus  # numbers that are equal to this one are of one hash


@pytest.mark.parametrize("kind", ["dict", "set", "frozenset"])
@pytest.mark.parametrize(
    "keys",
    [
        [n * MODULUS for n in range(100)],
        [{"tuple": [1, n * MODULUS]} for n in range(100)],
        [*range(1000), *(7 + n * MODULUS for n in range(60))],
    ],
)
def test_keys_that_were_made_to_collide_are_refused(kind: str, keys: list[Any]) -> None:
    body = [[key, 0] for key in keys] if kind == "dict" else keys
    with pytest.raises(Garbled, match="collide"):
        unpack({kind: body}, memoryview(b""), refuse)


def test_many_keys_that_nobody_chose_arrive_and_of_equal_ones_the_last() -> None:
    many = {n * 1024: n / 7 for n in range(50_000)} | {str(n): n for n in range(1000)}
    assert across(many) == many
    assert unpack({"dict": [[1, 2], [1, 3]]}, memoryview(b""), refuse) == {1: 3}


@pytest.fixture
def ends() -> Any:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        yield Channel(mine, limit=1000), theirs


def test_both_ways_a_message_arrives_whole(ends: Any) -> None:
    grader, theirs = ends
    box = Channel(theirs, limit=1000)
    grader.tell(("run", "1 + 1"))
    assert pickle.loads(box.listen()[0]) == ("run", "1 + 1")
    box.say({"value": 2}, [b"abc", b"de"])
    said, arrays = grader.hear(seconds=10)
    assert (said, bytes(arrays)) == ({"value": 2}, b"abcde")


def test_a_file_descriptor_travels_to_a_box(ends: Any) -> None:
    grader, theirs = ends
    one, other = socket.socketpair()
    with one, other:
        grader.tell("take this", [other.fileno()])
        message, [taken] = Channel(theirs, limit=1000).listen(files=1)
        with socket.socket(fileno=taken) as end:
            end.send(b"here")
        assert pickle.loads(message) == "take this"
        assert one.recv(4) == b"here"


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("!IQ", 2**32 - 1, 0),
        struct.pack("!IQ", 10, 2**63),
        struct.pack("!IQ", 4, 0) + b"\xff\xfe{}",
        struct.pack("!IQ", 3, 0) + b"{]}",
        struct.pack("!IQ", 900, 0) + b"[" * 900,
        struct.pack("!IQ", 100, 0)
        + json.dumps({str(n): 0 for n in range(11, 22)})[:-1].encode()
        + b" }",
    ],
)
def test_a_frame_that_is_none_is_garbled(ends: Any, frame: bytes) -> None:
    grader, theirs = ends
    theirs.sendall(frame)
    with pytest.raises(Garbled):
        grader.hear(seconds=10)


def test_what_comes_drop_by_drop_is_late_as_a_whole(ends: Any) -> None:
    grader, theirs = ends
    stop = threading.Event()

    def drip() -> None:
        theirs.sendall(struct.pack("!IQ", 900, 0))
        while not stop.wait(0.02):
            theirs.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(TooLate):
            grader.hear(seconds=0.3)
    finally:
        stop.set()
        thread.join()


def test_an_end_that_is_closed_says_so(ends: Any) -> None:
    grader, theirs = ends
    theirs.close()
    with pytest.raises(Closed):
        grader.hear(seconds=10)
    with pytest.raises(Closed):
        grader.tell("anything")


def test_more_than_the_limit_is_not_sent(ends: Any) -> None:
    _, theirs = ends
    with pytest.raises(Garbled, match=r"2,\d\d\d bytes; at most 1,000"):
        Channel(theirs, limit=1000).say("x" * 2000)


def test_who_may_send_much_need_not_read_as_much() -> None:
    mine, theirs = socket.socketpair()
    grader, box = Channel(mine, 1 << 20, heard=100), Channel(theirs, 1 << 20)
    with mine, theirs:
        grader.tell("x" * 5_000)
        assert len(pickle.loads(box.listen()[0])) == 5_000
        box.say("x" * 5_000)
        with pytest.raises(Garbled, match="at most 100 are read"):
            grader.hear(5)
