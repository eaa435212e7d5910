"""The real cluster behind a round: watches, usage, and the writers of statuses and checkpoints."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from recommender.base.errors import BadInput
from recommender.base.records import MEMORY, ContainerKey, ContainerRecommendation, Sample
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ClusterError, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.node import QUOTAS, read_node, read_quota
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.resizability import NO_REQUESTS
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.paths import EVENTS, NODES, PODS, VPAS, path_of
from recommender.cluster.profiles import PROFILES, ProfileStore, read_profile
from recommender.cluster.usage.metrics_api import UsageReport
from recommender.cluster.usage.oom import EVICTIONS, OomObservation, OomQueue, read_eviction
from recommender.cluster.vpas.checkpoints import CONTAINER_UNUSED_S, CheckpointKey, Checkpoints, Statuses, WriteReport
from recommender.cluster.vpas.status import PHASEWISE_CONDITIONS, Condition, is_fetching_history
from recommender.cluster.vpas.writer import VpaWriter
from recommender.cluster.watching.reflector import OnChange, Parse, Reflector
from recommender.cluster.workloads.horizontal import HPAS, ScaledVpas, Scaler, read_scaler
from recommender.cluster.workloads.ownership import WELL_KNOWN, PodIndex, Ref, Workload, Workloads, workload_reader
from recommender.cluster.workloads.scales import Scales
from recommender.cluster.workloads.targets import Resolution, Targets
from recommender.cluster.workloads.training_jobs import TrainingJobs
from recommender.cluster.workloads.waiting_pods import Change, resize_waiting
from recommender.cluster.workloads.workload_class import workload_class
from recommender.live.steady_clock import SteadyClock
from recommender.live.view.room import Rooms
from recommender.live.view.scope import Scope
from recommender.live.view.view import SelectedPods, View, pods_to_recommend_for
from recommender.policies.constraints import Room
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import session_of

log = logging.getLogger(__name__)

T = TypeVar("T")

Usage = Callable[[float], UsageReport]
"""A source of usage, called with the time in unix seconds."""

MAX_FINISHED_PODS = 5000
"""A process that does not lead never drains the finished pods; above this the oldest are dropped."""

OUTDATED = ""
"""Instead of the UID of a VPA: its history was read, but another process may have led since. Should the VPA be gone by
now, the rest of what is known of it must still be forgotten."""


class ClusterView(View):
    """A real cluster as a round, the service and `AutoVpaController` see it; with `observe_only` no VPA is written.

    `leads` is asked before each write: a round may outlast the lease.
    """

    def __init__(
        self,
        api: Api,
        scope: Scope,
        usage: Usage,
        *,
        observe_only: bool = False,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api, self._scope, self._usage = api, scope, InterruptibleUsage(usage)
        self._observe_only, self._leads = observe_only, leads
        self._unreadable_usage: Mapping[str, str] = {}
        self._pods, self.workloads, self._ooms = PodIndex(), Workloads(), OomQueue()
        self._finished: deque[Pod] = deque(maxlen=MAX_FINISHED_PODS)
        scales = Scales(api, time.monotonic, random.Random())  # noqa: S311 - jitter
        self._targets = Targets(self._pods, self.workloads, scales)
        self._writer = VpaWriter(api, time.time)
        self._loaded: dict[ObjectKey, str] = {}
        self._selected: dict[ObjectKey, tuple[Resolution, SelectedPods]] = {}
        self._checkpoints = Checkpoints(api, time.monotonic, scope.namespace)
        self._steady_clock = SteadyClock(time.time, time.monotonic)
        self._histories: dict[ObjectKey, dict[str, HistogramSession]] = {}

        def watch(resource: tuple[str, str], parse: Parse[T], **options: Any) -> Reflector[T]:
            return Reflector(api, path_of(resource, scope.namespace), scope.only(parse), **options)

        self._vpas = Reflector(api, path_of(VPAS, scope.namespace), read_vpa, on_change=self._vpa_changed)
        self._nodes = Reflector(api, path_of(NODES), read_node)
        self._quotas = watch(QUOTAS, read_quota)
        self._profiles = watch(PROFILES, read_profile, metadata_only=True)
        self._scalers = watch(HPAS, read_scaler, on_change=self._scaler_changed)
        self._scaled_vpas = ScaledVpas(self.workloads)
        self._rooms = Rooms(self._nodes, self._quotas)
        self._profile_store = ProfileStore(api, self._profiles, scope.namespace, scope.covers)
        self._training_jobs = TrainingJobs(api, self._workload_changed, scope.namespace, scope.only)
        self._listeners: list[tuple[OnChange[Vpa], OnChange[Workload | Scaler], OnChange[Pod]]] = []
        self._watched: tuple[Reflector[Any], ...] = (
            self._vpas,
            self._nodes,
            self._quotas,
            self._profiles,
            self._scalers,
            watch(PODS, read_pod, on_change=self._pod_changed),
            watch(EVENTS, read_eviction, field_selector=EVICTIONS, on_change=self._ooms.eviction_changed),
            *(
                watch(resource, workload_reader(kind), on_change=self._workload_changed)
                for kind, resource in WELL_KNOWN.items()
            ),
        )

    def listen(
        self, vpa_changed: OnChange[Vpa], workload_changed: OnChange[Workload | Scaler], pod_changed: OnChange[Pod]
    ) -> None:
        """Register callbacks for every change, also of autoscalers, run on the threads of the watches; call before
        `start`."""
        self._listeners.append((vpa_changed, workload_changed, pod_changed))

    def pods_of(self, workload: Workload) -> Sequence[Pod]:
        """The pods below a controller."""
        return self._targets.pods_controlled_by(workload.key.namespace, workload.ref)

    def vpas_in(self, namespace: str) -> Mapping[ObjectKey, Vpa]:
        """All VPAs of a namespace, whether they are ours or not."""
        return {key: vpa for key, vpa in self._vpas.snapshot().items() if key.namespace == namespace}

    def scalers_in(self, namespace: str) -> Mapping[Ref, str]:
        """The names of the HorizontalPodAutoscalers by utilization, by what they scale."""
        return {one.target: key.name for key, one in self._scalers.snapshot().items() if key.namespace == namespace}

    def start(self) -> None:
        self._training_jobs.start()
        for reflector in self._watched:
            reflector.start()

    @property
    def synced(self) -> bool:
        """Whether everything watched has been listed once: only then does a missing object not exist."""
        # The CRD of the profiles may be missing, and quotas and autoscalers that may not be read count as none.
        optional = (self._profiles, self._quotas, self._scalers)
        return all(watched.synced or (watched in optional and watched.problem) for watched in self._watched)

    def load_histories(self) -> None:
        """Read checkpoints and profiles of VPAs that are new or `OUTDATED`; broken ones are skipped.

        `vpas` leaves them out until then: otherwise their stored state would be overwritten.
        """
        ours = {vpa.key: vpa for vpa in self._ours()}
        loaded = list(self._loaded.items())
        for gone in [key for key, uid in loaded if key not in ours or uid not in (ours[key].uid, OUTDATED)]:
            self._withdraw_conditions(gone, self._loaded.pop(gone))
            self._targets.forget(gone)
            self._selected.pop(gone, None)
            self._rooms.set_pods(gone, (), 0)
            self._checkpoints.forget(gone)
            self._writer.forget(gone)
        fresh = {key for key, vpa in ours.items() if self._loaded.get(key) != vpa.uid}
        if not fresh:
            return
        self._profile_store.load(fresh)
        known = self._loaded.keys() - fresh
        self._histories = {key: past for key, past in self._histories.items() if key in known}
        asked = [key for key in fresh if self._checkpoints.may_exist_for(key, ours[key].created_s)]
        for checkpoint in self._checkpoints.load(asked) if asked else ():
            try:
                self.adopt({checkpoint.key: session_of(checkpoint.status, str(checkpoint))})
            except BadInput as error:
                log.warning("%s", error)
        self._loaded |= {key: ours[key].uid for key in fresh}

    def _withdraw_conditions(self, key: ObjectKey, uid: str) -> None:
        """Remove the conditions that only we maintain from a VPA that another recommender has taken over."""
        vpa = self._vpas.snapshot().get(key)
        if vpa is None or vpa.uid != uid or self._observe_only or not self._leads():
            return
        try:
            self._writer.remove_conditions(vpa, PHASEWISE_CONDITIONS)
        except ClusterError as error:
            log.warning("%s: our conditions could not be removed: %s", key, error)

    def forget_histories(self) -> None:
        """Read all checkpoints again: another process may have written them, and may create more from now on."""
        self._loaded = dict.fromkeys(self._loaded, OUTDATED)
        self._checkpoints.listed_s = math.inf

    @property
    def unreadable(self) -> int:
        """Number of watched objects and pod metrics that cannot be parsed."""
        return len(self._unreadable_usage) + sum(len(reflector.broken) for reflector in self._watched)

    def hurry(self, until_s: float) -> None:
        """Send no request to the API server after this time (monotonic seconds): the process ends."""
        self._api.hurry(until_s)
        self._usage.stop()

    def stop(self) -> None:
        """Stop watching without waiting: a connection that is being established ends by itself."""
        self._training_jobs.stop()
        for reflector in self._watched:
            reflector.stop(0.0)

    # -- for a round -----------------------------------------------------------------------------------------------

    def vpas(self) -> Sequence[Vpa]:
        """VPAs that name us, in the namespaces that are ours, once their histories are loaded."""
        loaded = (vpa for vpa in self._ours() if self._loaded.get(vpa.key) == vpa.uid)
        return self._scaled_vpas.of(loaded, self._scalers.snapshot().values())

    def select(self, vpa: Vpa) -> SelectedPods:
        found = self._targets.resolve(vpa.key, vpa.target)
        if found.transient:
            raise Unreachable(found.problem or "its target will be looked up in one of the next rounds")
        before, selection = self._selected.get(vpa.key, (None, None))
        if selection is None or before is not found:  # an unchanged resolution is the same object
            pods = pods_to_recommend_for(found.pods, found.pending)
            classes = {pod.uid: workload_class(pod, self.workloads.controllers_of(pod)) for pod in pods}
            target = self.workloads.get(vpa.key.namespace, Ref.of(vpa.target))
            declared = NO_REQUESTS if target is None else target.templates.declared
            selection = SelectedPods(pods, classes, found.problem or None, declared, found.pending)
            self._selected[vpa.key] = found, selection
            self._rooms.set_pods(vpa.key, pods, 0 if target is None else target.replicas)
        return selection

    def samples(self) -> Iterable[tuple[ContainerKey, Sample]]:
        """Recent samples of containers; unreadable metrics are logged once, and counted."""
        used = self._usage.samples(time.time())
        for about in used.broken.keys() - self._unreadable_usage.keys():
            log.warning("%s is skipped", used.broken[about])
        self._unreadable_usage = used.broken
        return used.samples

    def kills(self) -> Sequence[OomObservation]:
        return [replace(oom, most_bytes=self._most_bytes(oom)) for oom in self._ooms.drain()]

    def _most_bytes(self, oom: OomObservation) -> float:
        """The memory that a killed container can have had: that of its node, and its limit where only an event shows
        it: by the time of another kill a lower limit may be in the status."""
        pod = self._pods.get(oom.pod.namespace, oom.pod.name)
        container = None if pod is None else pod.container(oom.container)
        most_bytes = self._rooms.memory_bytes("" if pod is None else pod.node)
        limit_bytes = math.nan if container is None or not oom.evicted else container.limits[MEMORY]
        return most_bytes if math.isnan(limit_bytes) else min(most_bytes, limit_bytes)

    def finished_pods(self) -> Sequence[Pod]:
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def room(self, vpa: Vpa, pods: Sequence[Pod]) -> Room:
        return self._rooms.of(vpa, pods)

    def spare(self, nodes: Collection[str], but: Collection[str] = ()) -> Mapping[str, Pair]:
        return self._rooms.spare(nodes, (pod for pod in self._pods.all() if pod.uid not in but))

    def publish(
        self,
        vpa: Vpa,
        recommendations: Sequence[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        self._require_lead()
        if not self._observe_only:
            self._writer.publish(vpa, recommendations, conditions)

    def resize_waiting(self, pod: Pod, changes: Sequence[Change]) -> None:
        self._require_lead()
        resize_waiting(self._api, pod, changes)

    def is_current(self, vpa: Vpa) -> bool:
        return self._writer.matches_last_write(vpa)

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        """Write the PhaseProfile, also when we only observe."""
        self._require_lead()
        self._profile_store.write(vpa, profile)

    def saved_state(self, vpa: Vpa) -> str | None:
        return self._profile_store.saved_state(vpa)

    def saved_classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        return self._profile_store.saved_classes(time.time())

    def write_class_profile(self, key: ObjectKey, profile: Mapping[str, Any] | None) -> None:
        """Write or delete the PhaseProfile of a workload class, also when we only observe."""
        self._require_lead()
        self._profile_store.write_class(key, profile)

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        return self._histories.get(vpa, {}).get(container)

    def containers_with_history(self, vpa: ObjectKey) -> Collection[str]:
        """Container names whose history is recent enough to count."""
        oldest_s = time.time() - CONTAINER_UNUSED_S
        return [container for container, past in self._histories.get(vpa, {}).items() if not past.last_s < oldest_s]

    # -- for the service -------------------------------------------------------------------------------------------

    def adopt(self, histories: Mapping[CheckpointKey, HistogramSession]) -> None:
        """Replace histories by those of another source."""
        for key, past in histories.items():
            self._histories.setdefault(key.vpa, {})[key.container] = past

    def write_checkpoints(self, statuses: Statuses, within_s: float, every_s: float, at_most: float) -> WriteReport:
        """Write checkpoints that have not been written for `every_s`, the longest waiting first.

        VPAs whose history is still being fetched by another recommender are skipped, because ours would overwrite it.
        """
        if self._observe_only or not self._leads():
            return WriteReport()
        vpas = self._vpas.snapshot()
        ready = {key: make for key, make in statuses.items() if key not in vpas or not is_fetching_history(vpas[key])}
        return self._checkpoints.write(ready, time.monotonic() + within_s, at_most, every_s)

    def collect_checkpoints(self) -> list[str]:
        """Delete checkpoints of ours whose VPA or container is gone; returns their names.

        That a container is gone shows only in the age of its checkpoint, so the clock must be right.
        """
        if self._observe_only or not self._leads():
            return []
        by_age = {vpa.key for vpa in self._ours()} if self._steady_clock.is_steady() else set[ObjectKey]()
        return self._checkpoints.collect(self._vpas.snapshot().keys(), by_age, time.time(), self._scope.covers)

    def _ours(self) -> list[Vpa]:
        return list(filter(self._scope.claims, self._vpas.snapshot().values()))

    def _require_lead(self) -> None:
        if not self._leads():
            raise Unreachable("not written: this process no longer leads")

    def _vpa_changed(self, old: Vpa | None, new: Vpa | None) -> None:
        for listener, _, _ in self._listeners:
            listener(old, new)

    def _workload_changed(self, old: Workload | None, new: Workload | None) -> None:
        self.workloads.changed(old, new)
        self._scaler_changed(old, new)

    def _scaler_changed(self, old: Workload | Scaler | None, new: Workload | Scaler | None) -> None:
        for _, listener, _ in self._listeners:
            listener(old, new)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and new is not None and new.finished and not (old.finished or new.deleting):
            self._finished.append(new)
        self._pods.changed(old, new)
        self._ooms.pod_changed(old, new)
        for _, _, listener in self._listeners:
            listener(old, new)


class InterruptibleUsage:
    """Reads a source in a separate thread: on shutdown there are only seconds left, and a Prometheus may be slow."""

    def __init__(self, usage: Usage) -> None:
        self._usage, self._stopped = usage, False
        self._answer = Future[UsageReport]()

    def stop(self) -> None:
        """Wait for no answer any more. May be called in a signal handler."""
        self._stopped = True
        with suppress(InvalidStateError):  # it has answered
            self._answer.set_exception(Unreachable("usage: interrupted, the process is shutting down"))

    def samples(self, now_s: float) -> UsageReport:
        """Read the source; raises its error, or `Unreachable` if it has not answered when the process is stopped."""
        answer = self._answer = Future[UsageReport]()
        if self._stopped:
            self.stop()
        else:
            threading.Thread(target=self._ask, args=(now_s, answer), name="usage", daemon=True).start()
        used, self._answer = answer.result(), Future()  # megabytes, not to be kept until the next round
        return used

    def _ask(self, now_s: float, answer: Future[UsageReport]) -> None:
        with suppress(InvalidStateError):  # stopped meanwhile
            try:
                used = self._usage(now_s)
                answer.set_result(used._replace(samples=list(used.samples)))
            except BaseException as error:  # noqa: BLE001  # raised again in `samples`
                answer.set_exception(error)
