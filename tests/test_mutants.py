"""The report of `make mutants`: what is shown, what counts as judged, and what fails."""

import tomllib
from collections import Counter

import pytest

from tests.mechanisms import mutants
from tests.mechanisms.mutants import LISTED, Change, bare, read_listed, report

DIFF = """--- dlsys/a/price.py
+++ dlsys/a/price.py
@@ -3,3 +3,3 @@
     if seconds:
-        return rate * seconds
+        return rate / seconds
     return 0"""
SHOWN = "price.bytes_in\n    - return rate * seconds\n    + return rate / seconds"


def test_a_mutant_is_shown_as_the_lines_that_differ():
    change = Change.of("price.bytes_in", DIFF)
    assert str(change) == SHOWN
    where, _, lines = SHOWN.partition("\n")
    assert Change.of(where, "\n".join(line.strip() for line in lines.splitlines())) == change


def test_only_survivors_that_nobody_judged_and_entries_that_none_needs_are_left():
    changes = [Change(f"price.f{n}", (f"- {n}", f"+ {n + 1}")) for n in range(3)]
    survivors = Counter({changes[0]: 2, changes[1]: 1})
    assert report(survivors, changes[:2]) == []
    assert report(survivors, changes[1:2]) == [str(changes[0])] * 2
    assert report(survivors, changes) == [
        f"listed in mutants.toml, but does not survive: {changes[2]}"
    ]


def test_a_zip_that_is_strict_no_longer_is_judged_for_all_chapters():
    was = "- return zip(self.of(one), self.of(then), strict=True)"
    for now in ("strict=None)", "strict=False)", ")"):
        lax = Change("timeline.pairs", (was, f"+ return zip(self.of(one), self.of(then), {now}"))
        assert report(Counter([lax]), []) == []
    other = Change(
        "timeline.pairs", (was, "+ return zip(self.of(None), self.of(then), strict=True)")
    )
    assert report(Counter([other]), []) == [str(other)]


DECORATED = """
def checked(f):
    return lambda *args: ("checked", f(*args))

@checked
def double(
    x,
):
    return 2 * x

class Rate:
    per_second = 3

    @property
    @checked
    def per_minute(self):
        return 60 * self.per_second
    @per_minute.setter
    def per_minute(self, value):
        self.per_second = value / 60
"""


def test_a_decorated_function_is_laid_bare_for_mutants_and_does_what_it_did():
    for source in (DECORATED, bare(DECORATED)):
        names: dict[str, object] = {}
        exec(source, names)
        assert names["double"](4) == ("checked", 8)
        rate = names["Rate"]()
        assert rate.per_minute == ("checked", 180)
        rate.per_minute = 60
        assert rate.per_second == 1
    assert bare(DECORATED).count("@") == 1  # the setter, of which mutmut keeps off


def test_an_entry_needs_a_reason(tmp_path, monkeypatch):
    entry = '[[a]]\nwhere = "price.f"\nchange = """\n- 1\n+ 2"""\nreason = "{}"\n'
    monkeypatch.setattr(mutants, "LISTED", tmp_path / "mutants.toml")
    mutants.LISTED.write_text(entry.format("both are the same, as the test divides"))
    assert read_listed("a") == [Change("price.f", ("- 1", "+ 2"))]
    assert read_listed("b") == []
    mutants.LISTED.write_text(entry.format(" "))
    with pytest.raises(SystemExit, match=r"lists price\.f without a reason"):
        read_listed("a")


def test_what_is_listed_can_be_read():
    for slug in tomllib.loads(LISTED.read_text("utf-8")):
        assert all(change.lines for change in read_listed(slug))
