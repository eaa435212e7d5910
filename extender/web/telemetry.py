"""What our servers tell Prometheus: a scheduler has no metric of its own for its extenders' time and errors."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Telemetry:
    """The metrics of one server; `program` is `extender`, `controller` or `webhook`, and begins their names."""

    def __init__(self, program: str) -> None:
        self.registry = CollectorRegistry()
        self._prefix = f"phasewise_{program}_"
        self._seconds = Histogram(
            f"{self._prefix}call_seconds",
            "Time inside the process, from the read body to the written answer.",
            ["verb"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._calls = self.counter(
            "calls", "Calls by verb and HTTP status; of pages those alone that were refused.", "verb", "status"
        )
        self._hung_up = self.counter("connections_hung_up", "Connections that we ended, by why.", "reason")

    def counter(self, name: str, help_line: str, *labels: str) -> Counter:
        """A number that only rises."""
        return Counter(f"{self._prefix}{name}", help_line, labels, registry=self.registry)

    def watch(self, name: str, help_line: str, value: Callable[[], float]) -> None:
        """A number that is looked up whenever Prometheus asks."""
        Gauge(f"{self._prefix}{name}", help_line, registry=self.registry).set_function(value)

    def called(self, verb: str, status: int, duration_s: float) -> None:
        """A call was answered."""
        self._calls.labels(verb, str(status)).inc()
        self._seconds.labels(verb).observe(duration_s)

    def hung_up(self, reason: str) -> None:
        """A connection was ended because of what its client did."""
        self._hung_up.labels(reason).inc()

    def page(self) -> bytes:
        """The metrics as Prometheus reads them."""
        return generate_latest(self.registry)


class ExtenderTelemetry(Telemetry):
    """Of the extender, with what came of its advice."""

    def __init__(self) -> None:
        super().__init__("extender")
        self.nodes_refused = self.counter("nodes_refused", "Nodes refused by the filter.")
        self.outcomes = self.counter(
            "outcomes", "Pods of ours that were bound, by what became of the advice.", "outcome"
        )
