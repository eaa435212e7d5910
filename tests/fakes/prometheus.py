"""A fake Prometheus: the forms of its answers, and a small cluster whose series it has."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tests.rig.played_http import Asked, Reply

START_S = 1_700_000_100
"""A whole number of quarter minutes."""


def success(data: Any, **fields: Any) -> Reply:
    return Reply(body=orjson.dumps({"status": "success", "data": data, **fields}))


def matrix(*series: tuple[Mapping[str, str], list[tuple[float, object]]], **fields: Any) -> Reply:
    result = [{"metric": dict(labels), "values": [[at, str(value)] for at, value in pairs]} for labels, pairs in series]
    return success({"resultType": "matrix", "result": result}, **fields)


def vector(*series: tuple[Mapping[str, str], object], at_s: float = START_S, **fields: Any) -> Reply:
    result = [{"metric": dict(labels), "value": [at_s, str(value)]} for labels, value in series]
    return success({"resultType": "vector", "result": result}, **fields)


def failure(status: int, kind: str, text: str, **headers: str) -> Reply:
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Reply(status, orjson.dumps({"status": "error", "errorType": kind, "error": text}), sent)


def cores(number: int, at_s: float) -> float:
    """The CPU use of container `number` of a `SmallCluster` at a time."""
    return 1.0 + number + 0.25 * math.sin(at_s / 100.0)


def memory_at(number: int, at_s: float) -> float:
    return float((100 + number) << 20) + at_s % 1000


@dataclass
class SmallCluster:
    """Answers our queries as a Prometheus would that scrapes these containers every 15 s.

    Attributes
    ----------
    lives
        First and last sample of each container, by namespace and pod.
    requests
        Whether kube-state-metrics exports requests.
    doubled
        Number of containers that two jobs scrape.
    facts
        Whether kube-state-metrics exports more than requests.
    gpus
        Whether dcgm-exporter exports a use of a quarter for every container.
    """

    lives: Mapping[tuple[str, str], tuple[float, float]]
    requests: bool = True
    doubled: int = 0
    facts: bool = False
    gpus: bool = False
    metrics: tuple[str, ...] = ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes")

    def __call__(self, request: Asked) -> Reply:
        if request.path.endswith("/label/__name__/values"):
            return success(list(self.metrics))
        if request.path.endswith("/label/namespace/values"):
            chosen = self._chosen(request.parameters["match[]"])
            return success(sorted({namespace for _, (namespace, _), _ in chosen}))
        if request.path.endswith("/series"):
            return success(list(self._owners(request.parameters["match[]"])))
        if request.path.endswith("/labels"):
            known = request.parameters["match[]"] in self.metrics
            return success(["__name__", "container", "namespace", "node", "pod"] if known else [])
        if request.path.endswith("/query"):
            at_s = float(request.parameters["time"])
            if "(last_over_time(kube_" in request.query:
                return vector(*self._facts(request.query, at_s), at_s=at_s)
            return vector(*((labels, pairs[0][1]) for labels, pairs in self._series(request.query, [at_s])), at_s=at_s)
        return matrix(*self._series(request.query, request.moments))

    def _series(self, query: str, moments: list[float]) -> Iterator[tuple[dict[str, str], list[tuple[float, object]]]]:
        if query.startswith("quantile"):
            yield {}, [(at, 40) for at in moments]
        elif query.startswith("count(count"):
            if self.doubled:
                yield {}, [(at, self.doubled) for at in moments]
        elif query.startswith("count by"):
            for namespace in sorted({namespace for namespace, _ in self.lives}):
                lives = [life for _, (its_namespace, _), life in self._chosen(query) if its_namespace == namespace]
                counts = [(at, sum(first <= at <= last for first, last in lives)) for at in moments]
                if present := [pair for pair in counts if pair[1]]:
                    yield {"namespace": namespace}, present
        else:
            for number, (namespace, pod), (first, last) in self._chosen(query):
                labels = {"namespace": namespace, "pod": pod, "container": "main"}
                alive = [at for at in moments if first <= at <= last]
                for extra, value in self._values(query, number):
                    if alive:
                        yield labels | extra, [(at, value(at)) for at in alive]

    def _owners(self, match: str) -> Iterator[dict[str, str]]:
        """Every pod belongs to a Job of its name."""
        if self.facts and match.startswith("kube_pod_owner"):
            for _, (namespace, pod), _ in self._chosen(match):
                job = {"owner_is_controller": "true", "owner_kind": "Job", "owner_name": pod}
                yield {"namespace": namespace, "pod": pod} | job

    def _facts(self, query: str, at_s: float) -> Iterator[tuple[dict[str, str], object]]:
        """Every pod starts a minute before its first sample, and completes with its last one, after it was killed once.

        Outside of `dev` it has a limit of 2 GiB.
        """
        if "kube_node_status_allocatable" in query:
            for node in ("node-0", "node-1") if self.facts else ():
                yield {"node": node, "resource": "cpu"}, 32
                yield {"node": node, "resource": "memory"}, 64e9
            return
        for _, (namespace, pod), (first, last) in self._chosen(query) if self.facts else ():
            of_pod = {"namespace": namespace, "pod": pod}
            of_container = of_pod | {"container": "main"}
            if "kube_pod_start_time" in query:
                yield of_pod, first - 60
            elif "resource_limits" in query and namespace != "dev":
                yield of_container | {"resource": "memory"}, 2 * 2**30
            elif last <= at_s and "kube_pod_completion_time" in query:
                yield of_pod, last
            elif "_status_terminated_reason" in query:
                reasons = ("Completed", "OOMKilled") if last <= at_s else ("OOMKilled",)
                yield from ((of_container | {"reason": reason}, 1) for reason in reasons)

    def _values(self, query: str, number: int) -> list[tuple[dict[str, str], Callable[[float], object]]]:
        if "rate(" in query:
            return [({}, lambda at: cores(number, at))]
        if "resource=~" in query:
            declared = [("cpu", 4.0 + number), ("memory", 1e9)] if self.requests else []
            return [({"resource": resource}, lambda _, value=value: value) for resource, value in declared]
        if "DCGM_FI_DEV_GPU_UTIL" in query:
            return [({}, lambda _: 0.25)] if self.gpus else []
        if query.startswith("max by (namespace, pod, container) (timestamp("):
            return [({}, lambda at: at - 5)]
        return [({"node": f"node-{number % 2}"}, lambda at: memory_at(number, at))]

    def _chosen(self, query: str) -> Iterator[tuple[int, tuple[str, str], tuple[float, float]]]:
        """The containers that match the namespace matchers."""
        matchers = set(re.findall(r'namespace(=~|!~|!=|=)"([^"]*)"', query))
        for number, (name, life) in enumerate(sorted(self.lives.items())):
            if all(bool(re.fullmatch(text, name[0])) != sign.startswith("!") for sign, text in matchers):
                yield number, name, life
