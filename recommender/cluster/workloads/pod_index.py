"""An index of pods by label and owner."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable, Iterator

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.selectors import IN, LabelSelector
from recommender.cluster.workloads.ownership import Ref


class PodIndex:
    """The pods of a cluster. A reflector updates it on its thread; any thread may read.

    Results are sorted by name, and include pending pods.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[ObjectKey, Pod] = {}
        self._keys_by: dict[Hashable, set[ObjectKey]] = defaultdict(set)
        self._versions: dict[str, int] = {}
        self._changes = 0

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        with self._lock:
            if old is not None:
                self._pods.pop(old.key, None)
            if new is not None:
                self._pods[new.key] = new
            if old is None or new is None or (old.labels, old.owner) != (new.labels, new.owner):
                self._reindex(old, new)
            self._changes += 1
            for namespace in {pod.key.namespace for pod in (old, new) if pod is not None}:
                self._versions[namespace] = self._changes
                if namespace not in self._keys_by:
                    del self._versions[namespace]

    def version(self, namespace: str) -> int:
        """Changes with every change in the namespace; 0 while it is empty."""
        return self._versions.get(namespace, 0)

    def get(self, key: ObjectKey) -> Pod | None:
        return self._pods.get(key)

    def all(self) -> list[Pod]:
        with self._lock:
            return list(self._pods.values())

    def select(self, namespace: str, selector: LabelSelector) -> list[Pod]:
        with self._lock:
            candidates = [
                set().union(*(self._keys_by.get((namespace, needed.key, value), ()) for value in needed.values))
                for needed in selector.requirements
                if needed.operator == IN
            ] or [self._keys_by.get(namespace, set())]
            pods = [self._pods[key] for key in min(candidates, key=len)]
        return sorted((pod for pod in pods if selector.matches(pod.labels)), key=_pod_name)

    def with_label(self, namespace: str, label: str, value: str) -> list[Pod]:
        return self._indexed((namespace, label, value))

    def owned_by(self, namespace: str, owner: Ref) -> list[Pod]:
        """The pods that a controller owns directly."""
        return self._indexed((namespace, owner))

    def _indexed(self, index_key: Hashable) -> list[Pod]:
        with self._lock:
            return sorted((self._pods[key] for key in self._keys_by.get(index_key, ())), key=_pod_name)

    def _reindex(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None:
            for index_key in _index_keys(old):
                self._keys_by[index_key].discard(old.key)
                if not self._keys_by[index_key]:
                    del self._keys_by[index_key]
        if new is not None:
            for index_key in _index_keys(new):
                self._keys_by[index_key].add(new.key)


def _index_keys(pod: Pod) -> Iterator[Hashable]:
    namespace = pod.key.namespace
    yield namespace
    for label, value in pod.labels.items():
        yield namespace, label, value
    if pod.owner is not None:
        yield namespace, Ref.of_owner(pod.owner)


def _pod_name(pod: Pod) -> str:
    return pod.key.name
