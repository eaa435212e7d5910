"""The recommender as a long-running program: periodic rounds, health, and a shutdown that publishes safe values."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from recommender.base.heap import MemoryTrimmer, limit_malloc_arenas, raise_gc_threshold
from recommender.cluster.errors import ClusterError
from recommender.cluster.vpas.checkpoints import WriteReport
from recommender.engine.engine import Engine
from recommender.engine.tally import Report, log_problems
from recommender.live.auto.controller import AutoVpaController
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.outside.model_source import ModelWatch
from recommender.live.round import Recommender
from recommender.live.telemetry import Telemetry
from recommender.live.vpa_state import VpaState
from recommender.policies.histogram_checkpoint import Status, checkpoint_status

log = logging.getLogger(__name__)

UNHEALTHY_INTERVALS = 5
"""The loop counts as stuck when its last round is older than this many intervals (as in the default recommender)."""

MIN_UNHEALTHY_S = 30.0
"""Lower limit for short intervals: a single request can take this long to time out, and would after a restart too."""

SYNC_POLL_S = 0.2
"""How often to check whether the caches are synced."""

ROUND_DEADLINE_S, PROFILES_DEADLINE_S, VALUES_DEADLINE_S, EXIT_DEADLINE_S = 0.5, 6.0, 7.9, 8.2
"""Seconds after the stop signal until which the running round may call the API server, profiles may be started, safe
values and checkpoints may be written, and the process waits. The rest of ten seconds is for releasing the lease."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Settings of an operator, in seconds."""

    interval_s: float = 15.0
    checkpoint_interval_s: float = 60.0  # later ones of a VPA are less frequent
    checkpoints_within_s: float = 5.0  # what a round may spend on writing them, the longest waiting first
    checkpoints_per_round: float = math.inf  # rewritten ones
    clear_away_s: float = 600.0  # between two deletions of those whose VPA or container is gone


