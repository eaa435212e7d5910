"""A simulated cluster under one of the two recommenders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

from recommender.base.records import Amounts
from recommender.engine.fleet import Fleet
from recommender.engine.options import Options
from recommender.engine.tally import Report
from recommender.learning import model as models
from recommender.learning.model import PhaseModel
from recommender.live.round import Recommender
from recommender.live.service import checkpoint_statuses
from recommender.policies.constraints import SharedLimits
from recommender.policies.histogram import DEFAULT_INTERVAL_S
from tests.worlds.simulated.cluster import Cluster, Distortion, Metrics, exact
from tests.worlds.simulated.default import DefaultRecommender
from tests.worlds.simulated.pods import Tally, Workload
from tests.worlds.simulated_view import SimulatedView

CYCLE_S = 600.0
PROFILES_PER_ROUND = 4
"""Fewer PhaseProfiles than shipped, since only a restart reads them, and all are written before."""


class Ours:
    """The live recommender with default options. `step_s`: grid of samples, and interval between rounds."""

    def __init__(self, cluster: Cluster, metrics: Metrics, model: PhaseModel, step_s: float = 15.0) -> None:
        self._cluster, self._model, self._step_s = cluster, model, step_s
        self.view = SimulatedView(cluster, metrics)
        self.live = self._new_recommender()
        self.problems: dict[str, str] = {}

    def round(self) -> Report:
        report = self.live.run()
        self.problems |= {str(about): words for about, words in report.problems.items()}
        return report

    def stop(self) -> None:
        """Shut down in good order."""
        self.live.publish_safe_values()
        self.keep_checkpoints()

    def start(self) -> None:
        """Start again from the state that the last process left."""
        self.live = self._new_recommender()

    def keep_checkpoints(self) -> None:
        now_s = self._cluster.now_s
        kept = {key: checkpoint_statuses(self.live.engine, state, now_s) for key, state in self.live.vpas.items()}
        self.view.keep(kept)

    def _new_recommender(self) -> Recommender:
        fleet, clock = Fleet(self._model, self._step_s, round(CYCLE_S / self._step_s)), self._cluster.clock
        return Recommender(
            self.view, fleet, Options(), SharedLimits(), clock, clock, profiles_per_round=PROFILES_PER_ROUND
        )


START_S = 1_699_920_000.0
"""A midnight (UTC)."""

HOUR_S = 3600.0

TICK_S = 15.0
"""Step of the simulation, interval between our rounds, and default scrape interval of the metrics server."""

Contender = Literal["default", "ours"]
CONTENDERS: tuple[Contender, ...] = ("default", "ours")


class Play:
    """One cluster with one recommender. `round_s`: interval between rounds of ours, and the grid of its samples."""

    def __init__(
        self,
        who: Contender,
        workloads: Sequence[Workload],
        *,
        distort: Distortion = exact,
        round_s: float = TICK_S,
        scrape_s: float = TICK_S,
    ) -> None:
        self.cluster = Cluster(workloads, START_S, TICK_S)
        self._metrics = metrics = Metrics(self.cluster, scrape_s, distort)
        self.recommender: Ours | DefaultRecommender
        if who == "ours":
            self.recommender = Ours(self.cluster, metrics, bundled(), round_s)
        else:
            self.recommender = DefaultRecommender(self.cluster, metrics)
        self._every_s = DEFAULT_INTERVAL_S if who == "default" else round_s
        self.present = True

    def until(self, hour: float, after_tick: Callable[[], None] = lambda: None) -> Play:
        """Play up to an hour from the start; `after_tick` is called after each tick."""
        while self.cluster.now_s < START_S + hour * HOUR_S:
            self.cluster.step()
            self._metrics.scrape()
            if self.present and self.cluster.now_s % self._every_s < self.cluster.tick_s:
                self.recommender.round()
            after_tick()
        return self

    def tally(self) -> Tally:
        return sum((day for w in self.cluster.workloads for day in w.tallies.values()), start=Tally())

    def target(self, workload: int = 0, container: str = "main") -> Amounts:
        """Present target, cores and bytes."""
        return self.cluster.workloads[workload].vpa.recommendation[container].target


@cache
def bundled() -> models.PhaseModel:
    return models.load(models.BUNDLED)
