"""bench_placement: recordings, arithmetic by hand, scorers, and a small run on a cluster."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from rich.console import Console

from benchmarks.benches import write_json
from benchmarks.placement import output
from benchmarks.placement.burst import Burst, demand_on, judge_burst
from benchmarks.placement.choices import (
    MAX_NODES,
    NODE,
    Choice,
    PlacedPod,
    Tally,
    below_capacity,
    tally_of,
    without_histories,
)
from benchmarks.placement.gangs import Gangs, Repetition, judge_bindings
from benchmarks.placement.images import play_images
from benchmarks.placement.jobs import GROUPS, Plan, Result, fewer_nodes, summary_lines
from benchmarks.placement.late_peaks import play_late_peaks
from benchmarks.placement.place import Bound
from benchmarks.placement.played import Outcome, Run, Shape, load, overload
from benchmarks.placement.recordings import (
    REPLAY_PART,
    TRAINING_PART,
    Recording,
    curve_of,
    demand_of_classes,
    in_groups,
    recordings,
    scattered,
)
from benchmarks.placement.schedulers import LEAST, OURS, CurrentUseScorer, Pace, Pair, random_scores
from benchmarks.placement.unequal_nodes import first_day
from extender.pods.curves import Grid
from tests.benchmarks.benches import invoke
from tests.rig.cluster import Cluster
from tests.rig.installing import installed_profile, installed_weight
from tests.rig.workloads import Json
from tests.worlds.placement import World, class_json, node_json, pod_json, profile_json

NAME = "bench_placement"
GIB = 2.0**30


def recording(cores: list[float], gib: list[float], name: str = "a-r01") -> Recording:
    return Recording(name, name[0], np.column_stack([cores, np.array(gib) * GIB]), (2.0, 4 * GIB))


# -- recordings --------------------------------------------------------------------------------------------------------


def test_training_and_replayed_runs_are_disjoint_and_both_cover_every_class() -> None:
    training, replayed = recordings(TRAINING_PART), recordings(REPLAY_PART)
    assert not {run.name for run in training} & {run.name for run in replayed}
    assert {run.workload for run in training} == {run.workload for run in replayed} == set(demand_of_classes(1.0))
    assert len(training) + len(replayed) == 108


def test_a_demand_curve_has_the_levels_of_its_run_at_the_pace_of_the_benchmark() -> None:
    curve = curve_of(recording([0.5, 1.0], [1.0, 2.0]), speed=4.0)
    assert curve.step_s == 0.25
    assert curve.levels.tolist() == [[0.5, GIB], [1.0, 2 * GIB]]
    slow, fast = demand_of_classes(1.0)["vae-torch"], demand_of_classes(4.0)["vae-torch"]
    assert slow["cpuCores"] == fast["cpuCores"]
    assert slow["stepSeconds"] == pytest.approx(4.0 * fast["stepSeconds"], abs=0.002)


def test_the_extenders_horizon_and_cycle_shrink_like_the_jobs() -> None:
    assert Pace(30.0, 4.0).of_bench(3600.0) == 30.0


# -- arrivals ----------------------------------------------------------------------------------------------------------


def test_the_same_jobs_arrive_in_groups_or_one_by_one() -> None:
    groups, single = in_groups(40, 15, 60.0, seed=3), scattered(40, 180.0, seed=3)
    assert [job.recording.name for job in groups] == [job.recording.name for job in single]
    assert [job.at_s for job in groups] == [0.0] * 15 + [60.0] * 15 + [120.0] * 10
    assert single[0].at_s == 0.0 < single[1].at_s < single[-1].at_s < 180.0
    assert len({job.recording.name for job in groups}) == 36, "every run once before any is repeated"
    assert in_groups(40, 15, 60.0, seed=4) != groups


# -- load --------------------------------------------------------------------------------------------------------------


def test_overload_is_demand_above_the_capacity_of_a_node_and_an_oom_counts_once() -> None:
    one, two = recording([1.0, 2.0, 2.0], [1.0, 3.0, 3.0]), recording([2.0, 2.0], [2.0, 2.0])
    runs = [Run("x", one, 0, 0.4), Run("y", two, 0, 1.0), Run("z", two, 1, 1.0)]
    assert load(runs, 3)[0].tolist() == [[1.0, 0.0, 0.0], [4.0, 2.0, 0.0], [4.0, 2.0, 0.0]]
    found = overload(runs, 3, (3.0, 4 * GIB))
    assert (found.cpu_core_s, found.ooms, found.memory_gib_s) == (2.0, 1, 2.0)
    assert (found.nodes_used, found.nodes_busy) == (2, pytest.approx(5 / 3))
    assert overload([], 3, (3.0, 4 * GIB)).cpu_core_s == 0.0


def test_a_pod_requests_a_share_of_the_declared_amounts() -> None:
    shape = Shape((4.0, 8 * GIB), (0.25, 0.5))
    assert shape.needs(recording([1.0], [1.0])) == (0.5, 2 * GIB)


# -- scorers -----------------------------------------------------------------------------------------------------------


def prioritize(pod: str, *names: str) -> Json:
    return {"Pod": {"metadata": {"name": pod, "namespace": "n"}}, "NodeNames": list(names)}


def test_random_scores_favour_either_node() -> None:
    scores_of = random_scores(np.random.default_rng(0))
    answers = [scores_of(prioritize(f"p{number}", "a", "b")) for number in range(20)]
    assert {max(scores, key=lambda each: each["Score"])["Host"] for scores in answers} == {"a", "b"}


def test_current_use_favours_the_least_used_node_and_remembers_its_favourites() -> None:
    received: list[dict[str, str]] = []

    def uses(namespace: str, pod: str, names: object, favoured: object) -> np.ndarray:
        received.append(dict(favoured))  # type: ignore[call-overload]
        return np.array([[1.0, 2.0], [GIB, GIB]])

    by_use = CurrentUseScorer(uses, (4.0, 8 * GIB))
    assert by_use.scores(prioritize("p", "a", "b")) == [{"Host": "a", "Score": 10}, {"Host": "b", "Score": 0}]
    by_use.scores(prioritize("q", "a", "b"))
    by_use.scores(prioritize("p", "a", "b"))
    by_use.forget("n")
    by_use.scores(prioritize("r", "a", "b"))
    assert received == [{}, {"p": "a"}, {"q": "a"}, {}]


def test_our_rows_are_configured_like_our_manifests() -> None:
    assert installed_weight() == 20
    assert installed_profile()["plugins"]["score"]["disabled"]


# -- the burst ---------------------------------------------------------------------------------------------------------


def judged_order(order: str, nodes: str = "ab", reordered: int = 0) -> Burst:
    """Judge pods bound in this order to these nodes, of which two fit on a node."""
    shape = Shape((2.5 * float(demand_on(Grid())["vae-torch"][0].max()), 100 * GIB), (0.25, 0.25))
    bound = [Bound(f"p{number}", node, float(number)) for number, node in enumerate(order)]
    return judge_burst(LEAST, bound, {one.pod: "vae-torch" for one in bound}, list(nodes), shape, reordered)


def test_a_pod_counts_as_avoidable_where_another_node_had_room() -> None:
    judged = judged_order("aaabc", "abc")
    assert (judged.avoidable, judged.overloaded, judged.nodes_over, judged.took_s) == (1, 1, 1, 4.0)
    judged = judged_order("aabbab")
    assert (judged.avoidable, judged.overloaded, judged.nodes_over) == (0, 2, 2)


def test_a_pod_whose_binding_was_reordered_does_not_count_as_avoidable() -> None:
    assert judged_order("aaabb").avoidable == 1
    assert judged_order("aaabb", reordered=2).avoidable == 0, "it may have been decided last, when b was full too"
    assert judged_order("aaaccbb", "abcd", reordered=2).avoidable == 1


# -- gangs -------------------------------------------------------------------------------------------------------------


def test_a_gang_is_bound_in_part_if_another_comes_between_or_it_stays_incomplete() -> None:
    def bound(order: str) -> list[Bound]:
        return [Bound(f"{letter}000-{number}", "n", 1.0 + number) for number, letter in enumerate(order)]

    assert judge_bindings(bound("aaaaaabbbbbb"), 0.0) == Repetition(2, 0, 12.0, 5.0)
    between = judge_bindings(bound("aaabaaabbbbb"), 0.0)
    assert (between.finished, between.bound_in_part) == (2, 2)
    stuck = judge_bindings(bound("ababababab"), 0.0)
    assert (stuck.finished, stuck.bound_in_part, math.isnan(stuck.took_s)) == (0, 2, True)
    assert Gangs(LEAST, [stuck, between], 1).deadlocks == 1


# -- output ------------------------------------------------------------------------------------------------------------


def results() -> list[Result]:
    shape, found = (3.0, 4 * GIB), []
    for contender, nodes in ((LEAST, (0, 0)), (OURS, (0, 1))):
        for seed in (1, 2):
            one = recording([2.0] * 10 * seed, [1.0] * 10 * seed)
            runs = [Run(name, one, node, 0.0) for name, node in zip("xy", nodes, strict=True)]
            found.append(Result(GROUPS, seed, contender, 2, overload(runs, 2, shape), 0.5, Outcome(runs, [0.0, 1.0])))
    return found


def test_the_mean_over_seeds_is_compared_with_the_best_other_scheduler() -> None:
    least, ours = summary_lines(results())
    assert (least.cpu_core_s, least.spread, least.ratio, least.ooms) == (15.0, 5.0, 1.0, 0.0)
    assert (ours.cpu_core_s, ours.ratio, ours.nodes_busy) == (0.0, 0.0, 2.0)


def test_results_are_printed_and_written(tmp_path: Path) -> None:
    console, lines = Console(width=150, record=True, file=io.StringIO()), summary_lines(results())
    gangs = [Gangs(OURS, [Repetition(2, 0, 1.5, 0.1)], 1)]
    for table in (output.jobs_table(lines, "jobs"), output.gangs_table(gangs, "gangs")):
        console.print(table)
    text = re.sub(" +", " ", console.export_text())
    assert "15.0 ± 5.0 │ 1.00" in text
    assert "0.5 s (1 s) │ 15 s" in text
    assert "1 of 1 │ 0 of 1 │ 0 │ 1.50 s" in text
    plays = [output.play(result) for result in results()]
    write_json(tmp_path / "r.json", {"plays": plays, "jobs": lines, "gangs": gangs})
    read = orjson.loads((tmp_path / "r.json").read_bytes())
    assert [play["who"] for play in read["plays"]] == [LEAST.title] * 2 + [OURS.title] * 2


def test_both_arrival_patterns_of_a_plan_take_the_same_time() -> None:
    plan = Plan(jobs=20, group=5, every_s=30.0, nodes=(2,), seeds=(0,))
    assert plan.arrivals(GROUPS, 0)[-1].at_s == 90.0
    assert plan.arrivals("one by one", 0)[-1].at_s < 120.0


def test_the_fewest_nodes_that_match_the_best_other_scheduler_on_the_most_are_reported() -> None:
    few = [replace(line, nodes=1) for line in summary_lines(results())]
    many = [replace(line, nodes=3, cpu_core_s=2 * line.cpu_core_s) for line in summary_lines(results())]
    assert fewer_nodes([*few, *many]) == [
        "in groups: Phasewise on 1 nodes overloads no more than default (LeastAllocated) on 3 (0.0 and 30.0 core-s)"
    ]


def test_without_other_schedulers_there_is_no_comparison() -> None:
    ours = [result for result in results() if result.who is OURS]
    assert math.isnan(summary_lines(ours)[0].ratio)
    assert fewer_nodes(summary_lines(ours)) == []


# -- single pods -------------------------------------------------------------------------------------------------------


def test_choices_are_counted_by_peak_or_by_s_where_peaks_are_similar() -> None:
    choices = [
        Choice([0.4, 0.8, 0.46], [8.0, 0.0, 0.0], 0),  # the lowest, not similar
        Choice([0.4, 0.8, 0.46], [8.0, 0.0, 0.0], 2),
        Choice([0.4, 0.44, 0.8], [2.0, 1.5, 0.0], 1),  # the smaller S of two similar peaks
        Choice([0.4, 0.44, 0.8], [2.0, 1.5, 0.0], 0),
        Choice([0.4, 0.44, 0.8], [2.0, 1.5, 0.0], 2),
        Choice([0.4, 1.1], [0.0, 0.0], 0),  # not below capacity
    ]
    assert tally_of("x", choices) == Tally("x", 1, 2, 1, 3)


class InProcess:
    """The extender's code, called as by a scheduler."""

    def __init__(self, nodes: int) -> None:
        self._world = World()
        self._names = [f"n{number:03}" for number in range(nodes)]
        self._uids: list[str] = []
        self._world.put(*(node_json(name, f"{NODE[0]:g}", f"{NODE[1]:.0f}") for name in self._names))

    def learn(self, workload: str, demand: np.ndarray) -> None:
        self._world.put(class_json(workload, demand[0].tolist(), (demand[1] / GIB).tolist()))

    def fill(self, nodes: int, held: Sequence[PlacedPod]) -> None:
        for number, each in enumerate(held):
            self._put(f"held-{number}", self._names[each.node], each.workload, each.requests)
            self._world.put(profile_json(f"of-{number}", {f"uid-held-{number}": each.category}))

    def place(self, name: str, nodes: int, workload: str, requests: Pair) -> int:
        asks = pod_json(name, cpu=f"{requests[0]}", memory=f"{requests[1]:.0f}", workload=workload)
        names = self._names[:nodes]
        node = self._world.place(asks, names)
        self._put(name, node, workload, requests)
        return names.index(node)

    def clear(self) -> None:
        for uid in self._uids:
            self._world.state.drop_pod(uid)
        self._uids.clear()

    def _put(self, name: str, node: str, workload: str, requests: Pair) -> None:
        self._uids.append(f"uid-{name}")
        cpu, memory = f"{requests[0]}", f"{requests[1]:.0f}"
        self._world.put(pod_json(name, cpu=cpu, memory=memory, workload=workload, node=node))


