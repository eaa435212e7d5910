"""Training progress in whole rounds: collected, judged, shown in profiles, kept over restarts, dropped with pods."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from recommender.base.errors import Misuse
from recommender.base.units import format_time
from recommender.cluster.objects.metadata import OwnerRef
from recommender.cluster.objects.pods import Pod
from recommender.engine.persistence import pack, unpack
from recommender.live.progress.progress import Progress, ProgressSource
from recommender.live.round import Recommender
from recommender.progress.growth import Category, GrowthOptions
from recommender.progress.readings import PodName, ProgressUpdate, Reading, Stage
from tests.fakes import records
from tests.fakes.records import FakeView, a_pod, a_vpa, rounds

LOSSES = [2.0, 1.4, 1.1, 1.09, 1.088, 1.087, 1.0864]
"""Thirty seconds apart: progressing up to the third, then watching, then converged (see test_growth)."""


class FakeSource:
    """A source that returns what a test put into it."""

    name = "scripted"

    def __init__(self) -> None:
        self.readings: dict[PodName, list[Reading]] = {}
        self.stages: dict[PodName, list[Stage]] = {}
        self.fault: Exception | None = None
        self.pods_read: list[list[str]] = []

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        self.pods_read.append([pod.key.name for pod in pods])
        if self.fault is not None:
            raise self.fault
        taken, self.readings = self.readings, {}
        stages, self.stages = self.stages, {}
        return ProgressUpdate(taken, {"progress of ns/x": "is odd"} if taken else {}, stages)


@pytest.fixture
def cluster() -> FakeView:
    made = FakeView()
    made.raw["job"] = a_vpa()
    made.pods["job"] = [a_pod("job-1"), a_pod("job-2")]
    return made


def recommender(cluster: FakeView, *sources: ProgressSource) -> Recommender:
    return records.recommender(cluster, progress=Progress(sources, GrowthOptions()))


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
def ours(cluster: FakeView, source: FakeSource) -> Recommender:
    """After three rounds."""
    made = recommender(cluster, source)
    rounds(made, cluster, 3)
    return made


def train(
    ours: Recommender, cluster: FakeView, source: FakeSource, losses: Sequence[float], pod: str = "job-1"
) -> None:
    """A loss every thirty seconds, in rounds of fifteen seconds; the last one is judged, too."""
    for loss in losses:
        source.readings["ns", pod] = [Reading(cluster.now_s, loss, "loss")]
        for _ in range(2):
            rounds(ours, cluster, 1)
            cluster.now_s += 14.0
    ours.run()


def shown(cluster: FakeView) -> dict[str, dict[str, Any]]:
    """The pods of the latest profile, by name."""
    return {pod["name"]: pod for pod in cluster.profiles["job"][-1]["pods"]}


def test_the_profile_shows_category_and_progress_of_each_pod_and_one_category_for_all(
    cluster: FakeView, ours: Recommender, source: FakeSource
) -> None:
    train(ours, cluster, source, LOSSES[:4])
    pods = shown(cluster)
    assert pods["job-1"]["category"] == "Watching"
    assert pods["job-1"]["progress"] == pytest.approx(0.005, rel=0.01)
    assert [pod["name"] for pod in cluster.profiles["job"][-1]["pods"]] == ["job-1", "job-2"]
    assert "categorySince" in pods["job-1"]
    assert "category" not in pods["job-2"]
    assert cluster.profiles["job"][-1]["category"] == "Watching"
    json.dumps(cluster.profiles["job"][-1])  # serializable as it is
    train(ours, cluster, source, [3.0, 2.0], "job-2")
    assert cluster.profiles["job"][-1]["category"] == "Progressing"
    assert shown(cluster)["job-1"]["category"] == "Watching"


def test_the_profile_shows_stage_and_checkpoint_also_after_a_restart(
    cluster: FakeView, ours: Recommender, source: FakeSource
) -> None:
    began_s = cluster.now_s
    source.stages["ns", "job-1"] = [Stage(began_s, "train"), Stage(began_s + 1.0, "checkpoint", passing=True)]
    rounds(ours, cluster, 3)
    pod = {"stage": "checkpoint", "stageSince": format_time(began_s + 1.0), "checkpointAt": format_time(began_s + 1.0)}
    assert pod.items() <= shown(cluster)["job-1"].items()
    assert "stage" not in shown(cluster)["job-2"]
    again = recommender(cluster, source)
    cluster.now_s += 60.0
    rounds(again, cluster, 2)
    assert pod.items() <= shown(cluster)["job-1"].items()
    cluster.pods["job"] = [a_pod("job-2")]
    cluster.now_s += 60.0
    rounds(again, cluster, 3)
    assert "job-1" not in shown(cluster)


def test_a_new_loss_without_a_change_of_category_writes_no_profile(
    cluster: FakeView, ours: Recommender, source: FakeSource
) -> None:
    train(ours, cluster, source, [2.0])
    written = len(cluster.profiles["job"])
    for loss in (1.9, 1.8, 1.7):  # within one cycle
        source.readings["ns", "job-1"] = [Reading(cluster.now_s, loss, "loss")]
        ours.run()
    assert len(cluster.profiles["job"]) == written


def test_a_restarted_recommender_keeps_the_category(cluster: FakeView, ours: Recommender, source: FakeSource) -> None:
    train(ours, cluster, source, LOSSES)
    assert shown(cluster)["job-1"]["category"] == "Converged"
    since = shown(cluster)["job-1"]["categorySince"]

    again = recommender(cluster, source)
    cluster.now_s += 60.0
    rounds(again, cluster, 2)
    assert shown(cluster)["job-1"]["category"] == "Converged"
    assert shown(cluster)["job-1"]["categorySince"] == since
    train(again, cluster, source, [1.0862, 0.9])
    assert shown(cluster)["job-1"]["category"] == "Progressing"


def test_a_recreated_vpa_keeps_category_and_checkpoint_of_its_pods(
    cluster: FakeView, monkeypatch: pytest.MonkeyPatch, ours: Recommender, source: FakeSource
) -> None:
    source.stages["ns", "job-1"] = [Stage(cluster.now_s, "checkpoint", passing=True)]
    train(ours, cluster, source, LOSSES)
    before = shown(cluster)["job-1"]
    assert before["category"] == "Converged"
    cluster.raw["job"] = a_vpa()
    cluster.raw["job"]["metadata"]["uid"] = "another"
    monkeypatch.setattr(cluster, "saved_state", lambda _: None)  # the profile is that of the VPA before
    rounds(ours, cluster, 1)
    for name in ("category", "categorySince", "checkpointAt"):
        assert shown(cluster)["job-1"][name] == before[name]


def test_a_pod_without_samples_is_still_reported(cluster: FakeView, source: FakeSource) -> None:
    ours = recommender(cluster, source)
    source.readings["ns", "job-2"] = [Reading(cluster.now_s, 2.0, "loss")]
    ours.run()
    progress = {"category": "Progressing", "metric": "loss", "value": 2.0, "categorySince": "1970-01-12T13:46:40Z"}
    assert shown(cluster) == {"job-2": {"name": "job-2", "uid": "uid-job-2", **progress}}


def test_a_damaged_state_of_a_pod_is_reported_and_dropped(
    cluster: FakeView, ours: Recommender, source: FakeSource
) -> None:
    train(ours, cluster, source, LOSSES)
    profile = dict(cluster.profiles["job"][-1])
    state = unpack(profile["state"], "test")
    state["growth"]["uid-job-1"]["category"] = "Finished"
    cluster.profiles["job"].append({**profile, "state": pack(state)})
    again = recommender(cluster, source)
    assert "is invalid" in again.run().problems["progress of ns/job-1"]
    assert again.run().problems == {}


@pytest.mark.parametrize("ended", [[], [replace(a_pod("job-1"), phase="Succeeded")]], ids=["deleted", "finished"])
def test_the_progress_of_a_pod_that_has_ended_is_dropped(
    cluster: FakeView, ended: list[Pod], source: FakeSource
) -> None:
    ours = recommender(cluster, source)
    train(ours, cluster, source, [2.0, 1.0])
    (state,) = ours.vpas.values()
    assert list(state.growth) == ["uid-job-1"]
    cluster.pods["job"] = [*ended, a_pod("job-2")]
    source.readings["ns", "job-1"] = [Reading(cluster.now_s, 1.0, "loss")]  # its last one
    ours.run()
    assert state.growth == {}


def of_job(pod: Pod, phase: str = "Running") -> Pod:
    return replace(pod, owner=OwnerRef("batch/v1", "Job", "training", "uid-training"), phase=phase)


@pytest.mark.parametrize(
    ("phase", "owned", "category"),
    [
        pytest.param("Failed", True, "Converged", id="replacement of a failed pod"),
        pytest.param("Succeeded", True, None, id="next task of the Job"),
        pytest.param("Failed", False, None, id="pods without an owner"),
    ],
)
def test_only_the_replacement_of_a_failed_pod_inherits_its_category_and_scale(
    cluster: FakeView, phase: str, owned: bool, category: str | None, source: FakeSource
) -> None:
    """It resumes from a checkpoint, where the loss is small already; by that scale it would seem to progress."""
    ours = recommender(cluster, source)
    first, second = (of_job(a_pod(name)) if owned else a_pod(name) for name in ("job-1", "job-3"))
    cluster.pods["job"] = [first, a_pod("job-2")]
    rounds(ours, cluster, 3)
    train(ours, cluster, source, LOSSES)
    cluster.pods["job"] = [of_job(first, phase) if owned else replace(first, phase=phase), a_pod("job-2")]
    rounds(ours, cluster, 1)
    cluster.pods["job"] = [a_pod("job-2")]
    rounds(ours, cluster, 2)
    cluster.pods["job"] = [a_pod("job-2"), second]
    rounds(ours, cluster, 2)
    assert shown(cluster)["job-3"].get("category") == category
    if category:
        train(ours, cluster, source, [1.086, 1.075, 1.0749], "job-3")
        assert shown(cluster)["job-3"]["category"] == category, "0.011 is less than 1 % of the first loss alone"


def test_a_failing_source_does_not_affect_the_others(cluster: FakeView, source: FakeSource) -> None:
    broken = FakeSource()
    ours = recommender(cluster, broken, source)
    broken.fault = Misuse("the token is lost")
    source.readings["ns", "job-1"] = [Reading(cluster.now_s, 2.0, "loss")]
    report = ours.run()
    assert report.problems == {"progress (scripted)": "the token is lost", "progress of ns/x": "is odd"}
    broken.fault = RuntimeError("an unforeseen error")
    report = ours.run()
    assert report.problems["progress"] == "RuntimeError: an unforeseen error"
    assert cluster.raw["job"]["status"]["conditions"], "the round continues"


def test_the_first_of_two_vpas_over_a_pod_keeps_its_progress(cluster: FakeView, source: FakeSource) -> None:
    cluster.raw["twin"], cluster.pods["twin"] = a_vpa("twin"), [a_pod("job-1")]
    ours = recommender(cluster, source)
    train(ours, cluster, source, [2.0, 1.0])
    assert source.pods_read[-1] == ["job-1", "job-2"]
    assert [len(state.growth) for state in ours.vpas.values()] == [1, 0]


def test_a_loss_that_is_not_finite_does_not_break_the_profile(
    cluster: FakeView, ours: Recommender, source: FakeSource
) -> None:
    train(ours, cluster, source, [math.nan, 2.0, math.inf, 1.0])
    assert shown(cluster)["job-1"]["category"] == Category.PROGRESSING.value


def test_the_duration_of_the_progress_step_is_reported(cluster: FakeView) -> None:
    assert "take_progress" in recommender(cluster).run().step_s
