"""Controller of the VPAs for labelled workloads: plans where something changed, and writes what was planned."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from recommender.base.units import MonotonicClock
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import backed_off_s
from recommender.cluster.errors import ApiError, Conflict, Unreachable
from recommender.cluster.vpas.auto_created import VpaMaker
from recommender.engine.tally import log_problems
from recommender.live.auto.view import AutoView
from recommender.live.auto.vpas import Planner, VpaChanges

log = logging.getLogger(__name__)

RESYNC_INTERVAL_S = 300.0
"""All namespaces are reconciled this often, whether or not a change was seen."""

READY_POLL_S = 0.2
"""How often to check whether this process leads and its caches are synced."""

INITIAL_BACKOFF_S, MAX_BACKOFF_S = 1.0, 60.0
"""After a failure in a namespace; doubled with each further failure."""


class AutoVpaController:
    """Creates, changes and removes VPAs that select a `recommender`, in a thread of its own, while this process leads.

    Its `api` should have a rate limit of its own, so that a thousand new jobs do not delay the statuses.
    """

    def __init__(
        self,
        api: Api,
        view: AutoView,
        recommender: str,
        registry: CollectorRegistry,
        leads: Callable[[], bool] = lambda: True,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._maker, self._view, self._recommender = VpaMaker(api), view, recommender
        self._leads, self._clock = leads, clock
        self._retry_s: dict[str, tuple[int, float]] = {}  # namespace -> failures in a row, when to try again
        self._logged: dict[str, Mapping[str, str]] = {}  # namespace -> what was last logged about its objects
        self._resynced_s = -math.inf
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="auto VPAs", daemon=True)
        self._writes = Counter(
            "phasewise_auto_vpas", "VPAs written for workloads without one.", ["action"], registry=registry
        )
        self._problems = Gauge("phasewise_auto_problems", "Workloads and VPAs that need attention.", registry=registry)

    def start(self) -> None:
        self._view.start()
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more. A request in progress is not waited for."""
        self._stopped.set()
        self._view.stop()

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._leads() or not self._view.synced:
                self._resynced_s = -math.inf
                self._problems.set(0)  # the leader reports them
                self._stopped.wait(READY_POLL_S)
                continue
            try:
                self.reconcile()
            except Exception:  # a bug must be visible, but must not end the thread
                log.exception("unexpected failure")
                self._resynced_s = -math.inf
                self._stopped.wait(INITIAL_BACKOFF_S)
            self._view.wait(self._next_due_in_s())

    def reconcile(self) -> None:
        """Reconcile each namespace that changed, or whose retry or resync is due."""
        now_s = self._clock()
        failing = {name for name, (failures, at_s) in self._retry_s.items() if failures and at_s > now_s}
        due = self._view.changed() - failing  # failing ones wait for their retry
        due |= {name for name, (_, at_s) in self._retry_s.items() if at_s <= now_s}
        if now_s - self._resynced_s >= RESYNC_INTERVAL_S:
            due |= self._view.all_namespaces()
            self._resynced_s = now_s
        for name in sorted(due):
            try:
                self._reconcile_namespace(name, now_s)
            except Exception:  # a bug must be visible, but must not stop the other namespaces
                log.exception("namespace %s: unexpected failure", name)
                self._back_off(name, now_s)
        self._problems.set(sum(len(logged) for logged in self._logged.values()))

    def _reconcile_namespace(self, name: str, now_s: float) -> None:
        namespace = self._view.namespace(name)
        if namespace is None:
            self._retry_s.pop(name, None)
            self._logged.pop(name, None)
            return
        changes = Planner(namespace, self._recommender, self._view).plan()
        failed = dict(self._apply(changes))
        problems = {about: text for about, text in {**changes.notes, **failed}.items() if text}
        log_problems(log, problems, self._logged.pop(name, {}))
        if problems:
            self._logged[name] = problems
        if changes.incomplete or any(failed.values()):
            self._back_off(name, now_s)
        elif failed:
            self._retry_s[name] = (0, now_s + INITIAL_BACKOFF_S)
        else:
            self._retry_s.pop(name, None)

    def _back_off(self, name: str, now_s: float) -> None:
        failures = self._retry_s.get(name, (0, 0.0))[0] + 1
        self._retry_s[name] = failures, now_s + backed_off_s(INITIAL_BACKOFF_S, failures, MAX_BACKOFF_S)

    def _apply(self, changes: VpaChanges) -> Iterator[tuple[str, str]]:
        """Write the changes; yields what failed and why, with an empty reason where our view was out of date."""
        for action, about, do, why in _steps(changes, self._maker):
            if self._stopped.is_set() or not self._leads():
                return
            try:
                do()
            except Conflict:
                yield about, ""
            except ApiError as error:
                self._writes.labels("failed").inc()
                yield about, f"could not be {action}: {error}"
                if isinstance(error, Unreachable) or "exceeded quota" in str(error):
                    return  # the others would only fail as well, one after the other
            else:
                self._writes.labels(action).inc()
                log.info("%s: %s (%s)", about, action, why, extra={"about": about})

    def _next_due_in_s(self) -> float:
        """Seconds until the next retry or resync."""
        due_s = min([self._resynced_s + RESYNC_INTERVAL_S, *(at_s for _, at_s in self._retry_s.values())])
        return max(0.0, due_s - self._clock())


def _steps(changes: VpaChanges, maker: VpaMaker) -> Iterator[tuple[str, str, Callable[[], None], str]]:
    """The writes: what is done, to which object, how and why."""
    for vpa, why in changes.remove:
        yield "removed", f"VPA {vpa.key}", partial(maker.remove, vpa), why
    for vpa, wanted in changes.change:
        yield "changed", f"VPA {vpa.key}", partial(maker.change, vpa, wanted), f"mode {wanted.settings.mode}"
    for new in changes.create:
        yield "made", f"VPA {new.key}", partial(maker.create, new), f"mode {new.settings.mode}"
