"""What was before the start, from a Prometheus, so that a recommender that starts knows what one that ran would know.

Histograms, by container name of a VPA, get one value for each stretch (`--history-resolution`) of `--history`: of the
containers that live and of those that are gone, as the default recommender's do. Live containers get their latest
samples besides: the first round takes them in as if they had come live.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.cluster.vpas.checkpoints import CheckpointKey
from recommender.errors import PhasewiseError
from recommender.kernels import histogram as kernel
from recommender.live.outside.cluster_view import ClusterView
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.policies.histogram_checkpoint import take_back_running_peaks
from recommender.records import Block, FloatArray, Sample
from recommender.sources.prometheus_faults import QueryRefused
from recommender.sources.prometheus_past import Owner, Owners, PrometheusPast
from recommender.sources.prometheus_usage import UsageBlock

log = logging.getLogger(__name__)

SAMPLES_AT_START = 250_000
"""Samples of live containers for the first round, which holds them all at once in some 50 MB: an hour of a thousand
containers at 15 s, or six minutes of ten thousand."""

NO_DECISIONS = np.empty(0, np.int64)

WITHIN_S = 300.0
"""What has not come until then is left out."""


class Told(NamedTuple):
    """What was found: histories, and the pods that are gone among their makers."""

    histories: int
    gone: int


class PriorHistory:
    """Loads the past before the first round.

    Parameters
    ----------
    length_s, resolution_s
        How far back, and how long a stretch is.
    step_s
        The fleet's grid.
    clock, stopwatch
        Unix seconds, and a monotonic clock.
    stopped
        True once the process is to end.
    """

    def __init__(
        self,
        past: PrometheusPast,
        length_s: float,
        resolution_s: float,
        step_s: float,
        *,
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._past, self._length_s, self._resolution_s, self._step_s = past, length_s, resolution_s, step_s
        self._clock, self._stopwatch, self._stopped = clock, stopwatch, stopped
        self._until_s = -math.inf
        self._left: tuple[set[str], float, float] | None = None

    def load(self, view: ClusterView) -> Told:
        """Give the view the histories; where they fail, that is said, and those of checkpoints stay."""
        self._until_s, self._left = self._stopwatch() + WITHIN_S, None
        now_s = math.floor(self._clock() / self._step_s) * self._step_s
        homes = PodOwners.of(view)
        if not homes.namespaces:
            return Told(0, 0)
        start_s = now_s - math.floor(self._length_s / self._resolution_s) * self._resolution_s
        recent_s = max(start_s, _recent_s(homes.ages_s(now_s), now_s, self._step_s))
        histories = Histories(homes, recent_s)
        try:
            homes.owners = self._owners(homes, start_s, now_s)
            for block in self._past.stretches(homes.namespaces, start_s, now_s, self._resolution_s):
                histories.add(block)
                self._require_time()
        except PhasewiseError as error:
            log.warning("history: none from Prometheus, going on from checkpoints: %s", error)
            return Told(0, 0)
        known = {
            key: session
            for key, session in histories.finished().items()
            if self._reaches_back(session, view.history(*key), start_s)
        }
        view.adopt(known)
        self._left = homes.namespaces, recent_s, now_s
        told = Told(len(known), len(histories.gone))
        log.info("history: of %d containers of VPAs from Prometheus, %d pods that are gone among them", *told)
        return told

    def samples(self) -> Iterator[tuple[ContainerKey, Sample]]:
        """The latest samples of live containers up to `load`, oldest first; nothing when asked again."""
        if self._left is None:
            return
        (namespaces, start_s, end_s), self._left = self._left, None
        taken = 0
        try:
            for block in self._past.samples(namespaces, start_s, end_s, self._step_s):
                self._require_time()
                taken += len(block)
                yield from _rows(block)
        except PhasewiseError as error:
            log.warning("history: not all latest samples of live containers: %s", error)
        log.info("history: %d latest samples from Prometheus", taken)

    def _owners(self, homes: PodOwners, start_s: float, end_s: float) -> Owners:
        try:
            owners = self._past.owners(homes.namespaces, start_s, end_s)
        except QueryRefused as error:  # too many pods, or no index to ask
            log.warning("history: pods that are gone are not known: %s", error)
            return Owners({}, {})
        if not owners.pods:
            log.warning("history: no kube_pod_owner (kube-state-metrics): pods that are gone are not known")
        return owners

    def _require_time(self) -> None:
        if self._stopped():
            raise _OutOfTime("the process is to end")
        if self._stopwatch() > self._until_s:
            raise _OutOfTime(f"it takes longer than {WITHIN_S:.0f} s. Give a shorter --history")

    def _reaches_back(self, told: HistogramSession, kept: HistogramSession | None, start_s: float) -> bool:
        """Whether a history is as long as what a checkpoint kept: a Prometheus may be younger, or forget earlier."""
        if kept is None or not kept.samples:
            return True
        since_s = max(start_s, float(kept.cpu.sums[kernel.FIRST_S]))
        return bool(told.cpu.sums[kernel.FIRST_S] <= since_s + 2.0 * self._resolution_s)


class _OutOfTime(PhasewiseError):
    """It takes too long, or the process ends."""


def _recent_s(ages_s: FloatArray, now_s: float, step_s: float) -> float:
    """The earliest moment since which all live containers together have at most SAMPLES_AT_START samples."""
    ages_s = np.sort(np.where(np.isnan(ages_s), np.inf, np.maximum(ages_s, step_s)))
    if not len(ages_s):
        return now_s
    left_s = SAMPLES_AT_START * step_s - np.concatenate([[0.0], np.cumsum(ages_s)[:-1]])
    level_s = left_s / np.arange(len(ages_s), 0, -1)
    longer = np.flatnonzero(ages_s > level_s)
    reach_s = float(level_s[longer[0]]) if len(longer) else float(ages_s[-1])
    return now_s - max(1, math.floor(reach_s / step_s)) * step_s


def _rows(block: UsageBlock) -> Iterator[tuple[ContainerKey, Sample]]:
    places = [ContainerKey(*name) for name in block.containers]
    rows = zip(block.owner.tolist(), block.timestamps.tolist(), block.usage.tolist(), strict=True)
    for owner, at_s, used in rows:
        yield places[owner], Sample(float(at_s), *used)


@dataclass(slots=True)
class PodOwners:
    """Which VPAs a container belongs, or belonged, to.

    Attributes
    ----------
    pods
        VPAs by namespace and name of a pod that is there.
    live
        Namespace and name of those of them that run.
    targets
        VPAs by namespace and controller.
    started_s
        When each live container started, unix seconds; NaN where nobody says.
    """

    pods: dict[tuple[str, str], list[ObjectKey]] = field(default_factory=lambda: defaultdict(list))
    live: set[tuple[str, str]] = field(default_factory=set)
    targets: dict[tuple[str, Owner], list[ObjectKey]] = field(default_factory=lambda: defaultdict(list))
    started_s: list[float] = field(default_factory=list)
    owners: Owners = field(default_factory=lambda: Owners({}, {}))

    @classmethod
    def of(cls, view: ClusterView) -> PodOwners:
        """As they are now."""
        homes = cls()
        for vpa in view.vpas():
            homes.targets[vpa.key.namespace, Owner(vpa.target.kind, vpa.target.name)].append(vpa.key)
            try:
                pods = view.select(vpa).pods
            except ClusterError as error:
                log.warning("history: the pods of %s cannot be told: %s", vpa.key, error)
                continue
            for pod in pods:
                homes.pods[pod.key.namespace, pod.key.name].append(vpa.key)
                if not pod.finished:
                    homes.live.add((pod.key.namespace, pod.key.name))
                    started_s = math.nan if pod.started_s is None else pod.started_s
                    homes.started_s += [started_s] * len(pod.containers)
        return homes

    @property
    def namespaces(self) -> set[str]:
        """Where there are VPAs of ours."""
        return {namespace for namespace, _ in self.targets}

    def ages_s(self, now_s: float) -> FloatArray:
        """float64 (live containers,): for how long each has run."""
        return now_s - np.array(self.started_s, dtype=np.float64)

    def of_pod(self, namespace: str, pod: str) -> tuple[Sequence[ObjectKey], bool]:
        """The VPAs of a pod, and whether it lives."""
        if (keys := self.pods.get((namespace, pod))) is not None:
            return keys, (namespace, pod) in self.live
        chain = self.owners.chain(namespace, pod)
        return [key for owner in chain for key in self.targets.get((namespace, owner), ())], False


class Histories:
    """Histograms that grow with each block; of live containers up to where their samples begin."""

    def __init__(self, homes: PodOwners, recent_s: float) -> None:
        self._homes, self._recent_s = homes, recent_s
        self._aggregates: dict[CheckpointKey, HistogramAggregate] = defaultdict(HistogramAggregate)
        self._open: dict[tuple[CheckpointKey, str], bool] = {}
        self.gone: set[tuple[str, str]] = set()

    def add(self, block: UsageBlock) -> None:
        """Take in a block that is later than those before."""
        order = np.argsort(block.owner, kind="stable")
        starts = np.searchsorted(block.owner[order], np.arange(len(block.containers) + 1))
        before, self._open = self._open, {}
        for at, name in enumerate(block.containers):
            keys, lives = self._homes.of_pod(name.namespace, name.pod)
            rows = order[starts[at] : starts[at + 1]]
            if lives:
                rows = rows[block.timestamps[rows] <= self._recent_s]
            elif keys:
                self.gone.add((name.namespace, name.pod))
            for key in keys if len(rows) else ():
                which = CheckpointKey(key, name.container)
                self._open[which, name.pod] = lives
                session = self._aggregates[which].session(name.pod)
                session.advance(Block(block.usage[rows], block.timestamps[rows], NO_DECISIONS))
        for which, pod in before.keys() - self._open.keys():
            self._leave(which, pod, lives=before[which, pod])

    def finished(self) -> dict[CheckpointKey, HistogramSession]:
        """What was made."""
        for (which, pod), lives in self._open.items():
            self._leave(which, pod, lives=lives)
        self._open = {}
        return {which: aggregate.past for which, aggregate in self._aggregates.items() if aggregate.samples}

    def _leave(self, which: CheckpointKey, pod: str, *, lives: bool) -> None:
        aggregate = self._aggregates[which]
        if lives:  # its samples to come begin a window of their own, in which the peak would count again
            take_back_running_peaks(aggregate.past.memory, [aggregate.session(pod)], self._recent_s)
        aggregate.leave(pod)
