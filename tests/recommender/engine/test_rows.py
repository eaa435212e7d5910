"""The latest rows of each slot, in whatever order they were appended."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import UNKNOWN_PHASE
from recommender.engine.rows import Rows

WIDTH, SLOTS = 5, 3


def test_the_newest_rows_are_those_appended_last() -> None:
    rows = Rows(WIDTH)
    rows.grow(SLOTS)
    for number in range(1, 18):
        rows.append(np.array([1]), np.full((1, 2), float(number)), np.array([number]))
    usage, labels = rows.latest(1, 3)
    assert usage[:, 0].tolist() == labels.tolist() == [15, 16, 17]
    raised = rows.raise_latest(np.array([1, 1]), np.array([[16.5, 99.0], [1.0, 98.0]]))
    assert raised.tolist() == [[17.0, 99.0]] * 2
    usage, labels = rows.latest(0, WIDTH)
    assert np.isnan(usage).all() and (labels == UNKNOWN_PHASE).all()


@given(st.lists(st.sets(st.integers(0, SLOTS - 1), min_size=1), max_size=40), st.integers(0, 60))
def test_each_slot_keeps_its_own_rows(appended: list[set[int]], reset_at: int) -> None:
    rows, kept = Rows(WIDTH), {slot: [] for slot in range(SLOTS)}
    rows.grow(SLOTS)
    for number, slots in enumerate(appended):
        if number == reset_at:
            rows.reset(0)
            kept[0] = []
        chosen = np.array(sorted(slots))
        rows.append(chosen, np.column_stack([chosen + number, chosen]).astype(float), chosen * 100 + number)
        for slot in slots:
            kept[slot].append(number)
    for slot in range(SLOTS):
        n = min(len(kept[slot]), WIDTH)
        usage, own = rows.latest(slot, n)
        assert own.tolist() == [slot * 100 + number for number in kept[slot][len(kept[slot]) - n :]]
        assert usage[:, 0].tolist() == [slot + number for number in kept[slot][len(kept[slot]) - n :]]


def test_all_rows_are_relabelled_oldest_first() -> None:
    rows, relabelled = Rows(WIDTH), []
    rows.grow(SLOTS)
    for number in range(8):
        rows.append(np.array([2]), np.full((1, 2), float(number)), np.array([0]))

    def relabel(slots: np.ndarray, usage: np.ndarray) -> np.ndarray:
        relabelled.append(usage[0, 0])
        return np.array([int(usage[0, 0]) + 10])

    assert rows.relabel(np.array([2]), relabel).tolist() == [17]
    assert relabelled == [3.0, 4.0, 5.0, 6.0, 7.0]
    assert rows.latest(2, WIDTH)[1].tolist() == [13, 14, 15, 16, 17]
