"""What the recommender tells Prometheus of itself; `phasewise_` tells its metrics from other recommenders'.

VPAs that have had no recommendation for long are counted, and said in the log now and then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from recommender import __version__
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import PENDING
from recommender.engine.engine import Engine
from recommender.engine.tally import Report
from recommender.live.outside.model_source import Loaded
from recommender.live.vpa_state import VpaState
from recommender.records import RESOURCES

log = logging.getLogger(__name__)

SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
RESIZE_SECONDS = (1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
STATES = ("recommended", "in_doubt", "silent")
"""Of a VPA: its forecasts are published, what is published is the fallback, nothing is said of it."""

LONG_S = 1800.0
"""As long as the default recommender waits before it says so, and between two times."""


class Telemetry:
    """The metrics of one recommender. Labels take few values: verbs, codes, steps, states, resources.

    Parameters
    ----------
    clock, stopwatch
        Unix seconds, and a monotonic one.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry, self._clock, self._stopwatch = registry, clock, stopwatch
        self._finished_s, self._written_s = stopwatch(), float("nan")
        self._unserved = Unserved(registry)
        self._asked: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._rounds()
        self._objects()
        self._quality()
        self._model()
        self._surroundings()

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(name, words, labels, registry=self.registry)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(name, words, labels, registry=self.registry)

    def _seconds(self, name: str, words: str, *labels: str, buckets: Sequence[float] = SECONDS) -> Histogram:
        return Histogram(name, words, labels, buckets=buckets, registry=self.registry)

    # -- what is told ----------------------------------------------------------------------------------------------

    def _rounds(self) -> None:
        self.rounds = self._counter("phasewise_rounds", "Rounds finished.")
        self.round_s = self._seconds("phasewise_round_seconds", "Duration of a round.")
        self.step_s = self._seconds("phasewise_round_step_seconds", "Duration of a round's step.", "step")
        age = self._gauge("phasewise_last_round_age_seconds", "Time since a round finished.")
        age.set_function(lambda: self._stopwatch() - self._finished_s)
        self.samples = self._counter("phasewise_samples", "New samples of containers.")
        self.decisions = self._counter("phasewise_decisions", "Forecasts made.")

    def _objects(self) -> None:
        self.problems = self._gauge("phasewise_problems", "Objects with a problem in the last round.")
        self.unreadable = self._gauge("phasewise_unreadable_objects", "Watched, but of a wrong form.")
        self.containers = self._gauge("phasewise_containers", "Live containers.")
        self.vpas = self._gauge("phasewise_vpas", "VPAs by what could be said of them.", "state")
        self.checkpoints = self._counter("phasewise_checkpoint_writes", "Checkpoints written, or not.", "outcome")
        self.waiting = self._gauge("phasewise_checkpoints_waiting", "VPAs whose checkpoint is overdue.")
        for outcome in ("written", "failed"):
            self.checkpoints.labels(outcome)
        self.unshown = self._gauge("phasewise_profiles_waiting", "PhaseProfiles that changed and wait.")

    def _quality(self) -> None:
        self.predicted = self._counter("phasewise_targets_changed", "Resizes predicted: new targets.")
        resized = "Resizes done: from the new target to the container that has it."
        self.resizes = self._seconds("phasewise_resize_seconds", resized, buckets=RESIZE_SECONDS)
        self.resized_waiting = self._counter("phasewise_waiting_pods_resized", "Pods resized before they had a node.")
        self.lead_s = self._gauge("phasewise_lead_time_seconds", "How long before a phase its target is published.")
        self.put_off_s = self._gauge(
            "phasewise_resize_deferred_seconds",
            "How long the resize has waited that a full node puts off longest.",
        )
        self.rails = self._gauge("phasewise_guard_rails", "Containers of VPAs whose target the rail moves.", "rail")
        self.phases = self._counter("phasewise_phase_changes", "Phases that containers entered.")
        self.foretold = self._counter(
            "phasewise_next_phase_forecasts", "Next phases foretold, by what came.", "outcome"
        )
        for outcome in ("hit", "miss"):
            self.foretold.labels(outcome)
        self.kills = self._counter("phasewise_oom_kills", "Kills for memory of our containers.")
        self.refusals = self._counter("phasewise_samples_refused", "Samples and kills that could not be right.", "why")
        self.judged = self._counter("phasewise_judged_samples", "Samples held against what was had.")
        self.violating = self._counter("phasewise_violating_samples", "Of these, those above it x 1.05.", "resource")
        self.slack = self._gauge(
            "phasewise_slack_ratio", "What was had beyond use, by use, in the last round.", "resource"
        )
        self.violations = self._gauge(
            "phasewise_violation_ratio",
            "Share of samples lately that were above what was had, or wanted where limits allow less; mean over VPA "
            "containers.",
            "resource",
        )

    def _model(self) -> None:
        self.model_info = self._gauge("phasewise_model_info", "The model in use.", "origin", "hash")
        age = self._gauge("phasewise_model_age_seconds", "Since the model was written; NaN where nobody knows.")
        age.set_function(lambda: self._clock() - self._written_s)
        self.refused = self._gauge("phasewise_model_refused", "1 while a newer model is refused.")
        self.changes = self._counter("phasewise_model_changes", "Models taken in or refused.", "outcome")
        for outcome in ("adopted", "refused"):
            self.changes.labels(outcome)

    def _surroundings(self) -> None:
        self.leads = self._gauge("phasewise_leader", "1 while this process may write.")
        self._gauge("phasewise_build_info", "The version.", "version").labels(__version__).set(1)
        self.requests = self._counter(
            "phasewise_api_requests", "Answers of the API server; code 0: none came.", "verb", "code"
        )
        self.request_s = self._seconds("phasewise_api_request_seconds", "Time to an answer.", "verb")

    # -- who tells it ----------------------------------------------------------------------------------------------

    def round_done(self, report: Report, vpas: Collection[VpaState], engine: Engine) -> None:
        """Take in what a round did."""
        self._finished_s = self._stopwatch()
        self.rounds.inc()
        self.round_s.observe(sum(report.step_s.values()))
        for step, duration_s in report.step_s.items():
            self.step_s.labels(step).observe(duration_s)
        self.samples.inc(report.samples)
        self.decisions.inc(report.decisions)
        self.predicted.inc(report.published)
        self.resized_waiting.inc(report.resized_waiting)
        self._judge(report)
        self.problems.set(len(report.problems))
        self.containers.set(len(engine.fleet.members))
        self.unshown.set(report.unwritten_profiles)
        self._unserved.look(vpas, self._stopwatch())
        states = dict.fromkeys(STATES, 0)
        for vpa in vpas:
            states[_state_of(vpa)] += 1
        for state, number in states.items():
            self.vpas.labels(state).set(number)
        for rail, number in engine.rails_acting().items():
            self.rails.labels(rail).set(number)
        groups = engine.groups.arrays
        since_s = float(np.min(groups.deferred_since_s[groups.alive], initial=np.inf))
        self.put_off_s.set(max(0.0, self._clock() - since_s))
        shares = groups.violation_ratio()[groups.judged > 0.0]
        for place, resource in enumerate(RESOURCES):
            self.violations.labels(resource).set(float(shares[:, place].mean()) if len(shares) else 0.0)

    def stand_by(self) -> None:
        """Another process leads: what was so in the last round is not told on beside what that one tells."""
        for gauge in (
            self.problems, self.unreadable, self.containers, self.waiting, self.unshown, self.lead_s, self.put_off_s,
            self.refused,
        ):  # fmt: skip
            gauge.set(0)
        for by_label in (self.vpas, self.rails, self.slack, self.violations):
            by_label.clear()
        self._unserved.look((), self._stopwatch())

    def _judge(self, report: Report) -> None:
        for resize_s in report.resizes_s:
            self.resizes.observe(resize_s)
        self.phases.inc(report.phase_changes)
        self.foretold.labels("hit").inc(report.forecast_hits)
        self.foretold.labels("miss").inc(report.forecast_misses)
        self.kills.inc(report.kills)
        self.judged.inc(report.judged)
        for why, number in report.refused.items():
            self.refusals.labels(why).inc(number)
        for place, resource in enumerate(RESOURCES):
            self.violating.labels(resource).inc(float(report.violating[place]))
            if report.used[place] > 0:
                self.slack.labels(resource).set(float(report.slack[place] / report.used[place]))

    def checkpoints_written(self, written: int, failed: int, waiting: int) -> None:
        """What a turn of writing checkpoints did."""
        self.checkpoints.labels("written").inc(written)
        self.checkpoints.labels("failed").inc(failed)
        self.waiting.set(waiting)

    def model(self, loaded: Loaded | None, problem: str) -> None:
        """A model is in use from now on; or one was refused, for a reason."""
        self.changes.labels("refused" if problem else "adopted").inc()
        if loaded is not None:
            self.model_info.clear()
            self.model_info.labels(loaded.model.origin, loaded.digest[:12]).set(1)
            self._written_s = float("nan") if loaded.written_s is None else loaded.written_s

    def api_request(self, method: str, status: int, duration_s: float) -> None:
        """The API server answered, or did not (status 0). For many threads."""
        known = self._asked.get((method, status))
        if known is None:  # to look it up anew costs more than all that is counted
            known = self.requests.labels(method, str(status)), self.request_s.labels(method)
            self._asked[method, status] = known
        known[0].inc()
        known[1].observe(duration_s)


