"""The simulated worker against a real node: jobs that run together are predicted from jobs that ran alone."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from moves_bench import output
from moves_bench.validate import JOBS, TOGETHER, Comparison, ObservedJob, batches, compare, cpu_s_alone, predicted_s, title
from recommender.contention.sharing import Stage


def observed(name: str, began_s: float, cores: list[float], at_s: float = 0.0, every_s: float = 0.5) -> ObservedJob:
    """A job that uses these cores in each second from its start, observed twice a second."""
    points, used_s = [(0.0, 0.0), (began_s, 0.0)], 0.0
    for second, level in enumerate(cores):
        for place in range(1, round(1.0 / every_s) + 1):
            used_s += level * every_s
            points.append((began_s + second + place * every_s, used_s))
    return ObservedJob(name, at_s, points)


def test_the_stages_of_a_job_are_its_observed_usage() -> None:
    job = observed("a", 2.0, [1.0, 0.25, 1.0])
    job.seen.append((9.0, job.cpu_s + 0.0005))  # its pod terminates
    assert (job.began_s, job.duration_s) == (2.0, 5.0)
    assert job.stages() == [Stage(1.0, 1.0), Stage(0.25, 0.25), Stage(1.0, 1.0)]


def test_alone_on_the_simulated_worker_a_job_takes_its_observed_time() -> None:
    job = observed("a", 1.5, [0.3, 0.5, 0.01, 0.5, 0.45])
    assert predicted_s({"a": job}, {"a": 0.0}, 0.5) == {"a": pytest.approx(job.duration_s)}


def test_jobs_that_share_a_worker_are_predicted_from_their_arrivals() -> None:
    """`b` arrives at 4 s and starts at 5: then both have half a core, until `a` has used 9 core seconds at 15 s."""
    alone = {"a": observed("a", 1.0, [1.0] * 9), "b": observed("b", 1.0, [1.0] * 9)}
    predicted = predicted_s(alone, {"a": 0.0, "b": 4.0}, 1.0)
    assert predicted == {"a": pytest.approx(15.0), "b": pytest.approx(15.0)}
    slower = predicted_s(alone, {"a": 0.0, "b": 4.0}, 1.0, 0.1)
    assert slower["a"] == pytest.approx(5.0 + 1.1 * 10.0)


def test_jobs_that_run_together_are_compared_with_their_runs_alone() -> None:
    alone = [[observed("a", 1.0, [1.0] * 10)], [observed("b", 1.0, [1.0] * 10)]]
    pair = [observed("a", 1.0, [0.55] * 20), observed("b", 1.0, [0.5] * 20, at_s=1.0)]
    first, second = compare([*alone, pair], 1.0, 0.0)
    assert (first.batch, first.name) == ("a, b (+1 s)", "a")
    assert first.measured_s == pytest.approx(21.0)
    assert first.predicted_s == pytest.approx(20.0)
    assert first.errors[0] == pytest.approx(-1.0 / 21.0)
    assert (first.cpu_of_alone, second.cpu_of_alone) == (pytest.approx(1.1), pytest.approx(1.0))
    # Ten core seconds are left at 2 s, and half a core for them.
    assert first.predicted_with_cpu_s == pytest.approx(22.0)
    assert compare(alone, 1.0, 0.0) == []


def test_two_runs_of_a_job_alone_are_averaged() -> None:
    alone = [[observed("a", 1.0, [1.0] * 10)], [observed("b", 1.0, [1.0] * 10)]]
    again = [[observed("a", 1.0, [1.0] * 12)], [observed("b", 1.0, [1.0] * 10)]]
    pair = [observed("a", 1.0, [0.5] * 21), observed("b", 1.0, [0.5] * 21)]
    first, second = compare([*alone, pair, *again], 1.0, 0.0)
    assert (first.predicted_s, second.predicted_s) == (pytest.approx(22.0), pytest.approx(21.0))
    assert first.cpu_of_alone == pytest.approx(10.5 / 11.0)
    assert cpu_s_alone([*alone, pair, *again]) == {"a": [10.0, 12.0], "b": [10.0, 10.0]}


def test_the_table_shows_errors_and_the_json_their_observations(tmp_path: Path) -> None:
    rows = [Comparison("a, b", "a", 25.0, 20.0, 1.25, 24.5), Comparison("a, b", "b", 20.0, 21.0, 1.0, 20.0)]
    assert output.validation(rows, {"a": [10.0, 12.0], "b": [10.0, 10.0], "c": [9.0]})[2:] == [
        "| a, b | a | 25.0 s | 20.0 s | -20.0 % | 1.25 | 24.5 s | -2.0 % |",
        "|  | b | 20.0 s | 21.0 s | +5.0 % | 1.00 | 20.0 s | +0.0 % |",
        "",
        "error: 12.5 % on average, 20.0 % at most",
        "",
        "error given the CPU time of each job: 1.0 % on average, 2.0 % at most",
        "",
        "runs of a job alone: mean of largest differences 10.0 %, largest 20.0 %",
    ]
    output.write_validation(tmp_path / "all.json", {"cores": 1.0}, [[observed("a", 0.0, [1.0])]], rows)
    written = orjson.loads((tmp_path / "all.json").read_bytes())
    assert written["compared"][0]["cpu_of_alone"] == 1.25
    assert written["batches"][0][0]["seen"][-1] == [1.0, 1.0]


def test_the_figures_of_a_batch_that_ran_twice_are_means() -> None:
    alone = [[observed("a", 1.0, [1.0] * 10)], [observed("b", 1.0, [1.0] * 10)]]
    pairs = [[observed("a", 1.0, [0.5] * seconds), observed("b", 1.0, [0.5] * 20)] for seconds in (20, 24)]
    first, second = compare([*alone, pairs[0], *alone, pairs[1]], 1.0, 0.0)
    assert (first.name, second.name) == ("a", "b")
    assert (first.measured_s, first.predicted_s) == (pytest.approx(23.0), pytest.approx(21.0))
    assert (first.cpu_of_alone, second.cpu_of_alone) == (pytest.approx(1.1), pytest.approx(1.0))


def test_each_job_runs_alone_before_and_after_the_pairs_and_fours() -> None:
    alone, together = [[name] for name in JOBS], [list(batch) for batch in TOGETHER]
    assert [list(batch) for batch in batches(2)] == [*alone, *together, *alone, *together, *alone]
    assert {len(batch) for batch in TOGETHER} == {2, 4}
    assert title([ObservedJob("a", 0.0), ObservedJob("b", 15.0)]) == "a, b (+15 s)"
