"""The two recommenders, each at its interval in a simulated cluster."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from harm_bench.simulated.cluster import Cluster
from harm_bench.simulated.metrics import Metrics
from harm_bench.simulated_view import SimulatedView
from recommender.engine.fleet import Fleet
from recommender.engine.options import Options
from recommender.engine.tally import Report
from recommender.live.round import Recommender
from recommender.live.service import checkpoint_statuses
from recommender.model import PhaseModel
from recommender.policies.constraints import SharedLimits

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
        self.live.leave_safe_values()
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
