"""What the recommender tells Prometheus of itself; `phasewise_` tells its metrics from other recommenders'."""

from __future__ import annotations

from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from recommender.live.round import Report
from recommender.live.workload import Workload
from recommender.records import RESOURCES

SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Telemetry:
    """The metrics of one recommender."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._rounds = Counter("phasewise_rounds", "Rounds finished.", registry=registry)
        self._step = Histogram(
            "phasewise_step_seconds", "Duration of each step of a round.", ["step"], buckets=SECONDS, registry=registry
        )
        self._samples = Counter("phasewise_samples", "New samples of containers.", registry=registry)
        self._decisions = Counter("phasewise_decisions", "Forecasts made.", registry=registry)
        self._published = Counter("phasewise_targets_changed", "Targets that changed.", registry=registry)
        self._problems = Gauge("phasewise_problems", "Objects with a problem in the last round.", registry=registry)
        self._containers = Gauge("phasewise_containers", "Live containers.", registry=registry)
        self._vpas = Gauge("phasewise_vpas", "VPAs by what could be said of them.", ["state"], registry=registry)
        self._violations = Gauge(
            "phasewise_violation_ratio",
            "Share of samples lately that were above what the container had, mean over VPA containers.",
            ["resource"],
            registry=registry,
        )
        self._leads = Gauge("phasewise_leader", "1 while this process may write.", registry=registry)
        self._model = Gauge("phasewise_model_info", "The model in use.", ["origin", "data_hash"], registry=registry)

    def round_done(self, report: Report, workloads: Collection[Workload], containers: int) -> None:
        """Take in what a round did."""
        self._rounds.inc()
        for step, duration_s in report.step_s.items():
            self._step.labels(step).observe(duration_s)
        self._samples.inc(report.samples)
        self._decisions.inc(report.decisions)
        self._published.inc(report.published)
        self._problems.set(len(report.problems))
        self._containers.set(containers)
        states = {"recommended": 0, "in doubt": 0, "silent": 0}
        for workload in workloads:
            states[_state_of(workload)] += 1
        for state, number in states.items():
            self._vpas.labels(state).set(number)
        judged = [book.violation_ratio for workload in workloads for book in workload.books.values() if book.judged]
        for place, resource in enumerate(RESOURCES):
            mean = sum(float(ratio[place]) for ratio in judged) / len(judged) if judged else 0.0
            self._violations.labels(resource).set(mean)

    def leading(self, leads: bool) -> None:
        """Whether this process is the one that acts."""
        self._leads.set(leads)

    def model(self, origin: str, data_hash: str) -> None:
        """The model in use."""
        self._model.clear()
        self._model.labels(origin, data_hash).set(1)


def _state_of(workload: Workload) -> str:
    if not workload.advice:
        return "silent"
    return "in doubt" if any(advice.doubt for advice in workload.advice.values()) else "recommended"
