"""Whose a container is: the pods and workloads of a round, found by the names that metrics have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import DEFERRED, ContainerState, Pod
from recommender.live.advice.workload import Workload
from recommender.live.fleet.member import Instance, Sample
from recommender.live.view.view import Place


class Home(NamedTuple):
    """A container with its pod and the workload that speaks for it."""

    workload: Workload
    pod: Pod
    container: ContainerState

    @property
    def workload_class(self) -> ObjectKey | None:
        """Namespace and name of its class; None where nothing tells it."""
        name = self.workload.selection.workload.get(self.pod.uid)
        return None if name is None else ObjectKey(self.pod.key.namespace, name)

    @property
    def waits_for_room(self) -> bool:
        """Whether its node has had no room for a resize of its pod."""
        return any(resize.reason == DEFERRED for resize in self.pod.resizes)


class Homes:
    """The containers of a round.

    Attributes
    ----------
    version
        Another one after every change.
    contested
        Two workloads have spoken for one container; the first one has it.
    """

    def __init__(self) -> None:
        self._homes: dict[Instance, Home] = {}
        self._places: dict[Place, Instance] = {}
        self._done: set[Place] = set()
        self.version, self.contested = 0, False

    def clear(self) -> None:
        """Forget them all."""
        self._homes.clear()
        self._places.clear()
        self._done.clear()
        self.version, self.contested = self.version + 1, False

    def add(self, workload: Workload, pod: Pod) -> list[tuple[Instance, Home]]:
        """Take in a pod; returns those of its containers that no workload spoke for before."""
        fresh = []
        for container in pod.containers:
            instance = Instance(pod.key.namespace, pod.uid, container.name)
            if instance not in self._homes:
                home = self._homes[instance] = Home(workload, pod, container)
                place = Place(pod.key.namespace, pod.key.name, container.name)
                self._places[place] = instance
                (self._done.add if pod.finished else self._done.discard)(place)
                fresh.append((instance, home))
            else:
                self.contested = True
        self.version += 1
        return fresh

    def drop(self, workload: Workload, pod: Pod) -> None:
        """The pod is not there any more, or another one by now; what is another workload's stays."""
        for container in pod.containers:
            instance = Instance(pod.key.namespace, pod.uid, container.name)
            if (home := self._homes.get(instance)) is not None and home.workload is workload:
                del self._homes[instance]
                place = Place(pod.key.namespace, pod.key.name, container.name)
                if self._places.get(place) == instance:
                    del self._places[place]
                    self._done.discard(place)
        self.version += 1

    def at(self, place: Place) -> tuple[Instance, Home] | None:
        """The container that metrics call so, and where it belongs."""
        instance = self._places.get(place)
        return None if instance is None else (instance, self._homes[instance])

    def running(self, samples: Iterable[tuple[Place, Sample]]) -> Iterator[tuple[Instance, Sample]]:
        """Whose samples these are; those of others are left out.

        So are those of pods that have finished: metrics go on telling of them for a while.
        """
        places, done = self._places, self._done
        for place, sample in samples:
            if (instance := places.get(place)) is not None and place not in done:
                yield instance, sample

    def of(self, instance: Instance) -> Home | None:
        """Where a container belongs; None when its pod is gone."""
        return self._homes.get(instance)

    def __contains__(self, instance: object) -> bool:
        return instance in self._homes

    def __getitem__(self, instance: Instance) -> Home:
        return self._homes[instance]

    def classes(self) -> set[ObjectKey]:
        """The workload classes that anything runs of."""
        return {key for home in self._homes.values() if (key := home.workload_class) is not None}
