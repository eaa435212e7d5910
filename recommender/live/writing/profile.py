"""The PhaseProfile of a VPA: what its containers do, what comes next, and why they get what they get."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.live.advice.recommend import Advice
from recommender.live.advice.workload import Workload
from recommender.live.classes.classes import Classes, demand_content
from recommender.live.fleet.fleet import Fleet
from recommender.live.fleet.keeping import LONGEST_TEXT, keep, pack
from recommender.live.fleet.member import Member
from recommender.live.fleet.model_source import Refusal
from recommender.live.moments import moment
from recommender.live.progress.progress import category_of, progress_of
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE
from recommender.units import format_cpu, format_memory

Json = dict[str, Any]

MOST_NEXT, MOST_PODS, MOST_CONTAINERS = 3, 64, 64
LONGEST_WORDS = 256
LIKELY = 0.05
"""Next phases less probable than this are left out."""


MODEL_REFUSED = "ModelRefused"
"""The condition of a PhaseProfile while a newer model is not used. VPAs do not say so: they would go on saying it under
another recommender, which keeps conditions that it does not know."""


class Known(NamedTuple):
    """What profiles are made from, besides their workloads."""

    fleet: Fleet
    classes: Classes
    refusal: Refusal | None = None


def signature_of(workload: Workload, known: Known) -> object:
    """What a profile is made from: it is made, and written, again when this is another one."""
    return (
        workload.vpa.uid,
        workload.vpa.generation,
        [(name, advice.doubt, advice.estimate.target.tolist()) for name, advice in workload.advice.items()],
        [(member.instance, member.phase) for found in workload.members.values() for member in found],
        known.refusal,
        [(uid, growth.category) for uid, growth in workload.growth.items()],
    )


def profile_of(workload: Workload, known: Known, *, keeps: bool = True) -> Json:
    """The status of a workload's PhaseProfile, bounded in size whatever the number of pods.

    It holds moments, not durations, so that it stays true while nothing changes. With `keeps` it holds also what is
    needed to go on after a restart.
    """
    fleet = known.fleet
    chosen = sorted(workload.advice.items(), key=lambda item: -float(item[1].estimate.target[CPU]))
    status: Json = {
        "observedGeneration": workload.vpa.generation,
        "model": fleet.model.origin,
        "containers": [
            _container(*found, fleet) | _demand(workload, found[0], known.classes)
            for found in sorted(chosen, key=_name)[:MOST_CONTAINERS]
        ],
        "pods": _pods(workload, fleet),
    }
    if known.refusal is not None:
        status["conditions"] = [_refused(known.refusal, fleet)]
    if keeps:
        status["state"] = _state(workload, fleet)
    if (category := category_of(workload)) is not None:
        status["category"] = category.value
    if chosen:
        targets = np.array([advice.estimate.target for _, advice in chosen])
        status["cpu"], status["memory"] = format_cpu(targets[:, CPU].sum()), format_memory(targets[:, MEMORY].sum())
        status |= _headline(chosen[0][0], status["containers"], chosen[0][1])
    return status


def _name(found: tuple[str, Advice]) -> str:
    return found[0]


def _container(name: str, advice: Advice, fleet: Fleet) -> Json:
    """One container name: the phase of the most demanding one, what follows it, and why the target is what it is."""
    entry: Json = {"name": name, "why": _why(advice)}
    if advice.leading is None:
        return entry
    member = advice.leading
    entry["phase"], entry["since"] = member.phase, moment(member.since_cell * fleet.step_s)
    entry["confidence"] = round(fleet.confidence(member), 1)
    entry["next"] = _next(member, fleet)
    return entry


def _refused(refusal: Refusal, fleet: Fleet) -> Json:
    return {
        "type": MODEL_REFUSED,
        "status": "True",
        "reason": "Refused",
        "message": f"{fleet.model.origin} goes on: {refusal.words}"[: 2 * LONGEST_WORDS],
        "lastTransitionTime": moment(refusal.since_s),
    }


def _pods(workload: Workload, fleet: Fleet) -> list[Json]:
    """Phases and progress of the pods, the most demanding containers first; of those without a sample, progress."""
    names = {pod.uid: pod.key.name for pod in workload.selection.pods}
    members = [member for found in workload.members.values() for member in found if member.instance.pod_uid in names]
    cpu_cores = fleet.counts.cpu_cores
    members.sort(key=lambda member: (-_known(float(cpu_cores[member.slot])), member.instance))
    first = sorted(members[:MOST_PODS], key=lambda member: (names[member.instance.pod_uid], member.instance.container))
    entries: list[Json] = [
        {
            "name": names[member.instance.pod_uid],
            "uid": member.instance.pod_uid,
            "container": member.instance.container,
            "phase": member.phase,
            **progress_of(workload, member.instance.pod_uid),
        }
        for member in first
    ]
    without = [uid for uid in workload.growth if uid in names and all(entry["uid"] != uid for entry in entries)]
    entries += [{"name": names[uid], "uid": uid, **progress_of(workload, uid)} for uid in without]
    return entries[:MOST_PODS]


def _known(amount: float) -> float:
    return 0.0 if isnan(amount) else amount


def _demand(workload: Workload, name: str, classes: Classes) -> Json:
    """What a run of its class needs by the time since its start, where that is known."""
    if workload.workload_class is None:
        return {}
    runs = classes.known(ObjectKey(workload.vpa.key.namespace, workload.workload_class), name)
    return {} if runs is None else {"demand": demand_content(runs)}


def _state(workload: Workload, fleet: Fleet) -> str:
    """What is needed to go on after a restart, of as many containers as there is room for."""
    members = [member for found in workload.members.values() for member in found if member.decision is not None]
    content: Json = {
        "class": workload.workload_class,
        "books": {name: book.kept() for name, book in workload.books.items()},
        "members": {
            f"{member.instance.pod_uid}/{member.instance.container}": keep(fleet, member)
            for member in members[:MOST_PODS]
        },
        "growth": {uid: growth.kept() for uid, growth in list(workload.growth.items())[:MOST_PODS]},
    }
    while len(text := pack(content)) > LONGEST_TEXT and content["members"]:
        content["members"] = dict(list(content["members"].items())[: len(content["members"]) // 2])
    return text


def _why(advice: Advice) -> Json:
    rails = [{"name": rail, "words": words[:LONGEST_WORDS]} for rail, words in advice.draft.notes]
    why: Json = {"policy": _policy(advice), "rails": rails}
    cpu_cores, memory_bytes = advice.forecast
    if not (isnan(cpu_cores) or isnan(memory_bytes)):
        why["forecastCpuCores"], why["forecastMemoryBytes"] = round(cpu_cores, 3), round(memory_bytes)
    if advice.decision is not None and advice.doubt is None:
        why["rule"] = advice.decision.rule()[: 2 * LONGEST_WORDS]
    return why


def _policy(advice: Advice) -> str:
    return "histogram" if advice.doubt or advice.decision is None else advice.decision.policy


def _next(member: Member, fleet: Fleet) -> list[Json]:
    """The phases that may follow, the most probable first, and when."""
    graph, lasted = fleet.model.graph, int(fleet.counts.last_cell[member.slot]) - member.since_cell + 1
    if graph is None or not 0 <= member.phase < graph.n_phases:
        return []
    outlook = graph.compile()
    at = outlook.index(member.previous_phase, member.phase, max(1, lasted))
    shares, remaining = outlook.next_phase[at].tolist(), float(outlook.expected_remaining[at])
    when = moment((member.since_cell + lasted + remaining) * fleet.step_s)
    order = sorted(range(len(shares)), key=lambda phase: -shares[phase])[:MOST_NEXT]
    return [
        {"phase": phase, "probability": round(shares[phase], 2), "at": when}
        for phase in order
        if shares[phase] >= LIKELY
    ]


def _headline(name: str, containers: list[Json], advice: Advice) -> Json:
    """What `kubectl get pp` shows: the container with the largest target speaks for all."""
    entry: Mapping[str, Any] = next(container for container in containers if container["name"] == name)
    words = "; ".join(f"{rail}: {text}" for rail, text in advice.draft.notes) or _policy(advice)
    lines: Json = {"why": words[:LONGEST_WORDS]}
    if "phase" in entry:
        lines["phase"] = "unknown" if entry["phase"] == UNKNOWN_PHASE else str(entry["phase"])
        lines["since"], lines["confidence"] = entry["since"], f"{entry['confidence']:.0%}"
    if entry.get("next"):
        first = entry["next"][0]
        lines["next"], lines["when"] = f"{first['phase']} ({first['probability']:.0%})", first["at"]
    return lines
