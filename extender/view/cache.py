"""Keeps the state up to date: watches of nodes, pods, PhaseProfiles and controllers, and polling of measured use."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from extender.pods.footprint import PodName
from extender.pods.pod import Node, Pair, Pod, Profile
from extender.pods.reading import pod_reader, profile_reader, read_node
from extender.pods.reservations import CONFIG_MAP, Reservation, read_reservations
from extender.settings import Settings
from extender.view.state import ClusterState
from extender.view.watched import BatchingReader, CachingPodReader, TimestampingReader
from extender.watches import PeriodicTask, Watches
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials, NotFound
from recommender.cluster.paths import CONFIG_MAPS, NODES, PODS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.usage.metrics_api import read_usage
from recommender.cluster.watching.reflector import Reflector
from recommender.cluster.workloads.ownership import WELL_KNOWN, Workloads, workload_reader

PERIOD_S = 60.0  # default resolution of metrics-server
RETRY_S = 5.0  # at the start and after a failure


class UsagePoller:
    """Polls the metrics API on a thread of its own, while there are pods with neither profile nor requests.

    `failing`: 1 while the metrics API exists but fails or denies access, else 0.
    """

    def __init__(self, api: Api, state: ClusterState) -> None:
        self._api, self._state = api, state
        self._pause_s = RETRY_S
        self.loop = PeriodicTask("measuring", self.poll, lambda: self._pause_s)
        self.failing = 0

    def poll(self) -> None:
        """Poll once. Without the metrics API the use of these pods is guessed."""
        failed, self._pause_s = self.failing, RETRY_S
        without_demand = self._state.without_demand
        try:
            report = read_usage(self._api) if without_demand else None
        except NotFound:
            report = None
        except (ApiError, BadCredentials) as error:
            if not failed:
                log.warning("the use of pods is unknown: %s", error)
            self.failing = 1
            return
        except Exception:
            self.failing = 1
            raise
        self.failing, self._pause_s = 0, PERIOD_S
        if report is None:
            return
        for problem in report.broken.values():
            log.warning("not measured: %s", problem)
        use: defaultdict[PodName, dict[str, Pair]] = defaultdict(dict)
        for key, seen in report.samples.items():
            if (name := (key.namespace, key.pod)) in without_demand:
                use[name][key.container] = (seen.cpu_cores, seen.memory_bytes)
        self._state.put_use(use)


log = logging.getLogger(__name__)

OnBound = Callable[[Pod], None]  # called on the watch's thread with each pod when it is first seen bound; must be fast


class ClusterCache:
    """The watches of a cluster, each on a thread of its own.

    Pods are listed last, as their workload class depends on their controllers, and their demand on profiles.

    `controller_namespace`: namespace of the ConfigMap with reservations of `phasewise controller`.
    """

    def __init__(
        self, api: Api, state: ClusterState, settings: Settings, on_bound: OnBound, controller_namespace: str
    ) -> None:
        self._state, self._on_bound = state, on_bound
        workloads = Workloads()
        self.read_pod = pod_reader(workloads.controllers_of, settings.schedulers)
        self._profiles = Reflector(
            api, path_of(PROFILES), profile_reader(settings.grid), on_change=self._profile_changed
        )
        self._readers = (
            TimestampingReader(read_node),
            TimestampingReader(CachingPodReader(self.read_pod, workloads.version)),
        )
        self._nodes = Reflector(api, path_of(NODES), self._readers[0], on_change=self._node_changed)
        self._first = Watches(
            self._nodes,
            Reflector(
                api,
                path_of(CONFIG_MAPS, controller_namespace),
                read_reservations,
                field_selector=f"metadata.name={CONFIG_MAP}",
                on_change=self._reservations_changed,
            ),
            *(
                Reflector(api, path_of(resource), workload_reader(kind), on_change=workloads.changed)
                for kind, resource in WELL_KNOWN.items()
            ),
        )
        read_watched = BatchingReader(self._readers[1], lambda: self.synced)
        self._pods = Reflector(api, path_of(PODS), read_watched, on_change=self._pod_changed)
        self._needed = Watches(*self._first, self._pods)
        self._all = Watches(*self._needed, self._profiles)
        self._usage_poller = UsagePoller(api, state)
        self._ended = threading.Event()
        self._starter = threading.Thread(target=self._start_pods, name="watch pods", daemon=True)

    def start(self) -> None:
        self._first.start()
        self._profiles.start()
        self._starter.start()

    def stop(self) -> None:
        self._ended.set()
        self._starter.join()
        self._all.stop()
        self._usage_poller.loop.stop(0.0)

    def _start_pods(self) -> None:
        """Start the watch of pods once all else is listed; if profiles cannot be listed, requests are used."""
        while not self._first.synced or not (self._profiles.synced or self._profiles.problem):
            if self._ended.wait(0.02):
                return
        self._pods.start()
        self._usage_poller.loop.start()

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once; until then, absence means nothing."""
        return self._pods.synced

    @property
    def waiting_for(self) -> str:
        return self._needed.waiting_for

    @property
    def failing(self) -> int:
        """Number of watches without contact, including the metrics API; their data may be stale."""
        return self._all.failing + self._usage_poller.failing

    @property
    def unreadable(self) -> int:
        return self._all.unreadable

    @property
    def newest_s(self) -> float:
        """Time of the newest processed change of a node or pod, unix seconds; NaN before the first."""
        nodes, pods = self._readers
        return float(np.fmax(nodes.newest_s, pods.newest_s))

    def staleness_s(self) -> float:
        """Seconds since the API server last sent anything about nodes or about pods, whichever is longer."""
        return max(self._nodes.staleness_s(), self._pods.staleness_s())

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._state.put_node(new)
        elif old is not None:
            self._state.drop_node(old.name)

    def _reservations_changed(self, old: object, new: Sequence[Reservation] | None) -> None:
        self._state.reservations.put(new or ())

    def _profile_changed(self, old: Profile | None, new: Profile | None) -> None:
        if new is not None:
            self._state.put_profile(new)
        elif old is not None:
            self._state.drop_profile(old)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._state.drop_pod(old.uid)
        if new is None:
            return
        self._state.put_pod(new)
        if new.node and (old is None or not old.node or old.uid != new.uid):
            self._on_bound(new)
