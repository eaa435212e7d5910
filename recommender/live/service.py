"""The recommender as a program that stays: rounds at their interval, health, and an end that leaves safe values."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from recommender.cluster.errors import ClusterError
from recommender.live.cluster_view import ClusterView
from recommender.live.round import Recommender, Report
from recommender.live.telemetry import Telemetry
from recommender.live.workload import Workload
from recommender.policies.histogram_checkpoint import Status, checkpoint_status

log = logging.getLogger(__name__)

UNHEALTHY_INTERVALS = 5
"""A loop whose last round is older than this many intervals is stuck (as the default recommender's)."""

CLEARED_EVERY_S = 600.0
"""How often checkpoints of what is gone are looked for (as the default recommender does)."""

CHECKPOINTS_WITHIN_S = 5.0
"""What a round spends on writing histories; the VPAs that waited longest come first."""


class Service:
    """Runs rounds until it is told to stop.

    Parameters
    ----------
    leads
        Whether this process may act; always true without leader election.
    """

    def __init__(
        self,
        view: ClusterView,
        recommender: Recommender,
        telemetry: Telemetry,
        interval_s: float,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._view, self._recommender, self._telemetry = view, recommender, telemetry
        self._interval_s, self._leads = interval_s, leads
        self._stop = threading.Event()
        self._finished_s = time.monotonic()
        self._said: Mapping[str, str] = {}
        self._loaded = False
        self._cleared_s = -CLEARED_EVERY_S

    def stop(self) -> None:
        """End after the running round."""
        self._stop.set()

    @property
    def healthy(self) -> bool:
        """A round finished lately, or there is nothing for us to do."""
        waits = not self._leads() or not self._view.synced
        return waits or time.monotonic() - self._finished_s < UNHEALTHY_INTERVALS * self._interval_s

    @property
    def ready(self) -> bool:
        """All that is watched was listed."""
        return self._view.synced

    def run(self) -> None:
        """Rounds until `stop`; then safe values in place of a passing phase."""
        self._view.start()
        try:
            while not self._stop.is_set():
                began_s = time.monotonic()
                leads = self._leads()
                self._telemetry.leading(leads)
                if leads and self._view.synced and self._load():
                    self._round()
                    self._finished_s = time.monotonic()
                wait_s = self._interval_s if self._loaded else 0.2
                self._stop.wait(max(0.0, wait_s - (time.monotonic() - began_s)))
            if self._loaded and self._leads():
                self._recommender.leave_safe_values()
                self._keep(2 * CHECKPOINTS_WITHIN_S / 5)
        finally:
            self._view.stop()

    def _load(self) -> bool:
        """Histories, once; before they are known nothing may be written."""
        if not self._loaded:
            try:
                self._view.load_histories()
                self._loaded = True
            except ClusterError as error:
                log.warning("the checkpoints cannot be read yet: %s", error)
        return self._loaded

    def _round(self) -> None:
        report = self._recommender.run()
        self._keep(CHECKPOINTS_WITHIN_S)
        self._clear_away()
        self._telemetry.round_done(report, self._recommender.workloads.values(), len(self._recommender.fleet.members))
        self._say(report)

    def _clear_away(self) -> None:
        if time.monotonic() - self._cleared_s < CLEARED_EVERY_S:
            return
        self._cleared_s = time.monotonic()
        try:
            for name in self._view.clear_away():
                log.info("cleared away the checkpoint %s", name)
        except ClusterError as error:
            log.warning("checkpoints cannot be cleared away: %s", error)

    def _say(self, report: Report) -> None:
        """Log each problem when it comes and when it goes, not at every round."""
        for about, words in report.problems.items():
            if self._said.get(about) != words:
                log.warning("%s: %s", about, words)
        for about in self._said.keys() - report.problems.keys():
            log.info("%s: well again", about)
        self._said = report.problems

    def _keep(self, within_s: float) -> None:
        now_s = time.time()
        statuses = {
            key: partial(self._statuses, workload, now_s)
            for key, workload in self._recommender.workloads.items()
            if workload.books
        }
        for problem in self._view.keep(statuses, within_s).problems:
            log.warning("%s", problem)

    def _statuses(self, workload: Workload, now_s: float) -> dict[str, Status]:
        self._recommender.remember(workload)
        return {
            name: checkpoint_status(book.history.sessions, now_s)
            for name, book in workload.books.items()
            if book.history.samples
        }
