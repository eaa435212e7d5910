"""Whose each container is, kept from round to round, and worked out again only where something changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

from recommender.cluster.objects.metadata import ObjectKey
from recommender.live.advice.lead_time import LeadTime
from recommender.live.advice.workload import Workload
from recommender.live.fleet.member import Instance
from recommender.live.owners.homes import Home, Homes
from recommender.live.tally import Report
from recommender.live.view.view import Selection, View


class Placing:
    """Selects the pods of all workloads, and sees which resizes were done meanwhile.

    Parameters
    ----------
    homes
        Kept up to date.
    lead_time
        Told of what each container has.
    clock
        Unix seconds.
    """

    def __init__(self, view: View, homes: Homes, lead_time: LeadTime, clock: Callable[[], float]) -> None:
        self.homes = homes
        self._view, self._lead_time, self._clock = view, lead_time, clock
        self._placed: dict[ObjectKey, tuple[Workload, Selection]] = {}
        self._deferred: set[Instance] = set()

    def select(self, workloads: Collection[Workload], report: Report) -> None:
        """The pods of each, as they are now."""
        report.each(workloads, Workload.name, self._select)
        self._see_resizes([] if self._are_placed(workloads) else self._place(workloads), report)

    def _select(self, workload: Workload) -> None:
        workload.selection = self._view.select(workload.vpa)

    def _are_placed(self, workloads: Collection[Workload]) -> bool:
        """Everything is as it was: most rounds of a quiet cluster."""
        return (
            not self.homes.contested
            and len(workloads) == len(self._placed)
            and all(_same(self._placed.get(one.vpa.key), (one, one.selection)) for one in workloads)
        )

    def _place(self, workloads: Collection[Workload]) -> list[tuple[Instance, Home]]:
        """Bring the homes up to date; returns what is new."""
        # Of two VPAs for one pod the updater obeys the older one.
        ordered = sorted(workloads, key=lambda one: (one.vpa.created_s, one.vpa.key))
        now = {workload.vpa.key: (workload, workload.selection) for workload in ordered}
        renewed = self._renewed(now)
        seen = self._anew(ordered) if renewed is None else renewed
        before, self._placed = self._placed, now
        for workload in ordered:
            if not _same(before.get(workload.vpa.key), (workload, workload.selection)):
                for pod in workload.selection.pods:  # the last known ones, when they cannot be told now
                    workload.workload_class = workload.selection.workload.get(pod.uid) or workload.workload_class
        return seen

    def _renewed(self, now: dict[ObjectKey, tuple[Workload, Selection]]) -> list[tuple[Instance, Home]] | None:
        """Place those anew whose pods are not the same; None when all must be, since one pod has several workloads."""
        if self.homes.contested or not self._placed or self._placed.keys() - now.keys():
            return None
        changed = [key for key, placed in now.items() if not _same(self._placed.get(key), placed)]
        self.homes.version += bool(changed)  # also where nobody lives any more, or yet
        for key in changed:
            before = self._placed.get(key)
            if before is not None:
                for pod in before[1].pods:
                    self.homes.drop(before[0], pod)
        seen = _added(self.homes, (now[key][0] for key in changed))
        return None if self.homes.contested else seen

    def _anew(self, ordered: Iterable[Workload]) -> list[tuple[Instance, Home]]:
        self.homes.clear()
        self._deferred.clear()
        return _added(self.homes, ordered)

    def _see_resizes(self, fresh: Collection[tuple[Instance, Home]], report: Report) -> None:
        """What containers have now. Of a pod that is as it was, only a wait for room has still to be told."""
        now_s = self._clock()
        for instance, home in fresh:
            self._deferred.discard(instance)
            if home.waits_for_room:
                self._deferred.add(instance)
        waiting = [(instance, self.homes[instance]) for instance in self._deferred if instance in self.homes]
        for instance, home in [*fresh, *waiting]:
            deferred = instance in self._deferred
            delay_s = self._lead_time.seen(instance, home.container.requests, now_s, deferred=deferred)
            if delay_s is not None and math.isfinite(delay_s):
                report.resizes_s.append(delay_s)


def _added(homes: Homes, workloads: Iterable[Workload]) -> list[tuple[Instance, Home]]:
    return [found for workload in workloads for pod in workload.selection.pods for found in homes.add(workload, pod)]


def _same(one: tuple[Workload, Selection] | None, other: tuple[Workload, Selection]) -> bool:
    return one is not None and one[0] is other[0] and one[1] is other[1]
