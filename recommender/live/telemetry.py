"""The recommender's own metrics for Prometheus; the prefix `phasewise_` separates them from other recommenders'."""

from __future__ import annotations

import logging
import time
from collections import Counter as Counts
from collections.abc import Collection, Iterable, Mapping
from functools import partial

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from recommender import __version__
from recommender.base.records import RESOURCES, FloatArray, or_nan
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import PENDING
from recommender.engine.container_arrays import NO_GROUP
from recommender.engine.engine import Engine
from recommender.engine.tally import Report
from recommender.live.outside.model_source import Loaded
from recommender.live.vpa_state import VpaState

log = logging.getLogger(__name__)

DURATION_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
RESIZE_BUCKETS_S = (1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
STATES = ("recommended", "in_doubt", "silent")
"""Of a VPA: its forecast is published, a fallback is published, nothing is recommended."""

UNSERVED_AFTER_S = 1800.0
"""As long as the default recommender waits before it warns, and between two warnings."""


class Telemetry:
    """The metrics of one of `shards` recommenders. Labels have few values: verbs, codes, steps, states, resources."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: WallClock = time.time,
        stopwatch: MonotonicClock = time.monotonic,
        shards: int = 1,
    ) -> None:
        self.registry, self._clock, self._stopwatch = registry, clock, stopwatch
        self._finished_s, self._written_s = stopwatch(), float("nan")
        self._namespaces: set[str] = set()
        self._counter, self._gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self._seconds = partial(Histogram, registry=registry, buckets=DURATION_BUCKETS_S)
        self._unserved = Unserved(registry)
        self._add_round_metrics()
        self._add_object_metrics()
        self._add_quality_metrics()
        self._add_model_metrics()
        self._add_process_metrics(shards)

    # -- metrics ---------------------------------------------------------------------------------------------------

    def _add_round_metrics(self) -> None:
        self.rounds = self._counter("phasewise_rounds", "Rounds finished.")
        self.round_s = self._seconds("phasewise_round_seconds", "Duration of a round.")
        self.step_s = self._seconds("phasewise_round_step_seconds", "Duration of a round's step.", ["step"])
        age = self._gauge("phasewise_last_round_age_seconds", "Time since a round finished.")
        age.set_function(lambda: self._stopwatch() - self._finished_s)
        judged = "Samples compared with the request, or with the target where it is not applied."
        self.counts = {  # by the field of the round's report
            "samples": self._counter("phasewise_samples", "New samples of containers."),
            "decisions": self._counter("phasewise_decisions", "Forecasts made."),
            "published": self._counter("phasewise_targets_changed", "New targets published."),
            "resized_waiting": self._counter("phasewise_waiting_pods_resized", "Pods resized before they had a node."),
            "phase_changes": self._counter("phasewise_phase_changes", "Phases that containers entered."),
            "kills": self._counter("phasewise_oom_kills", "Kills for memory of our containers."),
            "judged": self._counter("phasewise_judged_samples", judged),
        }

    def _add_object_metrics(self) -> None:
        self.problems = self._gauge("phasewise_problems", "Objects with a problem in the last round.")
        self.unreadable = self._gauge("phasewise_unreadable_objects", "Watched objects that cannot be parsed.")
        self.containers = self._gauge("phasewise_containers", "Live containers.")
        self.vpas = self._gauge("phasewise_vpas", "VPAs by the kind of their recommendation.", ["state"])
        self.checkpoints = self._counter("phasewise_checkpoint_writes", "Writes of checkpoints.", ["outcome"])
        self.checkpoints_waiting = self._gauge("phasewise_checkpoints_waiting", "VPAs whose checkpoint is overdue.")
        for outcome in ("written", "failed"):
            self.checkpoints.labels(outcome)
        self.profiles_waiting = self._gauge("phasewise_profiles_waiting", "Changed PhaseProfiles not yet written.")

    def _add_quality_metrics(self) -> None:
        resized = "Time from a new target to the container that has it."
        self.resizes = self._seconds("phasewise_resize_seconds", resized, buckets=RESIZE_BUCKETS_S)
        self.lead_s = self._gauge("phasewise_lead_time_seconds", "How long before a phase its target is published.")
        self.deferred_s = self._gauge("phasewise_resize_deferred_seconds", "Age of the oldest deferred resize.")
        self.rails = self._gauge("phasewise_guard_rails", "Containers of VPAs whose target the rail changes.", ["rail"])
        self.next_phase_forecasts = self._counter(
            "phasewise_next_phase_forecasts", "Forecasts of the next phase, by outcome.", ["outcome"]
        )
        for outcome in ("hit", "miss"):
            self.next_phase_forecasts.labels(outcome)
        self.samples_refused = self._counter("phasewise_samples_refused", "Implausible samples and kills.", ["why"])
        self.violating = self._counter("phasewise_violating_samples", "Of these, those above it x 1.05.", ["resource"])
        self.slack_ratio = self._gauge(
            "phasewise_slack_ratio",
            "Request (or target where it is not applied) beyond use, divided by use, in the last round.",
            ["resource"],
        )
        less = "less than declared in running containers whose VPA is applied; below zero: more."
        self.saved_cpu_cores = self._gauge("phasewise_saved_cpu_cores", f"Cores requested {less}", ["namespace"])
        self.saved_memory_bytes = self._gauge("phasewise_saved_memory_bytes", f"Bytes requested {less}", ["namespace"])
        self.violation_ratio = self._gauge(
            "phasewise_violation_ratio",
            "Share of recent samples in violation, not counting those that limits, quotas or nodes explain; mean over "
            "VPA containers.",
            ["resource"],
        )

    def _add_model_metrics(self) -> None:
        self.model_info = self._gauge("phasewise_model_info", "The model in use.", ["origin", "hash"])
        age = self._gauge("phasewise_model_age_seconds", "Time since the model was written; NaN if unknown.")
        age.set_function(lambda: self._clock() - self._written_s)
        self.model_refused = self._gauge("phasewise_model_refused", "1 while a newer model is refused.")
        self.model_changes = self._counter("phasewise_model_changes", "Models adopted or refused.", ["outcome"])
        for outcome in ("adopted", "refused"):
            self.model_changes.labels(outcome)

    def _add_process_metrics(self, shards: int) -> None:
        self.leader = self._gauge("phasewise_leader", "1 while this process may write.")
        self._gauge("phasewise_shards", "Number of shards; each should have a leader.").set(shards)
        self._gauge("phasewise_build_info", "The version.", ["version"]).labels(__version__).set(1)
        self.requests = self._counter(
            "phasewise_api_requests", "Requests to the API server; code 0: no answer.", ["verb", "code"]
        )
        self.request_s = self._seconds("phasewise_api_request_seconds", "Time to an answer.", ["verb"])

    # -- updates ---------------------------------------------------------------------------------------------------

    def round_done(self, report: Report, vpas: Collection[VpaState], engine: Engine) -> None:
        self._finished_s = self._stopwatch()
        self.rounds.inc()
        self.round_s.observe(sum(report.step_s.values()))
        for step, duration_s in report.step_s.items():
            self.step_s.labels(step).observe(duration_s)
        for field, counter in self.counts.items():
            counter.inc(getattr(report, field))
        for resize_s in report.resizes_s:
            self.resizes.observe(resize_s)
        self.next_phase_forecasts.labels("hit").inc(report.forecast_hits)
        self.next_phase_forecasts.labels("miss").inc(report.forecast_misses)
        for why, number in report.refused.items():
            self.samples_refused.labels(why).inc(number)
        self.problems.set(len(report.problems))
        self.containers.set(len(engine.fleet.members))
        self.profiles_waiting.set(report.unwritten_profiles)
        self._unserved.update(vpas, self._stopwatch())
        states = Counts(map(_state_of, vpas))
        for state in STATES:
            self.vpas.labels(state).set(states[state])
        for rail, number in engine.rails_acting().items():
            self.rails.labels(rail).set(number)
        groups = engine.groups.arrays
        since_s = float(np.min(groups.deferred_since_s[groups.alive], initial=np.inf))
        self.deferred_s.set(max(0.0, self._clock() - since_s))
        shares = groups.violation_ratio()[groups.judged > 0.0]
        for place, resource in enumerate(RESOURCES):
            self.violation_ratio.labels(resource).set(float(shares[:, place].mean()) if len(shares) else 0.0)
            self.violating.labels(resource).inc(float(report.violating[place]))
            if report.used[place] > 0:
                self.slack_ratio.labels(resource).set(float(report.slack[place] / report.used[place]))
        self._set_saved(saved_by_namespace(engine))

    def _set_saved(self, saved: Mapping[str, FloatArray]) -> None:
        for place, gauge in enumerate((self.saved_cpu_cores, self.saved_memory_bytes)):
            for namespace in self._namespaces - saved.keys():
                gauge.remove(namespace)
            for namespace, amounts in saved.items():
                gauge.labels(namespace).set(float(amounts[place]))
        self._namespaces = set(saved)

    def stand_by(self) -> None:
        """Reset what describes the last round: another process leads, and reports these."""
        for gauge in (
            self.problems, self.unreadable, self.containers, self.checkpoints_waiting, self.profiles_waiting,
            self.lead_s, self.deferred_s, self.model_refused,
        ):  # fmt: skip
            gauge.set(0)
        for by_label in (self.vpas, self.rails, self.slack_ratio, self.violation_ratio):
            by_label.clear()
        self._set_saved({})
        self._unserved.update((), self._stopwatch())

    def checkpoints_written(self, written: int, failed: int, waiting: int) -> None:
        self.checkpoints.labels("written").inc(written)
        self.checkpoints.labels("failed").inc(failed)
        self.checkpoints_waiting.set(waiting)

    def model(self, loaded: Loaded | None, problem: str) -> None:
        """A model was put into use, or one was refused for a reason."""
        self.model_changes.labels("refused" if problem else "adopted").inc()
        if loaded is not None:
            self.model_info.clear()
            self.model_info.labels(loaded.model.origin, loaded.digest[:12]).set(1)
            self._written_s = or_nan(loaded.written_s)

    def api_request(self, method: str, status: int, duration_s: float) -> None:
        """Count a request to the API server; status 0 means no answer. Thread-safe."""
        self.requests.labels(method, str(status)).inc()
        self.request_s.labels(method).observe(duration_s)


def saved_by_namespace(engine: Engine) -> dict[str, FloatArray]:
    """Cores and bytes by which running containers request less than their owners declare, by namespace.

    Only where targets are applied; a resource that is not declared does not count.
    """
    fleet, groups, by_slot = engine.fleet.arrays, engine.groups.arrays, engine.groups.by_slot
    slots = np.flatnonzero(fleet.alive & (fleet.group != NO_GROUP))
    owner, numbers = fleet.group[slots], dict[str, int]()
    declared = np.column_stack([groups.declared_cores, groups.declared_bytes])[owner]
    saved = np.where(groups.applied[owner, np.newaxis], np.nan_to_num(declared - fleet.requests[slots]), 0.0)
    namespaces = [numbers.setdefault(by_slot[group].namespace, len(numbers)) for group in owner.tolist()]
    total = np.zeros((len(numbers), len(RESOURCES)))
    np.add.at(total, namespaces, saved)
    return dict(zip(numbers, total, strict=True))


def _state_of(vpa: VpaState) -> str:
    if not vpa.targets:
        return "silent"
    return "in_doubt" if any(target.doubt for target in vpa.targets.values()) else "recommended"


class Unserved:
    """VPAs that have had no recommendation for a long time: counted, and logged now and then."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._since_s: dict[ObjectKey, float] = {}
        self._warned_s: dict[ObjectKey, float] = {}
        self._gauge = Gauge(
            "phasewise_vpas_unserved",
            "VPAs of running pods without any recommendation for half an hour or more.",
            registry=registry,
        )

    def update(self, states: Iterable[VpaState], now_s: float) -> None:
        """Count and log them; `now_s` in monotonic seconds."""
        lacking = {state.vpa.key: state for state in states if _is_unserved(state)}
        self._since_s = {key: self._since_s.get(key, now_s) for key in lacking}
        self._warned_s = {key: at_s for key, at_s in self._warned_s.items() if key in lacking}
        overdue = [key for key, since_s in self._since_s.items() if now_s - since_s >= UNSERVED_AFTER_S]
        for key in overdue:
            if now_s - self._warned_s.get(key, -UNSERVED_AFTER_S) >= UNSERVED_AFTER_S:
                self._warned_s[key] = now_s
                minutes = (now_s - self._since_s[key]) / 60.0
                why = lacking[key].selection.problem or "there are no usage metrics of its pods"
                log.warning("%s: no recommendation for %.0f minutes: %s", key, minutes, why)
        self._gauge.set(len(overdue))


def _is_unserved(state: VpaState) -> bool:
    """There is no recommendation, although pods run or cannot be determined, and the user has not turned it off."""
    if state.published or b'"containerName"' in state.vpa.status_json:  # while observing, the status stays empty
        return False
    if not state.selection.problem and all(pod.finished or pod.phase == PENDING for pod in state.selection.pods):
        return False  # as of a queued job, of one that waits for a node, and of a workload that is scaled to zero
    names = state.selection.containers or ("*",)
    policies = [state.vpa.policy_for(name) for name in names]
    return any(policy.mode != "Off" and policy.controlled for policy in policies)
