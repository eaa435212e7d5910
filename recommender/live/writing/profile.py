"""The PhaseProfile of a VPA: the phases of its containers, what comes next, and why their targets are what they are.

In each round only some of the changed profiles are written, the longest waiting first: in a large cluster some pod of
most VPAs changes phase in every round, and statuses must not wait for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from heapq import nsmallest
from itertools import islice
from math import isnan
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from recommender.base.records import CPU, MEMORY, UNKNOWN_PHASE
from recommender.base.units import MonotonicClock, WallClock, format_cpu, format_memory, format_time
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.quantities import NOTHING
from recommender.engine.classes import encode_demand
from recommender.engine.container_arrays import UNDECIDED
from recommender.engine.containers import Member
from recommender.engine.engine import Engine
from recommender.engine.fleet import Fleet
from recommender.engine.keys import WorkloadKey
from recommender.engine.persistence import MAX_TEXT_CHARS, keep, pack
from recommender.engine.tally import Report
from recommender.engine.target import Target, Why
from recommender.live.outside.model_source import Refusal
from recommender.live.progress.progress import progress_of
from recommender.live.view.view import MAX_CONTAINERS, View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.publisher import WriterPool
from recommender.progress.growth import overall_category

Json = dict[str, Any]

MAX_NEXT, MAX_PODS = 3, 64
MAX_MESSAGE_CHARS = 256
CHECKPOINT_RESOLUTION_S = 60.0
"""Saved checkpoints of a job update its profile once a minute at most."""
MIN_PROBABILITY = 0.05
"""Less probable next phases are left out."""

SAVE_STATE_UP_TO = 20
"""While no more profiles than this are to be written, each contains the state that survives a restart."""

MODEL_REFUSED = "ModelRefused"
"""Condition of a PhaseProfile while a newer model is refused. On a VPA another recommender would keep it for ever."""


class _PendingProfile(NamedTuple):
    """A profile to be written; ordered so that state that must not be lost comes first, then the longest waiting."""

    is_saved: bool
    profile_written_s: float
    key: ObjectKey
    state: VpaState


class ProfilePublisher:
    """Writes the PhaseProfiles of VPAs, `max_per_round` at most, besides those with a new kill.

    `refusal` says why a newer model is not used, if one is refused; `clock` dates the profiles.
    """

    def __init__(
        self,
        view: View,
        engine: Engine,
        clock: WallClock,
        stopwatch: MonotonicClock,
        writers: WriterPool,
        max_per_round: float,
    ) -> None:
        self._view, self._engine, self._writers = view, engine, writers
        self._clock, self._stopwatch, self._max_per_round = clock, stopwatch, max_per_round
        self.refusal: Refusal | None = None

    def publish(self, states: Iterable[VpaState], report: Report) -> None:
        """Write as many changed profiles as allowed, with the restart state where needed, at least once a cycle."""
        now_s = self._stopwatch()  # a wall clock that is set back would hold up the profiles
        waiting = self._pending(states, now_s, report)
        selected = nsmallest(int(min(self._max_per_round, len(waiting))), waiting)
        report.unwritten_profiles = len(waiting) - len(selected)
        for profile in selected:
            profile.state.profile_written_s = now_s  # one that fails goes to the end of the queue
            with report.guard(_name_of(profile.state)):
                with_state = len(waiting) <= SAVE_STATE_UP_TO or self._is_stale(profile, now_s)
                if self._is_changed(profile, now_s):  # else it has changed back
                    self._write(profile.state, now_s, with_state=with_state)
                profile.state.profile_pending = False

    def publish_until(self, until_s: float, states: Iterable[VpaState], report: Report) -> None:
        """Write changed profiles with the restart state until a deadline of the stopwatch; count those unwritten."""
        now_s = self._stopwatch()

        def write(profile: _PendingProfile) -> None:
            if self._stopwatch() > until_s:
                raise Unreachable("not written: the process ends")
            self._write(profile.state, now_s, with_state=True)

        for _, outcome in self._writers.run(sorted(self._pending(states, now_s, report)), write):
            report.unwritten_profiles += 1
            with report.guard("PhaseProfiles"):
                outcome()
                report.unwritten_profiles -= 1

    def save_kill(self, state: VpaState, report: Report) -> None:
        """Write a kill for memory that the profile lacks; the profile remains to be written in its turn."""
        with report.guard(_name_of(state)):
            if self.has_unsaved_kill(state):
                self._view.write_profile(state.vpa, profile_of(state, self._engine, self.refusal, with_state=True))
                state.saved_kill_s = self._engine.killed_s(state.groups.values())

    def has_unsaved_kill(self, state: VpaState) -> bool:
        """Whether its profile lacks a kill for memory, which must not be lost even on a hasty shutdown."""
        return self._engine.killed_s(state.groups.values()) != state.saved_kill_s

    def _pending(self, states: Iterable[VpaState], now_s: float, report: Report) -> list[_PendingProfile]:
        """Profiles that changed; one that is pending is not compared again: in a large cluster most are."""
        waiting: list[_PendingProfile] = []

        def update(state: VpaState) -> None:
            is_saved = state.saved_versions == self._state_versions(state)
            profile = _PendingProfile(is_saved, state.profile_written_s, state.vpa.key, state)
            state.profile_pending = state.profile_pending or self._is_changed(profile, now_s)
            if state.profile_pending:
                waiting.append(profile)

        report.each(states, _name_of, update)
        return waiting

    def _write(self, state: VpaState, now_s: float, *, with_state: bool) -> None:
        signature = signature_of(state, self._engine, self.refusal)
        status = profile_of(state, self._engine, self.refusal, with_state=with_state)
        self._view.write_profile(state.vpa, status | {"updated": format_time(self._clock())})
        state.profile_signature = signature
        if with_state:
            state.saved_versions, state.saved_s = self._state_versions(state), now_s
            state.saved_kill_s = self._engine.killed_s(state.groups.values())

    def _state_versions(self, state: VpaState) -> list[int]:
        return [version for _, version in self._engine.revisions_of(state.groups.values())]

    def _is_changed(self, profile: _PendingProfile, now_s: float) -> bool:
        signature = signature_of(profile.state, self._engine, self.refusal)
        return signature != profile.state.profile_signature or self._is_stale(profile, now_s)

    def _is_stale(self, profile: _PendingProfile, now_s: float) -> bool:
        """Whether the saved restart state is incomplete, or older than a cycle."""
        fleet = self._engine.fleet
        return not profile.is_saved or now_s - profile.state.saved_s >= fleet.cycle_samples * fleet.step_s


def _name_of(state: VpaState) -> str:
    return f"PhaseProfile {state.vpa.key}"


def signature_of(state: VpaState, engine: Engine, refusal: Refusal | None) -> object:
    """What a profile is made from: it is made, and written, again when this changes."""
    return (
        state.vpa.uid,
        state.vpa.generation,
        list(state.targets.items()),
        engine.revisions_of(state.groups.values()),
        refusal,
        state.selection.declared,
        [(uid, growth.category) for uid, growth in state.growth.items()],
        [(uid, each.name, (each.saved_s or 0.0) // CHECKPOINT_RESOLUTION_S) for uid, each in state.stages.items()],
    )


def profile_of(state: VpaState, engine: Engine, refusal: Refusal | None, *, with_state: bool) -> Json:
    """The status of a VPA's PhaseProfile, bounded in size, `with_state` with what is needed after a restart.

    It contains times, not durations, so that it stays true while nothing changes.
    """
    chosen = sorted(state.targets.items(), key=lambda item: -float(item[1].estimate.target[CPU]))
    whys = {name: engine.why(target.group) for name, target in chosen}
    status: Json = {
        "observedGeneration": state.vpa.generation,
        "model": engine.fleet.model.origin,
        "containers": [
            container_entry(name, whys[name], engine.fleet) | _declared(name, state) | _demand(target, engine)
            for name, target in sorted(chosen[:MAX_CONTAINERS], key=itemgetter(0))
        ],
        "pods": _pods(state, engine),
    }
    if refusal is not None:
        status["conditions"] = [_refusal_condition(refusal, engine.fleet)]
    if with_state:
        status["state"] = _state(state, engine)
    if (category := overall_category(growth.category for growth in state.growth.values())) is not None:
        status["category"] = category.value
    if chosen:
        targets = np.array([target.estimate.target for _, target in chosen])
        status["cpu"], status["memory"] = format_cpu(targets[:, CPU].sum()), format_memory(targets[:, MEMORY].sum())
        status |= _headline(chosen[0][0], status["containers"], whys[chosen[0][0]])
    return status


def _members(state: VpaState, engine: Engine) -> list[Member]:
    found = [member for group in state.groups.values() for member in engine.members_of(group)]
    return sorted(found, key=lambda member: member.instance)


def container_entry(name: str, why: Why, fleet: Fleet) -> Json:
    """One container name: the phase of its most demanding instance, what follows, and why the target is what it is."""
    entry: Json = {"name": name, "why": _why(why)}
    if why.leading is None:
        return entry
    slot = why.leading.slot
    entry["phase"] = int(fleet.arrays.phase[slot])
    if entry["phase"] != UNKNOWN_PHASE:
        entry["doing"] = fleet.foresight.doing(slot, entry["phase"])
    entry["since"] = format_time(float(fleet.arrays.since_cell[slot]) * fleet.step_s)
    entry["confidence"] = round(fleet.confidence(why.leading), 1)
    entry["next"] = _next(slot, fleet)
    return entry


def _refusal_condition(refusal: Refusal, fleet: Fleet) -> Json:
    return {
        "type": MODEL_REFUSED,
        "status": "True",
        "reason": "Refused",
        "message": f"{fleet.model.origin} stays in use: {refusal.words}"[: 2 * MAX_MESSAGE_CHARS],
        "lastTransitionTime": format_time(refusal.since_s),
    }


def _pods(state: VpaState, engine: Engine) -> list[Json]:
    """Phases and progress of the pods, the most demanding containers first, then progress of pods without samples."""
    names = {pod.uid: pod.key.name for pod in state.selection.pods}
    arrays = engine.fleet.arrays
    members = [member for member in _members(state, engine) if member.instance.pod_uid in names]
    members.sort(key=lambda member: (-np.nan_to_num(arrays.used[member.slot, CPU]), member.instance))
    first = sorted(members[:MAX_PODS], key=lambda member: (names[member.instance.pod_uid], member.instance.container))
    entries: list[Json] = [
        {
            "name": names[member.instance.pod_uid],
            "uid": member.instance.pod_uid,
            "container": member.instance.container,
            "phase": int(arrays.phase[member.slot]),
            **_mean_use(member.slot, engine.fleet),
            **progress_of(state, member.instance.pod_uid),
        }
        for member in first
    ]
    without = names.keys() - {entry["uid"] for entry in entries}
    reporting = [uid for uid in {**state.growth, **state.stages} if uid in without]
    entries += [{"name": names[uid], "uid": uid, **progress_of(state, uid)} for uid in reporting]
    return entries[:MAX_PODS]


def _mean_use(slot: int, fleet: Fleet) -> Json:
    """When a container started, and its mean use in cores: a measure of the work done."""
    if not fleet.curves.samples[slot]:
        return {}
    started_s = float(fleet.arrays.start_cell[slot]) * fleet.step_s
    return {"startedAt": format_time(started_s), "meanCpuCores": round(float(fleet.curves.used_cores[slot]), 3)}


def _declared(name: str, state: VpaState) -> Json:
    """What its owner requests for it, where known."""
    amounts = zip(("declaredCpuCores", "declaredMemoryBytes"), state.selection.declared.get(name, NOTHING), strict=True)
    return {what: amount for what, amount in amounts if not isnan(amount)}


def _demand(target: Target, engine: Engine) -> Json:
    """The demand of a run of its class by time since the start, where known."""
    workload = engine.groups.workload[engine.groups.slots[target.group]]
    if workload is None:
        return {}
    runs = engine.classes.known(WorkloadKey(target.group.namespace, workload), target.group.container)
    return {} if runs is None else {"demand": encode_demand(runs)}


def _state(state: VpaState, engine: Engine) -> str:
    """The state needed to resume after a restart, of as many containers as fit."""
    decided_by = engine.fleet.arrays.decided_by
    members = [member for member in _members(state, engine) if decided_by[member.slot] != UNDECIDED][:MAX_PODS]
    known: dict[str, Json] = {
        "groups": {name: engine.kept_of(group) for name, group in state.groups.items()},
        "members": {
            f"{member.instance.pod_uid}/{member.instance.container}": keep(engine.fleet, member) for member in members
        },
        "growth": {uid: asdict(growth) for uid, growth in state.growth.items()},
        "stages": {uid: asdict(stages) for uid, stages in state.stages.items()},
    }
    content: Json = {
        part: dict(islice((entries | state.unclaimed(part)).items(), MAX_PODS)) for part, entries in known.items()
    }
    while len(text := pack(content)) > MAX_TEXT_CHARS and content["members"]:
        content["members"] = dict(list(content["members"].items())[: len(content["members"]) // 2])
    return text


def _why(why: Why) -> Json:
    rails = [{"name": rail, "words": words[:MAX_MESSAGE_CHARS]} for rail, words in why.rails]
    entry: Json = {"policy": why.policy, "rails": rails}
    cpu_cores, memory_bytes = why.forecast
    if not (isnan(cpu_cores) or isnan(memory_bytes)):
        entry["forecastCpuCores"], entry["forecastMemoryBytes"] = round(cpu_cores, 3), round(memory_bytes)
    defaults = zip(("defaultCpuCores", "defaultMemoryBytes"), why.default, strict=True)
    entry |= {name: round(amount, 3) for name, amount in defaults if not isnan(amount)}
    if why.rule:
        entry["rule"] = why.rule[: 2 * MAX_MESSAGE_CHARS]
    return entry


def _next(slot: int, fleet: Fleet) -> list[Json]:
    """The most probable next phases, and when they begin."""
    arrays = fleet.arrays
    if arrays.phase[slot] == UNKNOWN_PHASE:
        return []
    chances, remaining_steps = fleet.foresight.next_phases(slot, int(arrays.table[slot]))
    when = format_time((float(arrays.last_cell[slot]) + 1.0 + remaining_steps) * fleet.step_s)
    shares = chances[:-1].tolist()
    order = sorted(range(len(shares)), key=lambda phase: -shares[phase])[:MAX_NEXT]
    return [
        {
            "phase": phase,
            "doing": fleet.foresight.doing(slot, phase),
            "probability": round(shares[phase], 2),
            "at": when,
        }
        for phase in order
        if shares[phase] >= MIN_PROBABILITY
    ]


def _headline(name: str, containers: list[Json], why: Why) -> Json:
    """The columns of `kubectl get pp`, from the container with the largest target."""
    entry: Mapping[str, Any] = next(container for container in containers if container["name"] == name)
    words = "; ".join(f"{rail}: {text}" for rail, text in why.rails) or why.policy
    lines: Json = {"why": words[:MAX_MESSAGE_CHARS]}
    if "phase" in entry:
        lines["phase"] = "unknown" if entry["phase"] == UNKNOWN_PHASE else str(entry["phase"])
        lines["since"], lines["confidence"] = entry["since"], f"{entry['confidence']:.0%}"
        lines["doing"] = entry.get("doing", "")
    if entry.get("next"):
        first = entry["next"][0]
        lines["next"], lines["when"] = f"{first['phase']} ({first['probability']:.0%})", first["at"]
    return lines
