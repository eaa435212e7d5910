"""An event on a pod that asks for it: why it went where it went."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from extender.placing.decisions import Decision
from extender.pods.event import Events
from extender.pods.pod import EXPLAIN_ANNOTATION
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.units import format_duration

MOST_WAITING = 1000


def note_of(decision: Decision) -> str:
    """One line: outcome, and what each scorer said of the node it went to."""
    told = decision.told_of(decision.bound)
    where = f"{decision.bound}: {decision.outcome}"
    if decision.waited_s:
        where += f" after all nodes were refused for {format_duration(round(decision.waited_s))}"
    if decision.bound != decision.favourite and decision.favourite:
        where += f" ({decision.favourite} was advised)"
    if told is None:
        return where
    reasons = [
        f"{name} {told['scorers'][name]['value']:g} ({told['scorers'][name]['why']})" for name in told["scorers"]
    ]
    return f"{where}, {told['score']} of 10 among {len(decision.places)} nodes; {'; '.join(reasons)}"


class EventWriter:
    """Writes events on a thread of its own; what it cannot write in time is dropped and counted."""

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._events = Events(api, "phasewise-extender", clock)
        self._waiting: queue.Queue[Decision | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, as far as a second allows."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(1.0)

    def bound(self, decision: Decision) -> None:
        """A pod went somewhere; an event follows when the pod asks for one."""
        if decision.pod.words.get(EXPLAIN_ANNOTATION) != "event":
            return
        try:
            self._waiting.put_nowait(decision)
        except queue.Full:
            self.dropped += 1

    def _run(self) -> None:
        while (decision := self._waiting.get()) is not None:
            pod = decision.pod
            key = ObjectKey(pod.namespace, pod.name)
            self.dropped += not self._events.write(key, pod.uid, "PlacementExplained", note_of(decision))
