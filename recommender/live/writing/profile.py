"""The PhaseProfile of a VPA: what its containers do, what comes next, and why they get what they get.

Written in a round are those that say something new, a few at a time, the longest waiting first. In a large cluster some
pod of most VPAs enters another phase at each round. Statuses must not wait behind the profiles that say so, nor the API
server be busy with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from heapq import nsmallest
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pair import NOTHING
from recommender.engine.classes import encode_demand
from recommender.engine.container_arrays import UNDECIDED
from recommender.engine.engine import Engine
from recommender.engine.fleet import Fleet
from recommender.engine.keys import WorkloadKey
from recommender.engine.member import Member
from recommender.engine.persistence import LONGEST_TEXT, pack
from recommender.engine.tally import Report
from recommender.engine.target import Target, Why
from recommender.live.outside.model_source import Refusal
from recommender.live.progress.progress import category_of, progress_of
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE
from recommender.units import format_cpu, format_memory, moment

Json = dict[str, Any]

MOST_NEXT, MOST_PODS, MOST_CONTAINERS = 3, 64, 64
LONGEST_WORDS = 256
A_MINUTE_S = 60.0
"""A job that saves what it has learned every few seconds has its profile written for that once a minute."""
LIKELY = 0.05
"""Next phases less probable than this are left out."""

FEW = 20
"""While no more are to be written, what is kept over a restart goes along with each."""


MODEL_REFUSED = "ModelRefused"
"""The condition of a PhaseProfile while a newer model is not used. VPAs do not say so: they would go on saying it under
another recommender, which keeps conditions that it does not know."""


class _Due(NamedTuple):
    """A profile to be written; in the order in which they are: what must not be lost first, then the longest waiting.

    Attributes
    ----------
    is_kept
        What must not be lost is written already.
    """

    is_kept: bool
    shown_s: float
    key: ObjectKey
    state: VpaState


class Showing:
    """Writes the PhaseProfiles of VPAs.

    Parameters
    ----------
    at_most
        In one round.
    """

    def __init__(self, view: View, engine: Engine, at_most: float = math.inf) -> None:
        self._view, self._engine, self._at_most = view, engine, at_most

    def show(self, states: Iterable[VpaState], refusal: Refusal | None, now_s: float, report: Report) -> None:
        """Write as many as may be. What is kept over a restart goes along where it is needed, once a cycle at least.

        `refusal` tells why a newer model is not used, if one is refused.
        """
        waiting = self._due(states, refusal, now_s, report)
        taken = nsmallest(int(min(self._at_most, len(waiting))), waiting)
        report.unwritten_profiles = len(waiting) - len(taken)
        for due in taken:
            due.state.shown_s = now_s  # one that fails goes to the end of the queue
            with report.guard(_name_of(due.state)):
                keeps = len(waiting) <= FEW or self._is_stale(due, now_s)
                if self._is_new(due, refusal, now_s):  # else it is again what it was
                    self._write(due.state, refusal, now_s, keeps=keeps)
                due.state.waits = False

    def at_the_end(
        self, states: Iterable[VpaState], refusal: Refusal | None, now_s: float, report: Report
    ) -> list[Callable[[], None]]:
        """What writes each, with all that is kept: before the process ends."""
        return [
            partial(self._write, due.state, refusal, now_s, keeps=True)
            for due in sorted(self._due(states, refusal, now_s, report))
        ]

    def lacks_a_kill(self, state: VpaState) -> bool:
        """Whether its profile does not tell yet of a kill for memory: that must not be lost whatever the haste."""
        return self._engine.killed_s(state.groups.values()) > state.kept_kill_s

    def _due(self, states: Iterable[VpaState], refusal: Refusal | None, now_s: float, report: Report) -> list[_Due]:
        """Those that changed.

        One that waits goes on waiting until its turn: most do in a large cluster, and are not looked through each time.
        """
        waiting: list[_Due] = []

        def look(state: VpaState) -> None:
            due = _Due(state.kept_of == self._vital_of(state), state.shown_s, state.vpa.key, state)
            state.waits = state.waits or self._is_new(due, refusal, now_s)
            if state.waits:
                waiting.append(due)

        report.each(states, _name_of, look)
        return waiting

    def _write(self, state: VpaState, refusal: Refusal | None, now_s: float, *, keeps: bool) -> None:
        signature = signature_of(state, self._engine, refusal)
        self._view.show(state.vpa, profile_of(state, self._engine, refusal, keeps=keeps))
        state.shown = signature
        if keeps:
            state.kept_of, state.kept_s = self._vital_of(state), now_s
            state.kept_kill_s = self._engine.killed_s(state.groups.values())

    def _vital_of(self, state: VpaState) -> list[int]:
        return [vital for _, vital in self._engine.revisions_of(state.groups.values())]

    def _is_new(self, due: _Due, refusal: Refusal | None, now_s: float) -> bool:
        said_anew = signature_of(due.state, self._engine, refusal) != due.state.shown
        return said_anew or self._is_stale(due, now_s)

    def _is_stale(self, due: _Due, now_s: float) -> bool:
        """Whether what is kept lacks something, or is older than a cycle."""
        fleet = self._engine.fleet
        return not due.is_kept or now_s - due.state.kept_s >= fleet.cycle_samples * fleet.step_s


def _name_of(state: VpaState) -> str:
    return f"PhaseProfile {state.vpa.key}"


def signature_of(state: VpaState, engine: Engine, refusal: Refusal | None) -> object:
    """What a profile is made from: it is made, and written, again when this is another one."""
    return (
        state.vpa.uid,
        state.vpa.generation,
        list(state.targets.items()),
        engine.revisions_of(state.groups.values()),
        refusal,
        state.selection.declared,
        [(uid, growth.category) for uid, growth in state.growth.items()],
        [(uid, said.name, (said.saved_s or 0.0) // A_MINUTE_S) for uid, said in state.stages.items()],
    )


def profile_of(state: VpaState, engine: Engine, refusal: Refusal | None, *, keeps: bool) -> Json:
    """The status of a VPA's PhaseProfile, bounded in size whatever the number of pods.

    It holds moments, not durations, so that it stays true while nothing changes. With `keeps` it holds also what is
    needed to go on after a restart.
    """
    chosen = sorted(state.targets.items(), key=lambda item: -float(item[1].estimate.target[CPU]))
    whys = {name: engine.why(target.group) for name, target in chosen}
    status: Json = {
        "observedGeneration": state.vpa.generation,
        "model": engine.fleet.model.origin,
        "containers": [
            container_entry(name, whys[name], engine.fleet) | _declared(name, state) | _demand(target, engine)
            for name, target in sorted(chosen, key=_name)[:MOST_CONTAINERS]
        ],
        "pods": _pods(state, engine),
    }
    if refusal is not None:
        status["conditions"] = [_refused(refusal, engine.fleet)]
    if keeps:
        status["state"] = _state(state, engine)
    if (category := category_of(state)) is not None:
        status["category"] = category.value
    if chosen:
        targets = np.array([target.estimate.target for _, target in chosen])
        status["cpu"], status["memory"] = format_cpu(targets[:, CPU].sum()), format_memory(targets[:, MEMORY].sum())
        status |= _headline(chosen[0][0], status["containers"], whys[chosen[0][0]])
    return status


def _name(found: tuple[str, Target]) -> str:
    return found[0]


def _members(state: VpaState, engine: Engine) -> list[Member]:
    found = [member for group in state.groups.values() for member in engine.members_of(group)]
    return sorted(found, key=lambda member: member.instance)


def container_entry(name: str, why: Why, fleet: Fleet) -> Json:
    """One container name: the phase of the most demanding one, what follows it, and why the target is what it is."""
    entry: Json = {"name": name, "why": _why(why)}
    if why.leading is None:
        return entry
    slot = why.leading.slot
    entry["phase"] = int(fleet.arrays.phase[slot])
    entry["since"] = moment(float(fleet.arrays.since_cell[slot]) * fleet.step_s)
    entry["confidence"] = round(fleet.confidence(why.leading), 1)
    entry["next"] = _next(slot, fleet)
    return entry


def _refused(refusal: Refusal, fleet: Fleet) -> Json:
    return {
        "type": MODEL_REFUSED,
        "status": "True",
        "reason": "Refused",
        "message": f"{fleet.model.origin} goes on: {refusal.words}"[: 2 * LONGEST_WORDS],
        "lastTransitionTime": moment(refusal.since_s),
    }


def _pods(state: VpaState, engine: Engine) -> list[Json]:
    """Phases and progress of the pods, the most demanding containers first; of those without a sample, progress."""
    names = {pod.uid: pod.key.name for pod in state.selection.pods}
    arrays = engine.fleet.arrays
    members = [member for member in _members(state, engine) if member.instance.pod_uid in names]
    members.sort(key=lambda member: (-_known(float(arrays.used[member.slot, CPU])), member.instance))
    first = sorted(members[:MOST_PODS], key=lambda member: (names[member.instance.pod_uid], member.instance.container))
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
    without = [
        uid
        for uid in {**state.growth, **state.stages}
        if uid in names and all(entry["uid"] != uid for entry in entries)
    ]
    entries += [{"name": names[uid], "uid": uid, **progress_of(state, uid)} for uid in without]
    return entries[:MOST_PODS]


def _mean_use(slot: int, fleet: Fleet) -> Json:
    """Since when a container runs, and the cores that it has used on average: how much of its work is done."""
    if not fleet.curves.samples[slot]:
        return {}
    started_s = float(fleet.arrays.start_cell[slot]) * fleet.step_s
    return {"startedAt": moment(started_s), "meanCpuCores": round(float(fleet.curves.used_cores[slot]), 3)}


def _known(amount: float) -> float:
    return 0.0 if isnan(amount) else amount


def _declared(name: str, state: VpaState) -> Json:
    """What its owner requests for it, where that is known."""
    amounts = zip(("declaredCpuCores", "declaredMemoryBytes"), state.selection.declared.get(name, NOTHING), strict=True)
    return {what: amount for what, amount in amounts if not isnan(amount)}


def _demand(target: Target, engine: Engine) -> Json:
    """What a run of its class needs by the time since its start, where that is known."""
    workload = engine.groups.workload[engine.groups.slots[target.group]]
    if workload is None:
        return {}
    runs = engine.classes.known(WorkloadKey(target.group.namespace, workload), target.group.container)
    return {} if runs is None else {"demand": encode_demand(runs)}


def _state(state: VpaState, engine: Engine) -> str:
    """What is needed to go on after a restart, of as many containers as there is room for."""
    decided_by = engine.fleet.arrays.decided_by
    members = [member for member in _members(state, engine) if decided_by[member.slot] != UNDECIDED]
    content: Json = {
        "groups": {name: engine.kept_of(group) for name, group in state.groups.items()},
        "members": {
            f"{member.instance.pod_uid}/{member.instance.container}": engine.keep(member)
            for member in members[:MOST_PODS]
        },
        "growth": {uid: growth.kept() for uid, growth in list(state.growth.items())[:MOST_PODS]},
        "stages": {uid: said.kept() for uid, said in list(state.stages.items())[:MOST_PODS]},
    }
    while len(text := pack(content)) > LONGEST_TEXT and content["members"]:
        content["members"] = dict(list(content["members"].items())[: len(content["members"]) // 2])
    return text


def _why(why: Why) -> Json:
    rails = [{"name": rail, "words": words[:LONGEST_WORDS]} for rail, words in why.rails]
    told: Json = {"policy": why.policy, "rails": rails}
    cpu_cores, memory_bytes = why.forecast
    if not (isnan(cpu_cores) or isnan(memory_bytes)):
        told["forecastCpuCores"], told["forecastMemoryBytes"] = round(cpu_cores, 3), round(memory_bytes)
    for name, amount in zip(("defaultCpuCores", "defaultMemoryBytes"), why.default, strict=True):
        if not isnan(amount):
            told[name] = round(amount, 3)
    if why.rule:
        told["rule"] = why.rule[: 2 * LONGEST_WORDS]
    return told


def _next(slot: int, fleet: Fleet) -> list[Json]:
    """The phases that may follow, the most probable first, and when."""
    arrays = fleet.arrays
    if arrays.phase[slot] == UNKNOWN_PHASE:
        return []
    chances, remaining_steps = fleet.foresight.next_phases(slot, int(arrays.table[slot]))
    when = moment((float(arrays.last_cell[slot]) + 1.0 + remaining_steps) * fleet.step_s)
    shares = chances[:-1].tolist()
    order = sorted(range(len(shares)), key=lambda phase: -shares[phase])[:MOST_NEXT]
    return [
        {"phase": phase, "probability": round(shares[phase], 2), "at": when}
        for phase in order
        if shares[phase] >= LIKELY
    ]


def _headline(name: str, containers: list[Json], why: Why) -> Json:
    """What `kubectl get pp` shows: the container with the largest target speaks for all."""
    entry: Mapping[str, Any] = next(container for container in containers if container["name"] == name)
    words = "; ".join(f"{rail}: {text}" for rail, text in why.rails) or why.policy
    lines: Json = {"why": words[:LONGEST_WORDS]}
    if "phase" in entry:
        lines["phase"] = "unknown" if entry["phase"] == UNKNOWN_PHASE else str(entry["phase"])
        lines["since"], lines["confidence"] = entry["since"], f"{entry['confidence']:.0%}"
    if entry.get("next"):
        first = entry["next"][0]
        lines["next"], lines["when"] = f"{first['phase']} ({first['probability']:.0%})", first["at"]
    return lines
