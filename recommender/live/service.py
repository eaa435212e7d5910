"""The recommender as a program that stays: rounds at their interval, health, and an end that leaves safe values."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from recommender.cluster.errors import ClusterError
from recommender.cluster.vpas.checkpoints import WriteReport
from recommender.engine.engine import Engine
from recommender.engine.tally import Report
from recommender.live.auto.keeper import AutoKeeper
from recommender.live.memory import Memory, look_after_rounds, use_few_arenas
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.outside.model_source import ModelWatch
from recommender.live.round import Recommender
from recommender.live.telemetry import Telemetry
from recommender.live.vpa_state import VpaState
from recommender.policies.histogram_checkpoint import Status, checkpoint_status

log = logging.getLogger(__name__)

UNHEALTHY_INTERVALS = 5
"""A loop whose last round is older than this many intervals is stuck (as the default recommender's)."""

LEAST_UNHEALTHY_S = 30.0
"""With a short interval: one request that nobody answers takes so long, and a new process would wait for it too."""

UNSYNCED_S = 0.2
"""Between two looks whether the caches are synced."""

ROUND_ENDS_WITHIN_S, PROFILES_WITHIN_S, VALUES_WITHIN_S, ENDS_WITHIN_S = 0.5, 6.0, 7.9, 8.2
"""After the word to stop: until when the running round may ask the API server, profiles may be begun, safe values and
checkpoints may be written, and the process waits. The rest of ten seconds is for giving back the lease."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What an operator may turn, in seconds.

    Attributes
    ----------
    interval_s
        Between two rounds.
    checkpoint_interval_s
        Between the first checkpoints of a VPA; later ones come less often.
    checkpoints_within_s
        What a round spends on writing them; the VPAs that waited longest come first.
    checkpoints_a_round
        So many of those that were written before are written in a round, about.
    clear_away_s
        How often checkpoints of what is gone are looked for.
    """

    interval_s: float = 15.0
    checkpoint_interval_s: float = 60.0
    checkpoints_within_s: float = 5.0
    checkpoints_a_round: float = math.inf
    clear_away_s: float = 600.0


class Service:
    """Runs rounds until it is told to stop.

    Parameters
    ----------
    make_recommender
        Called when this process begins to lead: what it knew the last time is not what stands in the cluster now.
    models
        Keeps the model up to date.
    leads
        Whether this process may act; always true without leader election.
    auto
        Makes VPAs for workloads that have none; None where that is not wanted.
    """

    def __init__(
        self,
        view: ClusterView,
        make_recommender: Callable[[], Recommender],
        telemetry: Telemetry,
        timing: Timing,
        models: ModelWatch,
        leads: Callable[[], bool] = lambda: True,
        auto: AutoKeeper | None = None,
    ) -> None:
        self._view, self._make_recommender, self._telemetry = view, make_recommender, telemetry
        self._timing, self._models, self._leads = timing, models, leads
        self._recommender: Recommender | None = None
        self._auto = auto
        self._stop, self._stopped_s = threading.Event(), 0.0
        self._finished_s = time.monotonic()
        self._said: Mapping[str, str] = {}
        self._cleared_s = -timing.clear_away_s
        self._failure: BaseException | None = None
        self._memory = Memory()

    def stop(self) -> None:
        """End after the running round. May be called in a signal handler, and again."""
        if not self._stop.is_set():
            self._stopped_s = time.monotonic()
            self._view.hurry(self._stopped_s + ROUND_ENDS_WITHIN_S)
            if self._recommender is not None:
                self._recommender.ending = True
            self._stop.set()

    @property
    def healthy(self) -> bool:
        """A round finished lately, or there is nothing for us to do, or the past is being read before the first one."""
        waits = not self._leads() or not self._view.synced or self._recommender is None
        longest_s = max(UNHEALTHY_INTERVALS * self._timing.interval_s, LEAST_UNHEALTHY_S)
        return waits or time.monotonic() - self._finished_s < longest_s

    @property
    def ready(self) -> bool:
        """All that is watched was listed."""
        return self._view.synced

    def run(self) -> None:
        """Rounds until `stop`; then safe values in place of a passing phase, within ten seconds whatever hangs.

        The rounds have a thread of their own: a request that nobody answers must not keep the process from ending.
        """
        use_few_arenas()
        look_after_rounds()
        self._view.start()
        if self._auto:
            self._auto.start()
        worker = threading.Thread(target=self._work, name="rounds", daemon=True)
        worker.start()
        self._stop.wait()
        if self._auto:
            self._auto.stop()
        worker.join(max(0.0, self._stopped_s + ENDS_WITHIN_S - time.monotonic()))
        if worker.is_alive():
            log.error("the round does not end: what stands published is left as it is")
        self._models.stop()
        self._view.stop()
        log.info("stopped after %.1f s", time.monotonic() - self._stopped_s)
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                began_s = time.monotonic()
                self._turn()
                wait_s = self._timing.interval_s if self._recommender else UNSYNCED_S
                self._stop.wait(max(0.0, wait_s - (time.monotonic() - began_s)))
            self._leave()
        except BaseException as error:  # noqa: BLE001  # it is raised where the caller waits
            self._failure = error
            self.stop()

    def _turn(self) -> None:
        """One round, if it is ours to do and all is known that it takes."""
        leads = self._leads()
        self._telemetry.leads.set(leads)
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
        if not self._load():
            return
        if self._recommender is None:
            self._recommender = self._make_recommender()
            self._finished_s = time.monotonic()  # reading the past took its time
        self._models.renew(self._recommender.engine.adopt)
        self._recommender.refusal = self._models.refusal
        self._round(self._recommender)
        self._finished_s = time.monotonic()
        self._memory.tidy(self._finished_s)

    def _load(self) -> bool:
        """The histories of VPAs that are new to us; before one is known, its VPA takes no part in a round."""
        try:
            self._view.load_histories()
        except ClusterError as error:
            log.warning("the checkpoints cannot be read yet: %s", error)
            return self._recommender is not None
        return True

    def _round(self, recommender: Recommender) -> None:
        report = recommender.run()
        timing = self._timing
        self._keep(recommender, timing.checkpoints_within_s, timing.checkpoint_interval_s, timing.checkpoints_a_round)
        self._clear_away()
        self._telemetry.unreadable.set(self._view.unreadable)
        self._telemetry.refused.set(self._models.refusal is not None)
        self._telemetry.lead_s.set(recommender.engine.lead_time.seconds)
        self._telemetry.round_done(report, recommender.vpas.values(), recommender.engine)
        self._say(report)

    def _leave(self) -> None:
        """What may stand while nobody watches, and the histories up to now."""
        recommender = self._recommender
        if recommender is None or not self._leads():
            return
        until_s = self._stopped_s + VALUES_WITHIN_S
        self._view.stop()  # what is written now comes back by the watches, and there is no time to read it
        self._view.hurry(until_s)
        report = recommender.leave_safe_values(until_s, self._stopped_s + PROFILES_WITHIN_S)
        self._say(report)
        kept = self._keep(recommender, until_s - time.monotonic(), 0.0, math.inf)
        told = (
            len(recommender.vpas) - report.unwritten_statuses,
            report.unwritten_statuses,
            report.unwritten_profiles,
            kept.left,
        )
        log.info("safe values left behind for %d VPAs, for %d not; not written: %d profiles, %d checkpoints", *told)

    def _clear_away(self) -> None:
        if time.monotonic() - self._cleared_s < self._timing.clear_away_s:
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
                log.warning("%s: %s", about, words, extra={"about": about})
        for about in self._said.keys() - report.problems.keys():
            log.info("%s: well again", about, extra={"about": about})
        self._said = report.problems

    def _keep(self, recommender: Recommender, within_s: float, every_s: float, at_most: float) -> WriteReport:
        now_s = time.time()
        statuses = {
            key: partial(checkpoint_statuses, recommender.engine, state, now_s)
            for key, state in recommender.vpas.items()
            if state.groups
        }
        report = self._view.keep(statuses, within_s, every_s, at_most)
        self._telemetry.checkpoints_written(report.written, report.failed, report.left)
        for problem in report.problems:
            log.warning("%s", problem)
        return report


def checkpoint_statuses(engine: Engine, state: VpaState, now_s: float) -> dict[str, Status]:
    """What the checkpoints of a VPA are to hold now, by container name.

    Of containers that the pods no longer have nothing is written: their checkpoints age, and go.
    """
    present = state.selection.containers or state.groups
    histories = {name: engine.history(group) for name, group in state.groups.items() if name in present}
    return {name: checkpoint_status(history.sessions, now_s) for name, history in histories.items() if history.samples}
