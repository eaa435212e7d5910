"""What is published of VPAs: made of what is advised, within all limits; written where it differs, several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.pair import Pair
from recommender.live.advice.lead_time import LeadTime
from recommender.live.advice.publishing import Status, beside, conditions_of, said_of, standing
from recommender.live.advice.workload import Workload
from recommender.live.fleet.member import Instance
from recommender.live.outside.writers import Writers
from recommender.live.tally import Report
from recommender.live.view.view import View
from recommender.policies.constraints import SharedLimits, constrain, fit_largest_node, integer_cpu_containers
from recommender.records import ContainerRecommendation


class Publisher:
    """Makes the statuses of VPAs say what is advised.

    Parameters
    ----------
    lead_time
        Told of each target from which on a resize is waited for.
    clock
        Unix seconds.
    """

    def __init__(
        self, view: View, limits: SharedLimits, lead_time: LeadTime, clock: Callable[[], float], writers: Writers
    ) -> None:
        self._view, self._limits, self._lead_time = view, limits, lead_time
        self._clock, self._writers = clock, writers

    def publish(self, workloads: Iterable[Workload], report: Report) -> None:
        """Statuses in the order of the workloads; those that say the same as last time are not even made."""
        drafts: list[Status] = []

        def draft_of(workload: Workload) -> None:
            if (draft := self._status_of(workload)) is not None:
                drafts.append(draft)

        report.each(workloads, Workload.name, draft_of)
        outcomes = self._writers.run([partial(self._send, draft) for draft in drafts])
        for draft, outcome in zip(drafts, outcomes, strict=True):
            with report.sparing(draft.workload.vpa.key):
                outcome()
                self._sent(draft, report)

    def publish_until(
        self,
        until_s: float,
        stopwatch: Callable[[], float],
        workloads: Sequence[Workload],
        advise: Callable[[Workload], bool],
        report: Report,
    ) -> None:
        """The same, but none is begun after a moment of the stopwatch; those that do not say it then are counted.

        Each is advised when its turn comes, on the thread that writes: the first are out before the last are worked
        out. Where `advise` says that nothing is to be said, what stands is left.
        """

        def say(workload: Workload) -> bool:
            if stopwatch() >= until_s:
                return False
            if advise(workload) and (status := self._status_of(workload)) is not None:
                self._send(status)
            return True

        outcomes = self._writers.run([partial(say, workload) for workload in workloads])
        for workload, outcome in zip(workloads, outcomes, strict=True):
            report.unsaid += 1
            with report.sparing(workload.vpa.key):
                report.unsaid -= outcome()

    def write_until(
        self, until_s: float, stopwatch: Callable[[], float], profiles: Sequence[Callable[[], None]], report: Report
    ) -> None:
        """Write profiles, and begin none after a moment of the stopwatch; the others are counted."""

        def in_time(write: Callable[[], None]) -> None:
            if stopwatch() > until_s:
                raise Unreachable("not written: the process ends")
            write()

        for outcome in self._writers.run([partial(in_time, write) for write in profiles]):
            report.unshown += 1
            with report.sparing("PhaseProfiles"):
                outcome()
                report.unshown -= 1

    def _status_of(self, workload: Workload) -> Status | None:
        """None when it says the same as last time."""
        room = tuple(self._view.room(workload.selection.pods))
        signature = said_of(workload, room)
        if signature == workload.said and self._stands(workload):
            return None
        limits = self._limits.within(workload.vpa.key.namespace)
        recommendations = _constrained(workload, limits, room)
        entries = standing(workload, limits) | {entry.container: entry for entry in recommendations}
        return Status(workload, signature, recommendations, entries, conditions_of(workload, entries))

    def _stands(self, workload: Workload) -> bool:
        """Whether the VPA is as it was when it was said, or nothing but that has changed."""
        vpa, before = workload.vpa, workload.said_to
        if before is vpa:
            return True
        if before is None or (
            (before, before.resource_version) != (vpa, vpa.resource_version) and not self._view.stands(vpa)
        ):
            return False
        workload.said_to = vpa
        return True

    def _send(self, status: Status) -> None:
        self._view.publish(status.workload.vpa, list(status.entries.values()), status.conditions)

    def _sent(self, status: Status, report: Report) -> None:
        workload, now_s = status.workload, self._clock()
        workload.said, workload.said_to = status.signature, workload.vpa
        for recommendation in status.recommendations:
            book = workload.books[recommendation.container]
            report.published += book.publish(recommendation.uncapped, now_s)
            self._await_resizes(recommendation, workload, now_s)

    def _await_resizes(self, recommendation: ContainerRecommendation, workload: Workload, now_s: float) -> None:
        """From now on the updater is waited for."""
        for pod in workload.selection.pods:
            state = pod.container(recommendation.container)
            if state is not None and state.running:
                instance = Instance(pod.key.namespace, pod.uid, state.name)
                self._lead_time.published(instance, recommendation.target, state.requests, now_s)


def _constrained(workload: Workload, limits: SharedLimits, room: Sequence[Pair]) -> tuple[ContainerRecommendation, ...]:
    vpa = workload.vpa
    whole = integer_cpu_containers(vpa.annotations, workload.advice) if limits.integer_cpu else frozenset[str]()
    estimates = {name: advice.estimate for name, advice in workload.advice.items()}
    recommendations = constrain(estimates, vpa.policy_for, limits, whole)
    return fit_largest_node(recommendations, beside(workload), room)
