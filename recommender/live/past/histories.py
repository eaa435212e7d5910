"""Whose a container was, and the histograms of all that belonged to one VPA: from blocks of use long ago."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.checkpoints import CheckpointKey
from recommender.live.outside.cluster_view import ClusterView
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.policies.histogram_checkpoint import take_back_running_peaks
from recommender.records import Block, FloatArray
from recommender.sources.prometheus_blocks import UsageBlock
from recommender.sources.prometheus_past import Owner, Owners

log = logging.getLogger(__name__)

NO_DECISIONS = np.empty(0, np.int64)


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
