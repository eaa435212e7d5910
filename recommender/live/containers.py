"""The containers of a round by the names that metrics use: their pods, their VPAs, and what the engine must know."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from recommender.base.records import ContainerKey, Sample
from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import CHECKPOINTABLE, COMPLETION_INDEX, DEFERRED, INPUT_SIZE, ContainerState, Pod
from recommender.engine.keys import Ended, Group, Instance, Running, WorkloadKey
from recommender.engine.tally import Report
from recommender.live.rules import sharing_policy
from recommender.live.view.view import MAX_CONTAINERS, SelectedPods, View
from recommender.live.vpa_state import VpaState

RETENTION_ROUNDS = 40
"""For how many rounds a removed container can still be looked up: a kill may be reported after its pod is gone."""

MAX_RUNS = 100_000
"""At most this many resumable runs are tracked: those whose pods changed last."""

JobRun = tuple[str, str, str]
"""Namespace (anybody can name any owner), UID of a Job, completion index: a run that replacement pods continue."""


class OwnedContainer(NamedTuple):
    """A container with its pod and the VPA that it belongs to; `resumed_pod_uid` is as in `Running`."""

    state: VpaState
    pod: Pod
    container: ContainerState
    resumed_pod_uid: str = ""

    def running(self) -> Running:
        """The engine's record of the container."""
        pod, container = self.pod, self.container
        policy = sharing_policy(self.state.vpa)
        cpu_cores, memory_bytes = container.requests
        deferred = [each.since_s for each in pod.resizes if each.reason == DEFERRED and each.since_s is not None]
        return Running(
            group=self.state.group(container.name),
            workload=self.state.selection.workload.get(pod.uid),
            started_s=container.started_s,
            requests=(math.nan if pod.is_boosted(container.name) else cpu_cores, memory_bytes),
            limits=container.limits,
            restarts=container.restart_count,
            finished=pod.finished,
            ended=_ended_of(container),
            terminating=pod.deleting,
            deferred_since_s=min(deferred, default=math.inf),
            resumed_pod_uid=self.resumed_pod_uid,
            shares_node=pod.node if policy else "",
            shares_by=policy if pod.node else "",
            input_size=pod.input_size,
            costly=container.uses_devices or pod.annotations.get(CHECKPOINTABLE) == "false",
        )


def _ended_of(container: ContainerState) -> Ended | None:
    """How the container ended; None while it has not."""
    ended = container.terminated
    return None if ended is None else Ended(ended.exit_code, ended.started_s, ended.finished_s)


def job_run_of(pod: Pod) -> JobRun | None:
    """The run of a pod that a Job controls; None for other pods."""
    if pod.owner is None or pod.owner.kind != "Job":
        return None
    return pod.key.namespace, pod.owner.uid, pod.annotations.get(COMPLETION_INDEX, "")