def test_below_capacity_the_lowest_peak_is_chosen_and_without_histories_the_smallest_s() -> None:
    learned = below_capacity(InProcess(MAX_NODES), 60, 5, lambda _: None)
    assert learned.distinct_peaks > 5
    assert (learned.lowest, learned.smallest) == (learned.distinct_peaks, learned.similar_peaks)
    unlearned = without_histories(InProcess(20), 20, 60, 5, lambda _: None)
    assert (unlearned.smallest, unlearned.similar_peaks) == (60, 60)


# -- a small run on a cluster ------------------------------------------------------------------------------------------


def test_a_small_run_covers_all_rows(borrowed: Cluster, tmp_path: Path) -> None:
    sizes = ["--pods", "6", "--burst-nodes", "3", "--jobs", "3", "--group", "2", "--every", "10", "--nodes", "2"]
    sizes += ["--seeds", "1", "--speed", "32", "--repetitions", "1", "--watch", "3", "--clusters", "2"]
    done = invoke(NAME, *sizes, "--json", str(tmp_path / "r.json"), on=borrowed)
    assert done.exit_code == 0, done.output
    read = orjson.loads((tmp_path / "r.json").read_bytes())
    assert [row["pods"] for row in read["burst"]] == [6] * 2
    assert all(len(play["runs"]) == 3 for play in read["plays"])
    assert [row["repetitions"][0]["finished"] for row in read["gangs"]] == [0, 2]
    assert [row["title"].startswith("Phasewise") for row in read["streams"]] == [False, True, True]
    assert all(row["pods_per_minute"] > 0.0 for row in read["streams"])
    assert [row["title"].split(",")[0] for row in read["choices"]] == ["histories", *["no histories"] * 3]
    assert [row["lowest"] + row["smallest"] for row in read["choices"][1:]] == [2, 2, 2]


