"""bench_harm: what counts as worse, which cells it plays, and what a recommender sees of a simulated cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.harm import grid
from benchmarks.harm.outcome import Comparison, Outcome, overdue
from recommender.base.records import CPU
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import DEFERRED
from tests.benchmarks.benches import invoke
from tests.rig.cluster import Cluster
from tests.worlds.playing import START_S, Ours, Play
from tests.worlds.simulated.kubelet import Kill
from tests.worlds.simulated.pods import Resize, Resources, Tally
from tests.worlds.workloads import GIB, MODES, WORLDS, Cell, cells_of, workload_of

CELL = Cell("Recreate", "Burstable", "Deployment")
JOB = Cell("InPlaceOrRecreate", "Guaranteed", "Job")


def outcome(slack: float = 0.2, *slowdowns: float, ran_s: float = 3600.0, **counts: Any) -> Outcome:
    tally = Tally(used=[1.0, 1.0], slack=[slack, slack], ran_s=ran_s, slowdowns=slowdowns, **counts)
    return Outcome(tally, tally)


def worse(world: str, default: Outcome, ours: Outcome) -> list[str]:
    return list(Comparison(WORLDS[world], CELL, default, ours).worse())


@pytest.mark.parametrize("count", ["evictions", "kills", "restarts", "failed_jobs"])
def test_one_more_than_the_default_is_worse(count: str) -> None:
    assert worse("leak", outcome(**{count: 2}), outcome(**{count: 3})) == [count.replace("_", " ")]
    assert worse("leak", outcome(**{count: 2}), outcome(**{count: 2})) == []


def test_twice_as_many_updates_are_worse_only_where_they_save_nothing() -> None:
    default = outcome(0.2, updates=5)
    assert worse("leak", default, outcome(0.2, updates=10)) == []
    assert worse("leak", default, outcome(0.2, updates=11)) == ["updates"]
    assert worse("leak", default, outcome(0.18, updates=11)) == []
    assert worse("leak", outcome(0.2, 1.2, updates=5), outcome(0.2, 1.1, updates=11)) == [], "they save time"
    short = outcome(0.2, updates=5, below_cpu_s=360.0)
    assert worse("leak", short, outcome(0.2, updates=11)) == [], "it has what it uses"


def test_updates_are_not_in_vain_where_pods_would_keep_more_without_them_or_more_harm_is_done() -> None:
    """Limits of Jobs stay as declared at first, so slack is more than the default's; but less than with no resizes."""
    default, resized = outcome(0.2, updates=5), {"updates": 11, "resized_used": [0.1, 0.0]}
    assert worse("leak", default, outcome(0.5, created_slack=[0.502, 0.5], **resized)) == []
    assert worse("leak", default, outcome(0.5, created_slack=[0.5005, 0.2], **resized)) == ["updates"]
    assert worse("leak", default, outcome(0.5, created_below_s=360.0, **resized)) == [], "it would lack what it uses"
    assert worse("leak", outcome(0.2, kills=3, updates=5), outcome(0.2, kills=2, updates=11)) == []


def test_jobs_may_take_two_hundredths_longer_in_the_mean_and_five_at_worst() -> None:
    assert worse("leak", outcome(0.2, 1.0, 1.0), outcome(0.2, 1.04, 1.0)) == []
    assert worse("leak", outcome(0.2, 1.0, 1.0), outcome(0.2, 1.03, 1.03)) == ["job time"]
    assert worse("leak", outcome(0.2, 1.0, 1.0, 1.0, 1.0), outcome(0.2, 1.06, 1.0, 1.0, 1.0)) == ["worst job time"]
    assert worse("leak", outcome(), outcome()) == []  # no run has ended


def test_job_times_are_compared_over_the_runs_that_the_default_has_ended() -> None:
    """Its third run was killed eight times and has not ended; ours has, and so has a fourth that was as slow."""
    default = outcome(0.2, 1.0, 6.0, 3.0)._replace(unfinished=1)
    assert worse("step", default, outcome(0.2, 1.0, 6.0, 5.0, 5.0)) == []
    assert worse("step", default, outcome(0.2, 1.0, 7.0)) == ["job time", "worst job time"]


