"""Watch of the benchmark's pods: bindings in order, and when they were seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cluster.waiting import wait_until
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.watching.reflector import Reflector

BENCH_LABEL = "placement-bench"


@dataclass(frozen=True)
class PodSeen:
    key: ObjectKey
    node: str
    phase: str
    gated: bool
    unschedulable: bool

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class Bound:
    """Binding of a pod, seen at `at_s` (monotonic seconds)."""

    pod: str
    node: str
    at_s: float


class PodWatch:
    """Follows pods labelled `BENCH_LABEL` from `start` to `stop`."""

    def __init__(self, api: Api) -> None:
        self._lock = threading.Lock()
        self._pods: dict[ObjectKey, PodSeen] = {}
        self._bound: dict[str, list[Bound]] = {}
        self._started: dict[ObjectKey, float] = {}
        self._reflector = Reflector(api, path_of(PODS), _seen, label_selector=BENCH_LABEL, on_change=self._changed)

    def start(self) -> PodWatch:
        self._reflector.start()
        wait_until(lambda: self._reflector.synced, "the watch of the bench's pods")
        return self

    def stop(self) -> None:
        self._reflector.stop()

    @property
    def lists(self) -> int:
        """Number of lists; after more than one, intermediate states may have been missed."""
        return self._reflector.lists

    def pods(self, namespace: str) -> Mapping[str, PodSeen]:
        with self._lock:
            return {key.name: pod for key, pod in self._pods.items() if key.namespace == namespace}

    def bound(self, namespace: str) -> Sequence[Bound]:
        with self._lock:
            return list(self._bound.get(namespace, ()))

    def started(self, namespace: str) -> Mapping[str, float]:
        """When each pod of a namespace was first seen running, monotonic seconds."""
        with self._lock:
            return {key.name: at_s for key, at_s in self._started.items() if key.namespace == namespace}

    def forget(self, namespace: str) -> None:
        with self._lock:
            self._bound.pop(namespace, None)
            self._started = {key: at_s for key, at_s in self._started.items() if key.namespace != namespace}

    def _changed(self, old: PodSeen | None, new: PodSeen | None) -> None:
        now_s = time.monotonic()
        with self._lock:
            if new is None:
                if old is not None:
                    self._pods.pop(old.key, None)
                return
            self._pods[new.key] = new
            if new.node and (old is None or not old.node):
                self._bound.setdefault(new.key.namespace, []).append(Bound(new.key.name, new.node, now_s))
            if new.phase == "Running" or new.ended:
                self._started.setdefault(new.key, now_s)


def _seen(raw: Mapping[str, Any]) -> PodSeen:
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
    conditions = status.get("conditions") or ()
    return PodSeen(
        ObjectKey(metadata["namespace"], metadata["name"]),
        spec.get("nodeName", ""),
        status.get("phase", ""),
        bool(spec.get("schedulingGates")),
        any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions),
    )


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    wait_until(condition, what, timeout_s=timeout_s, every_s=0.02)


def all_gone(watch: PodWatch, namespaces: Iterable[str]) -> bool:
    return not any(watch.pods(namespace) for namespace in namespaces)