# -- without servers ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_jobs_that_evaluate_late_are_killed_by_shrunk_requests_alone_but_not_with_forecasts_and_hardly_wait() -> None:
    declared, shrunk, _, ours, between_namespaces = play_late_peaks([0], lambda: None)
    assert (declared.kills, ours.kills, between_namespaces.kills) == (0, 0, 0)
    assert shrunk.kills > 0
    assert ours.done >= 0.98 * max(declared.done, shrunk.done)
    assert ours.wait_min < declared.wait_min


def test_on_the_first_day_unequal_nodes_are_filled_as_evenly_as_by_requests() -> None:
    default, ours = first_day()
    assert (default.small, default.large) == (0.25, 21 / 64)
    assert ours.fullest <= default.fullest


@pytest.mark.long
def test_scored_images_are_pulled_half_as_often_and_nodes_stay_nearly_as_even() -> None:
    without, default, *_ = play_images([0])
    assert default.pulls < 0.5 * without.pulls
    assert default.spread < without.spread + 1.0


def test_the_rows_without_servers_need_none(tmp_path: Path) -> None:
    result = invoke(NAME, "--rows", "unequal-nodes", "--json", str(tmp_path / "r.json"))
    assert result.exit_code == 0, result.output
    assert [row["title"] for row in orjson.loads((tmp_path / "r.json").read_bytes())["unequal_nodes"]] == [
        "default (LeastAllocated)",
        "Phasewise",
    ]
