"""How the training of each pod comes along: collected from wherever jobs say it, judged, and kept with its VPA."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from recommender.cluster.objects.pods import Pod
from recommender.errors import BadInput, PhasewiseError
from recommender.growth import Category, Growth, GrowthOptions, overall_category
from recommender.live.containers import Run, run_of
from recommender.live.vpa_state import VpaState
from recommender.readings import PodName, ProgressUpdate, Reading, Stage
from recommender.stages import Stages
from recommender.units import format_time

AWAITED_S = 3600.0
"""So long after its last word the curve of a pod that is gone waits for the next pod of its Job."""


class ProgressSource(Protocol):
    """Somewhere that progress is told. `name` tells its curves from those of others."""

    name: str

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        """What is told of these pods since the last call; of others it may tell too, they are passed over.

        A problem of one pod is in the answer; a `PhasewiseError` spoils this source for this call only.
        """


class Progress:
    """Asks the sources once a round. What it learns is kept with the VPAs, so it goes where they go."""

    def __init__(self, sources: Sequence[ProgressSource] = (), options: GrowthOptions | None = None) -> None:
        self.sources, self.options = sources, options or GrowthOptions()
        self._pods: dict[PodName, tuple[VpaState, Pod]] = {}
        self._version: object = None
        self._awaited: dict[Run, Growth] = {}

    def take(self, states: Iterable[VpaState], version: object, now_s: float) -> dict[str, str]:
        """Bring the growth of all pods up to now, forget those of pods that are gone; returns what went wrong.

        Parameters
        ----------
        version
            Another one whenever a VPA or a pod came, went or is not what it was: only then all are looked through.
        """
        problems = self._look_up(states, now_s) if version != self._version else {}
        self._version = version
        wanted = [pod for _, pod in self._pods.values()]
        for source in self.sources:
            try:
                told = source.take(wanted, now_s)
            except PhasewiseError as error:
                problems[f"progress ({source.name})"] = str(error)
                continue
            problems |= told.problems
            for name, stages in told.stages.items():
                if name in self._pods:
                    _said(*self._pods[name], stages)
            for name, readings in told.readings.items():
                if name in self._pods:
                    self._observe(*self._pods[name], source.name, readings)
        for state, pod in self._pods.values():
            if (growth := state.growth.get(pod.uid)) is not None:
                growth.advance(now_s, self.options)
        return problems

    def _look_up(self, states: Iterable[VpaState], now_s: float) -> dict[str, str]:
        """Whose each pod is; of several VPAs the first has it."""
        problems: dict[str, str] = {}
        before = {pod.uid: pod for _, pod in self._pods.values()}
        self._awaited = {run: each for run, each in self._awaited.items() if now_s - each.seen_s < AWAITED_S}
        pods: dict[PodName, tuple[VpaState, Pod]] = {}
        for state in states:
            live = [pod for pod in state.selection.pods if not pod.finished]
            if state.growth or state.stages:
                self._await(state, {pod.uid for pod in live}, before)
            for pod in live:
                if pods.setdefault(pod.key, (state, pod))[0] is state:
                    problems |= _taken_up(state, pod, self._awaited)
        self._pods = pods
        return problems

    def _await(self, state: VpaState, uids: Collection[str], before: Mapping[str, Pod]) -> None:
        """Forget pods that are gone. A job that was interrupted goes on in its next pod: its curve waits for that."""
        for uid in state.stages.keys() - uids:
            del state.stages[uid]
        over = {pod.uid for pod in state.selection.pods if pod.phase == "Succeeded"}
        for uid in state.growth.keys() - uids:
            growth = state.growth.pop(uid)
            if uid not in over and uid in before and (run := run_of(before[uid])):
                self._awaited[run] = growth

    def _observe(self, state: VpaState, pod: Pod, origin: str, readings: Sequence[Reading]) -> None:
        if pod.uid in state.stages and readings and readings[-1].event:
            state.stages[pod.uid].observe_reading(readings[-1])
        for reading in readings:
            growth = state.growth.get(pod.uid)
            if growth is None:
                state.growth[pod.uid] = Growth.begin(origin, reading, self.options)
            else:
                growth.observe(origin, reading, self.options)


def _said(state: VpaState, pod: Pod, stages: Sequence[Stage]) -> None:
    for stage in stages:
        state.stages.setdefault(pod.uid, Stages()).observe(stage)


def _taken_up(state: VpaState, pod: Pod, awaited: dict[Run, Growth]) -> dict[str, str]:
    """Go on with what the profile kept of a pod, or with the curve of the one before it."""
    if (said := Stages.from_state(state.kept_once("stages", pod.uid) or {})) is not None:
        state.stages.setdefault(pod.uid, said)
    kept, run = state.kept_once("growth", pod.uid), run_of(pod)
    if pod.uid in state.growth:
        return {}
    if kept is None:
        if run is not None and run in awaited:
            state.growth[pod.uid] = awaited.pop(run)
        return {}
    try:
        state.growth[pod.uid] = Growth.from_state(kept, f"pod {pod.key}")
    except BadInput as error:
        return {f"progress of {pod.key}": str(error)}
    return {}


def progress_of(state: VpaState, pod_uid: str) -> dict[str, object]:
    """What a profile says of a pod: its stage and its last checkpoint; its category, since when, what was told last,
    and how much that grew in the last interval judged."""
    told: dict[str, object] = {}
    if (said := state.stages.get(pod_uid)) is not None:
        if said.name:
            told |= {"stage": said.name, "stageSince": format_time(said.since_s)}
        if said.saved_s is not None:
            told["checkpointAt"] = format_time(said.saved_s)
    growth = state.growth.get(pod_uid)
    if growth is None:
        return told
    told |= {"category": growth.category.value, "categorySince": format_time(growth.since_s)}
    if growth.value is not None:
        told |= {"metric": growth.metric, "value": float(f"{growth.value:.4g}")}
    if growth.growth is not None:
        told["progress"] = float(f"{growth.growth:.3g}")
    return told


def category_of(state: VpaState) -> Category | None:
    """One word for all pods of a VPA that tell of their progress."""
    return overall_category(growth.category for growth in state.growth.values())
