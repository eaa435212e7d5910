"""An advice that stands is the one that would be made anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.usage.oom import OomObservation
from recommender.errors import BadInput
from recommender.live.advice.recommend import Advice
from recommender.live.fleet import fleet as fleets
from recommender.live.fleet.member import Sample
from recommender.live.round import Recommender
from recommender.live.view.view import Place
from tests.recommender.live.test_round import GIB, Records, a_vpa, recommender

ROUNDS = 30
JOBS = {"one": 1, "two": 2, "three": 3}


def a_pod(name: str, cpu: str, memory: str, waits_since: str = "") -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    waits = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "lastTransitionTime": waits_since}
    return read_pod(
        {
            "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"},
            "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
            "status": {"phase": "Running", "conditions": [waits] if waits_since else []},
        }
    )


class Played:
    """A cluster in which containers change their ways, are killed, resized, and wait for room, by chance."""

    def __init__(self, seed: int) -> None:
        self.records, self.chance = Records(), np.random.default_rng(seed)
        for job, pods in JOBS.items():
            self.records.raw[job] = a_vpa(job)
            self.records.pods[job] = [a_pod(f"{job}-{number}", "1", "2Gi") for number in range(pods)]
        self.ours = recommender(self.records)
        self.level = {pod.key.name: (0.5, 1.0) for pods in self.records.pods.values() for pod in pods}

    def play(self) -> None:
        """A round, of five or of fifty seconds."""
        records, chance = self.records, self.chance
        records.now_s += float(chance.choice([5.0, 5.0, 5.0, 50.0]))
        for name in self.level:
            if chance.random() < 0.05:
                self.level[name] = chance.uniform(0.05, 3.0), chance.uniform(0.2, 4.0)
            used = np.array(self.level[name]) * chance.uniform(0.9, 1.1, 2)
            records.used.append((Place("ns", name, "main"), Sample(records.now_s, used[0], used[1] * GIB)))
        for job, before in records.pods.items():
            records.pods[job] = pods = list(before)
            for place, pod in enumerate(before):
                if chance.random() < 0.02:
                    waits = "2001-09-08T00:00:00Z" if chance.random() < 0.3 else ""
                    memory = f"{chance.integers(1, 5)}Gi"
                    pods[place] = a_pod(pod.key.name, str(chance.integers(1, 4)), memory, waits)
                if chance.random() < 0.005:
                    records.killed.append(OomObservation(pod.key, "main", records.now_s, 4 * GIB))
        self.ours.run()

    def said(self) -> dict[str, Any]:
        return {name: raw.get("status") for name, raw in self.records.raw.items()}

    def why(self) -> list[tuple[str, Any, Any, Any]]:
        advised = [(key.name, advice) for key, one in self.ours.workloads.items() for advice in one.advice.values()]
        return [
            (name, said.draft.target, _rails(said), np.nan_to_num(said.forecast, nan=-1.0).tolist())
            for name, said in advised
        ]


def _rails(advice: Advice) -> list[str]:
    return [rail for rail, _ in advice.draft.notes]


@pytest.mark.parametrize("played", range(2))
def test_what_stands_is_what_would_be_made_anew(played: int) -> None:
    standing, anew = Played(played), Played(played)
    kept = 0
    for number in range(ROUNDS):
        before = [advice for one in standing.ours.workloads.values() for advice in one.advice.values()]
        for workload in anew.ours.workloads.values():
            workload.standing.clear()
        standing.play()
        anew.play()
        assert standing.said() == anew.said(), number
        assert standing.why() == anew.why(), number
        after = [advice for one in standing.ours.workloads.values() for advice in one.advice.values()]
        kept += sum(old is new for old, new in zip(before, after, strict=False))
    assert kept > ROUNDS / 5, "else nothing ever stood"


def test_samples_are_taken_once_also_where_forecasts_of_many_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then one after the other is asked; each has taken in the samples that it would have without the failure."""
    spoiled, sound = Played(7), Played(7)
    together = fleets.decide_together

    def decide(sessions: Any, *given: Any) -> Any:
        """As it is, but for many it fails on the way."""
        with pytest.MonkeyPatch.context() as spoiling:
            if len(sessions) > 1:
                spoiling.setattr(type(sessions[0].policy), "foresee", _fails)
            return together(sessions, *given)

    for _ in range(30):
        with monkeypatch.context() as patched:
            patched.setattr(fleets, "decide_together", decide)
            spoiled.play()
        sound.play()
    assert _seen(spoiled.ours) == _seen(sound.ours)
    assert spoiled.said() == sound.said()


def _fails(*_: object) -> None:
    raise BadInput("spoiled", remedy="")


def _seen(ours: Recommender) -> dict[str, list[Any]]:
    return {
        member.instance.pod_uid: [
            np.nan_to_num(part, nan=-1.0).tolist() for part in member.proactive.remembered().values()
        ]
        for member in ours.fleet
    }
