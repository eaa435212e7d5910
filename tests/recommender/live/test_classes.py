"""What one job teaches serves the next of its class, also over a restart of the recommender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.vpa import Vpa
from recommender.errors import BadInput
from recommender.live.classes.classes import DAY_S, Classes
from recommender.live.fleet.keeping import pack, unpack
from recommender.live.view.view import Selection
from recommender.policies.demand_curve import DemandCurve
from tests.recommender.live.test_round import GIB, Records, a_vpa, recommender, target_of, use

KEY = ObjectKey("ns", "bert")
CURVE = DemandCurve(10.0, np.float32([[0.5, 1e9], [1.0, 2e9], [0.25, 2e9]]))


def a_run(
    pod: str, phase: str = "Running", started_s: float | None = None, ended: Mapping[str, Any] | None = None
) -> Pod:
    """The pod of a job that declares two cores and 4 GiB."""
    state: dict[str, Any] = {}
    if started_s is not None:
        state["running"] = {"startedAt": _time(started_s)}
    if ended is not None:
        state = {"terminated": dict(ended)}
    status = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}] if state else []}
    requests = {"requests": {"cpu": "2", "memory": "4Gi"}}
    return read_pod(
        {
            "metadata": {"namespace": "ns", "name": pod, "uid": f"uid-{pod}"},
            "spec": {"containers": [{"name": "main", "image": "i", "resources": requests}]},
            "status": status,
        }
    )


def _time(unix_s: float) -> str:
    return str(np.datetime64(int(unix_s), "s")) + "Z"


class Jobs(Records):
    """Jobs of one class, one VPA each."""

    def select(self, vpa: Vpa) -> Selection:
        pods = super().select(vpa).pods
        return Selection(pods, {pod.uid: "bert" for pod in pods})

    def add(self, name: str, pod: Pod) -> None:
        self.raw[name], self.pods[name] = a_vpa(name), [pod]


STAGES = [(0.1, 0.3)] * 10 + [(1.0, 0.3)] * 10 + [(0.2, 0.8)] * 20
"""40 s: loading, work, and waiting with more memory."""


def run_to_its_end(cluster: Jobs, ours: Any, name: str, exit_code: int = 0) -> None:
    """One run of the class, a round each second."""
    began_s = cluster.now_s
    cluster.add(name, a_run(f"{name}-pod", started_s=began_s))
    for cpu_cores, memory_gib in STAGES:
        use(cluster, f"{name}-pod", cpu_cores, memory_gib)
        ours.run()
        cluster.now_s += 1.0
    ended = {"startedAt": _time(began_s), "finishedAt": _time(cluster.now_s), "exitCode": exit_code, "reason": "x"}
    cluster.pods[name] = [a_run(f"{name}-pod", "Failed" if exit_code else "Succeeded", ended=ended)]
    ours.run()


@pytest.fixture
def cluster() -> Jobs:
    jobs = Jobs()
    jobs.now_s = 1_000_000.0
    return jobs


def test_the_second_run_starts_with_what_the_first_needed_before_its_first_sample(cluster: Jobs) -> None:
    ours = recommender(cluster)
    run_to_its_end(cluster, ours, "bert-1")
    cluster.add("bert-2", a_run("bert-2-pod", phase="Pending"))
    ours.lead_time.configured_s = 5.0
    ours.run()
    cpu_cores, memory_gib = target_of(cluster, "bert-2")
    assert cpu_cores == pytest.approx(0.1, abs=0.01)  # work comes later
    assert memory_gib == pytest.approx(0.8 * 1.30, rel=0.01)  # but memory is that of the whole run
    container = cluster.profiles["bert-2"][-1]["containers"][0]
    assert container["why"]["policy"] == "workload.class"
    assert container["demand"]["runs"] == 1


def test_what_the_class_needs_next_is_published_before_it_is_used(cluster: Jobs) -> None:
    ours = recommender(cluster)
    for number in range(1, 4):
        run_to_its_end(cluster, ours, f"bert-{number}")
    ours.lead_time.configured_s = 3.0
    cluster.add("bert-9", a_run("bert-9-pod", started_s=cluster.now_s))
    told = []
    for cpu_cores, memory_gib in STAGES:
        use(cluster, "bert-9-pod", cpu_cores, memory_gib)
        ours.run()
        told.append(target_of(cluster, "bert-9")[0])
        cluster.now_s += 1.0
    assert max(told[:4]) < 0.2
    assert min(told[7:18]) >= 0.95  # the work of the seconds 10 to 19, three seconds ahead
    assert max(told[24:]) < 0.3


def test_a_run_that_failed_or_was_killed_teaches_nothing(cluster: Jobs) -> None:
    ours = recommender(cluster)
    run_to_its_end(cluster, ours, "bert-1", exit_code=137)
    assert ours.classes.known.known(KEY, "main") is None
    assert not cluster.class_profiles


def test_a_finished_pod_of_which_metrics_still_tell_is_not_taken_for_a_live_one(cluster: Jobs) -> None:
    ours = recommender(cluster)
    run_to_its_end(cluster, ours, "bert-1")
    for _ in range(3):
        cluster.now_s += 1.0
        use(cluster, "bert-1-pod", 0.2, 0.8)
        ours.run()
    assert not ours.fleet.members
    assert len(ours.classes.known.runs(KEY, "main")) == 1


def test_a_recommender_that_starts_again_knows_the_classes_and_where_each_run_was(cluster: Jobs) -> None:
    ours = recommender(cluster)
    run_to_its_end(cluster, ours, "bert-1")
    cluster.add("bert-2", a_run("bert-2-pod", started_s=cluster.now_s))
    for cpu_cores, memory_gib in STAGES[:31]:
        use(cluster, "bert-2-pod", cpu_cores, memory_gib)
        ours.run()
        cluster.now_s += 1.0
    book = ours.workloads[ObjectKey("ns", "bert-2")].books["main"]
    book.killed(3 * GIB, cluster.now_s)
    ours.run()  # writes its state once more
    again = recommender(cluster)
    use(cluster, "bert-2-pod", 0.2, 0.8)
    again.run()
    (before,), (after,) = list(ours.fleet), list(again.fleet)
    assert len(again.classes.known.runs(KEY, "main")) == 1
    now, then = again.fleet.counts, ours.fleet.counts
    assert (after.phase, now.start_cell[after.slot]) == (before.phase, then.start_cell[before.slot])
    assert now.samples[after.slot] == then.samples[before.slot] + 1
    known = ours.fleet.curves.curve(before.slot).levels
    np.testing.assert_allclose(again.fleet.curves.curve(after.slot).levels[: len(known)], known, rtol=1e-2)
    assert again.workloads[ObjectKey("ns", "bert-2")].books["main"].oom_floor(cluster.now_s) == 3 * GIB
    assert target_of(cluster, "bert-2")[1] >= 3.0


def test_a_broken_state_is_reported_and_the_container_starts_anew(cluster: Jobs) -> None:
    ours = recommender(cluster)
    cluster.add("bert-2", a_run("bert-2-pod", started_s=cluster.now_s))
    use(cluster, "bert-2-pod", 0.2, 0.8)
    ours.run()
    profile = dict(cluster.profiles["bert-2"][-1])
    cluster.profiles["bert-2"].append(profile | {"state": profile["state"][:-9]})
    cluster.class_profiles[KEY] = {"state": "nonsense"}
    again = recommender(cluster)
    cluster.now_s += 1.0
    use(cluster, "bert-2-pod", 0.2, 0.8)
    report = again.run()
    assert set(report.problems) == {"PhaseProfile ns/bert-2", "workload class ns/bert"}
    assert [again.fleet.counts.samples[member.slot] for member in again.fleet] == [1]


@pytest.mark.parametrize("part", ["books", "members"])
def test_a_kept_state_that_does_not_fit_stops_nobody(cluster: Jobs, part: str) -> None:
    ours = recommender(cluster)
    for name in ("bert-2", "bert-3"):
        cluster.add(name, a_run(f"{name}-pod", started_s=cluster.now_s))
    for _ in range(6):
        for name in ("bert-2", "bert-3"):
            use(cluster, f"{name}-pod", 0.2, 0.8)
        ours.run()
        cluster.now_s += 1.0
    profile = dict(cluster.profiles["bert-2"][-1])
    content = unpack(profile["state"], "it")
    content[part] = {name: {"last_cell": kept.get("last_cell")} for name, kept in content[part].items()}
    cluster.profiles["bert-2"].append(profile | {"state": pack(content)})
    again = recommender(cluster)
    for name in ("bert-2", "bert-3"):
        use(cluster, f"{name}-pod", 0.2, 0.8)
    report = again.run()
    assert not report.problems
    assert report.samples == 2


def test_a_class_profile_shows_its_demand_and_is_small_enough_whatever_the_runs() -> None:
    classes = Classes()
    classes.runs(KEY, "main").level = 0.75
    rng = np.random.default_rng(1)
    for _ in range(40):
        levels = np.column_stack([rng.random(240), rng.random(240) * 1e10]).astype(np.float32)
        assert classes.learn(KEY, "main", DemandCurve(15.0, levels), 3600.0, now_s=5.0)
    status = classes.status(KEY)
    assert len(status["state"]) <= 128 * 1024
    demand = status["containers"][0]["demand"]
    assert (demand["stepSeconds"], demand["runs"], len(demand["cpuCores"])) == (15.0, 32, 240)
    again = Classes()
    again.load(KEY, status["state"], 5.0)
    assert len(again.runs(KEY, "main")) >= 8
    assert again.runs(KEY, "main").level == 0.75


def test_runs_that_ended_before_the_profile_could_be_read_are_kept_beside_what_it_holds() -> None:
    before, after = Classes(), Classes()
    before.learn(KEY, "main", CURVE, 30.0, now_s=1.0)
    after.learn(KEY, "main", CURVE, 30.0, now_s=2.0)
    after.load(KEY, before.status(KEY)["state"], 1.0)
    assert len(after.runs(KEY, "main")) == 2


def test_a_run_of_which_half_was_not_seen_is_not_kept() -> None:
    assert not Classes().learn(KEY, "main", CURVE, 120.0, now_s=1.0)


def test_a_class_that_nothing_is_run_of_is_forgotten_after_a_while_and_one_in_use_is_not() -> None:
    classes = Classes()
    classes.learn(KEY, "main", CURVE, 30.0, now_s=0.0)
    classes.changed.clear()
    assert classes.unused(10 * DAY_S, 30 * DAY_S) == []
    classes.in_use(KEY, 20 * DAY_S)
    assert classes.changed == {KEY}
    assert classes.unused(40 * DAY_S, 30 * DAY_S) == []
    assert classes.unused(51 * DAY_S, 30 * DAY_S) == [KEY]


@pytest.mark.parametrize(
    "damaged", ["", "!", "AAAA", pack({})[:-4], pack({"runs": {"main": [{"step_s": -1}]}, "levels": {}})]
)
def test_a_damaged_class_profile_is_refused_in_words(damaged: str) -> None:
    with pytest.raises(BadInput, match="workload class ns/bert"):
        Classes().load(KEY, damaged, 0.0)


def test_what_is_packed_comes_back() -> None:
    assert unpack(pack({"a": [1, None, 2.5]}), "it") == {"a": [1, None, 2.5]}
