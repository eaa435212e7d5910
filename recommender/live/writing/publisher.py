"""What is published of VPAs: made of what is advised, within all limits; written where it differs, several at once.

What is left behind at the end are values that may stand while nobody watches.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.pods import PENDING
from recommender.cluster.vpas.status import DISRUPTIVE, LOW_CONFIDENCE, Condition, published_in
from recommender.cluster.vpas.warning import warning_of
from recommender.engine.engine import Engine
from recommender.engine.tally import Report
from recommender.engine.target import Target
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.node_room import NO_BOUND, NodeRoom, had_by_container
from recommender.policies.constraints import SharedLimits, constrain, constrain_again, integer_cpu_containers
from recommender.policies.room import Room, fit_room
from recommender.records import CPU, MEMORY, Amounts, ContainerRecommendation

T = TypeVar("T")

PROVIDED, NO_PODS, UNSUPPORTED, DEPRECATED = (
    "RecommendationProvided",
    "NoPodsMatched",
    "ConfigUnsupported",
    "ConfigDeprecated",
)

GRAVITY = np.array([0.1, 1.0])
"""Of CPU and memory that is missing: pods with too little CPU are late, with too little memory they are killed."""

STOPPED = "the recommender was stopped"


class Writers:
    """Threads that write. A request that hangs keeps no process from ending, as those of a thread pool would.

    Parameters
    ----------
    number
        At a time.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def run(self, writes: Sequence[Callable[[], T]]) -> Sequence[Callable[[], T]]:
        """Begin them in their order, wait for all; returns how each ended: what it returns or raises, when called."""
        outcomes: list[Future[T]] = [Future() for _ in writes]
        waiting = deque(zip(outcomes, writes, strict=True))

        def work() -> None:
            while waiting:
                try:
                    outcome, write = waiting.popleft()
                except IndexError:  # another thread has taken the last one
                    return
                try:
                    outcome.set_result(write())
                except Exception as error:  # noqa: BLE001  # raised where the outcome is looked at
                    outcome.set_exception(error)

        others = range(min(self._number, len(writes)) - 1)
        threads = [threading.Thread(target=work, name="writer", daemon=True) for _ in others]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        return [outcome.result for outcome in outcomes]


class Status(NamedTuple):
    """What the status of a VPA is to say.

    Attributes
    ----------
    signature
        What it was made from.
    recommendations
        What is new; `entries` holds also what stands of before, by container name.
    """

    state: VpaState
    signature: object
    recommendations: Sequence[ContainerRecommendation]
    entries: Mapping[str, ContainerRecommendation]
    conditions: Mapping[str, Condition | None]


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
            report.unwritten_statuses += 1
            with report.guard(state.vpa.key):
                report.unwritten_statuses -= outcome()

    def write_until(
        self, until_s: float, stopwatch: Callable[[], float], profiles: Sequence[Callable[[], None]], report: Report
    ) -> None:
        """Write profiles, and begin none after a moment of the stopwatch; the others are counted."""

        def in_time(write: Callable[[], None]) -> None:
            if stopwatch() > until_s:
                raise Unreachable("not written: the process ends")
            write()

        for outcome in self._writers.run([partial(in_time, write) for write in profiles]):
            report.unwritten_profiles += 1
            with report.guard("PhaseProfiles"):
                outcome()
                report.unwritten_profiles -= 1

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


def signature_of(state: VpaState, room: Room) -> object:
    """What a status is made from: while it is the same, and the status stood, it need not be made again."""
    vpa = state.vpa
    return vpa.uid, vpa.generation, vpa.annotations, state.selection, room, list(state.targets.items())


def standing(state: VpaState, limits: SharedLimits) -> dict[str, ContainerRecommendation]:
    """What stands published of containers of which nothing new can be said: it is better than nothing at all.

    It is kept within what the user and the operator say now. A container that the user takes out (mode Off, nothing
    controlled) or that its pods no longer have is not kept.
    """
    present = state.selection.containers
    kept = {}
    for name, entry in published_in(state.vpa.status, but=state.targets).items():
        if present and name not in present:
            continue
        within = constrain_again(entry, state.vpa.policy_for(name), limits)
        if within is not None:
            kept[name] = within
    return kept


def conditions_of(state: VpaState, entries: Mapping[str, ContainerRecommendation]) -> dict[str, Condition | None]:
    """The conditions of a VPA, None for those that are to go."""
    problem, pods = state.selection.problem, state.selection.pods
    matches = any(pod.phase != PENDING for pod in pods)  # those that wait for a node do not, here as with the default
    nobody = None if matches or problem else Condition("True", "NoPodsMatched", "No pods match this VPA object")
    provided = Condition("True") if entries else Condition("False", *(nobody[1:] if nobody else ()))
    doubts = {name: target.doubt for name, target in state.targets.items() if target.doubt}
    words = "; ".join(f"{name}: {doubt}" for name, doubt in sorted(doubts.items()))
    return {
        PROVIDED: provided,
        NO_PODS: nobody,
        UNSUPPORTED: Condition("True", "", problem) if problem else None,
        LOW_CONFIDENCE: Condition("True", "Fallback", words) if doubts else None,
        DEPRECATED: None,
        DISRUPTIVE: warning_of(state.vpa, pods),
    }


def beside(state: VpaState) -> Amounts:
    """What a pod of this VPA requests besides containers of which something is recommended."""
    most = (0.0, 0.0)
    for pod in state.selection.pods:
        rest = [container.requests for container in pod.containers if container.name not in state.targets]
        cpu_cores, memory_bytes = (pod.beside[i] + sum(r[i] for r in rest if r[i] >= 0) for i in (CPU, MEMORY))
        most = max(most[CPU], cpu_cores), max(most[MEMORY], memory_bytes)
    return most


def by_urgency(states: Iterable[VpaState], engine: Engine) -> list[VpaState]:
    """Those first whose containers have used most beyond what stands published: time may be short.

    Memory counts by the share that is missing, CPU a tenth as much. Whose pods nobody makes or resizes come last.
    """
    lacks = _lacks(engine)
    slots = engine.groups.slots
    urgency = []
    for state in states:
        lack = max((float(lacks[slots[group]]) for group in state.groups.values()), default=0.0)
        urgency.append((state.vpa.update_mode == "Off", -lack, state.vpa.key, state))
    return [state for *_, state in sorted(urgency, key=lambda entry: entry[:3])]


def _lacks(engine: Engine) -> np.ndarray:
    """float64 (n,): by group, how much less than what its live containers used stands published; 0 where unknown."""
    arrays, groups = engine.fleet.arrays, engine.groups.arrays
    slots = np.flatnonzero(arrays.alive & (arrays.group >= 0))
    peaks = np.full((len(groups), 2), np.nan)
    np.fmax.at(peaks, arrays.group[slots], engine.fleet.curves.peaks()[slots])
    with np.errstate(divide="ignore", invalid="ignore"):
        lacks = (1.0 - groups.published / peaks) * GRAVITY
    worst: np.ndarray = np.nan_to_num(lacks, nan=0.0, neginf=0.0).max(axis=1, initial=0.0)
    return worst


def leave_safe(state: VpaState, engine: Engine, now_s: float) -> bool:
    """Advise what is safe; False, and nothing is advised anew, where no less than that stands published."""
    values = {
        name: estimate
        for name, group in state.groups.items()
        if (estimate := engine.safe_value(group, now_s)) is not None
    }
    if not values:
        return False
    for name, estimate in values.items():
        group = state.groups[name]
        state.targets[name] = Target(group, estimate, STOPPED, engine.in_force(group))
    return True