class ContainerIndex:
    """The containers of a round, updated only where something changed; `version` changes with every update.

    `contested`: several VPAs select the same container; the first one added owns it.
    """

    def __init__(self) -> None:
        self._owned: dict[Instance, OwnedContainer] = {}
        self._named: dict[ContainerKey, tuple[Instance, Group]] = {}
        self._removed_in: dict[ContainerKey, int] = {}  # the round in which a named container was removed
        self._round = 0
        self._dirty: set[Instance] = set()
        self._reported: dict[Instance, Running] = {}
        self._finished_pods: dict[str, Pod] = {}
        self._first_pods: dict[JobRun, str] = {}
        self.version, self.contested = 0, False

    def clear(self) -> None:
        """Remove all containers; they can still be looked up for a while."""
        self._dirty |= self._owned.keys()
        self._owned.clear()
        self._removed_in = dict.fromkeys(self._named, self._round) | self._removed_in
        self.version, self.contested = self.version + 1, False

    def add(self, state: VpaState, pod: Pod) -> None:
        """Add the containers of a pod that are recommended for, except those that another VPA already owns."""
        for container in pod.containers:
            if container.name not in state.selection.containers:
                continue
            instance = Instance(pod.key.namespace, pod.uid, container.name)
            if instance in self._owned:
                self.contested = True
                continue
            self._owned[instance] = OwnedContainer(state, pod, container, self._resumed_pod_uid(state, pod))
            self._dirty.add(instance)
            key = ContainerKey(*pod.key, container.name)
            self._named[key] = instance, state.group(container.name)
            self._removed_in.pop(key, None)
        self.version += 1

    def _resumed_pod_uid(self, state: VpaState, pod: Pod) -> str:
        """UID of the pod that began this run, where the pod resumes it from a checkpoint; else empty."""
        run = job_run_of(pod)
        if run is None or pod.annotations.get(CHECKPOINTABLE) != "true":
            return ""
        first_uid = self._first_pods[run] = self._first_pods.pop(run, pod.uid)
        if len(self._first_pods) > MAX_RUNS:
            del self._first_pods[next(iter(self._first_pods))]
        if first_uid == pod.uid:
            return ""
        first = next((other for other in state.selection.pods if other.uid == first_uid), None)
        # Pods that run in parallel without a completion index are separate runs.
        return first_uid if first is None or first.deleting or first.phase == "Failed" else ""

    def drop(self, state: VpaState, pod: Pod) -> None:
        """Remove the containers of a pod that is gone or has changed, except those that another VPA owns."""
        for container in pod.containers:
            instance = Instance(pod.key.namespace, pod.uid, container.name)
            if (owned := self._owned.get(instance)) is not None and owned.state is state:
                del self._owned[instance]
                self._dirty.add(instance)
                key = ContainerKey(*pod.key, container.name)
                if (named := self._named.get(key)) is not None and named[0] == instance:
                    self._removed_in[key] = self._round
        self.version += 1

    def take_changes(self, ended: Iterable[Pod] = ()) -> dict[Instance, Running | None]:
        """Return what the engine does not know yet: containers that are new or changed; None for those that are gone.

        If a pod that has `ended` since the last call is already gone, its end is reported first.
        """
        changes: dict[Instance, Running | None] = {}
        self._finished_pods |= {pod.uid: pod for pod in ended}
        dirty, self._dirty = self._dirty, set()
        for instance in sorted(dirty):
            owned, reported = self._owned.get(instance), self._reported.get(instance)
            running = self._final_report(instance, reported) if owned is None else owned.running()
            if running is not None and instance.pod_uid in self._finished_pods:
                running = running._replace(terminating=False)  # it was deleted after it had finished by itself
            if running != reported:
                changes[instance] = running
                if running is None:
                    del self._reported[instance]
                else:
                    self._reported[instance] = running
        if self._finished_pods:  # a pod may have finished since the pods were selected, and be gone in the next round
            live_uids = {instance.pod_uid for instance, reported in self._reported.items() if not reported.finished}
            self._finished_pods = {uid: pod for uid, pod in self._finished_pods.items() if uid in live_uids}
        self._round += 1
        for key in [key for key, since in self._removed_in.items() if self._round - since > RETENTION_ROUNDS]:
            del self._removed_in[key], self._named[key]
        return changes

    def _final_report(self, instance: Instance, reported: Running | None) -> Running | None:
        """The end of a container whose pod is gone, if the engine does not know it; its removal follows later."""
        pod = self._finished_pods.get(instance.pod_uid)
        container = None if pod is None else pod.container(instance.container)
        if container is None or reported is None or reported.finished:
            return None
        self._dirty.add(instance)
        return reported._replace(finished=True, ended=_ended_of(container), restarts=container.restart_count)

    def lookup(self, key: ContainerKey) -> tuple[Instance, Group] | None:
        """The container that metrics and events call so, and its group; also for some rounds after it is gone."""
        return self._named.get(key)

    def samples_of(self, samples: Iterable[tuple[ContainerKey, Sample]]) -> Iterator[tuple[Instance, Sample]]:
        """Assign samples to their instances; skip those of other containers, and of pods that have finished."""
        for key, sample in samples:
            if (named := self._named.get(key)) is not None:
                owned = self._owned.get(named[0])
                if owned is not None and not owned.pod.finished:
                    yield named[0], sample

    def get(self, instance: Instance) -> OwnedContainer | None:
        """The container with its pod and VPA; None when its pod is gone."""
        return self._owned.get(instance)

    def workload_classes(self) -> set[WorkloadKey]:
        found = (
            (owned.pod.key.namespace, owned.state.selection.workload.get(owned.pod.uid))
            for owned in self._owned.values()
        )
        return {WorkloadKey(namespace, name) for namespace, name in found if name is not None}


