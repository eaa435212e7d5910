"""What the extender tells Prometheus: the scheduler has no metric of its own for its extenders' time and errors."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Telemetry:
    """The metrics of one extender."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._of: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._seconds = Histogram(
            "phasewise_extender_call_seconds",
            "Time inside the extender, from the read body to the written answer.",
            ["verb"],
            buckets=SECONDS,
            registry=registry,
        )
        self._calls = Counter(
            "phasewise_extender_calls", "Calls by verb and HTTP status.", ["verb", "status"], registry=registry
        )
        self._refused = Counter("phasewise_extender_nodes_refused", "Nodes refused by the filter.", registry=registry)
        self._outcomes = Counter(
            "phasewise_extender_outcomes",
            "Pods of ours that were bound, by what became of the advice.",
            ["outcome"],
            registry=registry,
        )

    def called(self, verb: str, status: int, duration_s: float) -> None:
        """A call was answered."""
        of = self._of.get((verb, status))
        if of is None:
            of = self._of[verb, status] = (self._calls.labels(verb, str(status)), self._seconds.labels(verb))
        calls, seconds = of
        calls.inc()
        seconds.observe(duration_s)

    def refused(self, nodes: int) -> None:
        """So many nodes were refused."""
        if nodes:
            self._refused.inc(nodes)

    def outcome(self, words: str) -> None:
        """A pod was bound."""
        self._outcomes.labels(words).inc()

    def watch(self, name: str, help_line: str, value: Callable[[], float]) -> None:
        """A number that is looked up whenever Prometheus asks."""
        Gauge(f"phasewise_extender_{name}", help_line, registry=self._registry).set_function(value)

    def page(self) -> bytes:
        """The metrics as Prometheus reads them."""
        return generate_latest(self._registry)
