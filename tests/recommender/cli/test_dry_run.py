"""`phasewise dry-run`: its figures, its output files, and what it refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest

from recommender.learning import model as models
from recommender.policies.registry import POLICIES
from recommender.simulate.rows import ROWS
from tests.fakes.command_line import CommandResult
from tests.fakes.staged_jobs import simulated

Phasewise = Callable[..., CommandResult]
CYCLE = ("--cycle-samples", "10")


def figures(ended: CommandResult) -> dict:
    assert ended.code == 0, ended.err
    return orjson.loads(ended.out)


def test_figures_of_a_small_file_match_a_calculation_by_hand(phasewise: Phasewise, tmp_path: Path) -> None:
    """Four samples of history, then two cycles of two: the previous maximum is 1, then 2 cores; usage is 2, then 1."""
    cpu = [1, 1, 1, 1, 2, 2, 1, 1]
    rows = [f"{60 * i},web,{c},1000000" for i, c in enumerate(cpu)]
    rows += [f"{60 * i},short,1,1000000" for i in range(4)]
    (tmp_path / "m.csv").write_text("timestamp,container,cpu_cores,memory_bytes\n" + "\n".join(rows) + "\n")
    report = figures(
        phasewise("dry-run", tmp_path / "m.csv", "--cycle-samples", 2, "--policies", "prev.step.max", "--json", "-")
    )
    assert report["schema"] == 1
    assert (report["step_s"], report["cycle_s"], report["containers"], report["samples"]) == (60, 120, 1, 4)
    cpu_figures = report["policies"]["prev.step.max"]["cpu"]
    assert cpu_figures["used_core_hours"] == pytest.approx(6 / 60)
    assert cpu_figures["allocated_core_hours"] == pytest.approx((1 + 1 + 2 + 2) / 60)
    assert cpu_figures["slack_ratio"] == pytest.approx(2 / 6)
    assert cpu_figures["violation_ratio"] == 0.5
    assert report["policies"]["prev.step.max"]["memory"]["oom_events"] == 0
    assert report["left_out"][0]["container"] == "short"


def test_without_memory_requests_or_limits_nothing_can_be_killed_and_the_report_says_so(
    phasewise: Phasewise, tmp_path: Path
) -> None:
    rows = [f"{60 * i},web,1,{10**6 * (i + 1)}" for i in range(12)]
    (tmp_path / "m.csv").write_text("timestamp,container,cpu_cores,memory_bytes\n" + "\n".join(rows) + "\n")
    command = ("dry-run", tmp_path / "m.csv", *CYCLE, "--policies", "vpa")
    text = " ".join(phasewise(*command).out.split())
    assert "and no memory limits." in text
    assert "Without memory requests: 1 of 1 container, taken to have no limits" in text
    policy = figures(phasewise(*command, "--json", "-"))["policies"]["vpa"]
    assert (policy["kills"], policy["killed_run_share"]) == (0, None)
    assert "taken to have no limits" not in " ".join(phasewise(*command, "--limits", "none").out.split())


def test_class_runs_can_be_replayed_on_its_own(phasewise: Phasewise, runs_csv: Path, model_folder: Path) -> None:
    options = ("--policies", "phasewise,class.runs", "--json", "-")
    policies = figures(phasewise("dry-run", runs_csv, "--model", model_folder, *CYCLE, *options))["policies"]
    assert policies.keys() == {"phasewise", "class.runs"}
    assert policies["phasewise"]["cpu"] != policies["class.runs"]["cpu"]


def test_flowcon_runs_on_recorded_losses_and_is_refused_without_a_loss_column(
    phasewise: Phasewise, tmp_path: Path
) -> None:
    rows = [f"{60 * i},web,1,1000000,4,2000000,{1 / (1 + i)}" for i in range(12)]
    path = tmp_path / "m.csv"
    path.write_text(
        "timestamp,container,cpu_cores,memory_bytes,cpu_request_cores,memory_request_bytes,loss\n"
        + "\n".join(rows)
        + "\n"
    )
    command = ("dry-run", path, "--cycle-samples", 2, "--policies", "static,flowcon", "--json", "-")
    assert figures(phasewise(*command))["policies"].keys() == {"static", "flowcon"}

    path.write_text(path.read_text().replace("loss", "accuracy"))
    refused = phasewise(*command)
    assert refused.code == 2
    assert "column 'loss'" in refused.err and "m.csv" in refused.err


def test_all_policies_are_judged_on_the_same_samples_and_the_oracle_is_best(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path
) -> None:
    report = figures(phasewise("dry-run", runs_csv, "--model", model_folder, *CYCLE, "--json", "-"))
    policies = report["policies"]
    assert set(policies) == {*ROWS, *POLICIES}
    assert len({round(p["cpu"]["used_core_hours"], 9) for p in policies.values()}) == 1
    assert policies["ground.truth"]["cpu"]["slack_ratio"] == 0
    assert policies["current.step.max"]["memory"]["violation_ratio"] == 0
    assert policies["phasewise"]["cpu"]["slack_ratio"] < policies["static"]["cpu"]["slack_ratio"]


@pytest.mark.option("phasewise dry-run", "--model")
@pytest.mark.long
def test_without_a_model_the_report_names_the_cross_fitted_folds(phasewise: Phasewise, tmp_path: Path) -> None:
    simulated(0, containers=3).to_csv(tmp_path / "three.csv", index=False)  # three models to train
    report = figures(phasewise("dry-run", tmp_path / "three.csv", *CYCLE, "--json", "-"))
    assert "3 folds" in report["model"]["origin"]


def test_every_output_warns_of_a_model_judged_on_its_training_data(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    page, note = tmp_path / "r.html", "was trained on 2 of the 3 containers"
    data = pd.read_csv(runs_csv)
    data = data[data.container.isin(["job-00", "job-01", "job-02"])].replace("job-02", "another")
    data.to_parquet(tmp_path / "part.parquet")
    options = ("--model", model_folder, *CYCLE, "--policies", "static,phase.rules")
    ended = phasewise("dry-run", tmp_path / "part.parquet", *options, "--html", page, "--json", tmp_path / "r.json")
    report = orjson.loads((tmp_path / "r.json").read_bytes())
    assert report["model"]["seen_in_training"] == 2
    assert note in " ".join(ended.out.split()) and note in " ".join(report["notes"]) and note in page.read_text()
    assert "never on data it was fitted on" not in page.read_text()

    data.assign(timestamp=data.timestamp + 86_400).to_parquet(tmp_path / "later.parquet")
    ended = phasewise("dry-run", tmp_path / "later.parquet", *options, "--html", page)
    assert "was trained on" not in ended.out
    assert "never on data it was fitted on" in page.read_text()


def test_a_report_says_so_when_the_model_does_not_record_what_it_was_trained_on(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    replace(models.load(model_folder), trained_on=None).save(tmp_path / "before")
    options = ("--model", tmp_path / "before", *CYCLE, "--policies", "static", "--json", "-")
    report = figures(phasewise("dry-run", runs_csv, *options))
    assert report["model"]["seen_in_training"] is None
    assert any("does not record" in note for note in report["notes"])


@pytest.mark.option("phasewise dry-run", "--decisions", "--json")
def test_decisions_and_input_are_enough_to_recompute_the_table(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    where = tmp_path / "decisions.parquet"
    report = figures(
        phasewise("dry-run", runs_csv, "--model", model_folder, *CYCLE, "--decisions", where, "--json", "-")
    )
    usage = pd.read_csv(runs_csv).sort_values(["timestamp", "container"])
    decisions = pd.read_parquet(where)
    assert set(decisions["policy"]) == report["policies"].keys()
    for policy, rows in decisions.groupby("policy", observed=True):
        allocated = pd.merge_asof(
            usage,
            rows.astype({"container": str}).sort_values("timestamp"),
            on="timestamp",
            by="container",
            suffixes=("", "_allocated"),
        ).dropna(subset="cpu_cores_allocated")
        for resource, column in (("cpu", "cpu_cores"), ("memory", "memory_bytes")):
            use, given = allocated[column], allocated[f"{column}_allocated"]
            stated = report["policies"][policy][resource]
            assert stated["slack_ratio"] == pytest.approx((given - use).clip(lower=0).sum() / use.sum())
            assert stated["violation_ratio"] == pytest.approx((use > given * 1.05 * (1 + 1e-12)).mean())


def test_the_order_of_rows_and_the_number_of_files_change_nothing(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    data = pd.read_csv(runs_csv).sample(frac=1, random_state=1)
    data.iloc[:300].to_csv(tmp_path / "a.csv.gz", index=False)
    data.iloc[300:].to_csv(tmp_path / "b.csv", index=False)
    options = ("--model", model_folder, *CYCLE, "--json", "-")
    assert figures(phasewise("dry-run", tmp_path, *options)) == figures(phasewise("dry-run", runs_csv, *options))


@pytest.mark.long
def test_models_trained_in_parallel_are_the_same(phasewise: Phasewise, tmp_path: Path) -> None:
    simulated(0, containers=3).to_csv(tmp_path / "three.csv", index=False)
    options = ("dry-run", tmp_path / "three.csv", *CYCLE, "--policies", "phase.rules", "--json", "-", "--jobs")
    assert phasewise(*options, 2).out == phasewise(*options, 1).out


@pytest.mark.option("phasewise dry-run", "--csv")
def test_the_terminal_names_every_policy_and_the_file_written(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    ended = phasewise("dry-run", runs_csv, "--model", model_folder, *CYCLE, "--csv", tmp_path / "c.csv")
    assert ended.code == 0
    for name in (*ROWS, *POLICIES, "c.csv"):
        assert name in ended.out
    assert len(pd.read_csv(tmp_path / "c.csv")) == 14 * len({*ROWS, *POLICIES})


@pytest.mark.option("phasewise dry-run", "--html", "--plots")
@pytest.mark.long
def test_page_and_plots_are_written(phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path) -> None:
    outputs = ("--html", tmp_path / "r.html", "--plots", tmp_path / "plots")
    ended = phasewise("dry-run", runs_csv, "--model", model_folder, *CYCLE, "--sample", 2, *outputs)
    assert ended.code == 0, ended.err
    assert "phase.rules" in (tmp_path / "r.html").read_text()
    assert len(list((tmp_path / "plots").glob("*.png"))) >= 4


@pytest.mark.option("phasewise dry-run", "--sample")
def test_sampling_chooses_the_same_containers_each_time(phasewise: Phasewise, runs_csv: Path) -> None:
    options = ("dry-run", runs_csv, *CYCLE, "--policies", "histogram", "--sample", 3, "--json", "-")
    first = figures(phasewise(*options))
    assert first["containers"] == 3
    assert figures(phasewise(*options)) == first


def test_history_runs_that_are_replayed_or_end_later_are_not_learned(phasewise: Phasewise, tmp_path: Path) -> None:
    """Of three runs of history, one ended before, one has the name of a replayed run, one ends later."""
    source, history = simulated(0, containers=4), simulated(1, containers=3)
    history["timestamp"] -= 10_000
    history["container"] = history["container"].replace({"job-01": "later", "job-02": "before"})
    history.loc[history["container"] == "later", "timestamp"] += 10_000
    source.to_csv(tmp_path / "s.csv", index=False)
    history.to_csv(tmp_path / "h.csv", index=False)
    options = ("dry-run", tmp_path / "s.csv", *CYCLE, "--policies", "class.peak,static", "--json", "-")
    mixed, same = (figures(phasewise(*options, "--history", tmp_path / f"{name}.csv")) for name in "hs")
    mixed_notes, same_notes = " ".join(mixed["notes"]), " ".join(same["notes"])
    assert "left out of --history: 2 runs" in mixed_notes and "1 earlier run was known" in mixed_notes
    assert "left out of --history: 4 runs" in same_notes
    assert same["policies"] == figures(phasewise(*options))["policies"]


def test_exit_code_137_alone_is_not_reported_as_an_oom_kill(
    phasewise: Phasewise, runs_csv: Path, tmp_path: Path
) -> None:
    runs = pd.read_csv(runs_csv)
    runs["exit_code"] = np.where(runs["container"] == "job-00", 137, 0)
    runs.to_csv(tmp_path / "s.csv", index=False)
    command = ("dry-run", tmp_path / "s.csv", "--policies", "static", "--json", "-")
    notes = " ".join(figures(phasewise(*command))["notes"])
    assert "1 run ended with exit code 137" in notes and "OOM-killed when recorded" not in notes


def test_one_container_is_replayed_with_the_bundled_model(phasewise: Phasewise, tmp_path: Path) -> None:
    simulated(0, containers=1).to_parquet(tmp_path / "one.parquet")
    report = figures(phasewise("dry-run", tmp_path / "one.parquet", *CYCLE, "--json", "-"))
    assert report["model"]["origin"] == "bundled" and "phasewise" in report["policies"]
    assert any("the bundled model is used" in note for note in report["notes"])
    assert [one["workload"] for one in report["workloads"]]


def test_the_headline_is_about_a_policy_in_force_and_the_legend_explains_the_others(
    phasewise: Phasewise, tmp_path: Path
) -> None:
    simulated(0, containers=1).to_parquet(tmp_path / "one.parquet")
    ended = phasewise("dry-run", tmp_path / "one.parquet", *CYCLE, "--policies", "vpa,prev.step.max")
    assert ended.out.startswith("vpa would have") and "Research policies are those of papers" in ended.out


def test_the_bundled_recordings_and_model_are_the_default(phasewise: Phasewise) -> None:
    report = figures(phasewise("dry-run", "--policies", "static", "--json", "-"))
    assert report["model"]["origin"] == "bundled"
    assert report["cycle_s"] == 30
    assert report["containers"] >= 25


def test_own_data_are_replayed_at_the_live_cycle_even_with_the_bundled_model(
    phasewise: Phasewise, runs_csv: Path
) -> None:
    options = ("--model", "bundled", "--policies", "prev.step.max", "--json", "-")
    assert figures(phasewise("dry-run", runs_csv, *options))["cycle_s"] == 600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "phase.rule"), "Did you mean 'phase.rules'"),
        (("--cycle", "10m", "--cycle-samples", "3"), "exclude each other"),
        (("--cycle", "soon"), "not a duration"),
        (("--step", "1s"), "--step"),
        (("--model", "no-such-model"), "phasewise train"),
        (("--map", "cpu_cores=cpu:parsec"), "parsec"),
        (("--cpu-price", "-1"), "--cpu-price"),
    ],
    ids=lambda v: v[0] if isinstance(v, tuple) else "",
)
def test_misuse_exits_with_2_and_a_remedy(
    phasewise: Phasewise, runs_csv: Path, arguments: tuple[str, ...], message: str
) -> None:
    ended = phasewise("dry-run", runs_csv, *arguments)
    assert ended.code == 2
    assert message in ended.err
    assert ended.out == ""


def test_a_feature_that_the_data_lack_is_named(phasewise: Phasewise, runs_csv: Path, tmp_path: Path) -> None:
    data = pd.read_csv(runs_csv)
    data["gpu_util"] = np.linspace(0, 1, len(data))
    data["gpu_memory"] = np.linspace(1, 0, len(data))
    data.to_csv(tmp_path / "gpu.csv", index=False)
    features = "cpu_cores,memory_bytes,gpu_util,gpu_memory"  # four, as by default, for which kernels are compiled
    ended = phasewise("train", tmp_path / "gpu.csv", "-o", tmp_path / "m", "--features", features, "--phases", 4)
    assert ended.code == 0, ended.err
    assert phasewise("dry-run", tmp_path / "gpu.csv", "--model", tmp_path / "m", *CYCLE).code == 0
    ended = phasewise("dry-run", runs_csv, "--model", tmp_path / "m", *CYCLE)
    assert ended.code == 2
    assert "gpu_util" in ended.err


@pytest.mark.parametrize("option", ["--json", "--csv", "--html", "--decisions", "--plots"])
def test_an_output_that_cannot_be_written_is_refused_before_input_is_read(
    phasewise: Phasewise, tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").touch()
    ended = phasewise("dry-run", tmp_path / "no-such-source.csv", option, tmp_path / "file" / "x")
    assert ended.code == 2
    assert "cannot write here" in ended.err and "no-such-source" not in ended.err


@pytest.mark.parametrize("source", ["runs.csv", ".", "*.csv"])
def test_the_input_is_not_overwritten(
    phasewise: Phasewise, runs_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    shutil.copy(runs_csv, tmp_path / "runs.csv")
    monkeypatch.chdir(tmp_path)
    ended = phasewise("dry-run", source, "--policies", "static", "--csv", tmp_path / "runs.csv")
    assert ended.code == 2
    assert "runs.csv: this command reads it" in ended.err
    assert (tmp_path / "runs.csv").read_bytes() == runs_csv.read_bytes()


def test_two_outputs_do_not_overwrite_each_other(phasewise: Phasewise, runs_csv: Path, tmp_path: Path) -> None:
    outputs = ("--csv", tmp_path / "out", "--json", tmp_path / "out")
    ended = phasewise("dry-run", runs_csv, "--policies", "static", *outputs)
    assert ended.code == 2
    assert "writes it twice" in ended.err
    assert not (tmp_path / "out").exists()


def test_the_table_is_printed_even_if_a_file_cannot_be_written(
    phasewise: Phasewise, runs_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("recommender.cli.dry_run.write_or_print", full)
    ended = phasewise("dry-run", runs_csv, "--policies", "static,histogram", "--json", tmp_path / "r.json")
    assert ended.code == 1
    assert "histogram" in ended.out and "No space left" in ended.err


def test_a_replay_that_does_not_fit_in_memory_warns_first(
    phasewise: Phasewise, runs_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("dry-run", runs_csv, "--policies", "histogram")
    assert "of memory" not in phasewise(*options).err
    monkeypatch.setattr("recommender.cli.replaying.available_memory_bytes", lambda: 1 << 10)
    assert "Ki of memory, and 1Ki are free" in phasewise(*options).err


def test_nothing_is_written_when_the_input_is_bad(phasewise: Phasewise, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("timestamp,container,cpu_cores,memory_bytes\n1,a,-1,5\n")
    out = tmp_path / "out"
    out.mkdir()
    outputs = ("--json", out / "j", "--html", out / "h", "--decisions", out / "d", "--plots", out / "p")
    ended = phasewise("dry-run", tmp_path / "bad.csv", *outputs)
    assert ended.code == 2
    assert "bad.csv, row 1, column 'cpu_cores'" in ended.err
    assert list(out.iterdir()) == []
