"""Training progress of each pod: collected from the sources where jobs report it, judged, and kept with the VPA."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from recommender.base.errors import BadInput, PhasewiseError
from recommender.base.units import format_time
from recommender.cluster.objects.pods import Pod
from recommender.live.containers import JobRun, job_run_of
from recommender.live.vpa_state import VpaState
from recommender.progress.growth import Growth, GrowthOptions
from recommender.progress.readings import PodName, ProgressUpdate, Reading, Stages

RESUME_WINDOW_S = 3600.0
"""How long after its last reading the curve of a deleted pod is kept for the next pod of its Job."""


class ProgressSource(Protocol):
    """A source of progress reports. `name` separates its curves from those of other sources."""

    name: str

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        """Reports since the last call; those on other pods are ignored. On a `PhasewiseError` it failed for all."""


class Progress:
    """Polls the sources once a round. What it learns is stored with the VPAs, and so removed with them."""

    def __init__(self, sources: Sequence[ProgressSource] = (), options: GrowthOptions | None = None) -> None:
        self.sources, self.options = sources, options or GrowthOptions()
        self._pods: dict[PodName, tuple[VpaState, Pod]] = {}
        self._version: object = None
        self._interrupted: dict[JobRun, Growth] = {}

    def take(self, states: Iterable[VpaState], version: object, now_s: float) -> dict[str, str]:
        """Update the growth of all pods, indexed again if `version` has changed; returns what went wrong."""
        problems = self._index_pods(states, now_s) if version != self._version else {}
        self._version = version
        wanted = [pod for _, pod in self._pods.values()]
        for source in self.sources:
            try:
                found = source.take(wanted, now_s)
            except PhasewiseError as error:
                problems[f"progress ({source.name})"] = str(error)
                continue
            problems |= found.problems
            for name, stages in found.stages.items():
                if name in self._pods:
                    state, pod = self._pods[name]
                    for stage in stages:
                        state.stages.setdefault(pod.uid, Stages()).observe(stage)
            for name, readings in found.readings.items():
                if name in self._pods:
                    self._observe_readings(*self._pods[name], source.name, readings)
        for state, pod in self._pods.values():
            if (growth := state.growth.get(pod.uid)) is not None:
                growth.advance(now_s, self.options)
        return problems

    def _index_pods(self, states: Iterable[VpaState], now_s: float) -> dict[str, str]:
        """Find the VPA of each pod; of several VPAs the first one counts."""
        problems: dict[str, str] = {}
        before = {pod.uid: pod for _, pod in self._pods.values()}
        self._interrupted = {
            run: each for run, each in self._interrupted.items() if now_s - each.seen_s < RESUME_WINDOW_S
        }
        pods: dict[PodName, tuple[VpaState, Pod]] = {}
        for state in states:
            live = [pod for pod in state.selection.pods if not pod.finished]
            if state.growth or state.stages:
                self._forget_gone(state, {pod.uid for pod in live}, before)
            for pod in live:
                if pods.setdefault(pod.key, (state, pod))[0] is state:
                    problems |= _restore(state, pod, self._interrupted)
        self._pods = pods
        return problems

    def _forget_gone(self, state: VpaState, uids: Collection[str], before: Mapping[str, Pod]) -> None:
        """Forget pods that are gone, but keep the curve of an interrupted job for its next pod."""
        for uid in state.stages.keys() - uids:
            del state.stages[uid]
        succeeded = {pod.uid for pod in state.selection.pods if pod.phase == "Succeeded"}
        for uid in state.growth.keys() - uids:
            growth = state.growth.pop(uid)
            if uid not in succeeded and uid in before and (run := job_run_of(before[uid])):
                self._interrupted[run] = growth

    def _observe_readings(self, state: VpaState, pod: Pod, origin: str, readings: Sequence[Reading]) -> None:
        if pod.uid in state.stages and readings and readings[-1].event:
            state.stages[pod.uid].observe_reading(readings[-1])
        for reading in readings:
            growth = state.growth.get(pod.uid)
            if growth is None:
                state.growth[pod.uid] = Growth.begin(origin, reading, self.options)
            else:
                growth.observe(origin, reading, self.options)


def _restore(state: VpaState, pod: Pod, interrupted: dict[JobRun, Growth]) -> dict[str, str]:
    """Restore the progress of a pod from the PhaseProfile, or take over the curve of the pod before it."""
    if (stages := Stages.from_state(state.pop_saved("stages", pod.uid) or {})) is not None:
        state.stages.setdefault(pod.uid, stages)
    saved, run = state.pop_saved("growth", pod.uid), job_run_of(pod)
    if pod.uid in state.growth:
        return {}
    if saved is not None:
        try:
            state.growth[pod.uid] = Growth.from_state(saved, f"pod {pod.key}")
        except BadInput as error:
            return {f"progress of {pod.key}": str(error)}
    elif run is not None and run in interrupted:
        state.growth[pod.uid] = interrupted.pop(run)
    return {}


def progress_of(state: VpaState, pod_uid: str) -> dict[str, object]:
    """A pod's entry in a PhaseProfile: stage, last checkpoint, category, last reading and latest growth."""
    entry: dict[str, object] = {}
    if (stages := state.stages.get(pod_uid)) is not None:
        if stages.name:
            entry |= {"stage": stages.name, "stageSince": format_time(stages.since_s)}
        if stages.saved_s is not None:
            entry["checkpointAt"] = format_time(stages.saved_s)
    growth = state.growth.get(pod_uid)
    if growth is None:
        return entry
    entry |= {"category": growth.category.value, "categorySince": format_time(growth.since_s)}
    if growth.value is not None:
        entry |= {"metric": growth.metric, "value": float(f"{growth.value:.4g}")}
    if growth.growth is not None:
        entry["progress"] = float(f"{growth.growth:.3g}")
    return entry
