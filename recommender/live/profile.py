"""The PhaseProfile of a VPA: what its containers do, what comes next, and why they get what they get."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from recommender.live.fleet import Fleet, Member
from recommender.live.recommend import Advice
from recommender.live.workload import Workload
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE
from recommender.units import format_cpu, format_memory

Json = dict[str, Any]

MOST_NEXT, MOST_PODS, MOST_CONTAINERS = 3, 64, 64
LONGEST_WORDS = 256
LIKELY = 0.05
"""Next phases less probable than this are left out."""


def signature_of(workload: Workload) -> object:
    """What a profile is made from: it is made, and written, again when this is another one."""
    members = [member for found in workload.members.values() for member in found]
    targets = {name: (*advice.estimate.target.tolist(), advice.doubt) for name, advice in workload.advice.items()}
    return (
        workload.vpa.uid,
        workload.vpa.generation,
        targets,
        sorted((member.instance, member.phase, member.decided_cell) for member in members),
    )


def profile_of(workload: Workload, fleet: Fleet) -> Json:
    """The status of a workload's PhaseProfile, bounded in size whatever the number of pods.

    It holds moments, not durations, so that it stays true while nothing changes.
    """
    chosen = sorted(workload.advice.items(), key=lambda item: -float(item[1].estimate.target[CPU]))
    status: Json = {
        "observedGeneration": workload.vpa.generation,
        "model": fleet.model.origin,
        "containers": [_container(*found, fleet) for found in sorted(chosen, key=_name)[:MOST_CONTAINERS]],
        "pods": _pods(workload),
    }
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


def _pods(workload: Workload) -> list[Json]:
    """The phases of the pods, the most demanding containers first."""
    names = {pod.uid: pod.key.name for pod in workload.selection.pods}
    members = [member for found in workload.members.values() for member in found if member.instance.pod_uid in names]
    members.sort(key=lambda member: (-float(np.nan_to_num(member.latest[CPU])), member.instance))
    first = sorted(members[:MOST_PODS], key=lambda member: (names[member.instance.pod_uid], member.instance.container))
    return [
        {
            "name": names[member.instance.pod_uid],
            "uid": member.instance.pod_uid,
            "container": member.instance.container,
            "phase": member.phase,
        }
        for member in first
    ]


def moment(unix_s: float) -> str:
    """As the API writes times: whole seconds, UTC.

    Examples
    --------
    >>> moment(0.9)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _why(advice: Advice) -> Json:
    rails = [{"name": rail, "words": words[:LONGEST_WORDS]} for rail, words in advice.draft.notes]
    why: Json = {"policy": "histogram" if advice.doubt else "phase.proactive", "rails": rails}
    if not np.isnan(advice.forecast).any():
        why["forecastCpuCores"] = round(float(advice.forecast[CPU]), 3)
        why["forecastMemoryBytes"] = round(float(advice.forecast[MEMORY]))
    decision = advice.leading.decision if advice.leading else None
    if decision is not None and advice.doubt is None:
        why["rule"] = str(decision.why.get("rule", ""))[: 2 * LONGEST_WORDS]
    return why


def _next(member: Member, fleet: Fleet) -> list[Json]:
    """The phases that may follow, the most probable first, and when."""
    graph = fleet.model.graph
    if graph is None or member.phase == UNKNOWN_PHASE or member.phase >= graph.n_phases:
        return []
    outlook = graph.compile()
    place = outlook.index(member.previous_phase, member.phase, max(1, member.last_cell - member.since_cell + 1))
    shares = outlook.next_phase[place]
    when = moment((member.since_cell + _run_samples(outlook.expected_remaining, place, member)) * fleet.step_s)
    order = np.argsort(-shares, kind="stable")[:MOST_NEXT]
    return [
        {"phase": int(phase), "probability": round(float(shares[phase]), 2), "at": when}
        for phase in order
        if shares[phase] >= LIKELY
    ]


def _run_samples(remaining: np.ndarray, place: Any, member: Member) -> float:
    """How many samples the present phase is expected to last in all."""
    return float(member.last_cell - member.since_cell + 1 + remaining[place])


def _headline(name: str, containers: list[Json], advice: Advice) -> Json:
    """What `kubectl get pp` shows: the container with the largest target speaks for all."""
    entry: Mapping[str, Any] = next(container for container in containers if container["name"] == name)
    words = "; ".join(f"{rail}: {text}" for rail, text in advice.draft.notes) or "forecast"
    lines: Json = {"why": words[:LONGEST_WORDS]}
    if "phase" in entry:
        lines["phase"] = "unknown" if entry["phase"] == UNKNOWN_PHASE else str(entry["phase"])
        lines["since"], lines["confidence"] = entry["since"], f"{entry['confidence']:.0%}"
    if entry.get("next"):
        first = entry["next"][0]
        lines["next"], lines["when"] = f"{first['phase']} ({first['probability']:.0%})", first["at"]
    return lines
