"""Prototypes: the paths that most executions take (AI4DL, section 3.3).

An execution is reduced to the order of its phases. An alternation such as 0 2 0 2 0 becomes one element `(0 2)*`,
however often it repeats and wherever it stops, so that executions that differ only in length share a path. An execution
that stopped early is a prefix of longer paths and counts towards one of them; prototypes are the paths that are not a
prefix of another.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recommender.phases.graph import Run

Path = tuple[str, ...]  # elements in time order: a phase number as text, or an alternation `(a b)*`
SHORTEST_ALTERNATION = 4  # minimum phases of an alternation: a b a is a detour, a b a b has repeated


@dataclass(frozen=True, slots=True)
class Prototype:
    """A path of executions."""

    path: Path  # from the first phase to the last
    # Executions that took it, or a prefix of it; each execution counts once, towards the most common path that it is a
    # prefix of.
    count: int
    whole: int  # those of them that took all of it
    # Share of all executions, for this path and for this and all before it.
    share: float
    cumulative_share: float


def collapse(phases: Sequence[int]) -> Path:
    """Reduce one execution to its path.

    `phases`: phase numbers in time order; repeats count once.

    >>> collapse([1, 1, 3, 0, 2, 0, 2, 0, 4])
    ('1', '3', '(0 2)*', '4')
    >>> collapse([1, 0, 1])
    ('1', '0', '1')
    """
    order = [phase for at, phase in enumerate(phases) if at == 0 or phase != phases[at - 1]]
    path: list[str] = []
    at = 0
    while at < len(order):
        end = at + 2
        while end < len(order) and order[end] == order[end - 2]:
            end += 1
        if end - at >= SHORTEST_ALTERNATION:
            path.append(f"({order[at]} {order[at + 1]})*")
            at = end
        else:
            path.append(str(order[at]))
            at += 1
    return tuple(path)


def prototypes(sequences: Iterable[Sequence[Run]]) -> list[Prototype]:
    """Paths that are no prefix of another, greedily by the executions left that they cover; ties by length."""
    counts = Counter(collapse([phase for phase, _ in runs]) for runs in sequences if runs)
    total = sum(counts.values())
    prefixes = {path[:length] for path in counts for length in range(1, len(path))}

    def covers(path: Path) -> int:
        return sum(uncovered.get(path[:length], 0) for length in range(1, len(path) + 1))

    uncovered = dict(counts)
    # What a path covers only shrinks, so the head of the heap is right once its count is up to date.
    queue = [(-covers(path), len(path), path) for path in counts if path not in prefixes]
    heapq.heapify(queue)
    found: list[Prototype] = []
    covered = 0
    while queue:
        negative_count, length, path = heapq.heappop(queue)
        count = covers(path)
        if count != -negative_count:
            heapq.heappush(queue, (-count, length, path))
            continue
        covered += count
        found.append(Prototype(path, count, counts[path], count / total, covered / total))
        for end in range(1, length + 1):
            uncovered.pop(path[:end], None)
    return found
