"""What is published of VPAs: made of what is advised, within all limits; written where it differs, several at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from recommender.cluster.errors import Unreachable
from recommender.engine.engine import Engine
from recommender.engine.tally import Report
from recommender.live.outside.writers import Writers
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.node_room import NO_BOUND, NodeRoom, had_by_container
from recommender.live.writing.status import Status, beside, conditions_of, signature_of, standing
from recommender.policies.constraints import SharedLimits, constrain, integer_cpu_containers
from recommender.policies.room import fit_room
from recommender.records import Amounts, ContainerRecommendation


class Publisher:
    """Makes the statuses of VPAs say what is advised.

    Parameters
    ----------
    engine
        Told of each target that stands published.
    clock
        Unix seconds.
    """

    def __init__(
        self, view: View, limits: SharedLimits, engine: Engine, clock: Callable[[], float], writers: Writers
    ) -> None:
        self._view, self._limits, self._engine = view, limits, engine
        self._clock, self._writers, self._nodes = clock, writers, NodeRoom(view)

    def publish(self, states: Collection[VpaState], report: Report) -> None:
        """Statuses in the order of the VPAs; those that say the same as last time are not even made."""
        self._nodes.begin(states)
        drafts: list[Status] = []

        def draft_of(state: VpaState) -> None:
            if (draft := self._status_of(state)) is not None:
                drafts.append(draft)

        report.each(states, VpaState.name, draft_of)
        outcomes = self._writers.run([partial(self._send, draft) for draft in drafts])
        for draft, outcome in zip(drafts, outcomes, strict=True):
            with report.guard(draft.state.vpa.key):
                outcome()
                self._sent(draft, report)

    def publish_until(
        self,
        until_s: float,
        stopwatch: Callable[[], float],
        states: Sequence[VpaState],
        advise: Callable[[VpaState], bool],
        report: Report,
    ) -> None:
        """The same, but none is begun after a moment of the stopwatch; those that do not say it then are counted.

        Each is advised when its turn comes, on the thread that writes: the first are out before the last are worked
        out. Where `advise` says that nothing is to be said, what stands is left.
        """

        def say(state: VpaState) -> bool:
            if stopwatch() >= until_s:
                return False
            if advise(state) and (status := self._status_of(state)) is not None:
                self._send(status)
            return True

        outcomes = self._writers.run([partial(say, state) for state in states])
        for state, outcome in zip(states, outcomes, strict=True):
            report.unsaid += 1
            with report.guard(state.vpa.key):
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
            with report.guard("PhaseProfiles"):
                outcome()
                report.unshown -= 1

    def _status_of(self, state: VpaState) -> Status | None:
        """None when it says the same as last time."""
        room = self._view.room(state.vpa, state.selection.pods)
        signature = signature_of(state, room)
        if signature == state.said and self._stands(state):
            return None
        limits = self._limits.within(state.vpa.key.namespace)
        wanted = _constrained(state, limits)
        used = {one.container: self._engine.used(state.groups[one.container]) for one in wanted}
        most = self._nodes.most(state, wanted, self._clock())
        if most != NO_BOUND:
            room = replace(room, where_it_runs=most, has=had_by_container(state))
        recommendations = fit_room(wanted, beside(state), room, state.vpa.policy_for, used)
        if recommendations != wanted:
            signature = None  # it depends on what is used, too, and is looked at anew
        entries = standing(state, limits) | {entry.container: entry for entry in recommendations}
        return Status(state, signature, recommendations, entries, conditions_of(state, entries))

    def _stands(self, state: VpaState) -> bool:
        """Whether the VPA is as it was when it was said, or nothing but that has changed."""
        vpa, before = state.vpa, state.said_to
        if before is vpa:
            return True
        if before is None or (
            (before, before.resource_version) != (vpa, vpa.resource_version) and not self._view.stands(vpa)
        ):
            return False
        state.said_to = vpa
        return True

    def _send(self, status: Status) -> None:
        self._view.publish(status.state.vpa, list(status.entries.values()), status.conditions)

    def _sent(self, status: Status, report: Report) -> None:
        state, now_s = status.state, self._clock()
        state.said, state.said_to, state.entries = status.signature, state.vpa, status.entries
        for recommendation in status.recommendations:
            group = state.groups[recommendation.container]
            report.published += self._engine.published(group, recommendation.uncapped, recommendation.target, now_s)


def _constrained(state: VpaState, limits: SharedLimits) -> tuple[ContainerRecommendation, ...]:
    vpa = state.vpa
    whole = integer_cpu_containers(vpa.annotations, state.targets) if limits.integer_cpu else frozenset[str]()
    estimates = {name: target.estimate for name, target in state.targets.items()}
    return tuple(
        _in_place_of(one, state.targets[one.container].in_place_of)
        for one in constrain(estimates, vpa.policy_for, limits, whole)
    )


def _in_place_of(recommendation: ContainerRecommendation, before: Amounts | None) -> ContainerRecommendation:
    """The target in force stands as the uncapped one, where nobody acts on it and the next process finds it."""
    if before is None:
        return recommendation
    cpu_cores, memory_bytes = (
        math.nan if math.isnan(uncapped) else amount
        for uncapped, amount in zip(recommendation.uncapped, before, strict=True)
    )
    return replace(recommendation, uncapped=(cpu_cores, memory_bytes))
