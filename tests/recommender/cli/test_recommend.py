"""`phasewise recommend`: its table, its formats, and what it leaves out."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest
import yaml

from recommender.cluster.node_types import INSTANCE_TYPE_LABEL
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


def workloads(ended: CommandResult) -> list[dict]:
    return orjson.loads(ended.out)["workloads"]


def test_a_job_of_seven_runs_gets_less_of_both_and_a_young_service_is_marked(phasewise: Phasewise, usage: Path) -> None:
    """The job uses 0.5 cores, then 1.5, and 500 MiB; it requests 4 cores and 4 GiB."""
    found = {one["workload"]: one for one in workloads(run(phasewise, usage, "-o", "json"))}
    job, service = found["bert"], found["shop"]
    assert (job["namespace"], job["container"], job["owner"]) == ("ml", "main", "Job/bert")
    assert (job["now_cpu_cores"], job["now_memory_bytes"]) == (4.0, 4096 * MIB)
    assert 1.5 / 1.05 <= job["recommended_cpu_cores"] < 2.0
    assert 500 * MIB < job["recommended_memory_bytes"] < 1024 * MIB
    assert job["lowest_cpu_cores"] < 1.0 <= job["highest_cpu_cores"]
    assert (job["runs"], job["confidence"]) == (7, "medium")
    assert job["hours"] == pytest.approx(7 * 29 / 60)
    assert job["short_share"] <= 0.05 and job["killed_runs"] == 0
    assert (service["runs"], service["confidence"]) == (1, "low")


def test_the_table_shows_both_amounts_and_marks_what_is_backed_by_little(
    phasewise: Phasewise, usage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ended = run(phasewise, usage, "--cpu-price", 1, "--memory-price", 0)
    (job,) = (line for line in ended.out.splitlines() if line.startswith("ml/bert/main "))
    (service,) = (line for line in ended.out.splitlines() if line.startswith("web/shop/app * "))
    assert "4.00" in job and "4.00Gi" in job and job.endswith("medium")
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


@pytest.mark.option("phasewise recommend", "--cpu-price", "--memory-price")
def test_prices_are_of_a_core_and_of_a_gib_for_an_hour(phasewise: Phasewise, usage: Path) -> None:
    """730 hours a month."""

    def saved(*prices: object) -> dict:
        ended = run(phasewise, usage, "--workload", "bert", "-o", "json", *prices)
        return orjson.loads(ended.out)["workloads"][0]

    one = saved("--cpu-price", 1)
    assert one["saved_a_month"] == pytest.approx(730 * one["saved_cpu_cores"])
    one = saved("--memory-price", 2)
    assert one["saved_a_month"] == pytest.approx(2 * 730 * one["saved_memory_bytes"] / 2**30)


@pytest.mark.option("phasewise recommend", "--node-type")
def test_nodes_are_counted_with_the_requests_as_they_are_as_advised_and_by_phases(
    phasewise: Phasewise, usage: Path
) -> None:
    """Each run requests the four cores of a node for half an hour, as the service does beside the first run."""

    def nodes(*types: str) -> dict:
        options = (word for one in types for word in ("--node-type", one))
        return orjson.loads(run(phasewise, usage, "-o", "json", *options).out)["nodes"]

    found = nodes("4x16Gi@0.50")
    assert list(found) == ["now", "new", "by phases"]
    assert found["now"]["node_hours"] == pytest.approx(8 * 0.5)
    assert (found["now"]["peak_nodes"], found["new"]["peak_nodes"]) == (2, 1)
    assert found["now"]["cost"] == pytest.approx(8 * 0.5 * 0.50)
    assert found["now"]["cost_a_month"] == pytest.approx(2.0 * 730 / found["now"]["hours"])
    assert found["new"]["node_hours"] == pytest.approx(7 * 0.5)
    assert nodes("8x16Gi")["now"]["peak_nodes"] == 1 and nodes("8x16Gi")["now"]["cost"] is None
    assert nodes("2x16Gi@1")["now"]["pods_larger_than_a_node"][0] == "ml/bert-0"
    assert nodes() == {}


@pytest.mark.option("phasewise recommend", "--nodes", "--prices")
@pytest.mark.option("phasewise dry-run", "--nodes", "--prices")
@pytest.mark.parametrize("command", [("recommend", "-o", "json"), ("dry-run", "--model", "bundled", "--json", "-")])
def test_the_nodes_of_a_cluster_and_their_prices_count_as_their_types_do(
    phasewise: Phasewise, usage: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    nodes, prices = tmp_path / "nodes.json", tmp_path / "prices.yaml"
    labels, allocatable = {INSTANCE_TYPE_LABEL: "m5.xlarge"}, {"cpu": "4", "memory": "16Gi"}
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": allocatable}}
    nodes.write_bytes(orjson.dumps({"items": [node]}))
    prices.write_text("m5.xlarge: 0.5\n")

    def found(*options: object) -> dict:
        return orjson.loads(phasewise(command[0], usage, *command[1:], *options).out)["nodes"]

    assert found("--nodes", nodes, "--prices", prices) == found("--node-type", "4x16Gi@0.50")
    assert found("--nodes", nodes) == found("--node-type", "4x16Gi")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--nodes", "nodes.json", "--node-type", "4x16Gi"), "--nodes and --node-type say the same"),
        (("--prices", "prices.yaml"), "--prices are of the nodes in --nodes"),
        (("--nodes", "absent.json"), "absent.json: no such file"),
    ],
)
def test_nodes_and_prices_that_do_not_fit_together_are_refused(
    phasewise: Phasewise, usage: Path, options: tuple[str, ...], problem: str
) -> None:
    ended = phasewise("recommend", usage, *options)
    assert ended.code == 2 and problem in " ".join(ended.err.split())


def test_the_table_of_nodes_says_which_pods_are_larger_than_a_node(phasewise: Phasewise, usage: Path) -> None:
    ended = run(phasewise, usage, "--node-type", "2x16Gi@1", "--workload", "bert")
    text = ended.out
    assert "nodes are counted for all workloads together" in ended.err
    (now,) = (line.split() for line in text.splitlines() if line.startswith("now "))
    assert now[:4] == ["now", "8.00", "1.23", "4"]
    assert "now: 8 pods larger than every node type, each counted as so many whole nodes" in " ".join(text.split())


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        (("16x64",), "'16x64' is not a node type. Write cores x memory"),
        (("4x16Gi@1", "8x32Gi"), "--node-type: some types have a price and others have none"),
    ],
)
def test_a_node_type_that_cannot_be_read_is_refused(
    phasewise: Phasewise, usage: Path, types: tuple[str, ...], problem: str
) -> None:
    ended = phasewise("recommend", usage, *(word for one in types for word in ("--node-type", one)))
    assert ended.code == 2 and problem in " ".join(ended.err.split())


@pytest.mark.parametrize(("column", "full"), [("gpu_util", 1.0), ("gpu_util", 100), ("DCGM_FI_DEV_GPU_UTIL", 100)])
def test_the_wide_table_and_the_page_tell_how_long_gpus_idle(
    phasewise: Phasewise, usage: Path, tmp_path: Path, column: str, full: float
) -> None:
    """Those of the job idle in the first half of each run; the service has none."""
    table = pd.read_parquet(usage)
    first_half = (table.timestamp - table.timestamp.min()) % 3600 < 15 * 60
    table[column] = np.where(first_half, 0.0, 0.8 * full)
    table.loc[table.namespace == "web", column] = np.nan
    table.to_parquet(file := tmp_path / "gpus.parquet")
    found = {one["workload"]: one["gpu_idle_share"] for one in workloads(run(phasewise, file, "-o", "json"))}
    assert found == {"bert": pytest.approx(0.5), "shop": None}
    wide = run(phasewise, file, "-o", "wide").out
    assert "GPU idle: share of the time that its GPUs are used less than 5 %" in " ".join(wide.split())
    (job,) = (line for line in wide.splitlines() if line.startswith("ml/bert/main "))
    assert job.split()[-2:] == ["50%", "medium"]
    assert "GPU" not in run(phasewise, usage, "-o", "wide").out
    phasewise("dry-run", file, "--model", "bundled", "--policies", "phasewise", "--html", tmp_path / "page.html")
    assert ">GPU <small>idle</small>" in (tmp_path / "page.html").read_text()


@pytest.mark.option("phasewise recommend", "--history")
def test_earlier_runs_count_as_evidence(phasewise: Phasewise, usage: Path, tmp_path: Path) -> None:
    table = pd.read_parquet(usage)
    last = table.timestamp >= 1_700_000_000 + 3600 * 6
    table[last].to_parquet(tmp_path / "now.parquet")
    table[~last].to_parquet(tmp_path / "before.parquet")
    options = ("--workload", "bert", "-o", "json")
    alone = orjson.loads(run(phasewise, tmp_path / "now.parquet", *options).out)["workloads"][0]
    ended = run(phasewise, tmp_path / "now.parquet", *options, "--history", tmp_path / "before.parquet")
    with_history = orjson.loads(ended.out)["workloads"][0]
    assert (alone["runs"], with_history["runs"]) == (1, 7)
    assert with_history["recommended_memory_bytes"] < alone["recommended_memory_bytes"]


@pytest.mark.option("phasewise recommend", "--map")
def test_columns_may_have_other_names(phasewise: Phasewise, usage: Path, tmp_path: Path) -> None:
    table = pd.read_parquet(usage).rename(columns={"cpu_cores": "usage"})
    table["usage"] *= 1000
    table.to_parquet(tmp_path / "other.parquet")
    ended = run(phasewise, tmp_path / "other.parquet", "--map", "cpu_cores=usage:m", "--workload", "bert", "-o", "csv")
    assert 1.4 < float(next(csv.DictReader(io.StringIO(ended.out)))["recommended_cpu_cores"]) < 2.0


@pytest.mark.option("phasewise recommend", "--model")
def test_one_container_without_requests_gets_a_recommendation_of_the_bundled_model(
    phasewise: Phasewise, tmp_path: Path
) -> None:
    """There are no others to train on; the policies of papers are no substitute for ours."""
    rows = [f"{1_700_000_000 + 60 * i},web,{0.2 + 0.01 * (i % 3)},300000000" for i in range(40)]
    (tmp_path / "one.csv").write_text("timestamp,container,cpu_cores,memory_bytes\n" + "\n".join(rows) + "\n")
    ended = phasewise("recommend", tmp_path / "one.csv", "-o", "json")
    assert "the bundled model is used: one container cannot be judged" in ended.err
    (row,) = orjson.loads(ended.out)["workloads"]
    assert row["now_cpu_cores"] is None and row["saved_a_month"] is None
    assert 0.2 < row["recommended_cpu_cores"] < 0.4
    report = phasewise("dry-run", tmp_path / "one.csv").out
    assert report.startswith("phasewise would have reserved")
    assert "phasewise (ours)" in report
    refused = phasewise("recommend", tmp_path / "one.csv", "--model", tmp_path / "none")
    assert refused.code == 2 and "none" in refused.err


@pytest.mark.option("phasewise recommend", "--help-all")
@pytest.mark.option("phasewise dry-run", "--help-all")
@pytest.mark.option("phasewise recommender", "--help-all")
@pytest.mark.parametrize("command", ["recommend", "dry-run", "recommender"])
def test_help_shows_the_options_that_people_set_and_help_all_the_rest(phasewise: Phasewise, command: str) -> None:
    def options(text: str) -> int:
        return sum(line.startswith("  -") for line in text.splitlines())

    short, long = phasewise(command, "--help").out, phasewise(command, "--help-all").out
    assert options(short) <= 12 < options(long)
    assert f"Show all {options(long)} options" in " ".join(long.split())
    assert phasewise(command, "--help").out == short
