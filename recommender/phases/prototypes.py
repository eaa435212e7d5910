"""Prototypes: the few paths that most executions take, by AI4DL, section 3.3.

An execution is cut down to the order of its phases. An alternation such as 0 2 0 2 0 becomes one element `(0 2)*`,
however often it went round and wherever in the round it stopped, so that executions that differ in length only share a
path. An execution that stopped early is the beginning of longer ones: it is counted to the path it was on, so the
prototypes are the paths that go on to no other.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recommender.phases.runs import Run

Path = tuple[str, ...]
"""Elements in time order: a phase number as text, or an alternation `(a b)*`."""

SHORTEST_ALTERNATION = 4
"""Phases an alternation must have: a b a is a detour and back, a b a b has gone round twice."""


@dataclass(frozen=True, slots=True)
class Prototype:
    """A path that executions take.

    Attributes
    ----------
    path
        From the first phase to the last.
    count
        Executions that took it, to its end or to somewhere before; each execution is counted once, to the path that
        most of the others on the same way took.
    whole
        Those of them that went to its end.
    share, cumulative_share
        Count by all executions, of this path and of this and all before it.
    """

    path: Path
    count: int
    whole: int
    share: float
    cumulative_share: float


def collapse(phases: Sequence[int]) -> Path:
    """The path of one execution.

    Parameters
    ----------
    phases
        Phase numbers in time order; repeats count once.

    Examples
    --------
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
    """The paths that no other goes on from, the one that covers most executions first, then the one most of the rest.

    Of ties the shorter path comes first, then the one whose name sorts first.
    """
    ended = _paths(sequences)
    total = sum(ended.values())
    longer = {path[:length] for path in ended for length in range(1, len(path))}

    def covers(path: Path) -> int:
        return sum(left.get(path[:length], 0) for length in range(1, len(path) + 1))

    left = dict(ended)
    # What a path covers only shrinks as others take their share: the head of the heap is right once it is up to date.
    queue = [(-covers(path), len(path), path) for path in ended if path not in longer]
    heapq.heapify(queue)
    found: list[Prototype] = []
    together = 0
    while queue:
        promised, length, path = heapq.heappop(queue)
        count = covers(path)
        if count != -promised:
            heapq.heappush(queue, (-count, length, path))
            continue
        together += count
        found.append(Prototype(path, count, ended[path], count / total, together / total))
        for end in range(1, length + 1):
            left.pop(path[:end], None)
    return found


def _paths(sequences: Iterable[Sequence[Run]]) -> Counter[Path]:
    return Counter(collapse([phase for phase, _ in runs]) for runs in sequences if runs)
