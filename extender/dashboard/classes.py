"""The pages of workload classes: what earlier runs teach of the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.dashboard.profile import Profile
from extender.dashboard.watching import Seen
from recommender.cluster.profiles import CLASS_PREFIX

Json = dict[str, Any]


def classes(seen: Seen) -> Json:
    """All of them, by name."""
    rows = [row(profile) for profile in seen.classes.values()]
    return {"now": seen.now_s, "classes": sorted(rows, key=lambda one: (one["namespace"], one["name"]))}


def row(profile: Profile) -> Json:
    """One class: each container's runs, peaks, and demand by the age of a run."""
    return {
        "namespace": profile.key.namespace,
        "name": profile.key.name.removeprefix(CLASS_PREFIX),
        "updated": profile.status.get("updated", ""),
        "containers": [container(name, told) for name, told in profile.containers.items()],
    }


def container(name: str, told: Mapping[str, Any]) -> Json:
    """Of n runs k had peaks above some memory: the next one has with a chance of at most (k + 1) / (n + 1)."""
    demand = told.get("demand") or {}
    runs, step_s = int(demand.get("runs") or 0), float(demand.get("stepSeconds") or 0.0)
    cores, memory = demand.get("cpuCores") or [], demand.get("memoryBytes") or []
    peaks = sorted(told.get("peaksMemoryBytes") or ())
    return {
        "name": name,
        "runs": runs,
        "stepSeconds": step_s,
        "longestSeconds": step_s * max(len(cores), len(memory)),
        "peakCpuCores": max(cores, default=None),
        "peakMemoryBytes": max([*memory, *peaks], default=None),
        "chanceAbovePeak": 1.0 / (max(runs, len(peaks)) + 1),
        "peaksMemoryBytes": peaks,
        "cpuCores": cores,
        "memoryBytes": memory,
    }
