"""Pods, VPAs, kills, bad metrics, clocks, failures and restarts in any order: rounds go on, and targets stay sound."""

from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.oom import OomObservation
from recommender.engine.journal import Journal
from recommender.engine.options import BandOptions
from recommender.engine.recording import Recorder
from recommender.engine.replaying import Replay
from tests.examples import at_most
from tests.fakes.records import GIB, FakeView, a_pod, a_vpa, recommender, use

KEPT_SHARE = 1.0 - BandOptions().rise_memory
"""A target that is lower by no more than this stays."""

PODS = st.sampled_from(["job-0", "job-1", "job-2"])
USE = st.sampled_from([0.0, 0.3, 1.0, 2.5])


class Unreliable(FakeView):
    """A cluster whose API server does not always answer."""

    answers = True

    def publish(self, *args: Any) -> None:
        self._answer()
        super().publish(*args)

    def write_profile(self, *args: Any) -> None:
        self._answer()
        super().write_profile(*args)

    def saved_state(self, *args: Any) -> str | None:
        return next((one["state"] for one in reversed(self.profiles.get("job", [])) if "state" in one), None)

    def _answer(self) -> None:
        if not self.answers:
            raise Unreachable("the API server does not answer")


class AnyOrder(RuleBasedStateMachine):
    """One VPA and up to three pods; each rule ends with a round."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.file, self.cluster = Path(self.folder.name) / "record", Unreliable()
        self.recorder = Recorder(Journal(self.file, 2**22))
        self.cluster.raw["job"], self.cluster.pods["job"] = a_vpa(), []
        self.ours = recommender(self.cluster, recorder=self.recorder)

    def round(self) -> None:
        self.cluster.now_s += 1.0
        problems = self.ours.run().problems
        assert not [words for words in problems.values() if re.match(r"\w+(Error|Warning): ", words)], problems

    @rule(cpu_cores=USE, memory_gib=USE, rounds=st.integers(1, 12))
    def usage(self, cpu_cores: float, memory_gib: float, rounds: int) -> None:
        for _ in range(rounds):
            for pod in self.cluster.pods["job"]:
                use(self.cluster, pod.key.name, cpu_cores, memory_gib)
            self.round()

    @rule(pod=PODS, amount=st.sampled_from([-1.0, math.nan, math.inf, 1e9]), late_s=st.sampled_from([-1e6, 0.0, 1e6]))
    def bad_sample(self, pod: str, amount: float, late_s: float) -> None:
        self.cluster.now_s -= late_s
        use(self.cluster, pod, amount, amount)
        self.cluster.now_s += late_s
        self.round()

    @rule(names=st.sets(PODS), cpu=st.sampled_from(["100m", "2"]), memory=st.sampled_from(["512Mi", "4Gi"]))
    def other_pods(self, names: set[str], cpu: str, memory: str) -> None:
        self.cluster.pods["job"] = [a_pod(name, cpu, memory) for name in sorted(names)]
        self.round()

    @rule(pod=PODS, had_gib=st.sampled_from([0.0, 0.5, 4.0]), age_s=st.sampled_from([-30.0, 0.0, 3600.0]))
    def kill(self, pod: str, had_gib: float, age_s: float) -> None:
        when_s = self.cluster.now_s - age_s
        self.cluster.killed.append(OomObservation(ObjectKey("ns", pod), "main", when_s, had_gib * GIB))
        self.round()

    @rule(mode=st.sampled_from(["InPlaceOrRecreate", "Recreate", "Off"]), is_recreated=st.booleans())
    def other_vpa(self, mode: str, is_recreated: bool) -> None:
        before, self.cluster.raw["job"] = self.cluster.raw["job"], a_vpa(updatePolicy={"updateMode": mode})
        if not is_recreated:
            self.cluster.raw["job"]["status"] = before.get("status", {})
        self.round()

    @rule(answers=st.booleans())
    def api_server(self, answers: bool) -> None:
        self.cluster.answers = answers
        self.round()

    @rule(step_s=st.sampled_from([-86400.0, -30.0, 30.0, 86400.0]))
    def clock(self, step_s: float) -> None:
        self.cluster.now_s += step_s
        self.round()

    @rule()
    def restart(self) -> None:
        is_saved = self.cluster.answers and self.cluster.pods["job"]
        floor_bytes = self.floor_bytes() if is_saved else 0.0
        self.ours = recommender(self.cluster, recorder=self.recorder)
        self.round()
        assert self.floor_bytes() >= floor_bytes, "a kill is lost"

    def floor_bytes(self) -> float:
        return float(self.ours.engine.groups.arrays.kill_floor(self.cluster.now_s).max(initial=0.0))

    @invariant()
    def targets_are_sound(self) -> None:
        for target in self.ours.engine.targets.values():
            cpu_cores, memory_bytes = target.estimate.target.tolist()
            assert 0.0 <= cpu_cores < math.inf
            assert self.floor_bytes() * KEPT_SHARE <= memory_bytes < math.inf

    def teardown(self) -> None:
        self.recorder.close()
        for step in Replay(self.file).steps():
            assert not [group for group in step.changed if step.differs(group)], "the record replays differently"
        self.folder.cleanup()


TestAnyOrder = pytest.mark.long(AnyOrder.TestCase)
TestAnyOrder.settings = settings(
    at_most(20),
    stateful_step_count=30,
    phases=(Phase.reuse, Phase.generate),  # to shrink an example takes minutes
)
