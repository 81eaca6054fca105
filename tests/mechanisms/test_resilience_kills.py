"""Killed for real, at any moment, a run ends where it would have ended (`soak.py`: 200 times)."""

from random import Random

import pytest

from tests.mechanisms.killing import Job, campaign, never_killed
from tests.mechanisms.trained import difference


@pytest.mark.parametrize(("job", "seed"), [(Job(2), 1), (Job(2, beside=True), 2)])
def test_however_often_it_is_killed_a_run_ends_with_the_bits_of_the_run_that_never_was(
    tmp_path, job, seed
):
    told = campaign(tmp_path, job, kills=3, random=Random(seed), damage=0.5)
    print(told.kills, told.cut_short, told.damaged, told.skipped)
    assert told.kills.total() == 3
    assert (told.torn_by_kills, told.unexpected) == ([], [])
    never = never_killed(tmp_path, job)
    for one, other in zip(told.state, never, strict=True):
        assert difference(one, other) is None
