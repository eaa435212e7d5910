"""History from a Prometheus, so that a recommender knows at the start what a long-running one would know.

Histograms, by container name of a VPA, are of live and of deleted pods, as in the default recommender. The first round
processes the latest samples of live containers like new ones.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recommender.base.errors import PhasewiseError
from recommender.base.records import Block, ContainerKey, FloatArray, Sample, or_nan
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.checkpoints import CheckpointKey
from recommender.kernels import histogram as kernel
from recommender.live.outside.cluster_view import ClusterView
from recommender.policies.histogram import HistogramAggregate, HistogramSession
from recommender.policies.histogram_checkpoint import take_back_running_peaks
from recommender.sources.prometheus_faults import QueryRefused
from recommender.sources.prometheus_past import Owner, Owners, PrometheusPast
from recommender.sources.prometheus_usage import UsageBlock

log = logging.getLogger(__name__)

MAX_INITIAL_SAMPLES = 250_000
"""Samples of live containers for the first round, which holds all of them in memory in some 50 MB: an hour of a
thousand containers at 15 s, or six minutes of ten thousand."""

LOAD_TIMEOUT_S = 300.0
"""Loading is given up after this long."""


class PriorHistory:
    """Loads the history before the first round: `length_s` back, one value every `resolution_s`.

    `step_s` is the fleet's grid; `stopped` becomes true once the process should end.
    """

    def __init__(
        self,
        past: PrometheusPast,
        length_s: float,
        resolution_s: float,
        step_s: float,
        *,
        clock: WallClock,
        stopwatch: MonotonicClock,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._past, self._length_s, self._resolution_s, self._step_s = past, length_s, resolution_s, step_s
        self._clock, self._stopwatch, self._stopped = clock, stopwatch, stopped
        self._deadline_s = -math.inf
        self._unread: tuple[set[str], float, float] | None = None

    def load(self, view: ClusterView) -> tuple[int, int]:
        """Load histories into the view, unless that fails; returns their number, and that of deleted pods in them."""
        self._deadline_s, self._unread = self._stopwatch() + LOAD_TIMEOUT_S, None
        now_s = math.floor(self._clock() / self._step_s) * self._step_s
        histories = HistoryBuilder(view, now_s)
        if not histories.namespaces:
            return 0, 0
        start_s = now_s - math.floor(self._length_s / self._resolution_s) * self._resolution_s
        recent_s = max(start_s, recent_start_s(np.array(histories.ages_s), now_s, self._step_s))
        histories.recent_start_s = recent_s
        try:
            histories.owners = self._owners(histories.namespaces, start_s, now_s)
            for block in self._past.stretches(histories.namespaces, start_s, now_s, self._resolution_s):
                histories.add(block)
                self._check_deadline()
        except PhasewiseError as error:
            log.warning("history: none from Prometheus, going on from checkpoints: %s", error)
            return 0, 0
        known = {
            key: session
            for key, session in histories.build().items()
            if self._covers(session, view.history(*key), start_s)
        }
        view.adopt(known)
        self._unread = histories.namespaces, recent_s, now_s
        loaded = len(known), len(histories.gone)
        log.info("history: %d containers of VPAs from Prometheus, including those of %d deleted pods", *loaded)
        return loaded

    def samples(self) -> Iterator[tuple[ContainerKey, Sample]]:
        """The latest samples of live containers up to `load`, oldest first; nothing on a second call."""
        if self._unread is None:
            return
        (namespaces, start_s, end_s), self._unread = self._unread, None
        taken = 0
        try:
            for block in self._past.samples(namespaces, start_s, end_s, self._step_s):
                self._check_deadline()
                taken += len(block)
                columns = (column.tolist() for column in (block.owner, block.timestamps, block.usage))
                for owner, at_s, used in zip(*columns, strict=True):
                    yield block.containers[owner], Sample(float(at_s), *used)
        except PhasewiseError as error:
            log.warning("history: the latest samples of live containers are incomplete: %s", error)
        log.info("history: %d latest samples from Prometheus", taken)

    def _owners(self, namespaces: set[str], start_s: float, end_s: float) -> Owners:
        try:
            owners = self._past.owners(namespaces, start_s, end_s)
        except QueryRefused as error:  # too many pods, or no index to ask
            log.warning("history: deleted pods are unknown: %s", error)
            return Owners({}, {})
        if not owners.pods:
            log.warning("history: no kube_pod_owner (kube-state-metrics): deleted pods are unknown")
        return owners

    def _check_deadline(self) -> None:
        if self._stopped():
            raise PhasewiseError("the process is shutting down")
        if self._stopwatch() > self._deadline_s:
            raise PhasewiseError(f"it takes longer than {LOAD_TIMEOUT_S:.0f} s. Give a shorter --history")

    def _covers(self, loaded: HistogramSession, checkpoint: HistogramSession | None, start_s: float) -> bool:
        """Whether a history reaches as far back as a checkpoint: a Prometheus may be newer, or keep less."""
        if checkpoint is None or not checkpoint.samples:
            return True
        since_s = max(start_s, float(checkpoint.cpu.sums[kernel.FIRST_S]))
        return bool(loaded.cpu.sums[kernel.FIRST_S] <= since_s + 2.0 * self._resolution_s)


def recent_start_s(ages_s: FloatArray, now_s: float, step_s: float) -> float:
    """The earliest time since which all live containers together have at most MAX_INITIAL_SAMPLES samples."""
    ages_s = np.sort(np.where(np.isnan(ages_s), np.inf, np.maximum(ages_s, step_s)))
    if not len(ages_s):
        return now_s
    left_s = MAX_INITIAL_SAMPLES * step_s - np.concatenate([[0.0], np.cumsum(ages_s)[:-1]])
    level_s = left_s / np.arange(len(ages_s), 0, -1)
    longer = np.flatnonzero(ages_s > level_s)
    reach_s = float(level_s[longer[0]]) if len(longer) else float(ages_s[-1])
    return now_s - max(1, math.floor(reach_s / step_s)) * step_s


class HistoryBuilder:
    """Builds the histograms of all VPAs block by block; for live containers only up to where their samples begin."""

    def __init__(self, view: ClusterView, now_s: float) -> None:
        self.namespaces: set[str] = set()
        self.owners = Owners({}, {})  # of deleted pods
        self.ages_s: list[float] = []  # of live containers, NaN if unknown
        self.recent_start_s = now_s
        self.gone: set[tuple[str, str]] = set()
        self._pods: dict[tuple[str, str], tuple[list[ObjectKey], bool]] = {}
        self._targets: dict[tuple[str, Owner], list[ObjectKey]] = defaultdict(list)
        self._aggregates: dict[CheckpointKey, HistogramAggregate] = defaultdict(HistogramAggregate)
        self._open: dict[tuple[CheckpointKey, str], bool] = {}  # container and pod -> whether it is live
        for vpa in view.vpas():
            self.namespaces.add(vpa.key.namespace)
            self._targets[vpa.key.namespace, Owner(vpa.target.kind, vpa.target.name)].append(vpa.key)
            try:
                pods = view.select(vpa).pods
            except ClusterError as error:
                log.warning("history: the pods of %s cannot be determined: %s", vpa.key, error)
                continue
            for pod in pods:
                self._pods.setdefault(pod.key, ([], not pod.finished))[0].append(vpa.key)
                if not pod.finished:
                    self.ages_s += [now_s - or_nan(pod.started_s)] * len(pod.containers)

    def _vpas_of(self, namespace: str, pod: str) -> tuple[Sequence[ObjectKey], bool]:
        """The VPAs of a pod, live or deleted, and whether it is live."""
        if (known := self._pods.get((namespace, pod))) is not None:
            return known
        chain = self.owners.chain(namespace, pod)
        return [key for owner in chain for key in self._targets.get((namespace, owner), ())], False

    def add(self, block: UsageBlock) -> None:
        """Add a block that is later than those before."""
        order = np.argsort(block.owner, kind="stable")
        starts = np.searchsorted(block.owner[order], np.arange(len(block.containers) + 1))
        continued: dict[tuple[CheckpointKey, str], bool] = {}
        for at, name in enumerate(block.containers):
            vpas, live = self._vpas_of(name.namespace, name.pod)
            rows = order[starts[at] : starts[at + 1]]
            if live:
                rows = rows[block.timestamps[rows] <= self.recent_start_s]
            elif vpas:
                self.gone.add((name.namespace, name.pod))
            for vpa in vpas if len(rows) else ():
                key = CheckpointKey(vpa, name.container)
                continued[key, name.pod] = live
                session = self._aggregates[key].session(name.pod)
                session.advance(Block(block.usage[rows], block.timestamps[rows], np.empty(0, np.int64)))
        self._close_all_but(continued)

    def build(self) -> dict[CheckpointKey, HistogramSession]:
        """Finish all histograms and return those with samples."""
        self._close_all_but({})
        return {key: aggregate.past for key, aggregate in self._aggregates.items() if aggregate.samples}

    def _close_all_but(self, continued: dict[tuple[CheckpointKey, str], bool]) -> None:
        for (key, pod), live in self._open.items():
            if (key, pod) in continued:
                continue
            aggregate = self._aggregates[key]
            if live:  # its later samples start a new window, in which the peak would count again
                take_back_running_peaks(aggregate.past.memory, [aggregate.session(pod)], self.recent_start_s)
            aggregate.leave(pod)
        self._open = continued
