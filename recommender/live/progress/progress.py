"""How the training of each pod comes along: collected from wherever jobs say it, judged, and kept with its workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from recommender.cluster.objects.pods import Pod
from recommender.errors import BadInput, PhasewiseError
from recommender.growth import Category, Growth, GrowthOptions, leading
from recommender.live.advice.workload import Workload
from recommender.live.moments import moment
from recommender.readings import PodName, Reading, Told


class ProgressSource(Protocol):
    """Somewhere that progress is told. `name` tells its curves from those of others."""

    name: str

    def take(self, pods: Sequence[Pod], now_s: float) -> Told:
        """What is told of these pods since the last call; of others it may tell too, they are passed over.

        A problem of one pod is in the answer; a `PhasewiseError` spoils this source for this call only.
        """


class Progress:
    """Asks the sources once a round. What it learns is kept in the workloads, so it goes where they go."""

    def __init__(self, sources: Sequence[ProgressSource] = (), options: GrowthOptions | None = None) -> None:
        self.sources, self.options = sources, options or GrowthOptions()
        self._pods: dict[PodName, tuple[Workload, Pod]] = {}
        self._version: object = None

    def take(self, workloads: Iterable[Workload], version: object, now_s: float) -> dict[str, str]:
        """Bring the growth of all pods up to now, forget those of pods that are gone; returns what went wrong.

        Parameters
        ----------
        version
            Another one whenever a workload or a pod came, went or is not what it was: only then all are looked through.
        """
        problems = self._look_up(workloads) if version != self._version else {}
        self._version = version
        wanted = [pod for _, pod in self._pods.values()]
        for source in self.sources:
            try:
                told = source.take(wanted, now_s)
            except PhasewiseError as error:
                problems[f"progress ({source.name})"] = str(error)
                continue
            problems |= told.problems
            for name, readings in told.readings.items():
                if name in self._pods:
                    self._observe(*self._pods[name], source.name, readings)
        for workload, pod in self._pods.values():
            if (growth := workload.growth.get(pod.uid)) is not None:
                growth.advance(now_s, self.options)
        return problems

    def _look_up(self, workloads: Iterable[Workload]) -> dict[str, str]:
        """Whose each pod is; of several VPAs the first has it."""
        problems: dict[str, str] = {}
        pods: dict[PodName, tuple[Workload, Pod]] = {}
        for workload in workloads:
            live = [pod for pod in workload.selection.pods if not pod.finished]
            if workload.growth:
                uids = {pod.uid for pod in live}
                workload.growth = {uid: growth for uid, growth in workload.growth.items() if uid in uids}
            for pod in live:
                if pods.setdefault(pod.key, (workload, pod))[0] is workload:
                    problems |= _taken_up(workload, pod)
        self._pods = pods
        return problems

    def _observe(self, workload: Workload, pod: Pod, origin: str, readings: Sequence[Reading]) -> None:
        for reading in readings:
            growth = workload.growth.get(pod.uid)
            if growth is None:
                workload.growth[pod.uid] = Growth.begin(origin, reading, self.options)
            else:
                growth.observe(origin, reading, self.options)


def _taken_up(workload: Workload, pod: Pod) -> dict[str, str]:
    """Go on with what the profile kept of a pod."""
    kept = workload.kept_growth(pod.uid)
    if kept is None or pod.uid in workload.growth:
        return {}
    try:
        workload.growth[pod.uid] = Growth.restored(kept, f"pod {pod.key}")
    except BadInput as error:
        return {f"progress of {pod.key}": str(error)}
    return {}


def progress_of(workload: Workload, pod_uid: str) -> dict[str, object]:
    """What a profile says of a pod: its category, since when, and how much it grew in the last interval judged."""
    growth = workload.growth.get(pod_uid)
    if growth is None:
        return {}
    told: dict[str, object] = {"category": growth.category.value, "categorySince": moment(growth.since_s)}
    if growth.growth is not None:
        told["progress"] = float(f"{growth.growth:.3g}")
    return told


def category_of(workload: Workload) -> Category | None:
    """One word for all pods of a workload that tell of their progress."""
    return leading(growth.category for growth in workload.growth.values())
