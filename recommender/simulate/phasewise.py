"""The engine as the recommender of recorded traces: it gets in each round what a cluster would show it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from recommender.base.records import (
    CPU,
    MEMORY,
    Amounts,
    BoolArray,
    FloatArray,
    IntArray,
    Limits,
    Reason,
    UsageSeries,
    amounts_of,
)
from recommender.base.slots import SlotArrays, fresh
from recommender.engine.classes import Classes
from recommender.engine.containers import Member
from recommender.engine.engine import Engine
from recommender.engine.fleet import Fleet
from recommender.engine.foresight import PhaseForesight
from recommender.engine.group_arrays import TARGET
from recommender.engine.keys import Ended, Group, Instance, Kill, Rules, Running
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.seen import Samples, Seen
from recommender.engine.tally import Report
from recommender.learning.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.policies.experts import ALL_EXPERTS
from recommender.policies.memory_runs import NO_CLASSES
from recommender.simulate.clock import CONTAINER, Recommended, Round, RoundInput, SimulatedRecommender, Trace
from recommender.simulate.in_force import constrained
from recommender.simulate.judging import ClusterRules
from recommender.simulate.playing import has_no_limit


class Phasewise(SimulatedRecommender):
    """Each run is the only pod of a job with a VPA of its own; operators' limits are at their defaults.

    There is a model for each trace; `experts`, bool (EXPERTS,), may decide CPU. More is learned into `classes`;
    `problems` are failures, by object; with `explains`, `reasons` are those of the targets of each trace.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        models: Sequence[PhaseModel],
        rules: ClusterRules,
        step_s: float,
        cycle_samples: int,
        options: Options,
        classes: Classes,
        experts: BoolArray = ALL_EXPERTS,
        *,
        explains: bool = False,
    ) -> None:
        self._traces, self._maximum = traces, _largest_node(traces)
        self._at_s = np.concatenate([trace.series.timestamps for trace in traces]).astype(np.float64)
        self._offsets = np.cumsum([0, *(len(trace.series) for trace in traces)])[:-1]
        follow = rules.limits == "follow"
        self._limits_follow = [follow and not has_no_limit(trace, rules) for trace in traces]
        self._rules = Rules(evicts=rules.recreates, repeats=False)
        self._instances = [Instance("", f"{number:09d}", CONTAINER) for number in range(len(traces))]
        self._groups = [Group(*instance) for instance in self._instances]
        self._declared: list[Amounts] = [amounts_of(trace.declared[0]) for trace in traces]
        self._started_s = [started_s(trace.series) for trace in traces]
        self._number = {group: number for number, group in enumerate(self._groups)}
        distinct = {id(model): model for model in models}
        if len(distinct) > 1:
            places = {one: place for place, one in enumerate(distinct)}
            fold_of = {instance: places[id(model)] for instance, model in zip(self._instances, models, strict=True)}
            made: Fleet = FoldedFleet([*distinct.values()], fold_of, step_s, cycle_samples)
        else:
            made = Fleet(models[0], step_s, cycle_samples)
        made.experts = experts
        lead_time = KnownLeadTime(rules.apply_delay_s + step_s, step_s)
        self._engine, self._step_s = Engine(made, options, lead_time, classes=classes), step_s
        self._unpublished: set[int] = set()
        self._gone: list[int] = []
        self.problems: dict[str, str] = {}
        self._explains, self.reasons = explains, [list[Reason]() for _ in traces]

    def expect(self, now: Round, has: FloatArray) -> Recommended:
        """Recommendations for the traces that begin, by the earlier runs of their classes; they have no node yet."""
        report = Report()
        waiting = {self._instances[number]: self._running(number, has)._replace(started_s=None) for number in now.began}
        self._engine.step(now.now_s, Seen(self._new_groups(now), waiting), report)
        self.problems |= report.problems
        self._unpublished.update(map(self._number.__getitem__, self._engine.retargeted))
        return self._publish(self._unpublished.intersection(now.began), now.now_s)

    def recommend(self, observed: RoundInput) -> Recommended:
        """Recommendations that changed."""
        now_s, report = observed.round.now_s, Report()
        gone = dict.fromkeys(self._groups[number] for number in self._gone)
        groups = {**gone, **self._new_groups(observed.round)}
        seen = Seen(groups, self._changed_containers(observed), self._samples(observed), self._kills(observed))
        self._gone = list(observed.round.ended)
        self._engine.step(now_s, seen, report)
        self.problems |= report.problems
        self._unpublished.update(map(self._number.__getitem__, self._engine.retargeted))
        return self._publish(self._unpublished, now_s)

    def next_memory(self) -> dict[str, float]:
        """Bytes that the next run like each of the traces would be given at its start, where its class bounds them."""
        now_s = max(float(trace.series.timestamps[-1]) for trace in self._traces) + 2.0 * self._step_s
        numbers = range(len(self._traces))
        groups = self._new_groups(Round(now_s, np.empty(0, np.int64), np.empty(0, np.int64), numbers, ()))
        has = np.array(self._declared)
        waiting = {self._instances[number]: self._running(number, has)._replace(started_s=None) for number in numbers}
        gone = [group for group in groups if group in self._engine.groups.slots]
        self._engine.step(now_s, Seen(dict.fromkeys(gone), dict.fromkeys(waiting)), Report())
        self._engine.step(now_s + self._step_s, Seen(groups, waiting), Report())
        found = {}
        for trace, group in zip(self._traces, self._groups, strict=True):
            if (next_run := self._engine.next_run(group, trace.series.facts.input_size)) is not None:
                found[trace.series.container] = next_run[MEMORY]
        return found

    def _new_groups(self, now: Round) -> dict[Group, Rules]:
        return {
            self._groups[number]: self._rules._replace(
                declared_cores=self._declared[number][CPU],
                declared_bytes=self._declared[number][MEMORY],
                limits_follow=self._limits_follow[number],
            )
            for number in now.began
        }

    def _changed_containers(self, observed: RoundInput) -> dict[Instance, Running | None]:
        changed: dict[Instance, Running | None] = {self._instances[number]: None for number in self._gone}
        for number in {*observed.round.began, *observed.changed}:
            changed[self._instances[number]] = self._running(number, observed.has)
        for number in observed.round.ended:
            running, series = self._running(number, observed.has), self._traces[number].series
            if series.facts.ended:
                running = running._replace(finished=True, ended=_end(series, running.started_s, self._step_s))
            changed[self._instances[number]] = running
        return changed

    def _running(self, number: int, has: FloatArray) -> Running:
        series, requests = self._traces[number].series, amounts_of(has[number])
        # No simulated CPU limit: the recorded usage was not throttled by it.
        limits = (math.nan, requests[MEMORY] if self._limits_follow[number] else math.nan)
        group, began_s, facts = self._groups[number], self._started_s[number], series.facts
        costly = facts.devices > 0.0
        return Running(group, series.workload, began_s, requests, limits, input_size=facts.input_size, costly=costly)

    def _samples(self, observed: RoundInput) -> Samples:
        at_s = self._at_s[self._offsets[observed.round.numbers] + observed.round.positions]
        instances = list(map(self._instances.__getitem__, observed.round.numbers.tolist()))
        return Samples(instances, np.column_stack([at_s, observed.usage]))

    def _kills(self, observed: RoundInput) -> list[Kill]:
        now_s = observed.round.now_s
        return [Kill(self._groups[number], self._instances[number], now_s, had) for number, had in observed.kills]

    def _publish(self, changed: set[int], now_s: float) -> Recommended:
        """Publish the targets of these traces, if they have one."""
        self._unpublished = self._unpublished - changed
        numbers = [number for number in sorted(changed) if self._groups[number] in self._engine.targets]
        groups = [self._groups[number] for number in numbers]
        slots = [self._engine.groups.slots[group] for group in groups]
        uncapped, bounds = constrained(self._engine.groups.arrays.targets[slots], self._maximum)
        targets = uncapped[:, TARGET].tolist(), bounds[:, TARGET].tolist()
        for number, group, target, in_force in zip(numbers, groups, *targets, strict=True):
            if self._engine.published(group, target, in_force, now_s) and self._explains:
                self.reasons[number].append((now_s, tuple(self._engine.why(group).words())))
        return Recommended(numbers, bounds)


