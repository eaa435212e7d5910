"""Jobs of the kinds that CRDs define: watched once these are installed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ClusterError
from recommender.cluster.paths import path_of
from recommender.cluster.watching.reflector import OnChange, Parse, Reflector
from recommender.cluster.workloads.discovery import Resource, served_resources
from recommender.cluster.workloads.kinds import JOB_KINDS
from recommender.cluster.workloads.ownership import Workload, workload_reader

log = logging.getLogger(__name__)

DISCOVERY_INTERVAL_S = 10.0
"""Takes one request, plus one per version of the installed groups."""


class TrainingJobs:
    """Watches training jobs on its own threads, in one namespace or all; `wrap_parser` may skip some of them."""

    def __init__(
        self,
        api: Api,
        on_change: OnChange[Workload],
        namespace: str | None,
        wrap_parser: Callable[[Parse[Workload]], Parse[Workload]],
    ) -> None:
        self._api, self._on_change, self._namespace, self._wrap_parser = api, on_change, namespace, wrap_parser
        self._watched: dict[tuple[str, str], tuple[Resource, Reflector[Any]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="training job kinds", daemon=True)
        self.problem = ""
        """The error of the last discovery; empty after a success."""

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
                found = served_resources(self._api, JOB_KINDS.keys())
            except ClusterError as error:
                if not self.problem:
                    log.warning("discovery of training job kinds failed: %s", error)
                self.problem = str(error)
            else:
                self.problem = ""
                self._update_watches(found)
            self._ended.wait(DISCOVERY_INTERVAL_S)

    def _update_watches(self, found: dict[tuple[str, str], Resource]) -> None:
        """Start watching installed kinds, and stop watching removed ones."""
        for group_kind, (resource, _) in list(self._watched.items()):
            if found.get(group_kind) != resource:
                self._stop_watching(group_kind)
        for group_kind, resource in found.items():
            if group_kind not in self._watched and not self._ended.is_set():
                read = self._wrap_parser(workload_reader(group_kind[1], resource.api_version))
                path = path_of((resource.api_version, resource.plural), self._namespace)
                reflector = Reflector(self._api, path, read, on_change=self._on_change)
                self._watched[group_kind] = resource, reflector.start()
                log.info("watching %s of %s", resource.plural, resource.api_version)

    def _stop_watching(self, group_kind: tuple[str, str]) -> None:
        """Stop watching a kind whose CRD was deleted, and with it all objects."""
        _, reflector = self._watched.pop(group_kind)
        reflector.stop()
        for workload in reflector.snapshot().values():
            self._on_change(workload, None)
        log.info("%s of %s is no longer served", group_kind[1], group_kind[0])