def test_more_replicas_under_a_horizontal_autoscaler_are_worse() -> None:
    assert worse("HPA steady", outcome(), outcome(ran_s=3700.0)) == ["container hours"]
    assert worse("leak", outcome(), outcome(ran_s=3700.0)) == []


def test_a_run_that_should_have_ended_counts_as_long_as_it_has_taken() -> None:
    """Thirty minutes of an endless Job that is to take ten."""
    world = replace(WORLDS["steady"], run_s=600.0)
    job = workload_of(world, Cell("Off", "Guaranteed", "Job"), 0, 0)
    job.containers = [replace(job.containers[0], resources=Resources((1.0, GIB), (0.1, 2 * GIB)))]
    play = Play("default", [job]).until(0.5)
    assert overdue(job, play.cluster.now_s) == (pytest.approx(2.95, abs=0.05),)
    assert overdue(workload_of(world, JOB, 0, 0), play.cluster.now_s) == ()


def test_slack_may_equal_the_default_for_steady_loads_and_must_be_less_for_phases() -> None:
    assert worse("steady", outcome(0.2), outcome(0.2)) == []
    assert worse("steady", outcome(0.2), outcome(0.21)) == ["cpu slack", "memory slack"]
    assert worse("phases of training", outcome(0.2), outcome(0.2)) == ["cpu slack", "memory slack"]
    assert worse("leak", outcome(0.2), outcome(9.0)) == []


def test_slack_counts_after_the_first_day_for_steady_loads_and_from_the_start_for_phases() -> None:
    less, more = outcome(0.1).total, outcome(0.3).total
    later_less, later_more = Outcome(more, less), Outcome(less, more)
    assert worse("steady", outcome(0.2), later_less) == worse("phases of training", outcome(0.2), later_more) == []
    assert worse("steady", outcome(0.2), later_more) == worse("phases of training", outcome(0.2), later_less)


def test_every_mode_qos_class_and_kind_is_played_in_each_world_that_has_them() -> None:
    for world in WORLDS.values():
        cells = list(cells_of(world))
        assert len(set(cells)) == len(cells) > 0
        assert {cell.kind for cell in cells} <= set(world.kinds)
        if world.days == 1 and "Deployment" in world.kinds:
            assert {cell.mode for cell in cells} >= set(MODES[2:])
            assert {cell.declares for cell in cells} >= set(world.declares)
        assert {cell.mode for cell in cells_of(world, ("InPlace",))} <= {"InPlace"}


def test_every_world_can_be_named_in_a_list_with_commas() -> None:
    assert not [name for name in WORLDS if "," in name]


def test_the_same_seed_gives_the_same_noise_and_another_seed_a_different_one() -> None:
    world, used = WORLDS["steady"], []
    for seed in (0, 0, 1):
        play = Play("default", [workload_of(world, CELL, 0, seed)]).until(0.2)
        used.append(play.tally().used[CPU])
    assert used[0] == used[1] != used[2]


def test_the_view_of_a_simulated_cluster_shows_its_state() -> None:
    play = Play("ours", [workload_of(WORLDS["steady"], JOB, 0, 0)]).until(0.1)
    assert isinstance(play.recommender, Ours)
    view = play.recommender.view
    (vpa,) = view.vpas()
    job = play.cluster.workloads[0]
    (pod,) = view.select(vpa).pods
    assert view.select(vpa) is view.select(vpa)  # nothing has changed
    (container,) = pod.containers
    assert (pod.resizability.qos, vpa.target.kind, vpa.update_mode) == ("Guaranteed", "CronJob", "InPlaceOrRecreate")
    assert container.running
    assert container.started_s == job.pods[0].started_s
    assert container.requests == job.pods[0].containers[0].actual.requests
    assert {place.pod for place, _ in view.samples()} == {pod.key.name}
    play.cluster.kills.append(Kill("n0", pod.key.name, "main", START_S, math.nan))
    assert [(kill.pod, kill.memory_bytes) for kill in view.kills()] == [(pod.key, 0.0)]
    job.pods[0].resize, job.version = Resize("Deferred", START_S), job.version + 1
    ((pending,),) = (pod.resizes for pod in view.select(vpa).pods)
    assert (pending.reason, pending.since_s) == (DEFERRED, START_S)


