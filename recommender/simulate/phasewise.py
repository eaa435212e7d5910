"""The engine as the recommender of recorded traces: told in each round what a cluster would tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from recommender.engine.classes import Classes
from recommender.engine.engine import Engine
from recommender.engine.fleet import Fleet
from recommender.engine.keys import Ended, Group, Instance, Kill, Rules, Running
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.seen import Seen
from recommender.engine.tally import Report
from recommender.engine.target import Target
from recommender.judging import ClusterRules
from recommender.model import PhaseModel
from recommender.policies.constraints import Limits, NoRules, SharedLimits, constrain
from recommender.records import ContainerRecommendation, FloatArray, Sample, UsageSeries, amounts_of
from recommender.simulate.clock import Trace
from recommender.simulate.told import Told

CONTAINER = "main"


@dataclass(slots=True)
class Fed:
    """One engine, what it is to be told next, and what it said last."""

    engine: Engine
    groups: dict[Group, Rules | None] = field(default_factory=dict)
    containers: dict[Instance, Running | None] = field(default_factory=dict)
    samples: list[tuple[Instance, Sample]] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    said: dict[Group, Target] = field(default_factory=dict)

    def take(self) -> Seen:
        """What was gathered; gathering begins anew."""
        seen = Seen(self.groups, self.containers, self.samples, self.kills)
        self.groups, self.containers, self.samples, self.kills = {}, {}, [], []
        return seen


class Phasewise:
    """Each run is the only pod of a job with a VPA of its own; operators' limits are at their defaults.

    Parameters
    ----------
    models
        That each trace is looked after with. Where they differ there are as many engines; what is known of classes is
        known to all.
    options
        What an operator may turn.
    classes
        What is known of classes before; more is learned.
    fleet
        Decides what CPU is wanted.

    Attributes
    ----------
    engines
        One for each model.
    problems
        What went wrong, by what it is about.
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
        fleet: type[Fleet] = Fleet,
    ) -> None:
        self._traces, self._limits, self._policy = traces, SharedLimits(maximum=_largest_node(traces)), NoRules()
        self._at_s = np.concatenate([trace.series.timestamps for trace in traces]).astype(np.float64)
        self._begins = np.cumsum([0, *(len(trace.series) for trace in traces)])[:-1]
        self._limits_follow = rules.kills.limits == "follow"
        self._rules = Rules(evicts=rules.kills.recreates, limits_follow=self._limits_follow, repeats=False)
        lead_time = partial(LeadTime, rules.apply_delay_s + step_s, step_s)
        engines = {
            key: Fed(Engine(partial(fleet, model, step_s, cycle_samples), options, lead_time(), classes=classes))
            for key, model in {id(model): model for model in models}.items()
        }
        self._engine_of, self._step_s = [engines[id(model)] for model in models], step_s
        self.engines = list(engines.values())
        self._instances = [Instance("", f"{number:09d}", CONTAINER) for number in range(len(traces))]
        self._groups = [Group(*instance) for instance in self._instances]
        self._number = {group: number for number, group in enumerate(self._groups)}
        self._left: list[int] = []
        self.problems: dict[str, str] = {}

    def recommend(self, told: Told) -> list[tuple[int, ContainerRecommendation]]:
        """What it says from now on; of those of which it says the same as before, nothing."""
        self._tell_containers(told)
        self._tell_use(told)
        return [one for engine in self.engines for one in self._step(engine, told.round.now_s)]

    def _tell_containers(self, told: Told) -> None:
        for number in self._left:
            self._engine_of[number].containers[self._instances[number]] = None
            self._engine_of[number].groups[self._groups[number]] = None
        for number in told.round.began:
            self._engine_of[number].groups[self._groups[number]] = self._rules
        for number in {*told.round.began, *told.changed}:
            self._engine_of[number].containers[self._instances[number]] = self._running(number, told.has)
        for number in told.round.ended:
            running, series = self._running(number, told.has), self._traces[number].series
            if series.facts.over:
                running = running._replace(finished=True, ended=_end(series, running.started_s, self._step_s))
            self._engine_of[number].containers[self._instances[number]] = running
        self._left = list(told.round.ended)

    def _running(self, number: int, has: FloatArray) -> Running:
        series, requests = self._traces[number].series, amounts_of(has[number])
        limits = requests if self._limits_follow else (float("nan"), float("nan"))
        group, began_s, facts = self._groups[number], started_s(series), series.facts
        costly = facts.devices > 0.0
        return Running(group, series.workload, began_s, requests, limits, input_size=facts.input_size, costly=costly)

    def _tell_use(self, told: Told) -> None:
        at_s = self._at_s[self._begins[told.round.numbers] + told.round.positions]
        samples = map(Sample, at_s.tolist(), *told.usage.T.tolist())
        for number, sample in zip(told.round.numbers.tolist(), samples, strict=True):
            self._engine_of[number].samples.append((self._instances[number], sample))
        for number, had_bytes in told.kills:
            kill = Kill(self._groups[number], self._instances[number], told.round.now_s, had_bytes)
            self._engine_of[number].kills.append(kill)

    def _step(self, engine: Fed, now_s: float) -> list[tuple[int, ContainerRecommendation]]:
        report = Report()
        targets = engine.engine.step(now_s, engine.take(), report)
        self.problems |= report.problems
        anew = [(group, target) for group, target in targets.items() if engine.said.get(group) is not target]
        if len(engine.said) > len(targets):
            engine.said = dict(targets)
        return [self._publish(engine, group, target, now_s) for group, target in anew]

    def _publish(self, engine: Fed, group: Group, target: Target, now_s: float) -> tuple[int, ContainerRecommendation]:
        engine.said[group] = target
        (one,) = constrain({CONTAINER: target.estimate}, lambda _: self._policy, self._limits)
        engine.engine.published(group, one.uncapped, one.target, now_s)
        return self._number[group], one


def started_s(series: UsageSeries) -> float:
    """When a run began, unix seconds: as its pod tells, else with its first sample."""
    return float(np.fmin(series.facts.started_s, float(series.timestamps[0])))


def _end(series: UsageSeries, began_s: float | None, step_s: float) -> Ended:
    """How a run that is over ended: well, where nobody says otherwise, one step after its last sample."""
    facts = series.facts
    last_s = float(series.timestamps[-1]) + step_s
    exit_code = 0 if math.isnan(facts.exit_code) else int(facts.exit_code)
    return Ended(exit_code, began_s, last_s if math.isnan(facts.finished_s) else facts.finished_s)


def _largest_node(traces: Sequence[Trace]) -> Limits:
    """The most cores and bytes that a node of these traces has for pods; None where none is told."""
    told = [trace.series.facts.allocatable for trace in traces]
    cpu_cores, memory_bytes = (float(np.fmax.reduce(amounts, initial=math.nan)) for amounts in zip(*told, strict=True))
    return None if math.isnan(cpu_cores) else cpu_cores, None if math.isnan(memory_bytes) else memory_bytes