def started_s(series: UsageSeries) -> float:
    """Start of a run, unix seconds: as its pod says, else its first sample."""
    return float(np.fmin(series.facts.started_s, float(series.timestamps[0])))


def _end(series: UsageSeries, began_s: float | None, step_s: float) -> Ended:
    """How a run ended: unless recorded otherwise successfully, one step after its last sample."""
    facts = series.facts
    last_s = float(series.timestamps[-1]) + step_s
    exit_code = 0 if math.isnan(facts.exit_code) else int(facts.exit_code)
    return Ended(exit_code, began_s, last_s if math.isnan(facts.finished_s) else facts.finished_s)


def _largest_node(traces: Sequence[Trace]) -> Limits:
    """The most cores and bytes that a node of these traces has for pods; None if unknown."""
    nodes = [trace.series.facts.allocatable for trace in traces]
    cpu_cores, memory_bytes = (float(np.fmax.reduce(amounts, initial=math.nan)) for amounts in zip(*nodes, strict=True))
    return None if math.isnan(cpu_cores) else cpu_cores, None if math.isnan(memory_bytes) else memory_bytes


class KnownLeadTime(LeadTime):
    """Every simulated resize takes as long, so that none has to be observed."""

    def published(self, *_: object, **__: object) -> None: ...

    def observe(self, *_: object, **__: object) -> None: ...