def test_the_view_leaves_alone_what_a_horizontal_autoscaler_measures() -> None:
    play = Play("ours", [workload_of(WORLDS["HPA steady"], CELL, 0, 0)]).until(0.5)
    cpu_cores, memory_bytes = play.target()
    assert math.isnan(cpu_cores)
    assert memory_bytes > 0.0


def test_the_view_publishes_changes_only_and_keeps_histories() -> None:
    play = Play("ours", [workload_of(WORLDS["steady"], CELL, 0, 0)]).until(0.5)
    assert isinstance(play.recommender, Ours)
    view = play.recommender.view
    (vpa,) = view.vpas()
    before = view.statuses
    entries = [*play.cluster.workloads[0].vpa.recommendation.values()]
    view.publish(vpa, entries, view.conditions[vpa.key])
    assert view.statuses == before  # nothing new
    view.publish(vpa, [replace(entries[0], target=(7.0, 7e9))], view.conditions[vpa.key])
    assert view.statuses == before + 1
    assert play.target() == (7.0, 7e9)
    play.recommender.stop()
    assert list(view.containers_with_history(ObjectKey("n0", "web"))) == ["main"]
    history = view.history(ObjectKey("n0", "web"), "main")
    assert history is not None
    assert history.confidence() > 0.0


def test_both_recommenders_are_printed_side_by_side_and_written(tmp_path: Path) -> None:
    file, rows = tmp_path / "harm.json", tmp_path / "harm.md"
    sizes = ("--worlds", "steady", "--modes", "Off,InPlace", "--days", 0.02, "--jobs", 1)
    done = invoke("bench_harm", *sizes, "--json", file, "--markdown", rows)
    assert done.exit_code == 0
    assert "Worse (default / ours)" in done.output
    assert "| steady | 0 / " in rows.read_text()
    written: dict[str, Any] = orjson.loads(file.read_bytes())
    assert {cell["mode"] for cell in written["cells"]} == {"Off", "InPlace"}
    for cell in written["cells"]:
        assert cell["ours"]["container_hours"] == pytest.approx(cell["default"]["container_hours"], rel=0.05)
        assert cell["ours"]["container_hours"] > 0.4


def test_the_grid_of_light_and_heavy_jobs_is_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One class of each situation, with a minute of light and one of heavy work in a run."""
    for name, value in {"LEVELS": ((0.2, 0.5),), "LIGHT_MINUTES": (1,), "NOISES": (0.0,)}.items():
        monkeypatch.setattr(grid, name, value)
    for name, value in {"HEAVY_S": 60.0, "PARTS": 1, "RUNS": 1}.items():
        monkeypatch.setattr(grid, name, value)
    file = tmp_path / "harm.json"
    done = invoke("bench_harm", "--worlds", "grid", "--jobs", 1, "--json", file)
    assert "Slowest, ours:" in done.output
    written = orjson.loads(file.read_bytes())["grid"]
    for who in ("default", "ours"):
        assert {run["situation"] for run in written[who]} == {"limits follow", "node full"}
        assert all(run["slowdown"] >= 1.0 for run in written[who])


def test_half_a_minute_on_a_real_control_plane(borrowed: Cluster) -> None:
    """Both recommenders run on all workloads; it raises if one of them recommends nothing."""
    done = invoke("bench_harm", "--worlds", "", "--real", 0.5, on=borrowed)
    assert done.exit_code == 0
    assert "real control plane, 0.5 minutes" in done.output