class IndexedVpa(NamedTuple):
    """A VPA with the pods that were indexed for it, and the policy by which they share their nodes."""

    state: VpaState
    selection: SelectedPods
    sharing: str

    def differs_from(self, before: IndexedVpa | None) -> bool:
        return before is None or not (
            before.state is self.state and before.selection is self.selection and before.sharing == self.sharing
        )


class PodSelector:
    """Selects the pods of all VPAs, and keeps the index up to date."""

    def __init__(self, view: View, index: ContainerIndex) -> None:
        self.index = index
        self._view = view
        self._indexed: dict[ObjectKey, IndexedVpa] = {}

    def select(self, states: Collection[VpaState], report: Report) -> None:
        """Select the pods of each VPA; in most rounds nothing has changed and the index stays as it is."""
        report.each(states, VpaState.name, self._select)
        for state in states:
            if (number := len(state.selection.all_containers)) > MAX_CONTAINERS:
                words = f"{number} container names: only the first {MAX_CONTAINERS} by name get a recommendation"
                report.problems.setdefault(str(state.vpa.key), words)
        now = {state.vpa.key: IndexedVpa(state, state.selection, sharing_policy(state.vpa)) for state in states}
        changed = [key for key, vpa in now.items() if vpa.differs_from(self._indexed.get(key))]
        if changed or self.index.contested or len(now) != len(self._indexed):
            self._reindex(now, changed, report)
        self._indexed = now

    def _select(self, state: VpaState) -> None:
        """Select the pods of a VPA; on failure keep the previous selection, or set its problem if there is none."""
        try:
            state.selection = self._view.select(state.vpa)
        except ClusterError as error:
            if not state.pods_resolved:
                state.selection = SelectedPods((), {}, f"Cannot determine its pods: {error}")
            raise
        state.pods_resolved = True

    def _reindex(self, now: Mapping[ObjectKey, IndexedVpa], changed: Collection[ObjectKey], report: Report) -> None:
        """Index the pods of changed and deleted VPAs again, or all pods where one has, or had, several VPAs."""
        if not self.index.contested:
            self.index.version += 1  # also where a changed VPA has no pods
            for key in (*changed, *(self._indexed.keys() - now.keys())):
                if (before := self._indexed.get(key)) is not None:
                    for pod in before.selection.pods:
                        self.index.drop(before.state, pod)
            self._add([now[key].state for key in changed], report)
        if self.index.contested:
            self.index.clear()
            self._add([vpa.state for vpa in now.values()], report)

    def _add(self, states: Iterable[VpaState], report: Report) -> None:
        # Of several VPAs for one pod the updater obeys the oldest that is not Off.
        for state in sorted(states, key=lambda each: (each.vpa.update_mode == "Off", each.vpa.created_s, each.vpa.key)):
            for pod in state.selection.pods:
                self.index.add(state, pod)
                if INPUT_SIZE in pod.annotations and math.isnan(pod.input_size):
                    report.refuse(f"pod {pod.key}", f"{INPUT_SIZE} that is no positive number")
