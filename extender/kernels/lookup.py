"""The names of a request, as they came, to the places of the nodes: no text is made of any of them."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

QUOTE, COMMA = np.uint8(0x22), np.uint8(0x2C)
FNV_START, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
NOWHERE = -1


@njit(cache=True)
def enter(names: NDArray[np.uint8], starts: NDArray[np.int64], slots: NDArray[np.int32]) -> None:
    """Put all names into a hash table.

    Parameters
    ----------
    names, starts
        uint8, int64 (n + 1,): name i and the quote that ends it are `names[starts[i] : starts[i + 1]]`; a name of which
        there is nothing, not even the quote, is never found.
    slots
        OUT int32 (a power of two greater than n,), all -1: places, open addressing.
    """
    mask = len(slots) - 1
    for place in range(len(starts) - 1):
        if starts[place + 1] > starts[place]:
            slot = _hashed(names, starts[place], starts[place + 1])[0] & mask
            while slots[slot] != NOWHERE:
                slot = (slot + 1) & mask
            slots[slot] = place


@njit(cache=True)
def find(
    told: NDArray[np.uint8],
    names: NDArray[np.uint8],
    starts: NDArray[np.int64],
    slots: NDArray[np.int32],
    follows: NDArray[np.int32],
    places: NDArray[np.int64],
) -> tuple[int, int]:
    """The places of names, each once and in their order.

    Parameters
    ----------
    told
        uint8: `"a","b"` as in a JSON list without blanks.
    names, starts, slots
        As of `enter`.
    follows
        IN and OUT int32 (n,): which place was named after each the last time, or -1. Schedulers name nodes in much the
        same order each time; a wrong guess costs a look into the table. Threads may share it.
    places
        OUT int64 (n,).

    Returns
    -------
    (names told, places found); (-1, 0) where a name is not known or something else than names is told.
    """
    end, mask, i, count = len(told), len(slots) - 1, 0, 0
    seen = np.zeros(len(follows), dtype=np.uint8)
    former = guess = NOWHERE
    while True:
        if i >= end or told[i] != QUOTE:
            return -1, 0
        i += 1
        place = guess
        if place == NOWHERE or not _same(told, i, names, starts[place], starts[place + 1]):
            hashed, length = _hashed(told, i, end)
            slot = hashed & mask
            place = slots[slot]
            while place != NOWHERE and not (
                starts[place + 1] - starts[place] == length and _same(told, i, names, starts[place], starts[place + 1])
            ):
                slot = (slot + 1) & mask
                place = slots[slot]
            if place == NOWHERE:
                return -1, 0
            if former != NOWHERE:
                follows[former] = place
        seen[place] = 1
        count += 1
        i += starts[place + 1] - starts[place]
        former, guess = place, follows[place]
        if i == end:
            break
        if told[i] != COMMA:
            return -1, 0
        i += 1
    found = 0
    for place in range(len(seen)):
        if seen[place]:
            places[found] = place
            found += 1
    return count, found


@njit(cache=True, inline="always")
def _same(told: NDArray[np.uint8], at: int, names: NDArray[np.uint8], begins: int, ends: int) -> bool:
    """Whether a name and its quote stand there. Without a way out in the midst, so that many bytes go at once."""
    if ends <= begins or at + ends - begins > len(told):
        return False
    differ, here, there = np.uint8(0), np.uint64(at), np.uint64(begins)
    for k in range(np.uint64(ends - begins)):  # unsigned: a place that might be negative takes three times as long
        differ |= told[here + k] ^ names[there + k]
    return bool(differ == 0)


@njit(cache=True, inline="always")
def _hashed(text: NDArray[np.uint8], begins: int, end: int) -> tuple[np.int64, int]:
    """FNV-1a up to the next quote, as a number of at least 0, and how many bytes that is with the quote."""
    hashed, at = FNV_START, begins
    while at < end and text[at] != QUOTE:
        hashed = (hashed ^ np.uint64(text[at])) * FNV_PRIME
        at += 1
    return np.int64(hashed >> np.uint64(1)), at + 1 - begins
