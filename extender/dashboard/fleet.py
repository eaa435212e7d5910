"""The pages of all jobs (those at risk first), of warnings, of workload classes and of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from extender.dashboard.job import Job, RefusedPod, Running, by_resource
from extender.dashboard.watching import ClusterView
from extender.pods.pod import GANG_LABEL
from recommender.base.records import CPU, MEMORY
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.profiles import CLASS_PREFIX

Json = dict[str, Any]
Row = TypeVar("Row")
PAGE_ROWS = 100  # with ten thousand containers the first page stays below 300 kB
MAX_RISKS, MAX_TROUBLES = 3, 5


def fleet(seen: ClusterView, words: str = "", page: int = 1) -> Json:
    """One page (from 1; beyond the last means the last) of the jobs whose `namespace/name` contains all words."""
    chosen = [job for job in seen.jobs.values() if _matches(str(job.key), words)]
    ranked = [(job, job.risks(seen.now_s)) for job in chosen]
    ranked.sort(key=lambda each: (-max((weight for weight, _ in each[1]), default=0), -len(each[1]), str(each[0].key)))
    shown, place = _page_of(ranked, page)
    saved = [job.saved(seen.now_s) for job in chosen]
    return {
        "now": seen.now_s,
        "jobs": [row(job, risks, seen.now_s) for job, risks in shown],
        **place,
        "all": len(seen.jobs),
        "containers": sum(len(job.containers) for job in chosen),
        "saved": by_resource((_sum(one[CPU] for one in saved), _sum(one[MEMORY] for one in saved))),
        "atRisk": sum(bool(risks and risks[0][0] > 1) for _, risks in ranked),
        "words": words,
        "troubles": _first(seen.troubles, MAX_TROUBLES),
    }


def _matches(name: str, words: str) -> bool:
    return all(word in name.lower() for word in words.lower().split())


def _page_of(rows: Sequence[Row], page: int) -> tuple[Sequence[Row], Json]:
    """The rows of a page, and which of how many it is."""
    pages = max(1, -(-len(rows) // PAGE_ROWS))
    page = min(max(1, page), pages)
    return rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], {"count": len(rows), "page": page, "pages": pages}


def _first(troubles: Sequence[str], most: int) -> list[str]:
    rest = troubles[most:]
    return [*troubles[:most], *([f"and {len(rest)} more"] if rest else [])]


def _sum(amounts: Iterable[float]) -> float:
    """The sum of known amounts; NaN if there are none."""
    known = [amount for amount in amounts if not math.isnan(amount)]
    return math.fsum(known) if known else math.nan


def row(job: Job, risks: list[tuple[int, str]], now_s: float) -> Json:
    status = job.profile.status
    sums = job.sums()
    return {
        "namespace": job.key.namespace,
        "name": job.key.name,
        "mode": job.vpa.update_mode,
        "pods": len({one.key.pod for one in job.containers}),
        **{
            what: str(status.get(what, ""))
            for what in ("phase", "doing", "next", "when", "confidence", "category", "why")
        },
        "cpuCores": {what: pair[CPU] for what, pair in sums.items()},
        "memoryBytes": {what: pair[MEMORY] for what, pair in sums.items()},
        "saved": by_resource(job.saved(now_s)),
        "kills": sum(one.killed_s == one.killed_s for one in job.containers),
        "move": job.profile.move,
        "risks": [words for _, words in risks[:MAX_RISKS]],
        "moreRisks": max(0, len(risks) - MAX_RISKS),
    }


def warnings(seen: ClusterView) -> Json:
    """All risks of all jobs, the worst first."""
    found = [(weight, words, job.key) for job in seen.jobs.values() for weight, words in job.risks(seen.now_s)]
    found.sort(key=lambda one: (-one[0], str(one[2]), one[1]))
    return {
        "now": seen.now_s,
        "troubles": _first(seen.troubles, PAGE_ROWS),
        "count": len(found),
        "warnings": [
            {"namespace": key.namespace, "name": key.name, "weight": weight, "words": words}
            for weight, words, key in found[: 5 * PAGE_ROWS]
        ],
    }


def classes(seen: ClusterView, words: str = "", page: int = 1) -> Json:
    """One page of workload classes, by name; `words` and `page` as for `fleet`."""
    named = [((one.key.namespace, one.key.name.removeprefix(CLASS_PREFIX)), one) for one in seen.classes.values()]
    chosen = sorted((one for one in named if _matches("/".join(one[0]), words)), key=itemgetter(0))
    shown, place = _page_of(chosen, page)
    rows = [
        {
            "namespace": namespace,
            "name": name,
            "updated": profile.status.get("updated", ""),
            "containers": [_container(container, entry) for container, entry in profile.containers.items()],
        }
        for (namespace, name), profile in shown
    ]
    return {"now": seen.now_s, "classes": rows, **place, "words": words}


def _container(name: str, entry: Mapping[str, Any]) -> Json:
    """Runs, peaks, and demand by the age of a run. If k of n runs exceeded some amount of memory, the next one does
    with probability at most (k + 1) / (n + 1)."""
    demand = entry.get("demand") or {}
    runs, step_s = int(demand.get("runs") or 0), float(demand.get("stepSeconds") or 0.0)
    cores, memory = demand.get("cpuCores") or [], demand.get("memoryBytes") or []
    peaks = sorted(entry.get("peaksMemoryBytes") or ())
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


HORIZON_S = 3600.0

MAX_NODES = 200
MAX_PEAKS = 3
MAX_PODS = 50
MAX_MOVES = 200


def nodes(seen: ClusterView) -> Json:
    """The load of nodes (the fullest first), pending pods and gangs (the longest waiting first), and moves. A pod
    without a profile is forecast to use its requests."""
    by_node: dict[str, list[Pod]] = {}
    for pod in seen.pods.values():
        if pod.node and not pod.finished:
            by_node.setdefault(pod.node, []).append(pod)
    running: dict[str, list[tuple[Running, Mapping[str, Any]]]] = {}
    for job in seen.jobs.values():
        entries = job.profile.containers
        for one in job.containers:
            running.setdefault(one.node, []).append((one, entries.get(one.key.container, {})))
    rows = [
        _row(node.name, node.allocatable, by_node.get(node.name, []), running.get(node.name, []), seen.now_s)
        for node in seen.nodes.values()
    ]
    rows.sort(key=lambda row: (-max(row["share"]["forecast"]), row["node"]))
    gangs = sorted(_gangs(seen.pods), key=lambda gang: gang["since"])
    moves = [
        {"namespace": job.key.namespace, "name": job.key.name, "words": job.profile.move}
        for job in seen.jobs.values()
        if job.profile.move
    ]
    return {
        "now": seen.now_s,
        "count": len(rows),
        "nodes": rows[:MAX_NODES],
        "refused": _refused(seen.pods.values()),
        "gangs": gangs[:MAX_PODS],
        "gangsWaiting": len(gangs),
        "moves": moves[:MAX_MOVES],
        "movesCount": len(moves),
    }


def _row(
    name: str,
    allocatable: tuple[float, float],
    pods: list[Pod],
    ours: list[tuple[Running, Mapping[str, Any]]],
    now_s: float,
) -> Json:
    names = {one.key.pod for one, _ in ours}
    requests, forecast, used = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for pod in pods:
        for resource in (CPU, MEMORY):
            requests[resource] += pod.requests[resource]
            forecast[resource] += (pod.extra_requests if pod.key.name in names else pod.requests)[resource]
    for one, entry in ours:
        why = entry.get("why") or {}
        ahead = (why.get("forecastCpuCores"), why.get("forecastMemoryBytes"))
        for resource in (CPU, MEMORY):
            value = ahead[resource]
            forecast[resource] += value if isinstance(value, int | float) else _known(one.request[resource])
            used[resource] += _known(one.use[resource])
    return {
        "node": name,
        "pods": len(pods),
        "ours": len(names),
        "allocatable": by_resource(allocatable),
        "share": {
            what: [amount / whole if whole > 0.0 else 0.0 for amount, whole in zip(amounts, allocatable, strict=True)]
            for what, amounts in (("requests", requests), ("use", used), ("forecast", forecast))
        },
        "peaks": sorted(_peaks(ours, now_s), key=lambda peak: -peak["cpuCores"])[:MAX_PEAKS],
    }


def _peaks(ours: list[tuple[Running, Mapping[str, Any]]], now_s: float) -> Iterator[Json]:
    """The CPU peak in the coming hour of each pod with a known class, by the age of its container."""
    for one, entry in ours:
        demand = entry.get("demand") or {}
        cores = demand.get("cpuCores") or []
        step_s = demand.get("stepSeconds") or 0.0
        age_s = now_s - one.started_s
        if not (cores and step_s > 0.0 and age_s >= 0.0):
            continue
        first = int(age_s / step_s)
        coming = cores[first : first + max(1, int(HORIZON_S / step_s))]
        if coming:
            at = max(range(len(coming)), key=coming.__getitem__)
            yield {"pod": one.key.pod, "namespace": one.key.namespace, "inSeconds": at * step_s, "cpuCores": coming[at]}


def _gangs(pods: Mapping[ObjectKey, Pod]) -> Iterator[Json]:
    waiting = [pod for pod in pods.values() if GANG_LABEL in pod.labels and not pod.node and not pod.finished]
    waiting.sort(key=lambda pod: (pod.key.namespace, pod.labels[GANG_LABEL]))
    for (namespace, gang), members in groupby(waiting, key=lambda pod: (pod.key.namespace, pod.labels[GANG_LABEL])):
        listed = list(members)
        yield {"namespace": namespace, "gang": gang, "waiting": len(listed), "since": min(p.created_s for p in listed)}


def _refused(pods: Iterable[Pod]) -> list[Json]:
    """Pods that are unschedulable, the longest waiting first."""
    waiting = [pod for pod in pods if isinstance(pod, RefusedPod)]
    waiting.sort(key=lambda pod: (math.isnan(pod.refused_since_s), pod.refused_since_s, pod.key))
    return [
        {"namespace": pod.key.namespace, "pod": pod.key.name, "since": pod.refused_since_s, "words": pod.refusal}
        for pod in waiting[:MAX_PODS]
    ]


def _known(amount: float) -> float:
    return 0.0 if math.isnan(amount) else amount
