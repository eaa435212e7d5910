"""Work shared out among processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from recommender.processes import ordered_map


def squared_late(number: int) -> tuple[int, int]:
    """The first takes longest."""
    time.sleep(0.02 * (5 - number))
    return number**2, os.getpid()


def test_one_job_is_this_process_and_makes_what_is_asked_for_alone() -> None:
    made = ordered_map(squared_late, iter(range(5)), jobs=1)
    assert next(made) == (0, os.getpid())
    made.close()


def test_what_others_make_comes_in_order() -> None:
    made = list(ordered_map(squared_late, range(5), jobs=2))
    assert [square for square, _ in made] == [0, 1, 4, 9, 16]
    assert os.getpid() not in {pid for _, pid in made}


def test_no_more_are_under_way_than_was_said() -> None:
    begun: list[int] = []

    def work() -> Iterator[int]:
        for number in range(5):
            begun.append(number)
            yield number

    with closing(ordered_map(squared_late, work(), jobs=2)) as made:
        next(made)
        assert begun == [0, 1]


def test_what_goes_wrong_there_goes_wrong_here() -> None:
    with pytest.raises(ValueError, match="not-a-number"):
        list(ordered_map(int, ["1", "not-a-number"], jobs=2))


def test_whoever_has_seen_enough_does_not_wait_for_what_is_under_way() -> None:
    with closing(ordered_map(time.sleep, [0.0, 600.0], jobs=2)) as made:
        next(made)
