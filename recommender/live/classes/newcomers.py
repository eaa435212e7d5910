"""What must be known of containers that come: the book of their name, and where they were before a restart."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan

from recommender.cluster.vpas.status import published_in
from recommender.errors import BadInput
from recommender.live.advice.book import Book
from recommender.live.advice.workload import Workload
from recommender.live.classes.keeper import ClassKeeper
from recommender.live.fleet import keeping
from recommender.live.fleet.member import Instance, Member, Newcomer
from recommender.live.fleet.members import LONGEST_GAP_CYCLES, Members
from recommender.live.owners.homes import Homes
from recommender.live.view.view import View
from recommender.policies.histogram_aggregate import HistogramAggregate

log = logging.getLogger(__name__)


class Newcomers:
    """Opens books, and welcomes containers.

    Attributes
    ----------
    books
        Of each live container, that of its name.
    """

    def __init__(self, view: View, homes: Homes, classes: ClassKeeper) -> None:
        self._view, self._homes, self._classes = view, homes, classes
        self.books: dict[Instance, Book] = {}

    def welcome(self, instance: Instance) -> Newcomer:
        home = self._homes[instance]
        book = self.books[instance] = self.book(home.workload, instance.container)
        found = home.workload_class
        return Newcomer(
            None if found is None else found.name,
            book.session(instance.pod_uid),
            None if found is None else self._classes.known.runs(found, instance.container),
            home.container.started_s,
        )

    def resume(self, fleet: Members, member: Member, cell: int) -> None:
        """A container that was known before a restart goes on from there."""
        kept = self._homes[member.instance].workload.kept_member(member.instance)
        last_cell = None if kept is None else kept.get("last_cell")
        if kept is None or not isinstance(last_cell, int):
            return
        if 0 <= cell - last_cell <= LONGEST_GAP_CYCLES * fleet.cycle_samples:
            with _starting_anew():
                keeping.restore(fleet, member, kept)

    def book(self, workload: Workload, container: str) -> Book:
        """What is remembered of a container name of a workload; opened with what was kept of it."""
        if container not in workload.books:
            book = Book(HistogramAggregate(self._view.history(workload.vpa.key, container)))
            if before := published_in(workload.vpa.status).get(container):
                cpu_cores, memory_bytes = (
                    target if isnan(uncapped) else uncapped
                    for uncapped, target in zip(before.uncapped, before.target, strict=True)
                )
                book.stand((cpu_cores, memory_bytes))
            workload.books[container] = book
            if (kept := workload.kept_book(container)) is not None:
                with _starting_anew():
                    book.restore(kept)
        return workload.books[container]


@contextmanager
def _starting_anew() -> Iterator[None]:
    """What was kept and does not fit is said, and stops neither this container nor the others."""
    try:
        yield
    except BadInput as error:
        log.warning("%s", error)
