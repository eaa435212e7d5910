"""What the jobs tell of themselves: the stages in their logs, followed through the API server as they are written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import islice

from kubernetes import watch as kubernetes_watch
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from local_cluster.rig import Rig
from node_bench.watch import Running

MARK = "stage="
TRIES = 3
_log = logging.getLogger(__name__)


class StageFollower:
    """Calls `told(job, stage)` when a container says that a stage begins; one thread for each container."""

    def __init__(self, rig: Rig, namespace: str, told: Callable[[str, str], None]) -> None:
        self._rig = rig
        self._namespace = namespace
        self._told = told

    def follow(self, container: Running) -> None:
        """Follow a container until it ends; returns at once."""
        threading.Thread(target=self._read, args=(container,), name=f"log of {container.pod}", daemon=True).start()

    def _read(self, container: Running) -> None:
        read, told = self._rig.core.read_namespaced_pod_log, 0
        for _ in range(TRIES):
            try:
                lines = kubernetes_watch.Watch().stream(read, container.pod, self._namespace, follow=True)
                stages = (line.removeprefix(MARK).strip() for line in lines if line.startswith(MARK))
                for stage in islice(stages, told, None):
                    told += 1
                    self._told(container.job, stage)
            except (ApiException, HTTPError) as error:
                _log.info("the log of %s broke off: %s", container.pod, error)
            else:
                return
