"""Files of records, tokens and shards, the tokenizer, and rows of tokens: what was written comes back."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.input_pipeline import (
    RecordError,
    Records,
    TokenFile,
    Tokenizer,
    dealt,
    pack,
    pad,
    padding_share,
    read_records,
    read_shard,
    train_tokenizer,
    write_records,
    write_shards,
    write_tokens,
)
from dlsys.input_pipeline.bpe import WORD

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "dlsys" / "collectives").glob("*.py")) + sorted(
    (ROOT / "dlsys" / "world").glob("**/*.py")
)
BOOK = b"".join(path.read_bytes() for path in (ROOT / "chapters" / "memory_wall.md", *SOURCES))
RECORDS = [b"", b"a", b"\x00" * 1000, bytes(range(256)), b"last"]


def test_records_come_back_in_order_and_at_random(tmp_path):
    path = tmp_path / "data"
    assert write_records(path, RECORDS) == len(RECORDS)
    assert list(read_records(path)) == RECORDS
    records = Records(path)
    assert len(records) == len(RECORDS)
    assert [records[i] for i in (3, 0, 4, 2, 1)] == [RECORDS[i] for i in (3, 0, 4, 2, 1)]
    records.close()


def test_a_file_of_no_records_has_none(tmp_path):
    assert write_records(tmp_path / "none", []) == 0
    assert list(read_records(tmp_path / "none")) == []
    assert len(Records(tmp_path / "none")) == 0


def test_every_single_bit_that_turns_over_is_noticed(tmp_path):
    path = tmp_path / "data"
    write_records(path, [b"abc", b"defg"])
    whole = path.read_bytes()
    assert len(whole) == 2 * 16 + 7
    for place in range(8 * len(whole)):
        data = bytearray(whole)
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(data))
        with pytest.raises(
            RecordError, match=r"at byte (0|19) is (not what was written|cut off)\."
        ):
            list(read_records(path))
        records = Records(path)
        with pytest.raises(RecordError):
            [records[0], records[1]]
        records.close()


def test_a_file_that_is_cut_off_anywhere_is_noticed(tmp_path):
    path = tmp_path / "data"
    write_records(path, [b"abc", b"defg"])
    whole = path.read_bytes()
    for size in set(range(1, len(whole))) - {19}:  # there one record ends
        path.write_bytes(whole[:size])
        with pytest.raises(RecordError, match="cut off"):
            list(read_records(path))


@pytest.mark.parametrize(("vocab", "width"), [(257, 2), (65_536, 2), (65_537, 4)])
def test_tokens_come_back_in_as_few_bytes_as_their_number_needs(tmp_path, vocab, width):
    path, tokens = tmp_path / "tokens.bin", [0, 1, vocab - 1, 7, 8, 9, 256]
    assert write_tokens(path, tokens, vocab) == 7
    assert path.stat().st_size == 7 * width
    file = TokenFile(path, 3, vocab)
    assert len(file) == 2
    assert [file[i].long().tolist() for i in range(2)] == [tokens[:4], tokens[3:7]]
    inputs, targets = file.batch([1, 0])
    assert inputs.tolist() == [tokens[3:6], tokens[:3]]
    assert targets.tolist() == [tokens[4:7], tokens[1:4]]
    assert inputs.dtype == torch.int64


def test_a_row_of_tokens_is_a_view_of_the_mapped_file_and_no_copy(tmp_path):
    path = tmp_path / "tokens.bin"
    write_tokens(path, range(1000), 1000)
    file = TokenFile(path, 10, 1000)
    begin = file.tokens.data_ptr()
    assert [file[i].data_ptr() - begin for i in range(len(file))] == [20 * i for i in range(99)]
    assert file[3].untyped_storage().data_ptr() == begin
    assert file.batch([3])[0].data_ptr() != begin + 60
    # And it is the file that is mapped there, of which Linux keeps a list.
    maps = Path("/proc/self/maps")
    if maps.exists():
        (line,) = [line for line in maps.read_text().splitlines() if str(path) in line]
        low, high = (int(place, 16) for place in line.split()[0].split("-"))
        assert low <= begin < high


def test_every_token_but_the_first_is_a_target_once(tmp_path):
    path = tmp_path / "tokens.bin"
    write_tokens(path, range(61), 61)
    file = TokenFile(path, 7, 61)
    targets = [t for i in range(len(file)) for t in file.batch([i])[1].flatten().tolist()]
    assert targets == list(range(1, 57))


def test_shards_come_back_sample_by_sample_from_front_to_back(tmp_path):
    samples = [{"jpg": bytes([i]) * 700, "cls": str(i).encode()} for i in range(11)]
    paths = write_shards(tmp_path / "shards", samples, per_shard=4)
    assert [path.name for path in paths] == ["000000.tar", "000001.tar", "000002.tar"]
    came = [sample for path in paths for sample in read_shard(path)]
    assert [{k: sample[k] for k in ("jpg", "cls")} for sample in came] == samples
    assert [sample["__key__"] for sample in came] == [f"{i:08}".encode() for i in range(11)]
    with tarfile.open(paths[2]) as archive:
        assert archive.getnames() == [f"{i:08}.{e}" for i in (8, 9, 10) for e in ("jpg", "cls")]


def test_shards_are_never_read_backwards(tmp_path, monkeypatch):
    (path,) = write_shards(tmp_path, [{"txt": b"a" * 2000} for _ in range(20)], 20)

    class Forward:
        """A file that can be read, and nothing else: a network's."""

        def __init__(self, file):
            self.read = file.read

    opened = tarfile.open
    with open(path, "rb") as file:
        monkeypatch.setattr(
            tarfile, "open", lambda name, mode: opened(fileobj=Forward(file), mode=mode)
        )
        assert sum(1 for _ in read_shard(path)) == 20


