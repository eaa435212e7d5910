"""Publishes recommendations within all limits, and on shutdown values that are safe without supervision."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from recommender.base.records import CPU, MEMORY, RESOURCES, Amounts, ContainerRecommendation, amounts_of
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import PENDING
from recommender.cluster.objects.quantities import NOTHING
from recommender.cluster.objects.vpa import DECLARED, KEEP, PAUSE
from recommender.cluster.vpas.status import (
    DISRUPTIVE,
    LOW_CONFIDENCE,
    PAUSED,
    SCALED,
    Condition,
    disruption_warning,
    recommendations_in,
)
from recommender.engine.engine import Engine
from recommender.engine.tally import Report
from recommender.engine.target import Target
from recommender.live.rules import most_requested
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.node_room import UNBOUNDED, NodeRoom, requested_by_container
from recommender.policies.constraints import (
    SharedLimits,
    at_most,
    constrain,
    constrain_again,
    fit_room,
    integer_cpu_containers,
)

T = TypeVar("T")
R = TypeVar("R")

SHORTAGE_WEIGHTS = np.array([0.1, 1.0])
"""Of CPU and memory: pods with too little CPU are slow, with too little memory they are killed."""


class WriterPool:
    """Daemon threads that write: a hanging request does not keep the process from ending, as a thread pool's would."""

    def __init__(self, number: int) -> None:
        self._number = number

    def run(self, objects: Sequence[T], write: Callable[[T], R]) -> list[tuple[T, Callable[[], R]]]:
        """Write objects in order and wait for all; returns each with a function that returns or raises its outcome."""
        outcomes = [(one, Future[R]()) for one in objects]
        waiting = deque(outcomes)

        def work() -> None:
            while waiting:
                try:
                    one, outcome = waiting.popleft()
                except IndexError:  # another thread has taken the last one
                    return
                try:
                    outcome.set_result(write(one))
                except Exception as error:  # noqa: BLE001  # raised again by `outcome.result`
                    outcome.set_exception(error)

        others = range(min(self._number, len(objects)) - 1)
        threads = [threading.Thread(target=work, name="writer", daemon=True) for _ in others]
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
        return [(one, outcome.result) for one, outcome in outcomes]


PAUSED_WORDS = {
    KEEP: f"{PAUSE}: what is published stays until the annotation is removed",
    DECLARED: f"{PAUSE}: what the owner declares is published until the annotation is removed",
}


class Status(NamedTuple):
    """The status of a VPA, and what it was made from; `entries` has the new `recommendations` and retained ones."""

    state: VpaState
    signature: object
    recommendations: Sequence[ContainerRecommendation]
    entries: Mapping[str, ContainerRecommendation]
    conditions: Mapping[str, Condition | None]


