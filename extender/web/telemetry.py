"""What the extender tells Prometheus: the scheduler has no metric of its own for its extenders' time and errors."""

from __future__ import annotations

import threading
from collections import Counter as Numbers
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MOST_UNCOUNTED = 20
"""So many calls are counted at a time: one by one each would take as long as a tenth of an answer."""

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class Telemetry:
    """The metrics of one extender."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._uncounted: list[tuple[str, int, float]] = []
        self._uncounted_outcomes: list[str] = []
        self._counting = threading.Lock()
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
        self._uncounted.append((verb, status, duration_s))
        if len(self._uncounted) >= MOST_UNCOUNTED:
            self._count()

    def refused(self, nodes: int) -> None:
        """So many nodes were refused."""
        if nodes:
            self._refused.inc(nodes)

    def outcome(self, words: str) -> None:
        """A pod was bound."""
        self._uncounted_outcomes.append(words)
        if len(self._uncounted_outcomes) >= MOST_UNCOUNTED:
            self._count()

    def _count(self) -> None:
        with self._counting:  # what is appended meanwhile stays for the next time
            called, outcomes = self._uncounted.copy(), self._uncounted_outcomes.copy()
            del self._uncounted[: len(called)], self._uncounted_outcomes[: len(outcomes)]
        for (verb, status), calls in Numbers((verb, status) for verb, status, _ in called).items():
            self._calls.labels(verb, str(status)).inc(calls)
        for verb, _, duration_s in called:
            self._seconds.labels(verb).observe(duration_s)
        for words, pods in Numbers(outcomes).items():
            self._outcomes.labels(words).inc(pods)

    def watch(self, name: str, help_line: str, value: Callable[[], float]) -> None:
        """A number that is looked up whenever Prometheus asks."""
        Gauge(f"phasewise_extender_{name}", help_line, registry=self._registry).set_function(value)

    def page(self) -> bytes:
        """The metrics as Prometheus reads them."""
        self._count()
        return generate_latest(self._registry)