def test_ranks_and_workers_together_read_every_sample_of_all_shards_once(tmp_path):
    paths = write_shards(tmp_path, [{"n": str(i).encode()} for i in range(50)], 7)
    read = [
        int(sample["n"])
        for rank in range(3)
        for worker in range(2)
        for path in dealt(paths, rank, 3, worker, 2)
        for sample in read_shard(path)
    ]
    assert sorted(read) == list(range(50))


def slowly_trained(text: bytes, merges: int) -> list[tuple[int, int]]:
    """Merges counted anew from all words, each time."""
    words = [list(word) for word in WORD.findall(text)]
    learnt: list[tuple[int, int]] = []
    for _ in range(merges):
        counts = Counter(pair for word in words for pair in pairwise(word))
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        learnt.append(best)
        new = 255 + len(learnt)
        words = [replaced(word, best, new) for word in words]
    return learnt


def replaced(word: list[int], pair: tuple[int, int], new: int) -> list[int]:
    i, out = 0, []
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out


@pytest.mark.parametrize(
    "text", [BOOK[:6000], b"aaaaaaaa aaa aaaa", b"abab abab baba", b"", b"x", b"\xff\x00 \xff\x00"]
)
def test_merges_are_those_of_counting_anew_each_time(text):
    assert train_tokenizer(text, 120).merges == slowly_trained(text, 120)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="abc ", max_size=60), st.integers(0, 20))
def test_merges_are_those_of_counting_anew_in_any_text(text, merges):
    assert train_tokenizer(text, merges).merges == slowly_trained(text.encode(), merges)


LEARNT = train_tokenizer(BOOK[:50_000], 300)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_come_back_from_their_tokens(data):
    for tokenizer in (LEARNT, Tokenizer()):
        assert tokenizer.decode(tokenizer.encode(data)) == data


@given(st.text(max_size=60))
def test_any_text_comes_back_from_its_tokens(text):
    assert LEARNT.decode(LEARNT.encode(text)).decode() == text


def test_words_are_cut_out_of_any_bytes_without_a_gap():
    assert b"".join(WORD.findall(BOOK)) == BOOK
    assert max(map(len, WORD.findall(b"x" * 1000 + b" " * 1000))) == 32


def test_encoding_joins_as_training_did():
    """Words after all merges, from training's own oracle, are the tokens of these words."""
    text = BOOK[:6000]
    words = [list(word) for word in WORD.findall(text)]
    tokenizer = train_tokenizer(text, 120)
    for rank, pair in enumerate(tokenizer.merges):
        words = [replaced(word, pair, 256 + rank) for word in words]
    assert tokenizer.encode(text) == [token for word in words for token in word]


