"""A simulated cluster under one of the two recommenders, played as long as it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Literal, Protocol

from harm_bench.simulated.cluster import Cluster
from harm_bench.simulated.default import DefaultRecommender
from harm_bench.simulated.metrics import Distort, Metrics, as_it_is
from harm_bench.simulated.pods import Tally, Workload
from harm_bench.simulated_view import SimulatedView
from recommender import model as models
from recommender.engine.fleet import Fleet
from recommender.engine.options import Options
from recommender.engine.tally import Report
from recommender.live.round import Recommender
from recommender.live.service import checkpoint_statuses
from recommender.model import PhaseModel
from recommender.policies.constraints import SharedLimits
from recommender.records import Amounts
from recommender.simulate.default import INTERVAL_S

CYCLE_S = 600.0


class Recommends(Protocol):
    """Who is laid beside the other."""

    def round(self) -> object:
        """See the cluster as it is now, and set what is recommended."""

    def stop(self) -> None:
        """End in good order."""

    def start(self) -> None:
        """Begin again, with what was left behind."""


class Ours:
    """The live recommender, its options at their defaults.

    Parameters
    ----------
    step_s
        Grid of samples, and time between rounds.
    """

    def __init__(self, cluster: Cluster, metrics: Metrics, model: PhaseModel, step_s: float = 15.0) -> None:
        self._cluster, self._model, self._step_s = cluster, model, step_s
        self.view = SimulatedView(cluster, metrics)
        self.live = self._made()
        self.problems: dict[str, str] = {}

    def round(self) -> Report:
        report = self.live.run()
        self.problems |= {str(about): words for about, words in report.problems.items()}
        return report

    def stop(self) -> None:
        self.live.publish_safe_values()
        self.keep_checkpoints()

    def start(self) -> None:
        self.live = self._made()

    def keep_checkpoints(self) -> None:
        """Write what the histories hold now."""
        now_s = self._cluster.now_s
        kept = {key: checkpoint_statuses(self.live.engine, state, now_s) for key, state in self.live.vpas.items()}
        self.view.keep(kept)

    def _made(self) -> Recommender:
        def clock() -> float:
            return self._cluster.now_s

        fleet = partial(Fleet, self._model, self._step_s, round(CYCLE_S / self._step_s))
        return Recommender(self.view, fleet, Options(), SharedLimits(), clock=clock, stopwatch=clock)


START_S = 1_699_920_000.0
"""A midnight."""

HOUR_S = 3600.0

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
