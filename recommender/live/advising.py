"""What is advised of every container name of every VPA: made anew where it may have changed, else what it was.

From one round to the next little changes for most containers. An advice is made of decisions, of what is published and
of what stands in the books; of the samples in between only a few things count, and these are looked at each time: the
working set, and whether violations have become too many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from recommender.live.book import Book
from recommender.live.fleet import Fleet
from recommender.live.present import PINNED_SAMPLES, Present, look_through
from recommender.live.publishing import deferred_s, requests_of
from recommender.live.rails import spending
from recommender.live.recommend import Advice, Options, Standing, advise
from recommender.live.workload import Workload
from recommender.records import MEMORY

SELECTION = 0
"""Where it is in what an advice is made of."""

NO_USE = (math.inf, -math.inf)
"""No working set lies between these."""


class Advising:
    """Advises, and remembers what still stands.

    Parameters
    ----------
    book_of
        What is remembered of a container name of a workload.
    """

    def __init__(self, fleet: Fleet, options: Options, book_of: Callable[[Workload, str], Book]) -> None:
        self._fleet, self._options, self._book_of = fleet, options, book_of

    def advise(self, workload: Workload, now_s: float) -> None:
        """Bring the advice of a workload up to date; the same object stands while all of it is the same."""
        advised: dict[str, Advice] = {}
        changed = False
        for name in _spoken_of(workload):
            book = workload.books.get(name) or self._book_of(workload, name)
            of, used_bytes = self._of(workload, name, book)
            standing = workload.standing.get(name)
            if standing is None or not _stands(standing, of, used_bytes, book, now_s):
                standing = self._anew(workload, name, book, of, now_s)
                changed = True
            if standing.advice is not None:
                advised[name] = standing.advice
        if changed or advised.keys() != workload.advice.keys():
            workload.advice = advised

    def _of(self, workload: Workload, name: str, book: Book) -> tuple[tuple[object, ...], float]:
        """What an advice is made of, and the largest working set."""
        used_bytes, seen = -math.inf, list[object]()
        for member in workload.members.get(name, ()):
            seen += member.decision, member.phase, member.pinned >= PINNED_SAMPLES
            if (latest_bytes := member.latest[MEMORY]) > used_bytes:
                used_bytes = latest_bytes
        spent = spending(book.violation_ratio, book.judged, self._options.rails)
        return (workload.selection, seen, workload.expected.get(name), book.oom_s, spent), used_bytes

    def _anew(self, workload: Workload, name: str, book: Book, of: tuple[object, ...], now_s: float) -> Standing:
        before = workload.standing.get(name)
        same_pods = before is not None and before.of[SELECTION] is workload.selection
        requests = before.requests if before is not None and same_pods else requests_of(workload, name)
        members, expected = workload.members.get(name, ()), workload.expected.get(name, ())
        present = look_through(members, expected, requests, deferred_s(workload, now_s))
        published = book.published
        advice = advise(self._fleet, present, book, now_s, self._options)
        used, until_s = self._bounds(present, book, advice, now_s)
        workload.standing[name] = standing = Standing(advice, of, published, used, until_s, requests)
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


def _stands(standing: Standing, of: tuple[object, ...], used_bytes: float, book: Book, now_s: float) -> bool:
    least, most = standing.used
    return (
        least <= used_bytes <= most
        and now_s < standing.until_s
        and book.published is standing.published
        and of == standing.of
    )


def _spoken_of(workload: Workload) -> Sequence[str]:
    """The container names of which something is to be said; of a target that cannot be read, what stands stays."""
    if workload.selection.problem:
        return ()
    return workload.selection.containers or sorted(set(workload.books) | set(workload.expected))