def test_more_merges_never_make_the_text_longer():
    sizes = [len(train_tokenizer(BOOK[:50_000], n).encode(BOOK[:50_000])) for n in (0, 50, 300)]
    assert sizes[0] == 50_000 > sizes[1] > sizes[2]
    assert LEARNT.vocab == 557
    assert LEARNT.end_of_text == 556


def test_a_text_twice_as_long_is_not_four_times_the_work():
    """Counted in steps of the interpreter, and not in seconds."""
    import sys

    def work(size: int) -> int:
        steps = 0

        def count(frame, event, arg):
            nonlocal steps
            steps += 1

        sys.setprofile(count)
        try:
            train_tokenizer(BOOK[:size], 200)
        finally:
            sys.setprofile(None)
        return steps

    assert work(200_000) < 2.5 * work(100_000)
    # Not even a text without a blank is worse than its length.
    run = bytes(i * i % 199 + 40 for i in range(40_000))
    assert len(re.findall(rb"\S{33}", run))
    assert len(train_tokenizer(run, 50).encode(run)) < len(run)


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=8), st.integers(1, 7))
def test_packing_loses_no_token_but_those_that_fill_no_row(documents, sequence):
    rows = list(pack(documents, sequence, 99))
    whole = [token for document in documents for token in [*document, 99]]
    assert [token for row in rows for token in row] == whole[: len(whole) // sequence * sequence]
    assert all(len(row) == sequence for row in rows)


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=8), st.integers(1, 7)
)
def test_padding_wastes_as_much_as_its_law_says(documents, sequence):
    rows = list(pad(documents, sequence, 99))
    assert len(rows) == len(documents)
    assert all(len(row) == sequence for row in rows)
    counted = sum(token == -100 for row in rows for token in row) / (len(rows) * sequence)
    assert counted == pytest.approx(padding_share([len(d) + 1 for d in documents], sequence))
    for row, document in zip(rows, documents, strict=True):
        assert [t for t in row if t != -100] == [*document, 99][:sequence]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda p: write_records(p, ["text"]),
            "records is .'text'.; it must be a sequence, of a bytes",
        ),
        (lambda p: write_tokens(p, [5], 5), "A token of tokens is 5; it must be at most 4"),
        (lambda p: (write_tokens(p, [1], 5), TokenFile(p, 1, 5)), "sequence is 1; it must be so"),
        (
            lambda p: list(write_shards(p, [{"a": "b"}], 1)),
            "samples is .*; it must be a sequence, of a dictionary",
        ),
        (lambda p: LEARNT.decode([557]), "A token of tokens is 557; it must be at most 556"),
        (lambda p: Tokenizer([(1, 2, 3)]), "merges is .*; it must be a sequence, of a tuple of 2"),
        (lambda p: Tokenizer([(1, 256)]), "A token of merges is 256; it must be at most 255"),
        (lambda p: train_tokenizer("a", -1), "merges is -1"),
        (lambda p: pack([[1]], 0, 2), "^sequence is 0"),
        (lambda p: pack([[1]], 1, 0.5), "^end_of_text is 0.5"),
        (lambda p: pad([[1]], 0, 2), "^sequence is 0"),
        (lambda p: pad([[1]], 1, 0.5), "^end_of_text is 0.5"),
        (lambda p: pad([[1]], 1, 1, 0.5), "^padding is 0.5"),
        (lambda p: padding_share([1], 0), "^sequence is 0"),
        (lambda p: padding_share([0], 1), "^A length of lengths is 0"),
        (lambda p: padding_share([], 4), "lengths is .*; it must have at least one"),
        (
            lambda p: (write_records(p, [b"a"]), Records(p)[1]),
            "number of a record is 1; it must be at most 0",
        ),
    ],
)
def test_what_cannot_be_written_or_read_is_a_sentence(tmp_path, call, said):
    with pytest.raises(ValueError, match=said):
        call(tmp_path / "file")
