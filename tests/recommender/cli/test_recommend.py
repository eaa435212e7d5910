"""`phasewise recommend`: its table, its formats, and what it leaves out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import orjson
import pandas as pd
import pytest
import yaml

from tests.fakes.command_line import CommandResult

Phasewise = Callable[..., CommandResult]

MIB = 2**20


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven runs of a Job, and a Deployment that is seen for half an hour, with a sample a minute."""
    rows = []
    for run in range(7):
        for minute in range(30):
            cores = 0.5 if minute < 15 else 1.5
            at = 1_700_000_000 + 3600 * run + 60 * minute
            rows.append((at, "ml", f"bert-{run}", "main", cores + 0.01 * (minute % 3), 500 * MIB, "bert", "Job/bert"))
    for minute in range(30):
        at = 1_700_000_000 + 60 * minute
        rows.append((at, "web", "shop-7d4b9c8f6d-x2x4z", "app", 0.2, 300 * MIB, None, "Deployment/shop"))
    names = ["timestamp", "namespace", "pod", "container", "cpu_cores", "memory_bytes", "workload", "owner"]
    table = pd.DataFrame(rows, columns=names)
    table["cpu_request_cores"], table["memory_request_bytes"] = 4.0, 4096.0 * MIB
    file = tmp_path_factory.mktemp("usage") / "usage.parquet"
    table.to_parquet(file)
    return file


def run(phasewise: Phasewise, usage: Path, *options: object) -> CommandResult:
    ended = phasewise("recommend", usage, "--model", "bundled", *options)
    assert ended.code == 0, ended.err
    return ended


def test_a_job_of_seven_runs_gets_less_of_both_and_a_young_service_is_marked(phasewise: Phasewise, usage: Path) -> None:
    """The job uses 0.5 cores, then 1.5, and 500 MiB; it requests 4 cores and 4 GiB."""
    found = {one["workload"]: one for one in orjson.loads(run(phasewise, usage, "-o", "json").out)["workloads"]}
    job, service = found["bert"], found["shop"]
    assert (job["namespace"], job["container"], job["owner"]) == ("ml", "main", "Job/bert")
    assert (job["now_cpu_cores"], job["now_memory_bytes"]) == (4.0, 4096 * MIB)
    assert 1.5 / 1.05 <= job["recommended_cpu_cores"] < 2.0
    assert 500 * MIB < job["recommended_memory_bytes"] < 1024 * MIB
    assert job["lowest_cpu_cores"] < 1.0 <= job["highest_cpu_cores"]
    assert (job["runs"], job["confidence"]) == (7, "high")
    assert job["hours"] == pytest.approx(7 * 29 / 60)
    assert job["short_share"] <= 0.05 and job["killed_runs"] == 0
    assert (service["runs"], service["confidence"]) == (1, "low")


def test_the_table_shows_both_amounts_and_marks_what_is_backed_by_little(phasewise: Phasewise, usage: Path) -> None:
    ended = run(phasewise, usage, "--cpu-price", 1, "--memory-price", 0)
    (job,) = (line for line in ended.out.splitlines() if line.startswith("ml/bert/main "))
    (service,) = (line for line in ended.out.splitlines() if line.startswith("web/shop/app * "))
    assert "4.00" in job and "4.00Gi" in job and job.endswith("high")
    assert service.endswith("low")
    assert "at 1 per core-hour and 0 per GiB-hour" in " ".join(ended.out.split())
    assert max(map(len, ended.out.splitlines())) <= 100


def test_csv_has_the_columns_of_json(phasewise: Phasewise, usage: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(phasewise, usage, "-o", "csv", "--workload", "bert").out)))
    assert [row["workload"] for row in rows] == ["bert"]
    assert float(rows[0]["now_cpu_cores"]) == 4.0


@pytest.mark.option("phasewise recommend", "-o")
@pytest.mark.option("phasewise recommend", "--low-confidence")
def test_manifests_leave_out_what_is_backed_by_little_unless_asked(phasewise: Phasewise, usage: Path) -> None:
    ended = run(phasewise, usage, "-o", "yaml")
    (job,) = yaml.safe_load(ended.out)
    assert (job["namespace"], job["workload"], job["container"]) == ("ml", "Job/bert", "main")
    assert job["resources"]["requests"]["cpu"].endswith("m") and job["resources"]["requests"]["memory"].endswith("Mi")
    assert "left out: 1 value backed by little" in ended.err
    both = yaml.safe_load(run(phasewise, usage, "-o", "yaml", "--low-confidence").out)
    assert {one["workload"] for one in both} == {"Job/bert", "Deployment/shop"}


def test_a_kustomization_names_its_targets_and_the_diff_what_changes(phasewise: Phasewise, usage: Path) -> None:
    ended = run(phasewise, usage, "-o", "kustomize", "--low-confidence")
    document = yaml.safe_load(ended.out)
    targets = {
        one["target"]["kind"]: (one["target"]["namespace"], one["target"]["name"]) for one in document["patches"]
    }
    assert targets == {"Job": ("ml", "bert"), "Deployment": ("web", "shop")}
    patch = yaml.safe_load(document["patches"][0]["patch"])
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["memory"].endswith("Mi")
    diff = run(phasewise, usage, "-o", "diff").out
    assert diff.startswith("--- ml/bert/main (now)\n+++ ml/bert/main (recommended)\n")
    assert "-    cpu: '4'" in diff


@pytest.mark.option("phasewise recommend", "--workload")
def test_an_unknown_workload_is_refused_with_those_that_there_are(phasewise: Phasewise, usage: Path) -> None:
    ended = phasewise("recommend", usage, "--model", "bundled", "--workload", "bret*")
    assert ended.code == 2
    assert "no workload is called bret*. There are: ml/bert/main, web/shop/app." in ended.err
