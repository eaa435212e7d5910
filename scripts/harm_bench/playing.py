"""A simulated cluster under one recommender, played as long as it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from harm_bench.recommenders import Ours, Recommends
from harm_bench.simulated.cluster import Cluster
from harm_bench.simulated.default import DefaultRecommender
from harm_bench.simulated.metrics import Distort, Metrics, as_it_is
from harm_bench.simulated.pods import Workload
from harm_bench.simulated.tally import Tally
from harm_bench.usage import HOUR_S
from recommender import model as models
from recommender.records import Amounts
from recommender.simulate.default import INTERVAL_S

START_S = 1_699_920_000.0
"""A midnight."""

TICK_S = 15.0
"""Between two moments that are looked at, and two looks of the metrics server."""

Who = Literal["default", "ours"]


class Play:
    """One cluster and one recommender.

    Parameters
    ----------
    round_s
        Between two rounds of ours, and the grid of its samples.
    """

    def __init__(
        self, who: Who, workloads: Sequence[Workload], *, distort: Distort = as_it_is, round_s: float = TICK_S
    ) -> None:
        self.cluster = Cluster(workloads, START_S, TICK_S)
        self._metrics = metrics = Metrics(self.cluster, TICK_S, distort)
        self.recommender: Recommends
        if who == "ours":
            self.recommender = Ours(self.cluster, metrics, bundled(), round_s)
        else:
            self.recommender = DefaultRecommender(self.cluster, metrics)
        self._every_s = INTERVAL_S if who == "default" else round_s
        self.present = True

    def until(self, hour: float, at_each: Callable[[], None] = lambda: None) -> Play:
        """Play up to an hour from the start; `at_each` is called after each tick."""
        while self.cluster.now_s < START_S + hour * HOUR_S:
            self.cluster.step()
            self._metrics.scrape()
            if self.present and self.cluster.now_s % self._every_s < self.cluster.tick_s:
                self.recommender.round()
            at_each()
        return self

    def tally(self) -> Tally:
        """All that has happened so far."""
        return sum((day for w in self.cluster.workloads for day in w.tallies.values()), start=Tally())

    def target(self, workload: int = 0, container: str = "main") -> Amounts:
        """What is recommended now, cores and bytes."""
        return self.cluster.workloads[workload].vpa.recommendation[container].target


@cache
def bundled() -> models.PhaseModel:
    """The model that everybody has who has no other."""
    return models.load(models.BUNDLED)
