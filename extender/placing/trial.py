"""Answers one request without a server, on a dump of the cluster or a single list from its API."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from extender.placing.decisions import Decision, Decisions
from extender.placing.placer import Placer
from extender.pods.pod import pod_reader, profile_reader, read_node
from extender.protocol.wire import ExtenderArgs, read_args
from extender.settings import Settings
from extender.view.state import ClusterState
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, NotFound
from recommender.cluster.paths import NODES, PODS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.workloads.ownership import WELL_KNOWN, Workloads, workload_reader
from recommender.errors import BadInput

Json = Mapping[str, Any]


@dataclass
class Trial:
    """A listed cluster, without reservations, which only last for minutes, and without malformed objects, see
    `broken`."""

    settings: Settings
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._workloads = Workloads()
        self._read_pod = pod_reader(self._workloads.controllers_of, self.settings.schedulers)
        self.state = ClusterState(self.settings, time.time, time.monotonic)

    def load(self, objects: Iterable[Json]) -> None:
        """Load API objects by their `kind`; other kinds are ignored."""
        by_kind: defaultdict[str, list[Json]] = defaultdict(list)
        for raw in objects:
            by_kind[str(raw.get("kind"))].append(raw)
        put_workload, put_profile = partial(self._workloads.changed, None), self.state.put_profile
        loaders: list[tuple[str, Callable[[Json], Any], Callable[[Any], None]]] = [
            *((kind, workload_reader(kind), put_workload) for kind in WELL_KNOWN),
            ("Node", read_node, self.state.put_node),
            ("PhaseProfile", profile_reader(self.settings.grid), put_profile),
            ("Pod", self._read_pod, self.state.put_pod),
        ]
        for kind, read, put in loaders:
            for raw in by_kind[kind]:
                try:
                    put(read(raw))
                except BadObject as error:
                    self.broken.append(str(error))

    def decide(self, args: ExtenderArgs) -> Decision:
        """The decision on a pod, by `filter` and `prioritize`; a bound pod is treated as if it were not."""
        decisions = Decisions()
        placer = Placer(self.state, self.settings, decisions, self._read_pod, time.time)
        pod = self._read_pod(args.pod)
        self.state.drop_pod(pod.uid)
        passed = placer.filter(args).passed
        if len(passed) > 1:
            placer.prioritize(ExtenderArgs(args.pod, passed, None))
        return decisions.of(pod.uid) or Decision(pod, time.time(), nodes_asked=len(args.names))

    def read_request(self, request: bytes, file: object) -> ExtenderArgs:
        """ExtenderArgs, or a pod as printed by kubectl, for all nodes; BadInput if it is neither."""
        raw = _parsed(request, file)
        if isinstance(raw, dict) and raw.get("kind") == "Pod":
            return ExtenderArgs(raw, sorted(self.state.snapshot().table.index), None)
        return read_args(request)


def list_cluster(api: Api) -> Iterable[Json]:
    """All relevant objects of a cluster as JSON, with their kinds."""
    resources = {"Node": NODES, "Pod": PODS, "PhaseProfile": PROFILES, **WELL_KNOWN}
    for kind, resource in resources.items():
        try:
            for page in api.list_pages(path_of(resource)):
                yield from ({**item, "kind": kind} for item in page.get("items") or ())
        except NotFound:
            continue  # the cluster has no PhaseProfiles


def read_dump(file: Path) -> Iterable[Json]:
    """The objects of `kubectl get nodes,pods,phaseprofiles -A -o json`; BadInput if it is not such a dump."""
    raw = _parsed(file.read_bytes(), file)
    items = raw.get("items") if isinstance(raw, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadInput("this is not a list of objects", remedy=HOW_TO_DUMP, file=file)
    return items


HOW_TO_DUMP = "Create one with kubectl get nodes,pods,phaseprofiles -A -o json."


def _parsed(text: bytes, file: object) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"this is not JSON: {str(error)[:120]}", remedy="Give the whole text.", file=file) from error
