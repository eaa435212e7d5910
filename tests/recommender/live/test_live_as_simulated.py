"""The dry run simulates what runs live: the same traces, in the simulated cluster and in a fake one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from recommender.base.records import MEMORY, ContainerKey, ContainerRecommendation, Sample, amounts_of
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Termination
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import Condition
from recommender.engine.classes import Classes
from recommender.engine.fleet import Fleet
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.live.round import Recommender
from recommender.live.view.view import SelectedPods
from recommender.policies.constraints import SharedLimits
from recommender.simulate.clock import Recommended, RoundInput, SimulatedRecommender, Trace
from recommender.simulate.in_force import SimulatedRun
from recommender.simulate.judging import ClusterRules
from recommender.simulate.phasewise import Phasewise
from recommender.simulate.playing import play
from tests.fakes.records import MODEL, FakeView, a_container, a_vpa, pod_of
from tests.recommender.simulate.worked import START, STEP_S, as_arrays, rules, trace

CYCLE_SAMPLES = 6


class Jobs(FakeView):
    """Each trace is the only pod of a Job with a VPA of its own; all three are named by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.running: dict[str, tuple[Vpa, SelectedPods]] = {}
        self.recommended: list[tuple[int, ContainerRecommendation]] = []

    def vpas(self) -> Sequence[Vpa]:
        return [vpa for vpa, _ in self.running.values()]

    def select(self, vpa: Vpa) -> SelectedPods:
        return self.running[vpa.key.name][1]

    def publish(
        self, vpa: Vpa, recommendations: Sequence[ContainerRecommendation], _: Mapping[str, Condition | None]
    ) -> None:
        (recommendation,) = recommendations
        self.recommended.append((int(vpa.key.name), recommendation))


class Live:
    """The live recommender, behind the interface of the simulation."""

    def __init__(self, traces: Sequence[Trace], rules: ClusterRules) -> None:
        self._traces, self._rules, self._ended = traces, rules, list[int]()
        self.view = Jobs()
        self.ours = Recommender(
            self.view,
            Fleet(MODEL, STEP_S, CYCLE_SAMPLES),
            Options(),
            SharedLimits(),
            clock=lambda: self.view.now_s,
            stopwatch=lambda: 0.0,
            lead_time=LeadTime(rules.apply_delay_s + STEP_S, STEP_S),
        )

    def recommend(self, observed: RoundInput) -> Recommended:
        view, now = self.view, observed.round
        view.now_s, view.recommended = now.now_s, []
        for number in self._ended:
            del view.running[name_of(number)]
        for number in sorted({*now.began, *observed.changed, *now.ended}):
            view.running[name_of(number)] = self._job(number, observed, ended=number in now.ended)
        self._ended = list(now.ended)
        for number, position, used in zip(now.numbers.tolist(), now.positions.tolist(), observed.usage, strict=True):
            at_s = float(self._traces[number].series.timestamps[position])
            view.used.append((ContainerKey("ns", name_of(number), "main"), Sample(at_s, *used.tolist())))
        view.killed = [OomObservation(ObjectKey("ns", name_of(n)), "main", now.now_s, had) for n, had in observed.kills]
        assert self.ours.run().problems == {}
        return as_arrays(dict(view.recommended))

    def _job(self, number: int, observed: RoundInput, *, ended: bool) -> tuple[Vpa, SelectedPods]:
        name, series = name_of(number), self._traces[number].series
        requests, limited = amounts_of(observed.has[number]), self._rules.limits == "follow"
        start_s = float(series.timestamps[0])
        end = Termination("Completed", start_s, float(series.timestamps[-1]) + STEP_S, 0)
        limits = {"memory": "4Gi"} if limited else {}
        pod = pod_of(name, a_container(limits=limits, cpu="1", memory="4Gi"), status={"qosClass": "Burstable"})
        container = replace(
            pod.containers[0],
            requests=requests,
            limits=(math.nan, requests[MEMORY]) if limited else pod.containers[0].limits,
            started_s=start_s,
            terminated=end if ended else None,
        )
        pod = replace(pod, phase="Succeeded" if ended else "Running", containers=(container,))
        before = self.view.running.get(name)
        mode = "Recreate" if self._rules.recreates else "InPlaceOrRecreate"
        vpa = before[0] if before else read_vpa(a_vpa(name, updatePolicy={"updateMode": mode}))
        declared = {"main": amounts_of(self._traces[number].declared[0])}
        return vpa, SelectedPods([pod], {pod.uid: series.workload}, declared=declared)


def name_of(number: int) -> str:
    return f"{number:09d}"


def jobs_of_three_classes() -> list[Trace]:
    """Four runs each, overlapping: steady, with two phases, and with more need than declared."""
    chance, traces = np.random.default_rng(0), list[Trace]()
    for number in range(12):
        kind, samples = number % 3, int(chance.integers(40, 70))
        stage = np.arange(samples) * 2 // samples
        memory_gib = {0: np.full(samples, 1.0), 1: 0.5 + 1.5 * stage, 2: 0.5 + 5.0 * stage}[kind]
        series = trace(
            memory_gib * chance.uniform(0.97, 1.03, samples),
            name=f"run-{number}",
            start=START + 20 * number * int(STEP_S),
            workload=("steady", "staged", "beyond")[kind],
        ).series
        series.usage[:, 0] = np.where(stage == 1, 0.9, 0.2) * chance.uniform(0.8, 1.1, samples)
        traces.append(Trace(series, 4))
    return traces


@dataclass
class ChangeRecorder:
    """A recommender, and each change of a container's recommendation: when, which container, and all bits."""

    recommender: SimulatedRecommender
    current: dict[int, bytes] = field(default_factory=dict)
    changes: list[tuple[float, int, bytes]] = field(default_factory=list)

    def recommend(self, observed: RoundInput) -> Recommended:
        published = self.recommender.recommend(observed)
        for number, each in sorted(zip(*published, strict=True), key=lambda pair: pair[0]):
            bits = each.tobytes()
            if self.current.get(number) != bits:
                self.changes.append((observed.round.now_s, number, bits))
                self.current[number] = bits
        return published


def comparable(outcome: SimulatedRun) -> tuple[object, ...]:
    return outcome.positions, outcome.amounts, outcome.marks


@pytest.mark.parametrize(
    "cluster_rules",
    [rules(20.0), rules(20.0, "none"), rules(20.0, recreates=True)],
    ids=["limits follow", "without limits", "recreated"],
)
def test_live_and_simulated_recommenders_publish_the_same_targets_bit_for_bit(cluster_rules: ClusterRules) -> None:
    traces = jobs_of_three_classes()
    simulated = Phasewise(traces, [MODEL] * len(traces), cluster_rules, STEP_S, CYCLE_SAMPLES, Options(), Classes())
    offline, live = (ChangeRecorder(each) for each in (simulated, Live(traces, cluster_rules)))
    outcomes, live_outcomes = (play(traces, each, cluster_rules, STEP_S) for each in (offline, live))
    assert offline.changes == live.changes
    assert [comparable(each) for each in outcomes] == [comparable(each) for each in live_outcomes]
    assert len(offline.changes) > 4 * len(traces)
    marks = {name for outcome in outcomes for name, at_s in outcome.marks.items() if at_s}
    assert marks >= {"asked", "applied", *(["killed"] if cluster_rules.limits == "follow" else [])}
