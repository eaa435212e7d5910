"""The page of one job: its last hour, its containers, and the reasons for its resources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from extender.dashboard.drawing import Drawing, History, draw, draw_progress
from extender.dashboard.job import AMOUNTS, Job, Running, by_resource
from recommender.base.records import CPU, MEMORY, ContainerRecommendation
from recommender.base.units import BYTES_PER_MIB
from recommender.cluster.vpas.status import recommendations_in
from recommender.report.profile_words import reasons

Json = dict[str, Any]

MAX_CONTAINERS = 64
MAX_DRAWN = 4


def detail(job: Job, history: History, now_s: float) -> Json:
    """The whole page except for the charts, as plain data."""
    recommended = (job.vpa.status.get("recommendation") or {}).get("containerRecommendations") or ()
    entries = {str(one.get("containerName")): one for one in recommended}
    profile_entries = job.profile.containers
    return {
        "now": now_s,
        "namespace": job.key.namespace,
        "name": job.key.name,
        "mode": job.vpa.update_mode,
        "target": {"kind": job.vpa.target.kind, "name": job.vpa.target.name},
        "updated": job.profile.status.get("updated", ""),
        "model": job.profile.status.get("model", ""),
        "move": job.profile.move,
        "risks": [words for _, words in job.risks(now_s)],
        "why": {name: list(reasons(one, entries.get(name, {}), now_s)) for name, one in profile_entries.items()},
        "containers": [_row(one) for one in job.containers[:MAX_CONTAINERS]],
        "count": len(job.containers),
        "yaml": {
            name: fixed_requests(name, one, profile_entries.get(name, {}), job, history)
            for name, one in sorted(recommendations_in(job.vpa.status).items())
        },
    }


def drawings(job: Job, history: History, now_s: float) -> list[tuple[Running, list[Drawing]]]:
    """Charts of the most important containers: CPU, memory and training progress."""
    profile_entries, made = job.profile.containers, []
    for one in job.containers[:MAX_DRAWN]:
        moments, rows = history.of(one.key)
        entry, age_s = profile_entries.get(one.key.container, {}), now_s - one.started_s
        drawn = [draw(resource, moments, rows, entry, now_s, age_s) for resource in (CPU, MEMORY)]
        progress = draw_progress(one.metric, moments, rows, now_s)
        made.append((one, drawn if progress is None else [*drawn, progress]))
    return made


def fixed_requests(
    name: str, recommended: ContainerRecommendation, entry: Mapping[str, Any], job: Job, history: History
) -> str:
    """Fixed requests as YAML: the maximum of the recommendation, the use of the last hour and that of earlier runs of
    its class. What suffices in a quiet phase is too little for a whole run."""
    demand = entry.get("demand") or {}
    known = [
        [recommended.target[CPU], recommended.upper[CPU], *(demand.get("cpuCores") or ())],
        [recommended.target[MEMORY], recommended.upper[MEMORY], *(demand.get("memoryBytes") or ())],
    ]
    for one in job.containers:
        if one.key.container == name:
            _, rows = history.of(one.key)
            for resource in (CPU, MEMORY):
                known[resource] += rows[:, resource].tolist()
    cpu_cores, memory_bytes = (max((one for one in amounts if math.isfinite(one)), default=0.0) for amounts in known)
    lines = f"    cpu: {math.ceil(1000 * cpu_cores)}m\n    memory: {math.ceil(memory_bytes / BYTES_PER_MIB)}Mi\n"
    return f"resources:\n  requests:\n{lines}"


def _row(one: Running) -> Json:
    return {
        "pod": one.key.pod,
        "container": one.key.container,
        "node": one.node,
        "phase": one.phase,
        "progress": one.progress,
        "stage": one.stage,
        "checkpointAt": one.saved_s,
        "value": one.value,
        "restarts": one.restarts,
        "deferred": one.deferred,
        "cpuCores": {what: getattr(one, what)[CPU] for what in AMOUNTS},
        "memoryBytes": {what: getattr(one, what)[MEMORY] for what in AMOUNTS},
        "declared": by_resource(one.declared),
    }
