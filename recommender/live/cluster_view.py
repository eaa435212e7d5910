"""The real cluster behind a round: watches, usage, and the writers of statuses and checkpoints."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recommender.cluster.checkpoints import CheckpointKey, Checkpoints, WriteReport
from recommender.cluster.connection import Api
from recommender.cluster.errors import Unreachable
from recommender.cluster.metrics_api import read_usage
from recommender.cluster.objects import Node, ObjectKey, Pair, Vpa, read_node, read_vpa
from recommender.cluster.oom import EVICTIONS, OomObservation, OomQueue, read_eviction
from recommender.cluster.ownership import WELL_KNOWN, Workloads, reader_of
from recommender.cluster.paths import EVENTS, NODES, PODS, VPAS, path_of
from recommender.cluster.pod_index import PodIndex
from recommender.cluster.pods import Pod, read_pod
from recommender.cluster.profiles import PROFILES, ProfileWriter, read_profile
from recommender.cluster.reflector import Reflector
from recommender.cluster.scales import Scales
from recommender.cluster.targets import Targets
from recommender.cluster.vpa_status import Condition, ContainerRecommendation
from recommender.cluster.vpa_writer import VpaWriter
from recommender.cluster.workload_class import workload_class
from recommender.errors import BadInput
from recommender.live.fleet import Sample
from recommender.live.view import Place, Selection
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import session_of

Usage = Callable[[float], Iterable[tuple[Place, Sample]]]
"""Given unix seconds, what containers used lately; oldest first for each container."""

KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Scope:
    """Which part of the cluster is ours.

    Attributes
    ----------
    recommender
        The name by which VPAs call us.
    namespace
        The only one to look at; None for all.
    ignored
        Namespaces whose VPAs are left alone.
    """

    recommender: str = "phasewise"
    namespace: str | None = None
    ignored: frozenset[str] = frozenset()


class ClusterView:
    """What a round sees of a real cluster.

    Parameters
    ----------
    usage
        Where samples come from: `metrics_api_usage(api)`, or a Prometheus.
    observe_only
        Compute everything, write no VPA.
    """

    def __init__(
        self,
        api: Api,
        scope: Scope,
        usage: Usage,
        *,
        observe_only: bool = False,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._scope, self._usage, self._observe_only, self._wall_clock = scope, usage, observe_only, wall_clock
        self._pods, self._workloads, self._ooms = PodIndex(), Workloads(), OomQueue(wall_clock)
        self._targets = Targets(
            self._pods,
            self._workloads,
            Scales(api, time.monotonic, random.Random()),  # noqa: S311 - jitter
        )
        self._writer = VpaWriter(api, wall_clock)
        self._checkpoints = Checkpoints(api, scope.recommender, time.monotonic, scope.namespace)
        self._histories: dict[CheckpointKey, HistogramSession] = {}
        self.broken_checkpoints: dict[str, str] = {}
        within = scope.namespace
        self._vpas = Reflector(api, path_of(VPAS, within), read_vpa)
        self._nodes = Reflector(api, path_of(NODES), read_node)
        self._profiles = Reflector(api, path_of(PROFILES, within), read_profile)
        self._profile_writer = ProfileWriter(api)
        self.reflectors: tuple[Reflector[Any], ...] = (
            self._vpas,
            self._nodes,
            Reflector(api, path_of(PODS, within), read_pod, on_change=self._pod_changed),
            Reflector(
                api,
                path_of(EVENTS, within),
                read_eviction,
                field_selector=EVICTIONS,
                on_change=self._ooms.eviction_changed,
            ),
            *(
                Reflector(api, path_of(resource, within), reader_of(kind), on_change=self._workloads.changed)
                for kind, resource in WELL_KNOWN.items()
            ),
        )

    def start(self) -> None:
        """Begin to watch."""
        for reflector in (*self.reflectors, self._profiles):
            reflector.start()

    @property
    def synced(self) -> bool:
        """Everything watched was listed once: only then does what is not there not exist."""
        return all(reflector.synced for reflector in self.reflectors)

    def load_histories(self) -> None:
        """Read the checkpoints of the VPAs that name us, once; a broken one is reported and left out.

        Raises
        ------
        ApiError
            They cannot be listed.
        """
        for checkpoint in self._checkpoints.load([vpa.key for vpa in self.vpas()]):
            try:
                self._histories[checkpoint.key] = session_of(checkpoint.status, str(checkpoint))
            except BadInput as error:
                self.broken_checkpoints[str(checkpoint)] = str(error)

    def stop(self) -> None:
        """Stop watching."""
        for reflector in (*self.reflectors, self._profiles):
            reflector.stop()

    # -- what a round asks -----------------------------------------------------------------------------------------

    def vpas(self) -> Sequence[Vpa]:
        """Those that name us, outside the ignored namespaces."""
        return [
            vpa
            for vpa in self._vpas.snapshot().values()
            if self._scope.recommender in vpa.recommenders and vpa.key.namespace not in self._scope.ignored
        ]

    def select(self, vpa: Vpa) -> Selection:
        """The pods that a VPA is for."""
        found = self._targets.resolve(vpa.key, vpa.target)
        if found.transient:
            raise Unreachable(found.problem or "its target is looked up in one of the next rounds")
        classes = {pod.uid: workload_class(pod, self._targets.owners(pod)) for pod in found.pods}
        return Selection(found.pods, classes, found.problem or None)

    def samples(self) -> Iterable[tuple[Place, Sample]]:
        """What containers used lately."""
        return self._usage(self._wall_clock())

    def kills(self) -> Sequence[OomObservation]:
        """Kills for memory since the last call."""
        return self._ooms.drain()

    def room(self, pods: Sequence[Pod]) -> Sequence[Pair]:
        """Allocatable of the nodes that the first of these pods may run on, as far as selector and taints tell."""
        if not pods:
            return []
        return [node.allocatable for node in self._nodes.snapshot().values() if _may_run(pods[0], node)]

    def publish(
        self,
        vpa: Vpa,
        recommendations: Sequence[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        """Make the status of a VPA say this, unless we only observe."""
        if not self._observe_only:
            self._writer.publish(vpa, recommendations, conditions)

    def show(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        """Write the PhaseProfile, also when we only observe.

        Raises
        ------
        Unreachable
            The profiles have not been listed: the next round tries again.
        """
        if not self._profiles.synced:
            raise Unreachable(f"PhaseProfiles cannot be listed: {self._profiles.problem or 'not yet'}")
        self._profile_writer.write(vpa, profile, self._profiles.snapshot().get(vpa.key))

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        """What a checkpoint knew at the start."""
        return self._histories.get(CheckpointKey(vpa, container))

    def keep(
        self, statuses: Mapping[ObjectKey, Callable[[], Mapping[str, Mapping[str, object]]]], within_s: float
    ) -> WriteReport:
        """Write checkpoints, those first that waited longest, for so long."""
        if self._observe_only:
            return WriteReport()
        return self._checkpoints.write(statuses, time.monotonic() + within_s)

    def clear_away(self) -> list[str]:
        """Delete checkpoints of ours whose VPA or container is gone; returns the names of those that went.

        Raises
        ------
        ApiError
            They cannot be listed.
        """
        if self._observe_only:
            return []
        ours = {vpa.key for vpa in self.vpas()}
        return self._checkpoints.collect(self._vpas.snapshot().keys(), ours, self._wall_clock())

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._pods.changed(old, new)
        self._ooms.pod_changed(old, new)


def metrics_api_usage(api: Api, namespace: str | None = None) -> Usage:
    """Samples of metrics.k8s.io; one that lacks CPU or memory is none."""

    def usage(_: float) -> Iterable[tuple[Place, Sample]]:
        for key, used in read_usage(api, namespace).samples.items():
            yield Place(*key), Sample(used.timestamp_s, used.cpu_cores, used.memory_bytes)

    return usage


def _may_run(pod: Pod, node: Node) -> bool:
    """Whether selector and taints allow it; affinity is not looked at, so that no node is left out in error."""
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    return all(
        taint.effect not in KEEPS_AWAY
        or any(
            toleration.key in ("", taint.key)
            and toleration.effect in ("", taint.effect)
            and (toleration.operator == "Exists" or toleration.value == taint.value)
            for toleration in pod.tolerations
        )
        for taint in node.taints
    )