class FoldNumbers(SlotArrays):
    number: IntArray = fresh(0)


class FoldedFleet(Fleet):
    """A fleet under several models, stepped once: everything except phases and plans is computed for all together.

    The models have one lag; `fold_of` is the index of the model of each container. For the rest see `Containers`.
    """

    def __init__(
        self, models: Sequence[PhaseModel], fold_of: Mapping[Instance, int], step_s: float, cycle_samples: int
    ) -> None:
        super().__init__(models[0], step_s, cycle_samples)
        self._fold_of, self._folds = fold_of, FoldNumbers()
        self._trackers = [self.tracker, *(PhaseTracker(model.detector) for model in models[1:])]
        self.memory_variances = NO_CLASSES  # those of one model have the containers that another one plays
        self._foresights = [self.foresight, *(PhaseForesight(model, step_s) for model in models[1:])]

    def set_objectives(self, target_violation: tuple[float, float], resizes_per_hour: float) -> None:
        for foresight in self._foresights:
            foresight.set_objectives(target_violation, resizes_per_hour)

    def _parts(self) -> tuple[SlotArrays, ...]:
        trackers, foresights = self._trackers[1:], self._foresights[1:]
        return (*super()._parts(), self._folds, *(one.state for one in trackers), *(one.state for one in foresights))

    def _table_of(self, member: Member) -> int:
        fold = self._folds.number[member.slot] = self._fold_of[member.instance]
        in_fold = self.arrays.alive & (self._folds.number == fold)
        return self._foresights[fold].table_of(member.phases_of, self.arrays.table[in_fold])

    def _by_model(self, slots: IntArray) -> Iterator[tuple[PhaseTracker, PhaseForesight, IntArray | slice]]:
        folds = self._folds.number[slots]
        for fold in sorted(set(folds.tolist())):
            yield self._trackers[fold], self._foresights[fold], np.flatnonzero(folds == fold)