class Service:
    """Runs rounds until it is stopped.

    `make_recommender` is called whenever this process starts to lead: state from an earlier term is out of date.
    """

    def __init__(
        self,
        view: ClusterView,
        make_recommender: Callable[[], Recommender],
        telemetry: Telemetry,
        timing: Timing,
        models: ModelWatch,
        leads: Callable[[], bool] = lambda: True,
        auto: AutoVpaController | None = None,
    ) -> None:
        self._view, self._make_recommender, self._telemetry = view, make_recommender, telemetry
        self._timing, self._models, self._leads = timing, models, leads
        self._recommender: Recommender | None = None
        self._auto = auto
        self._stop, self._stopped_s = threading.Event(), 0.0
        self._finished_s = time.monotonic()
        self._logged: Mapping[str, str] = {}
        self._collected_s = -timing.clear_away_s
        self._failure: BaseException | None = None
        self._memory = MemoryTrimmer()

    def stop(self) -> None:
        """Break off the running round and stop. May be called in a signal handler, and repeatedly."""
        if not self._stop.is_set():
            self._stopped_s = time.monotonic()
            self._view.hurry(self._stopped_s + ROUND_DEADLINE_S)
            if self._recommender is not None:
                self._recommender.stopping = True
            self._stop.set()

    @property
    def healthy(self) -> bool:
        """A round finished recently, there is nothing to do, or the history is being loaded before the first round."""
        idle = not self._leads() or not self._view.synced or self._recommender is None
        max_age_s = max(UNHEALTHY_INTERVALS * self._timing.interval_s, MIN_UNHEALTHY_S)
        return idle or time.monotonic() - self._finished_s < max_age_s

    @property
    def ready(self) -> bool:
        return self._view.synced

    def run(self) -> None:
        """Run rounds until `stop`; then publish safe values, not a passing phase's, and end within ten seconds."""
        limit_malloc_arenas()
        raise_gc_threshold()
        self._view.start()
        if self._auto:
            self._auto.start()
        # Daemonic: a request without an answer must not keep the process from ending.
        worker = threading.Thread(target=self._work, name="rounds", daemon=True)
        worker.start()
        self._stop.wait()
        if self._auto:
            self._auto.stop()
        worker.join(max(0.0, self._stopped_s + EXIT_DEADLINE_S - time.monotonic()))
        if worker.is_alive():
            log.error("the round does not end: the published recommendations stay as they are")
        self._models.stop()
        self._view.stop()
        log.info("stopped after %.1f s", time.monotonic() - self._stopped_s)
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                started_s = time.monotonic()
                self._run_round_if_leading()
                wait_s = self._timing.interval_s if self._recommender else SYNC_POLL_S
                self._stop.wait(max(0.0, wait_s - (time.monotonic() - started_s)))
            self._publish_safe_values()
        except BaseException as error:  # noqa: BLE001  # raised again in `run`
            self._failure = error
            self.stop()

    def _run_round_if_leading(self) -> None:
        """Run one round if this process leads, its caches are synced and the histories are loaded."""
        leads = self._leads()
        self._telemetry.leader.set(leads)
        if not leads:
            if self._recommender is not None:
                self._telemetry.stand_by()
            self._recommender = None
            self._finished_s = time.monotonic()
            return
        if not self._view.synced:
            return
        if self._recommender is None:
            self._view.forget_histories()
        try:
            self._view.load_histories()
        except ClusterError as error:
            log.warning("checkpoints cannot be read yet: %s", error)
            if self._recommender is None:
                return
        if self._recommender is None:
            self._recommender = self._make_recommender()
            self._finished_s = time.monotonic()  # loading the history took time
        self._models.refresh(self._recommender.engine.adopt)
        self._recommender.profiles.refusal = self._models.refusal
        self._round(self._recommender)
        self._finished_s = time.monotonic()
        self._memory.trim(self._finished_s)

    def _round(self, recommender: Recommender) -> None:
        report = recommender.run()
        if recommender.stopping:
            return  # the engine may not know every VPA yet, and the end writes all checkpoints
        timing = self._timing
        within_s, every_s = timing.checkpoints_within_s, timing.checkpoint_interval_s
        self._checkpoint(recommender, within_s, every_s, timing.checkpoints_per_round)
        self._collect_checkpoints()
        self._telemetry.unreadable.set(self._view.unreadable)
        self._telemetry.model_refused.set(self._models.refusal is not None)
        self._telemetry.lead_s.set(recommender.engine.lead_time.seconds)
        self._telemetry.round_done(report, recommender.vpas.values(), recommender.engine)
        self._log_problems(report)

    def _publish_safe_values(self) -> None:
        """Publish values that are safe without supervision, and write the histories up to now."""
        recommender = self._recommender
        if recommender is None or not self._leads():
            return
        until_s = self._stopped_s + VALUES_DEADLINE_S
        self._view.stop()  # else the watches would receive everything written now, and time is short
        self._view.hurry(until_s)
        report = recommender.publish_safe_values(until_s, self._stopped_s + PROFILES_DEADLINE_S)
        self._log_problems(report)
        checkpoints = self._checkpoint(recommender, until_s - time.monotonic(), 0.0, math.inf)
        unwritten = report.unwritten_statuses, report.unwritten_profiles, checkpoints.left
        published = len(recommender.vpas) - report.unwritten_statuses
        words = "safe values published for %d VPAs, not for %d; not written: %d profiles, %d checkpoints"
        log.info(words, published, *unwritten)

    def _collect_checkpoints(self) -> None:
        if time.monotonic() - self._collected_s < self._timing.clear_away_s:
            return
        self._collected_s = time.monotonic()
        try:
            for name in self._view.collect_checkpoints():
                log.info("deleted the checkpoint %s", name)
        except ClusterError as error:
            log.warning("checkpoints cannot be deleted: %s", error)

    def _log_problems(self, report: Report) -> None:
        log_problems(log, report.problems, self._logged)
        self._logged = report.problems

    def _checkpoint(self, recommender: Recommender, within_s: float, every_s: float, at_most: float) -> WriteReport:
        now_s = time.time()
        statuses = {
            key: partial(checkpoint_statuses, recommender.engine, state, now_s)
            for key, state in recommender.vpas.items()
            if state.groups
        }
        report = self._view.write_checkpoints(statuses, within_s, every_s, at_most)
        self._telemetry.checkpoints_written(report.written, report.failed, report.left)
        for problem in report.problems:
            log.warning("%s", problem)
        return report


def checkpoint_statuses(engine: Engine, state: VpaState, now_s: float) -> dict[str, Status]:
    """Statuses of checkpoints by container name; those of containers that pods no longer have age until deleted."""
    present = state.selection.containers or state.groups
    histories = {name: engine.history(group) for name, group in state.groups.items() if name in present}
    return {name: checkpoint_status(history.sessions, now_s) for name, history in histories.items() if history.samples}