class Publisher:
    """Writes recommendations to the statuses of VPAs, and informs the engine of each."""

    def __init__(
        self,
        view: View,
        limits: SharedLimits,
        engine: Engine,
        clock: WallClock,
        stopwatch: MonotonicClock,
        writers: WriterPool,
    ) -> None:
        self._view, self._limits, self._engine = view, limits, engine
        self._clock, self._stopwatch, self._writers, self._nodes = clock, stopwatch, writers, NodeRoom(view)

    def publish(self, states: Collection[VpaState], prepare: Callable[[VpaState], None], report: Report) -> None:
        """Write statuses that changed, in the order of the VPAs; `prepare` is called before each, on its thread."""
        self._nodes.begin(states)
        drafts: list[Status] = []

        def draft(state: VpaState) -> None:
            if (status := self._status_of(state)) is not None:
                drafts.append(status)

        def send(status: Status) -> None:
            prepare(status.state)
            self._send(status)

        report.each(states, VpaState.name, draft)
        for status, outcome in self._writers.run(drafts, send):
            with report.guard(status.state.vpa.key):
                outcome()
                self._record_sent(status, report)

    def publish_safe_values(self, until_s: float, states: Iterable[VpaState], report: Report) -> None:
        """Write safe values, the most urgent first, until a deadline of the stopwatch; count unwritten statuses.

        Those of a VPA are computed when its turn comes: the first are written before the last are known.
        """
        ordered = by_urgency(states, self._engine)
        self._nodes.begin(ordered)
        one_at_a_time = threading.Lock()  # VPAs share what nodes and quotas leave
        now_s = self._clock()

        def publish_one(state: VpaState) -> bool:
            if self._stopwatch() >= until_s:
                return False
            if set_safe_targets(state, self._engine, now_s):
                with one_at_a_time:
                    status = self._status_of(state)
                if status is not None:
                    self._send(status)
            return True

        for state, outcome in self._writers.run(ordered, publish_one):
            report.unwritten_statuses += 1
            with report.guard(state.vpa.key):
                report.unwritten_statuses -= outcome()

    def _status_of(self, state: VpaState) -> Status | None:
        """The status to write; None when it is unchanged."""
        vpa, selection = state.vpa, state.selection
        room = self._view.room(vpa, selection.pods)
        about_vpa = vpa.uid, vpa.generation, vpa.annotations, vpa.left_alone
        signature: object = (*about_vpa, selection, *(() if vpa.pause else (room, [*state.targets.items()])))
        if signature == state.published_signature and self._is_unchanged(state):
            return None
        limits = self._limits.within(vpa.key.namespace)
        if vpa.pause:
            entries = self._declared_entries(state) if vpa.pause == DECLARED else retained_entries(state, limits)
            return Status(state, signature, (), entries, conditions_of(state, entries))
        wanted = _constrained(state, limits)
        needed = {each.container: self._needed(state, each.container) for each in wanted}
        most = self._nodes.limit(state, wanted, self._clock())
        if most != UNBOUNDED:
            room = replace(room, where_it_runs=most, has=requested_by_container(state))
        recommendations = fit_room(wanted, unmanaged_requests(state), room, vpa.policy_for, needed)
        if recommendations != wanted:
            signature = None  # it also depends on use, and must be computed again in the next round
        entries = retained_entries(state, limits) | {entry.container: entry for entry in recommendations}
        return Status(state, signature, recommendations, entries, conditions_of(state, entries))

    def _needed(self, state: VpaState, container: str) -> Amounts:
        """What is not cut to fit a node: current use; of a pod that waits for a node what its owner declares.

        An autoscaler may be about to add a node for that, larger than all others.
        """
        used = self._engine.used(state.groups[container])
        if any(pod.node and not pod.finished for pod in state.selection.pods):
            return used
        return amounts_of(np.fmax(used, state.selection.declared.get(container, NOTHING)))

    def _declared_entries(self, state: VpaState) -> dict[str, ContainerRecommendation]:
        """What the owner of the pods declares, of each container, as its recommendation; memory in use at least.

        Pods that are resized in place go back to it; others keep what they have until they are created anew.
        """
        found = {}
        for name, policy in state.vpa.controlling(state.selection.declared):
            target = np.array(state.selection.declared[name])
            if (group := state.groups.get(name)) is not None and not np.isnan(target[MEMORY]):
                target[MEMORY] = max(target[MEMORY], self._engine.used(group)[MEMORY])
            target[[resource not in policy.controlled for resource in RESOURCES]] = np.nan
            running = [each.requests for pod in state.selection.pods if (each := pod.container(name)) is not None]
            tolerated = [target, *(() if state.vpa.resizes_in_place else running)]
            lower, upper = np.minimum(target, np.fmin.reduce(tolerated)), np.maximum(target, np.fmax.reduce(tolerated))
            declared = amounts_of(target)
            found[name] = ContainerRecommendation(name, declared, amounts_of(lower), amounts_of(upper), declared)
        return found

    def _is_unchanged(self, state: VpaState) -> bool:
        """Whether the VPA is as it was when its status was written, apart from that status."""
        vpa, before = state.vpa, state.published_to
        if before is not vpa and (before is None or not self._view.is_current(vpa)):
            return False
        state.published_to = vpa
        return True

    def _send(self, status: Status) -> None:
        self._view.publish(status.state.vpa, list(status.entries.values()), status.conditions)

    def _record_sent(self, status: Status, report: Report) -> None:
        state, now_s = status.state, self._clock()
        state.published_signature, state.published_to, state.published = status.signature, state.vpa, status.entries
        for recommendation in status.recommendations:
            group = state.groups[recommendation.container]
            report.published += self._engine.published(group, recommendation.uncapped, recommendation.target, now_s)


def _constrained(state: VpaState, limits: SharedLimits) -> tuple[ContainerRecommendation, ...]:
    vpa = state.vpa
    whole = integer_cpu_containers(vpa.annotations, state.targets) if limits.integer_cpu else frozenset[str]()
    estimates = {name: target.estimate for name, target in state.targets.items()}
    found = []
    for one in constrain(estimates, vpa.policy_for, limits, whole):
        limited = at_most(one, most_requested(vpa, state.selection.pods, one.container), "ContainerLimit")
        if (before := state.targets[one.container].in_place_of) is not None:
            # The target in force is the uncapped one, on which nobody acts and which the next process reads.
            amounts = np.where(np.isnan(limited.uncapped), np.nan, before)
            limited = replace(limited, uncapped=amounts_of(amounts))
        found.append(limited)
    return tuple(found)


