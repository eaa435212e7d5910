"""The containers of a round: whose each is, found by the names that metrics have, and what the engine is told of it.

It is kept from round to round, and worked out again only where something changed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import (
    CHECKPOINTABLE,
    COMPLETION_INDEX,
    DEFERRED,
    INPUT_SIZE,
    ContainerState,
    Pod,
)
from recommender.engine.keys import Ended, Group, Instance, Running
from recommender.engine.tally import Report
from recommender.live.rules import shares
from recommender.live.view.view import Place, SelectedPods, View
from recommender.live.vpa_state import VpaState
from recommender.records import Sample

GONE_ROUNDS = 40
"""For so many rounds a container is remembered after it is gone: a kill may be told of later than its pod's end."""


MOST_RUNS = 100_000
"""Of so many runs that may be resumed it is known which pod began them."""

Run = tuple[str, str, str]
"""Namespace, UID of a Job, and completion index: what a pod is replaced in. Who makes a pod may name any owner."""


class Home(NamedTuple):
    """A container with its pod and the VPA that speaks for it; `resumed_pod_uid` as `Running` has it."""

    state: VpaState
    pod: Pod
    container: ContainerState
    resumed_pod_uid: str = ""

    @property
    def workload_class(self) -> ObjectKey | None:
        """Namespace and name of its class; None where nothing tells it."""
        name = self.state.selection.workload.get(self.pod.uid)
        return None if name is None else ObjectKey(self.pod.key.namespace, name)

    def running(self) -> Running:
        """What the engine is told of it."""
        pod, container = self.pod, self.container
        by = shares(self.state.vpa)
        cpu_cores, memory_bytes = container.requests
        waits = [resize.since_s for resize in pod.resizes if resize.reason == DEFERRED and resize.since_s is not None]
        return Running(
            group=self.state.group(container.name),
            workload=self.state.selection.workload.get(pod.uid),
            started_s=container.started_s,
            requests=(math.nan if pod.is_boosted(container.name) else cpu_cores, memory_bytes),
            limits=container.limits,
            restarts=container.restart_count,
            finished=pod.finished,
            ended=_end_of(container),
            terminating=pod.deleting,
            deferred_since_s=min(waits, default=math.inf),
            resumed_pod_uid=self.resumed_pod_uid,
            shares_node=pod.node if by else "",
            shares_by=by if pod.node else "",
            input_size=pod.input_size,
            costly=container.uses_devices or pod.annotations.get(CHECKPOINTABLE) == "false",
        )


def _end_of(container: ContainerState) -> Ended | None:
    """How it ended; None while it has not."""
    ended = container.terminated
    return None if ended is None else Ended(ended.exit_code, ended.started_s, ended.finished_s)


def run_of(pod: Pod) -> Run | None:
    """What a pod is replaced in, where a Job does that."""
    if pod.owner is None or pod.owner.kind != "Job":
        return None
    return pod.key.namespace, pod.owner.uid, pod.annotations.get(COMPLETION_INDEX, "")


