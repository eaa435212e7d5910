"""The simulated worker against a real node: jobs that run together are predicted from jobs that ran alone."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks.moves import output
from benchmarks.moves.validate import (
    JOBS,
    TOGETHER,
    Comparison,
    ObservedJob,
    Validation,
    batches,
    cpu_s_alone,
    ended,
    title,
)
from recommender.contention.sharing import Stage


def observed(name: str, began_s: float, cores: list[float], at_s: float = 0.0, every_s: float = 0.5) -> ObservedJob:
    """A job that uses these cores in each second from its start, observed twice a second."""
    points, used_s = [(0.0, 0.0), (began_s, 0.0)], 0.0
    for second, level in enumerate(cores):
        for place in range(1, round(1.0 / every_s) + 1):
            used_s += level * every_s
            points.append((began_s + second + place * every_s, used_s))
    return ObservedJob(name, name, at_s, points)


def test_the_stages_of_a_job_are_its_observed_usage() -> None:
    job = observed("a", 2.0, [1.0, 0.25, 1.0])
    job.seen.append((9.0, job.cpu_s + 0.0005))  # its pod terminates
    assert (job.began_s, job.duration_s) == (2.0, 5.0)
    assert job.stages() == [Stage(1.0, 1.0), Stage(0.25, 0.25), Stage(1.0, 1.0)]


def ends_s(alone: dict[str, ObservedJob], comes_s: dict[str, float], **more: dict[str, float]) -> dict[str, float]:
    return {name: run.ended_s for name, run in ended(alone, comes_s, 1.0, **more).items()}


def test_alone_on_the_simulated_worker_a_job_takes_its_observed_time() -> None:
    job = observed("a", 1.5, [0.3, 0.5, 0.01, 0.5, 0.45])
    assert ends_s({"a": job}, {"a": 0.0}) == {"a": pytest.approx(job.duration_s)}


def test_jobs_that_share_a_worker_are_predicted_from_their_arrivals() -> None:
    """`b` arrives at 4 s and starts at 5: then both have half a core, until `a` has used 9 core seconds at 15 s."""
    alone = {"a": observed("a", 1.0, [1.0] * 9), "b": observed("b", 1.0, [1.0] * 9)}
    assert ends_s(alone, {"a": 0.0, "b": 4.0}) == {"a": pytest.approx(15.0), "b": pytest.approx(19.0)}
    slower = ends_s(alone, {"a": 0.0, "b": 4.0}, overheads={"a": 0.1})
    assert slower["a"] == pytest.approx(5.0 + 1.1 * 10.0)
    more = ends_s(alone, {"a": 0.0, "b": 4.0}, work={"a": 1.1})
    assert more["a"] == pytest.approx(5.0 + 2.0 * (1.1 * 9.0 - 4.0))


ALONE = [[observed("a", 1.0, [1.0] * 10)], [observed("b", 1.0, [1.0] * 10)]]


def test_jobs_that_run_together_are_compared_with_their_runs_alone() -> None:
    """Four jobs of 5 core seconds: each has a quarter of the core, and all end after 20 s. `a` took a tenth more."""
    alone = [[observed(name, 1.0, [1.0] * 5)] for name in "abcd"]
    four = [observed("a", 1.0, [0.275] * 20), *(observed(name, 1.0, [0.25] * 20) for name in "bcd")]
    first, second, *_ = Validation.of([*alone, four], 1.0).compare()
    assert (first.batch, first.jobs, first.name) == ("a, b, c, d", 4, "a")
    assert (first.measured_s, first.predicted_s) == (pytest.approx(21.0), pytest.approx(21.0))
    assert (first.cpu_of_alone, second.cpu_of_alone) == (pytest.approx(1.1), pytest.approx(1.0))
    assert first.predicted_with_cpu_s == pytest.approx(21.5)  # half a second more than the others, alone
    assert Validation.of(alone, 1.0).compare() == []


def test_pairs_show_how_jobs_slow_each_other_down() -> None:
    """Beside `b`, `a` took a tenth more CPU time than alone, so each further job costs it a tenth of its speed."""
    slower = [observed("a", 1.0, [0.5] * 22), observed("b", 1.0, [0.5] * 20)]
    four = [observed(name, 1.0, [0.25] * 40) for name in "abcd"]
    alone = [*ALONE, *([observed(name, 1.0, [1.0] * 10)] for name in "cd")]
    found = Validation.of([*alone, slower, four], 1.0)
    assert found.overheads() == {"a": pytest.approx(0.1, rel=0.1), "b": 0.0}
    of_pair, *_, of_four, _, _, _ = found.compare()
    assert of_pair.predicted_s == pytest.approx(22.0, abs=0.1)
    # Three further jobs cost 30 %: when those end after 40 s, 10 / 1.3 is done; the rest it does alone.
    assert of_four.predicted_s == pytest.approx(41.0 + 10.0 - 10.0 / 1.3, abs=0.1)


def test_runs_of_a_job_alone_are_averaged() -> None:
    again = [[observed("a", 1.0, [1.0] * 12)], [observed("b", 1.0, [1.0] * 10)]]
    pair = [observed("a", 1.0, [0.5] * 21), observed("b", 1.0, [0.5] * 21)]
    first, second = Validation.of([*ALONE, pair, *again], 1.0).compare()
    # `a` took less than its mean of 11 beside `b`, which took 5 % more than alone.
    assert (first.predicted_s, second.predicted_s) == (pytest.approx(22.5, abs=0.1), pytest.approx(22.0, abs=0.1))
    assert first.cpu_of_alone == pytest.approx(10.5 / 11.0)
    assert cpu_s_alone([*ALONE, pair, *again]) == {"a": [10.0, 12.0], "b": [10.0, 10.0]}


def test_the_figures_of_a_batch_that_ran_twice_are_means() -> None:
    pairs = [[observed("a", 1.0, [0.5] * seconds), observed("b", 1.0, [0.5] * 20)] for seconds in (18, 22)]
    first, second = Validation.of([*ALONE, pairs[0], *ALONE, pairs[1]], 1.0).compare()
    assert (first.name, second.name) == ("a", "b")
    assert (first.measured_s, first.predicted_s) == (pytest.approx(21.0), pytest.approx(21.0))
    assert (first.cpu_of_alone, second.cpu_of_alone) == (pytest.approx(1.0), pytest.approx(1.0))


def test_the_table_shows_errors_and_the_json_their_observations(tmp_path: Path) -> None:
    rows = [Comparison("a, b", 2, "a", 25.0, 20.0, 1.25, 24.5), Comparison("a, b", 2, "b", 20.0, 21.0, 1.0, 20.0)]
    assert output.validation(rows, {"a": 0.071, "b": 0.0}, {"a": [10.0, 12.0], "b": [10.0, 10.0], "c": [9.0]})[2:] == [
        "| a, b | a | 25.0 s | 20.0 s | -20.0 % | 1.25 | 24.5 s | -2.0 % |",
        "|  | b | 20.0 s | 21.0 s | +5.0 % | 1.00 | 20.0 s | +0.0 % |",
        "",
        "error in pairs: 12.5 % on average, 20.0 % at most; given the CPU time of each job 1.0 % and 2.0 %",
        "",
        "speed lost per further running job, learned from pairs: a 7.1 %, b 0.0 %",
        "",
        "CPU time alone: longest run 10.0 % above the shortest on average, 20.0 % at most",
    ]
    output.write_validation(tmp_path / "all.json", {"cores": 1.0}, [[observed("a", 0.0, [1.0])]], rows)
    written = orjson.loads((tmp_path / "all.json").read_bytes())
    assert written["compared"][0]["cpu_of_alone"] == 1.25
    assert written["batches"][0][0]["seen"][-1] == [1.0, 1.0]


def test_each_job_runs_alone_before_and_after_the_pairs_and_fours() -> None:
    alone, together = [[name] for name in JOBS], [list(batch) for batch in TOGETHER]
    assert [list(batch) for batch in batches(2)] == [*alone, *together, *alone, *together, *alone]
    assert {len(batch) for batch in TOGETHER} == {2, 4}
    assert title([ObservedJob("a", "c", 0.0), ObservedJob("b", "c", 15.0)]) == "a, b (+15 s)"