def retained_entries(state: VpaState, limits: SharedLimits) -> dict[str, ContainerRecommendation]:
    """Published recommendations of containers without a new one, within the present limits: they are better than none.

    Containers that the user excludes (mode Off, nothing controlled) or that the pods no longer have are dropped.
    """
    fresh = () if state.vpa.pause else state.targets
    present, published = state.selection.containers, recommendations_in(state.vpa.status, exclude=fresh)
    kept = {name: entry for name, entry in published.items() if not present or name in present}
    limited = {name: constrain_again(entry, state.vpa.policy_for(name), limits) for name, entry in kept.items()}
    return {name: entry for name, entry in limited.items() if entry is not None}


def conditions_of(state: VpaState, entries: Mapping[str, ContainerRecommendation]) -> dict[str, Condition | None]:
    """The conditions of a VPA; None for those to be removed."""
    problem, pods = state.selection.problem, state.selection.pods
    matches = any(pod.phase != PENDING for pod in pods)  # pending pods do not count, as in the default recommender
    no_pods = None if matches or problem else Condition("True", "NoPodsMatched", "No pods match this VPA object")
    provided = Condition("True") if entries else Condition("False", *(no_pods[1:] if no_pods else ()))
    doubts = [f"{name}: {target.doubt}" for name, target in sorted(state.targets.items()) if target.doubt]
    return {
        "RecommendationProvided": provided,
        "NoPodsMatched": no_pods,
        "ConfigUnsupported": Condition("True", "", problem) if problem else None,
        LOW_CONFIDENCE: Condition("True", "Fallback", "; ".join(doubts)) if doubts else None,
        "ConfigDeprecated": None,
        DISRUPTIVE: disruption_warning(state.vpa, pods),
        SCALED: Condition("True", "LeftAlone", state.vpa.left_alone) if state.vpa.left_alone else None,
        PAUSED: Condition("True", "Annotation", PAUSED_WORDS[pause]) if (pause := state.vpa.pause) else None,
    }


def unmanaged_requests(state: VpaState) -> Amounts:
    """Per resource, the most that a pod of this VPA requests besides its containers with a recommendation."""
    most = (0.0, 0.0)
    for pod in state.selection.pods:
        rest = [container.requests for container in pod.containers if container.name not in state.targets]
        cpu_cores, memory_bytes = (pod.extra_requests[i] + sum(r[i] for r in rest if r[i] >= 0) for i in (CPU, MEMORY))
        most = max(most[CPU], cpu_cores), max(most[MEMORY], memory_bytes)
    return most


def by_urgency(states: Iterable[VpaState], engine: Engine) -> list[VpaState]:
    """VPAs in order of the shortage of their containers, because time may be short.

    A shortage is the share of peak use that is missing in the published target; CPU counts a tenth of memory. VPAs in
    mode `Off` come last, since nobody applies their targets.
    """
    shortages, slots = _shortages(engine), engine.groups.slots

    def urgency(state: VpaState) -> tuple[bool, float, ObjectKey]:
        shortage = max((float(shortages[slots[group]]) for group in state.groups.values()), default=0.0)
        return state.vpa.update_mode == "Off", -shortage, state.vpa.key

    return sorted(states, key=urgency)


def _shortages(engine: Engine) -> np.ndarray:
    """float64 (n,): weighted shortage of each group, by the peak use of its live containers; 0 where unknown."""
    arrays, groups = engine.fleet.arrays, engine.groups.arrays
    slots = np.flatnonzero(arrays.alive & (arrays.group >= 0))
    peaks = np.full((len(groups), 2), np.nan)
    np.fmax.at(peaks, arrays.group[slots], engine.fleet.curves.peaks()[slots])
    with np.errstate(divide="ignore", invalid="ignore"):
        shortages = (1.0 - groups.published / peaks) * SHORTAGE_WEIGHTS
    worst: np.ndarray = np.nan_to_num(shortages, nan=0.0, neginf=0.0).max(axis=1, initial=0.0)
    return worst


def set_safe_targets(state: VpaState, engine: Engine, now_s: float) -> bool:
    """Set the targets to safe values; False, and no change, where at least as much is already published, or paused."""
    changed = False
    if state.vpa.pause:
        return changed
    for name, group in state.groups.items():
        if (estimate := engine.safe_value(group, now_s)) is not None:
            state.targets[name] = Target(group, estimate, "the recommender was stopped", engine.published_target(group))
            changed = True
    return changed