class ContainerIndex:
    """The containers of a round.

    Attributes
    ----------
    version
        Another one after every change.
    contested
        Two VPAs have spoken for one container; the first one has it.
    """

    def __init__(self) -> None:
        self._homes: dict[Instance, Home] = {}
        self._places: dict[Place, Instance] = {}
        self._done: set[Place] = set()
        self._gone: dict[Place, tuple[Instance, Group, int]] = {}
        self._round = 0
        self._touched: set[Instance] = set()
        self._told: dict[Instance, Running] = {}
        self._ended: dict[str, Pod] = {}
        self._began: dict[Run, str] = {}
        self._resumed: dict[str, str] = {}
        self.version, self.contested = 0, False

    def clear(self) -> None:
        """Forget them all, though not for a while who lived where."""
        self._touched |= self._homes.keys()
        for place, instance in self._places.items():
            self._gone[place] = instance, self._homes[instance].state.group(place.container), self._round
        self._homes.clear()
        self._places.clear()
        self._done.clear()
        self.version, self.contested = self.version + 1, False

    def add(self, state: VpaState, pod: Pod) -> None:
        """Take in a pod; those of its containers that another VPA speaks for stay with that one."""
        for container in pod.containers:
            instance = Instance(pod.key.namespace, pod.uid, container.name)
            if instance in self._homes:
                self.contested = True
                continue
            self._homes[instance] = Home(state, pod, container, self._begun_by(state, pod))
            self._touched.add(instance)
            place = Place(pod.key.namespace, pod.key.name, container.name)
            self._places[place] = instance
            (self._done.add if pod.finished else self._done.discard)(place)
        self.version += 1

    def _begun_by(self, state: VpaState, pod: Pod) -> str:
        """UID of the pod that began its run, where that was interrupted and it goes on from its checkpoint; else empty.

        Pods of a Job that run side by side without an index are runs of their own.
        """
        run = run_of(pod)
        if run is None or pod.annotations.get(CHECKPOINTABLE) != "true":
            return ""
        if len(self._began) > MOST_RUNS:
            self._began.clear()
            self._resumed.clear()
        began = self._began.setdefault(run, pod.uid)
        if began != pod.uid and pod.uid not in self._resumed:
            first = next((other for other in state.selection.pods if other.uid == began), None)
            if first is None or first.deleting or first.phase == "Failed":
                self._resumed[pod.uid] = began
        return self._resumed.get(pod.uid, "")

    def drop(self, state: VpaState, pod: Pod) -> None:
        """The pod is not there any more, or another one by now; what is another VPA's stays."""
        for container in pod.containers:
            instance = Instance(pod.key.namespace, pod.uid, container.name)
            if (home := self._homes.get(instance)) is not None and home.state is state:
                del self._homes[instance]
                self._touched.add(instance)
                place = Place(pod.key.namespace, pod.key.name, container.name)
                if self._places.get(place) == instance:
                    del self._places[place]
                    self._done.discard(place)
                    self._gone.pop(place, None)
                    self._gone[place] = instance, state.group(container.name), self._round
        self.version += 1

    def take_changes(self, ended: Iterable[Pod] = ()) -> dict[Instance, Running | None]:
        """What the engine was not told of yet: containers that are new or not what they were; None for those gone.

        Parameters
        ----------
        ended
            Pods that have finished since the last call. Of one that is gone already it is told first how it ended.
        """
        changes: dict[Instance, Running | None] = {}
        self._ended |= {pod.uid: pod for pod in ended}
        touched, self._touched = self._touched, set()
        for instance in sorted(touched):
            home, told = self._homes.get(instance), self._told.get(instance)
            running = self._as_it_ended(instance, told) if home is None else home.running()
            if running != told:
                changes[instance] = running
                if running is None:
                    del self._told[instance]
                else:
                    self._told[instance] = running
        if self._ended:  # one may have finished since the pods were looked at, and be gone in the next round
            run = {instance.pod_uid for instance, told in self._told.items() if not told.finished}
            self._ended = {uid: pod for uid, pod in self._ended.items() if uid in run}
        self._round += 1
        for place in [place for place, (_, _, left) in self._gone.items() if self._round - left > GONE_ROUNDS]:
            del self._gone[place]
        return changes

    def _as_it_ended(self, instance: Instance, told: Running | None) -> Running | None:
        """What a container that is gone came to, where the engine was not told; then it is gone in the next round."""
        pod = self._ended.get(instance.pod_uid)
        container = None if pod is None else pod.container(instance.container)
        if container is None or told is None or told.finished:
            return None
        self._touched.add(instance)
        return told._replace(finished=True, ended=_end_of(container), restarts=container.restart_count)

    def at(self, place: Place) -> tuple[Instance, Group] | None:
        """The container that metrics and events call so, and its group; also for a while after it is gone."""
        instance = self._places.get(place)
        if instance is None:
            gone = self._gone.get(place)
            return None if gone is None else gone[:2]
        return instance, self._homes[instance].state.group(place.container)

    def samples_of(self, samples: Iterable[tuple[Place, Sample]]) -> Iterator[tuple[Instance, Sample]]:
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

    def classes(self) -> set[ObjectKey]:
        """The workload classes that anything runs of."""
        return {key for home in self._homes.values() if (key := home.workload_class) is not None}


class Placed(NamedTuple):
    """A VPA with what was placed of it, and how its pods share their nodes."""

    state: VpaState
    selection: SelectedPods
    shares: str


class Placing:
    """Selects the pods of all VPAs.

    Parameters
    ----------
    index
        Kept up to date.
    """

    def __init__(self, view: View, index: ContainerIndex) -> None:
        self.index = index
        self._view = view
        self._placed: dict[ObjectKey, Placed] = {}

    def select(self, states: Collection[VpaState], report: Report) -> None:
        """The pods of each, as they are now; where everything is as it was, as in most rounds, that is all."""
        report.each(states, VpaState.name, self._select)
        now = {state.vpa.key: Placed(state, state.selection, shares(state.vpa)) for state in states}
        changed = [key for key, placed in now.items() if not _same(self._placed.get(key), placed)]
        if changed or self.index.contested or len(now) != len(self._placed):
            self._place(now, changed, report)
        self._placed = now

    def _select(self, state: VpaState) -> None:
        """Where they cannot be told now, those known before stay; where none were, that is no word on pods at all."""
        try:
            state.selection = self._view.select(state.vpa)
        except ClusterError as error:
            if not state.told:
                state.selection = SelectedPods((), {}, f"Cannot tell its pods: {error}")
            raise
        state.told = True

    def _place(self, now: Mapping[ObjectKey, Placed], changed: Collection[ObjectKey], report: Report) -> None:
        """Place those anew whose pods are not the same; all of them where one pod has, or had, several VPAs."""
        all_anew = self.index.contested or not self._placed or bool(self._placed.keys() - now.keys())
        if not all_anew:
            self.index.version += bool(changed)  # also where nobody lives any more, or yet
            for key in changed:
                if (before := self._placed.get(key)) is not None:
                    for pod in before.selection.pods:
                        self.index.drop(before.state, pod)
            self._add([now[key].state for key in changed], report)
        if all_anew or self.index.contested:
            self.index.clear()
            self._add([placed.state for placed in now.values()], report)

    def _add(self, states: Iterable[VpaState], report: Report) -> None:
        # Of two VPAs for one pod the updater obeys the older one of those that are not Off.
        for state in sorted(states, key=lambda one: (one.vpa.update_mode == "Off", one.vpa.created_s, one.vpa.key)):
            for pod in state.selection.pods:
                self.index.add(state, pod)
                if INPUT_SIZE in pod.annotations and math.isnan(pod.input_size):
                    report.refuse(f"pod {pod.key}", f"{INPUT_SIZE} that is no positive number")


def _same(one: Placed | None, other: Placed) -> bool:
    if one is None:
        return False
    return one.state is other.state and one.selection is other.selection and one.shares == other.shares
