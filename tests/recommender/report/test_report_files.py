"""JSON and CSV reports: the documented keys, with the same numbers in both."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import orjson
import pytest

from recommender.base.records import ContainerReplay, ReplayResult, RunTally, Tally
from recommender.report.figures import COLUMNS, to_json, write_csv
from tests.recommender.report.simulation import HOSTILE, Simulated

ROOT = Path(__file__).parents[3]
GIB_H = float(1 << 30) * 3600


def test_the_json_of_a_worked_example_has_the_documented_keys_and_values() -> None:
    tally = Tally(
        samples=240, judged_s=3600, used=(3600, GIB_H), allocated=(7200, 3 * GIB_H), slack=(3600, 2 * GIB_H),
        shortage=(0, 0), violations=(12, 6), oom_events=2, resizes=6,
    )  # fmt: skip
    model = {"origin": "bundled", "phases": np.int64(5)}
    containers = (ContainerReplay("a", None, {"phasewise": tally}),)
    result = ReplayResult(15, 600, ("phasewise",), frozenset(), containers, (), model)
    report = orjson.loads(to_json(result))
    policy = report["policies"]["phasewise"]
    assert {key: report[key] for key in ("schema", "step_s", "cycle_s", "containers", "samples", "model")} == {
        "schema": 1, "step_s": 15, "cycle_s": 600, "containers": 1, "samples": 240,
        "model": {"origin": "bundled", "phases": 5},
    }  # fmt: skip
    cpu = {"used_core_hours": 1, "allocated_core_hours": 2, "slack_ratio": 1, "violation_ratio": 0.05}
    memory = {"used_gib_hours": 1, "allocated_gib_hours": 3, "slack_ratio": 2, "violation_ratio": 0.025}
    assert policy["cpu"].items() >= cpu.items()
    assert policy["memory"].items() >= {**memory, "oom_events": 2}.items()
    assert policy["resizes_per_container_hour"] == 6


def test_the_page_of_commands_names_every_key_of_a_policy_run_in_the_simulated_cluster() -> None:
    replayed = ContainerReplay("a", None, {"phasewise": Tally()}, {"phasewise": RunTally(runs=1)})
    report = orjson.loads(to_json(ReplayResult(15, 600, ("phasewise",), frozenset(), (replayed,), (), {})))
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    keys = report["policies"]["phasewise"].keys()
    assert "kills" in keys
    assert [key for key in keys if f"`{key}`" not in page] == []


def test_undefined_ratios_are_null_and_a_report_without_containers_is_no_error() -> None:
    empty = ReplayResult(15, 600, ("static",), frozenset(), (), (("a", "too short"),), {})
    report = orjson.loads(to_json(empty))
    assert report["samples"] == 0 and report["policies"]["static"]["cpu"]["slack_ratio"] is None
    assert report["left_out"] == [{"container": "a", "reason": "too short"}]


def test_the_csv_has_a_row_per_container_and_policy_and_adds_up_to_the_json(run: Simulated, tmp_path: Path) -> None:
    write_csv(run.result, tmp_path / "r.csv")
    with (tmp_path / "r.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(run.result.containers) * len(run.result.policies)
    assert tuple(rows[0]) == COLUMNS and rows[0]["container"] == HOSTILE
    report = orjson.loads(to_json(run.result))
    for name, policy in report["policies"].items():
        of_policy = [row for row in rows if row["policy"] == name]
        allocated = sum(float(row["cpu_allocated_core_hours"]) for row in of_policy)
        assert allocated == pytest.approx(policy["cpu"]["allocated_core_hours"])
        assert sum(int(row["oom_events"]) for row in of_policy) == policy["memory"]["oom_events"]
        assert {row["oracle"] for row in of_policy} == {str(int(policy["oracle"]))}


def test_an_undefined_ratio_is_an_empty_field(tmp_path: Path) -> None:
    idle = ContainerReplay("idle", None, {"static": Tally(samples=1, judged_s=15)})
    write_csv(ReplayResult(15, 600, ("static",), frozenset(), (idle,), (), {}), tmp_path / "r.csv")
    row = next(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert row["cpu_slack_ratio"] == "" and row["workload"] == "" and row["cpu_violation_ratio"] == "0.0"
