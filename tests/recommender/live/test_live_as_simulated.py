"""What the dry run plays is what runs live: the same traces, told by the simulated cluster and by a fake one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod, Termination, read_pod
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import Condition
from recommender.engine.classes import Classes
from recommender.engine.fleet import Fleet
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.judging import ClusterRules
from recommender.live.round import Recommender
from recommender.live.view.view import SelectedPods
from recommender.policies.constraints import SharedLimits
from recommender.records import MEMORY, ContainerRecommendation, Sample, amounts_of
from recommender.simulate.clock import RoundInput, SimulatedRecommender, Trace
from recommender.simulate.in_force import Outcome
from recommender.simulate.phasewise import Phasewise
from recommender.simulate.playing import play
from tests.fakes.records import MODEL, FakeView, a_vpa
from tests.recommender.simulate.worked import START, STEP_S, rules, trace

CYCLE_SAMPLES = 6


class Jobs(FakeView):
    """Each trace is the only pod of a Job with a VPA of its own; all three are called by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.running: dict[str, tuple[Vpa, SelectedPods]] = {}
        self.said: list[tuple[int, ContainerRecommendation]] = []

    def vpas(self) -> Sequence[Vpa]:
        return [vpa for vpa, _ in self.running.values()]

    def select(self, vpa: Vpa) -> SelectedPods:
        return self.running[vpa.key.name][1]

    def publish(
        self, vpa: Vpa, recommendations: Sequence[ContainerRecommendation], _: Mapping[str, Condition | None]
    ) -> None:
        (one,) = recommendations
        self.said.append((int(vpa.key.name), one))


class Live:
    """The live recommender, asked as a simulated cluster asks."""

    def __init__(self, traces: Sequence[Trace], rules: ClusterRules) -> None:
        self._traces, self._rules, self._left = traces, rules, list[int]()
        self.view = Jobs()
        self.ours = Recommender(
            self.view,
            partial(Fleet, MODEL, STEP_S, CYCLE_SAMPLES),
            Options(),
            SharedLimits(),
            clock=lambda: self.view.now_s,
            stopwatch=lambda: 0.0,
            lead_time=LeadTime(rules.apply_delay_s + STEP_S, STEP_S),
        )

    def recommend(self, told: RoundInput) -> Sequence[tuple[int, ContainerRecommendation]]:
        view, now = self.view, told.round
        view.now_s, view.said = now.now_s, []
        for number in self._left:
            del view.running[named(number)]
        for number in sorted({*now.began, *told.changed, *now.ended}):
            view.running[named(number)] = self._job(number, told, ended=number in now.ended)
        self._left = list(now.ended)
        for number, position, used in zip(now.numbers.tolist(), now.positions.tolist(), told.usage, strict=True):
            at_s = float(self._traces[number].series.timestamps[position])
            view.used.append((ContainerKey("ns", named(number), "main"), Sample(at_s, *used.tolist())))
        view.killed = [OomObservation(ObjectKey("ns", named(n)), "main", now.now_s, had) for n, had in told.kills]
        assert self.ours.run().problems == {}
        return view.said

    def _job(self, number: int, told: RoundInput, *, ended: bool) -> tuple[Vpa, SelectedPods]:
        name, series = named(number), self._traces[number].series
        has, limited = amounts_of(told.has[number]), self._rules.kills.limits == "follow"
        start_s = float(series.timestamps[0])
        end = Termination("Completed", start_s, float(series.timestamps[-1]) + STEP_S, 0)
        pod = a_pod(name, limited=limited)
        container = replace(
            pod.containers[0],
            requests=has,
            limits=(math.nan, has[MEMORY]) if limited else pod.containers[0].limits,
            started_s=start_s,
            terminated=end if ended else None,
        )
        pod = replace(pod, phase="Succeeded" if ended else "Running", containers=(container,))
        before = self.view.running.get(name)
        mode = "Recreate" if self._rules.kills.recreates else "InPlaceOrRecreate"
        vpa = before[0] if before else read_vpa(a_vpa(name, updatePolicy={"updateMode": mode}))
        return vpa, SelectedPods([pod], {name: series.workload})


def named(number: int) -> str:
    return f"{number:09d}"


def a_pod(name: str, *, limited: bool) -> Pod:
    resources: dict[str, Any] = {"requests": {"cpu": "1", "memory": "4Gi"}}
    if limited:
        resources["limits"] = {"memory": "4Gi"}
    return read_pod(
        {
            "metadata": {"namespace": "ns", "name": name, "uid": name},
            "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
            "status": {"phase": "Running", "qosClass": "Burstable"},
        }
    )


def jobs_of_three_classes() -> list[Trace]:
    """Six runs of each, several at a time: steady ones, ones of two phases, ones that need more than they declare."""
    chance, found = np.random.default_rng(0), list[Trace]()
    for number in range(18):
        kind, samples = number % 3, int(chance.integers(40, 70))
        stage = np.arange(samples) * 2 // samples
        memory_gib = {0: np.full(samples, 1.0), 1: 0.5 + 1.5 * stage, 2: 0.5 + 5.0 * stage}[kind]
        one = trace(
            memory_gib * chance.uniform(0.97, 1.03, samples),
            name=f"run-{number}",
            start=START + 20 * number * int(STEP_S),
            workload=("steady", "staged", "beyond")[kind],
        ).series
        one.usage[:, 0] = np.where(stage == 1, 0.9, 0.2) * chance.uniform(0.8, 1.1, samples)
        found.append(Trace(one, 4))
    return found


def simulated(traces: Sequence[Trace], by: ClusterRules) -> Phasewise:
    return Phasewise(traces, [MODEL] * len(traces), by, STEP_S, CYCLE_SAMPLES, Options(), Classes())


@dataclass
class Noted:
    """A recommender, and each time that it said something else of a container: which, when, and every bit of it."""

    recommender: SimulatedRecommender
    stands: dict[int, bytes] = field(default_factory=dict)
    changes: list[tuple[float, int, bytes]] = field(default_factory=list)

    def recommend(self, told: RoundInput) -> Sequence[tuple[int, ContainerRecommendation]]:
        said = self.recommender.recommend(told)
        for number, one in sorted(said, key=lambda each: each[0]):
            bits = np.array([one.lower, one.target, one.upper]).tobytes()
            if self.stands.get(number) != bits:
                self.changes.append((told.round.now_s, number, bits))
                self.stands[number] = bits
        return said


def course(kept: Outcome) -> tuple[object, ...]:
    return kept.positions, kept.amounts, kept.marks


@pytest.mark.parametrize(
    "by",
    [rules(20.0), rules(20.0, "none"), rules(20.0, recreates=True)],
    ids=["limits follow", "without limits", "made anew"],
)
def test_the_same_traces_come_to_the_same_targets_bit_for_bit(by: ClusterRules) -> None:
    traces = jobs_of_three_classes()
    offline, live = (Noted(one) for one in (simulated(traces, by), Live(traces, by)))
    kept, kept_live = (play(traces, one, by, STEP_S) for one in (offline, live))
    assert offline.changes == live.changes
    assert [course(one) for one in kept] == [course(one) for one in kept_live]
    assert len(offline.changes) > 4 * len(traces)
    happened = {name for one in kept for name, at_s in one.marks.items() if at_s}
    assert happened >= {"asked", "applied", *(["killed"] if by.kills.limits == "follow" else [])}
