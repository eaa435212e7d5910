"""bench_thesis: its jobs, the same for all deciders, and its output."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import orjson
import pytest

from benchmarks.thesis import settings
from benchmarks.thesis.output import interval
from benchmarks.thesis.playing import Task, deciders, play
from benchmarks.thesis.settings import ROWS, SPECON
from tests.benchmarks.benches import invoke


@pytest.mark.parametrize(("early", "reported"), [(settings.VAE, 0.65), (settings.BIRNN, 0.98), (settings.GRU, 0.90)])
def test_a_fifth_of_the_work_lowers_the_loss_as_the_thesis_reports(early: float, reported: float) -> None:
    losses = np.array(settings.losses(early, np.random.default_rng(0)))
    fallen = (losses[0] - losses[len(losses) // 5]) / (losses[0] - losses[-1])
    assert fallen == pytest.approx(reported, abs=0.01)


def test_jobs_depend_on_the_seed_alone() -> None:
    fixed, mixed = SPECON[0], SPECON[1]
    assert mixed.jobs(1) == mixed.jobs(1) != mixed.jobs(2)
    assert [job.arrives_s for job in fixed.jobs(0)] == [50.0 * number for number in range(20)]
    assert all(0.0 <= job.arrives_s <= 300.0 for job in mixed.jobs(0))
    assert len({job.name for job in mixed.jobs(0)}) == 20


def test_the_confidence_interval_is_students() -> None:
    mean, half = interval([1.0, 2.0, 3.0])
    assert (mean, half) == pytest.approx((2.0, 4.303 / math.sqrt(3.0)), rel=1e-3)


def test_phasewise_gains_more_than_specon_on_single_arrivals_at_no_cost_of_makespan() -> None:
    _, results = play(Task("specon", 0, seed=1, history=4, overhead=0.0))
    assert list(results) == ["default", "SpeCon", "phasewise, moves alone", "phasewise"]
    assert (results["default"].mean, results["default"].moves) == (0.0, 0)
    assert results["phasewise"].mean < results["SpeCon"].mean - 0.05
    assert results["phasewise"].makespan <= 0.0
    assert results["SpeCon"].moves > 0
    assert results["phasewise"].slower == 0.0


def test_gains_and_losses_of_jobs_are_reported_separately() -> None:
    """Under FlowCon the last job gains, and the two before it lose or stay equal."""
    _, results = play(Task("flowcon", 0, seed=0, history=0, overhead=0.0))
    flowcon, default = results["FlowCon"], results["default"]
    assert (default.won_s, default.lost_s, default.first) == (0.0, 0.0, 0.0)
    assert flowcon.last == flowcon.best < 0.0 <= flowcon.first <= flowcon.worst
    assert flowcon.won_s > 0.0 < flowcon.lost_s


def test_shares_on_one_worker_slow_no_job_down() -> None:
    _, results = play(Task("flowcon", 2, seed=0, history=4, overhead=0.0))
    assert results["phasewise"].mean < results["FlowCon"].mean
    assert (results["phasewise"].slower, results["phasewise"].moves) == (0.0, 0)
    assert results["phasewise"].makespan < 0.005


def test_without_history_phasewise_knows_no_class() -> None:
    assert deciders(Task("specon", 0, 0, history=0, overhead=0.0))["phasewise"].classes == {}  # type: ignore[attr-defined]


def test_the_tables_are_printed_with_the_figures_of_the_thesis_and_every_play_is_written(tmp_path: Path) -> None:
    done = invoke("bench_thesis", "--rows", "flowcon", "--seeds", 2, "--jobs", 1, "--json", tmp_path / "all.json")
    assert done.exit_code == 0
    assert "FlowCon: 2 seeds" in done.output
    assert "-42.06 %" in done.output
    assert "winners and losers" in done.output
    written = orjson.loads((tmp_path / "all.json").read_bytes())
    assert [setting["setting"] for setting in written["settings"]] == [setting.name for setting in ROWS["flowcon"]]
    first = written["settings"][0]
    assert len(first["plays"]) == 2
    means = [one["phasewise"]["mean"] for one in first["plays"]]
    assert first["summary"]["phasewise"]["mean"]["mean"] == pytest.approx(sum(means) / 2)
