"""Samples held against what their containers have: all of a round at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from recommender.live.advice.book import Book, tells
from recommender.live.fleet.fleet import Fleet
from recommender.live.fleet.member import CLASS, Instance, Member, slots_of
from recommender.live.owners.homes import Homes
from recommender.live.tally import Report
from recommender.records import CPU, VIOLATION_TOLERANCE, BoolArray, FloatArray

PINNED_FROM = 0.95
"""From this share of what it has on, a container is taken to use all of it."""


class Judging:
    """Knows what each live container has, by its place in the fleet's arrays.

    Parameters
    ----------
    books
        Of each live container, that of its name.
    target_violation
        Share of samples above allocation x 1.05 that is accepted, per resource.
    """

    def __init__(
        self, fleet: Fleet, homes: Homes, books: Mapping[Instance, Book], target_violation: tuple[float, float]
    ) -> None:
        self._fleet, self._homes, self._books, self._target_violation = fleet, homes, books, target_violation
        self._requests, self._cpu_limits = np.empty((0, 2)), np.empty(0)
        self._asks = np.empty(0, bool)
        self._book_of: dict[int, Book] = {}
        self._known: tuple[int, int] | None = None

    def judge(self, members: Sequence[Member], report: Report) -> None:
        """Take the latest samples of these; what is not ours to answer for is not judged.

        That is a container that requests nothing, and one for which nothing is published.
        """
        self._look_up()
        slots, counts = slots_of(members), self._fleet.counts
        used, had = np.column_stack([counts.cpu_cores[slots], counts.memory_bytes[slots]]), self._requests[slots]
        all_of_it = uses_all(used[:, CPU], had[:, CPU], self._cpu_limits[slots])
        np.add.at(counts.pinned, slots[all_of_it], 1)  # one may be there with several samples
        counts.pinned[slots[~all_of_it]] = 0
        above = used > had * VIOLATION_TOLERANCE
        judged = self._asks[slots]
        for at, (cpu, memory) in zip(np.flatnonzero(judged).tolist(), above[judged].tolist(), strict=True):
            member = members[at]
            book = self._book_of[member.slot]
            if not book.speaks:
                judged[at] = False
                continue
            book.judge(cpu, memory)
            if member.runs is not None and member.decision is not None and member.decision.policy == CLASS:
                member.runs.judge(cpu, self._target_violation[CPU])
        report.judge(used[judged], had[judged])

    def _look_up(self) -> None:
        """What the containers have, and their books: again when one came or went, or a pod is not what it was."""
        known = self._fleet.version, self._homes.version
        if known == self._known:
            return
        places = len(self._fleet.counts.alive)
        requests, limits = np.full((places, 2), np.nan), np.full(places, np.nan)
        asks, book_of = np.zeros(places, bool), dict[int, Book]()
        for slot, member in self._fleet.by_slot.items():
            if (home := self._homes.of(member.instance)) is not None:
                requests[slot], limits[slot] = home.container.requests, home.container.limits[CPU]
                asks[slot] = tells(home.container.requests)
            book_of[slot] = self._books[member.instance]
        self._requests, self._cpu_limits, self._asks, self._book_of = requests, limits, asks, book_of
        self._known = known


def uses_all(cpu_cores: FloatArray, requests: FloatArray, limits: FloatArray) -> BoolArray:
    """Whether that is just the CPU that containers have: their request on a full node, or their limit; float64 (m,)."""
    just = (requests * PINNED_FROM <= cpu_cores) & (cpu_cores <= requests * VIOLATION_TOLERANCE)
    found: BoolArray = just | (cpu_cores >= limits * PINNED_FROM)
    return found
