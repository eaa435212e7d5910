"""Training jobs of Kubeflow and JobSets: watched where installed, looked for again where they are not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ClusterError
from recommender.cluster.paths import path_of
from recommender.cluster.watching.reflector import OnChange, Parse, Reflector
from recommender.cluster.workloads.discovery import Resource, served
from recommender.cluster.workloads.ownership import Workload, reader_of

log = logging.getLogger(__name__)

KINDS = frozenset(
    {
        ("kubeflow.org", "PyTorchJob"),
        ("kubeflow.org", "TFJob"),
        ("kubeflow.org", "MPIJob"),
        ("jobset.x-k8s.io", "JobSet"),
    }
)
"""(group, kind) of the training jobs that are watched."""

LOOK_EVERY_S = 10.0
"""One request while none of the groups is there, and one for each version of those that are."""


class TrainingJobs:
    """The objects of these kinds as `Workload`s, on threads of its own.

    Parameters
    ----------
    on_change
        Told (old, new) of each change, on the threads of the reflectors.
    within
        The only namespace to look at; None for all.
    only
        Makes of what reads an object what reads it only where it concerns us.
    """

    def __init__(
        self,
        api: Api,
        on_change: OnChange[Workload],
        within: str | None = None,
        only: Callable[[Parse[Workload]], Parse[Workload]] = lambda parse: parse,
    ) -> None:
        self._api, self._on_change, self._within, self._only = api, on_change, within, only
        self._watched: dict[tuple[str, str], tuple[Resource, Reflector[Any]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training job kinds", daemon=True)
        self.problem = ""
        """Why it cannot be told which kinds there are, while it cannot."""

    def start(self) -> TrainingJobs:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()
        for _, reflector in list(self._watched.values()):
            reflector.stop(0.0)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                found = served(self._api, KINDS)
            except ClusterError as error:
                if not self.problem:
                    log.warning("cannot tell which kinds of training jobs there are: %s", error)
                self.problem = str(error)
            else:
                self.problem = ""
                self._follow(found)
            self._ended.wait(LOOK_EVERY_S)

    def _follow(self, found: dict[tuple[str, str], Resource]) -> None:
        """Watch what is there, and no longer what is not."""
        for place, (resource, _) in list(self._watched.items()):
            if found.get(place) != resource:
                self._leave(place)
        for place, resource in found.items():
            if place not in self._watched and not self._ended.is_set():
                self._watched[place] = (resource, self._reflector(place[1], resource).start())
                log.info("watching %s of %s", resource.plural, resource.api_version)

    def _reflector(self, kind: str, resource: Resource) -> Reflector[Workload]:
        path = path_of((resource.api_version, resource.plural), self._within)
        read = self._only(reader_of(kind, resource.api_version))
        return Reflector(self._api, path, read, on_change=self._on_change)

    def _leave(self, place: tuple[str, str]) -> None:
        """Its definition is gone, and all objects with it."""
        _, reflector = self._watched.pop(place)
        reflector.stop()
        for workload in reflector.snapshot().values():
            self._on_change(workload, None)
        log.info("%s of %s is served no more", place[1], place[0])