def _state_of(vpa: VpaState) -> str:
    if not vpa.targets:
        return "silent"
    return "in_doubt" if any(target.doubt for target in vpa.targets.values()) else "recommended"


class Unserved:
    """Looks after each round at who has nothing."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._since_s: dict[ObjectKey, float] = {}
        self._said_s: dict[ObjectKey, float] = {}
        self._number = Gauge(
            "phasewise_vpas_unserved", "VPAs without any recommendation for half an hour or more.", registry=registry
        )

    def look(self, states: Iterable[VpaState], now_s: float) -> None:
        """Who has nothing published now; `now_s` in monotonic seconds."""
        lacking = {state.vpa.key: state for state in states if _lacks(state)}
        for served in self._since_s.keys() - lacking.keys():
            del self._since_s[served]
            self._said_s.pop(served, None)
        number = 0
        for key, state in lacking.items():
            if now_s - self._since_s.setdefault(key, now_s) < LONG_S:
                continue
            number += 1
            if now_s - self._said_s.get(key, -LONG_S) >= LONG_S:
                self._said_s[key] = now_s
                minutes = (now_s - self._since_s[key]) / 60.0
                log.warning("%s: no recommendation for %.0f minutes: %s", key, minutes, _reason(state))
        self._number.set(number)


def _lacks(state: VpaState) -> bool:
    """Nothing is published, though not because its user wants nothing."""
    if b'"containerName"' in state.vpa.status_json:
        return False
    names = state.selection.containers or ("*",)
    policies = [state.vpa.policy_for(name) for name in names]
    return any(policy.mode != "Off" and policy.controlled for policy in policies)


def _reason(state: VpaState) -> str:
    if state.selection.problem:
        return state.selection.problem
    if not state.selection.pods:
        return "no pods match it"
    if all(pod.phase == PENDING for pod in state.selection.pods):
        return "its pods have not begun"
    return "no use of its pods' containers has been told"
