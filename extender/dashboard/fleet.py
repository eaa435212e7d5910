"""The page of all jobs, those at risk first; and that of workload classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from extender.dashboard.job import Job
from extender.dashboard.watching import ClusterView
from recommender.cluster.profiles import CLASS_PREFIX
from recommender.records import CPU, MEMORY

Json = dict[str, Any]

PAGE_ROWS = 100
"""Rows: with ten thousand containers the first view stays below 300 kB."""

MAX_RISKS = 3


def fleet(seen: ClusterView, words: str = "", page: int = 1) -> Json:
    """One page of jobs.

    Parameters
    ----------
    words
        Only jobs whose `namespace/name` has all of these in it.
    page
        From 1; one beyond the last is the last.
    """
    wanted = words.lower().split()
    chosen = [job for job in seen.jobs.values() if all(word in str(job.key).lower() for word in wanted)]
    ranked = sorted(((job, job.risks(seen.now_s)) for job in chosen), key=_rank)
    pages = max(1, -(-len(ranked) // PAGE_ROWS))
    page = min(max(1, page), pages)
    saved = [job.saved(seen.now_s) for job in chosen]
    return {
        "now": seen.now_s,
        "jobs": [row(job, risks, seen.now_s) for job, risks in ranked[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]],
        "count": len(ranked),
        "all": len(seen.jobs),
        "containers": sum(len(job.containers) for job in chosen),
        "saved": {"cpuCores": _sum(one[CPU] for one in saved), "memoryBytes": _sum(one[MEMORY] for one in saved)},
        "atRisk": sum(bool(risks and risks[0][0] > 1) for _, risks in ranked),
        "page": page,
        "pages": pages,
        "words": words,
        "troubles": list(seen.troubles[:5]),
    }


def _sum(amounts: Iterable[float]) -> float:
    """Of those that are known; NaN where none is."""
    known = [amount for amount in amounts if not math.isnan(amount)]
    return math.fsum(known) if known else math.nan


def _rank(ranked: tuple[Job, list[tuple[int, str]]]) -> tuple[int, int, str]:
    job, risks = ranked
    return -(risks[0][0] if risks else 0), -len(risks), str(job.key)


def row(job: Job, risks: list[tuple[int, str]], now_s: float) -> Json:
    """What the table says of one job."""
    status = job.profile.status
    sums, saved = job.sums(), job.saved(now_s)
    return {
        "namespace": job.key.namespace,
        "name": job.key.name,
        "mode": job.vpa.update_mode,
        "pods": len({one.key.pod for one in job.containers}),
        **{what: str(status.get(what, "")) for what in ("phase", "next", "when", "confidence", "category", "why")},
        "cpuCores": {what: pair[CPU] for what, pair in sums.items()},
        "memoryBytes": {what: pair[MEMORY] for what, pair in sums.items()},
        "saved": {"cpuCores": saved[CPU], "memoryBytes": saved[MEMORY]},
        "kills": sum(one.killed_s == one.killed_s for one in job.containers),
        "move": job.profile.move,
        "risks": [words for _, words in risks[:MAX_RISKS]],
        "moreRisks": max(0, len(risks) - MAX_RISKS),
    }


def warnings(seen: ClusterView) -> Json:
    """Everything that may go wrong or has, the worst first."""
    found = [(weight, words, job.key) for job in seen.jobs.values() for weight, words in job.risks(seen.now_s)]
    found.sort(key=lambda one: (-one[0], str(one[2]), one[1]))
    return {
        "now": seen.now_s,
        "troubles": list(seen.troubles),
        "count": len(found),
        "warnings": [
            {"namespace": key.namespace, "name": key.name, "weight": weight, "words": words}
            for weight, words, key in found[: 5 * PAGE_ROWS]
        ],
    }


def classes(seen: ClusterView) -> Json:
    """All of them, by name."""
    rows = [
        {
            "namespace": profile.key.namespace,
            "name": profile.key.name.removeprefix(CLASS_PREFIX),
            "updated": profile.status.get("updated", ""),
            "containers": [_container(name, told) for name, told in profile.containers.items()],
        }
        for profile in seen.classes.values()
    ]
    return {"now": seen.now_s, "classes": sorted(rows, key=lambda one: (one["namespace"], one["name"]))}


def _container(name: str, told: Mapping[str, Any]) -> Json:
    """Runs, peaks, and demand by the age of a run.

    Of n runs k had peaks above some memory: the next one has with a chance of at most (k + 1) / (n + 1)."""
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
