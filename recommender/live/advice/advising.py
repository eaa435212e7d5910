"""What is advised of every container name of every VPA: made anew where it may have changed, else what it was.

From one round to the next little changes for most containers. An advice is made of decisions, of what is published and
of what stands in the books; of the samples in between only a few things count, and these are looked at each time: the
working set, and whether violations have become too many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from recommender.live.advice.book import Book
from recommender.live.advice.publishing import requests_of
from recommender.live.advice.rails import spending
from recommender.live.advice.recommend import Advice, Of, Options, Standing, advise
from recommender.live.advice.workload import Workload
from recommender.live.fleet.fleet import Fleet
from recommender.live.tally import Report
from recommender.live.view.present import PINNED_SAMPLES, Present, Used, look_through

NO_USE = (math.inf, -math.inf)
"""No working set lies between these."""


class _Now(NamedTuple):
    """What a round sees of all live containers, by slot.

    Attributes
    ----------
    now_s
        Unix seconds.
    memory_bytes
        Working sets, NaN where none is known.
    pinned
        Whether each has used just the CPU that it has for a while.
    """

    now_s: float
    memory_bytes: Sequence[float]
    pinned: Sequence[bool]


class Advising:
    """Advises, and remembers what still stands.

    Parameters
    ----------
    book_of
        What is remembered of a container name of a workload.
    """

    def __init__(self, fleet: Fleet, options: Options, book_of: Callable[[Workload, str], Book]) -> None:
        self._fleet, self._options, self._book_of = fleet, options, book_of

    def advise(self, workloads: Iterable[Workload], now_s: float, report: Report) -> None:
        """Bring the advice of all workloads up to date; the same object stands while all of it is the same."""
        counts = self._fleet.counts
        now = _Now(now_s, counts.memory_bytes.tolist(), (counts.pinned >= PINNED_SAMPLES).tolist())
        report.each(workloads, Workload.name, lambda workload: self._advise(workload, now))

    def _advise(self, workload: Workload, now: _Now) -> None:
        advised: dict[str, Advice] = {}
        changed = False
        for name in _spoken_of(workload):
            book = workload.books.get(name) or self._book_of(workload, name)
            of, used_bytes = self._of(workload, name, book, now)
            standing = workload.standing.get(name)
            if standing is None or not _stands(standing, of, used_bytes, book, now.now_s):
                standing = self._anew(workload, name, book, of, used_bytes, now.now_s)
                changed = True
            if standing.advice is not None:
                advised[name] = standing.advice
        if changed or advised.keys() != workload.advice.keys():
            workload.advice = advised

    def _of(self, workload: Workload, name: str, book: Book, now: _Now) -> tuple[Of, float]:
        """What an advice is made of, and the largest working set; NaN where none is known."""
        most_bytes, pinned, seen = math.nan, False, list[object]()
        for member in workload.members.get(name, ()):
            slot = member.slot
            if not (used_bytes := now.memory_bytes[slot]) <= most_bytes:
                most_bytes = used_bytes
            seen += member.decision, member.phase, now.pinned[slot]
            pinned = pinned or now.pinned[slot]
        spent = spending(book.violation_ratio, book.judged, self._options.rails)
        return Of(workload.selection, seen, workload.expected.get(name), book.oom_s, spent, pinned), most_bytes

    def _anew(self, workload: Workload, name: str, book: Book, of: Of, used_bytes: float, now_s: float) -> Standing:
        before = workload.standing.get(name)
        same_pods = before is not None and before.of.selection is workload.selection
        requests = before.requests if before is not None and same_pods else requests_of(workload, name)
        members, expected = workload.members.get(name, ()), workload.expected.get(name, ())
        deferred_s = max(0.0, now_s - workload.selection.deferred_since_s)
        present = look_through(members, expected, Used(used_bytes, of.pinned), requests, deferred_s)
        published = book.published
        advice = advise(self._fleet, present, book, of.spent, now_s, self._options)
        between, until_s = self._bounds(present, book, advice, now_s)
        workload.standing[name] = standing = Standing(advice, of, published, between, until_s, requests)
        return standing

    def _bounds(
        self, present: Present, book: Book, advice: Advice | None, now_s: float
    ) -> tuple[tuple[float, float], float]:
        """Between which working sets, and until when, the advice stands."""
        if advice is None or present.deferred_s > 0.0:
            return NO_USE, -math.inf
        rails, draft, until_s = self._options.rails, advice.draft, book.stands_until(now_s)
        if not draft.confident:
            until_s = min(until_s, book.known_until_s)
        if book.less_memory_since_s is not None:
            late_s = book.less_memory_since_s + min(rails.shrink_after_s, present.run_s / 10.0)
            until_s = min(until_s, late_s if now_s < late_s else math.inf)
        if math.isnan(draft.wide_bytes):
            return (present.working_set_bytes, present.working_set_bytes), until_s
        return (-math.inf, draft.wide_bytes / (1.0 + rails.memory_margin)), until_s


def _stands(standing: Standing, of: Of, used_bytes: float, book: Book, now_s: float) -> bool:
    least, most = standing.used
    return (
        not (used_bytes < least or used_bytes > most)
        and now_s < standing.until_s
        and book.published is standing.published
        and of == standing.of
    )


def _spoken_of(workload: Workload) -> Sequence[str]:
    """The container names of which something is to be said; of a target that cannot be read, what stands stays."""
    if workload.selection.problem:
        return ()
    return workload.selection.containers or sorted(set(workload.books) | set(workload.expected))
