"""The data behind the pages: watched objects, polled use, and the history of the last hour."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from extender.dashboard.drawing import History
from extender.dashboard.job import Job, Profile, jobs_of, read_profile, read_shown_pod
from extender.watches import PeriodicTask, Watches
from recommender.base.records import ContainerKey, Sample
from recommender.base.units import WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.node import Node, read_node
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.paths import NODES, PODS, VPAS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.usage.metrics_api import read_usage
from recommender.cluster.watching.reflector import Reflector

STARTUP_PERIOD_S = 0.2  # time between refreshes at the start, until everything has been listed


class ClusterView(NamedTuple):
    """An immutable view of the cluster; `troubles` lists what could not be read."""

    now_s: float
    jobs: Mapping[ObjectKey, Job]
    classes: Mapping[ObjectKey, Profile]
    pods: Mapping[ObjectKey, Pod]
    nodes: Mapping[ObjectKey, Node]
    troubles: tuple[str, ...] = ()


class ClusterWatch:
    """Builds a view of the cluster every `period_s`, on a thread of its own; `seen` is the latest. Each page is
    rendered from one view, so it is consistent and costs the API server no request."""

    def __init__(
        self, api: Api, recommender: str = "phasewise", period_s: float = 15.0, clock: WallClock = time.time
    ) -> None:
        self._api, self._recommender, self._clock = api, recommender, clock
        self._profiles = Reflector(api, path_of(PROFILES), read_profile)
        self._vpas = Reflector(api, path_of(VPAS), read_vpa)
        self._pods = Reflector(api, path_of(PODS), read_shown_pod)
        self._nodes = Reflector(api, path_of(NODES), read_node)
        self._by_name: dict[str, Reflector[Any]] = {
            "PhaseProfiles": self._profiles,
            "VPAs": self._vpas,
            "pods": self._pods,
            "nodes": self._nodes,
        }
        self.watches = Watches(*self._by_name.values())
        self.loop = PeriodicTask(
            "look", self._refresh_if_synced, lambda: period_s if self._listed else min(period_s, STARTUP_PERIOD_S)
        )
        self._listed = False
        self.seen = ClusterView(0.0, {}, {}, {}, {})
        self.history = History()

    def not_ready(self) -> str:
        """Why there is nothing to show yet; empty once there is something."""
        unlisted = ((what, watch) for what, watch in self._by_name.items() if not watch.synced)
        waits = [f"{what} ({watch.problem or 'being listed'})" for what, watch in unlisted]
        return f"waits for {', '.join(waits)}" if waits else "" if self.seen.now_s else "building the first view"

    def refresh(self) -> None:
        now_s = self._clock()
        usage, troubles = dict[ContainerKey, Sample](), list[str]()
        try:
            report = read_usage(self._api)
            usage.update(report.samples)
            troubles += [f"metrics of {pod}: {problem}" for pod, problem in report.broken.items()]
        except (ApiError, BadCredentials) as error:
            troubles.append(f"use is unknown: {error}")
        for what, watch in self._by_name.items():
            if watch.problem:
                troubles.append(f"{what}: no contact for {watch.staleness_s():.0f} s: {watch.problem}")
            troubles += [f"{key}: {problem}" for key, problem in watch.broken.items()]
        profiles, pods = self._profiles.snapshot(), self._pods.snapshot()
        jobs = jobs_of(
            self._vpas.snapshot().values(), profiles, pods.values(), usage, self._recommender, self.history.saved_before
        )
        classes = {key: profile for key, profile in profiles.items() if profile.of_class}
        self.history.add(now_s, (one for job in jobs.values() for one in job.containers))
        self.seen = ClusterView(now_s, jobs, classes, pods, self._nodes.snapshot(), tuple(troubles))

    def _refresh_if_synced(self) -> None:
        if self.watches.synced:
            self._listed = True
            self.refresh()
