"""`phasewise train`, `model` and `phases`: models are trained, shown, split, imported and applied."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recommender.learning import model as models
from tests.fakes.command_line import CommandResult
from tests.fakes.staged_jobs import MODEL_OPTIONS, simulated

Phasewise = Callable[..., CommandResult]

AI4DL = Path(__file__).parents[2] / "data" / "ai4dl"
AI4DL_FEATURES = (
    "cpu.usage,cpu.usage.cores,cpu.usage.pct,cpu.usage.pct.container.requested,"
    "mem.current,mem.limit,mem.usage.pct,mem.working.set"
)
AI4DL_MAP = (
    "--map", "container=pod.id", "--map", "cpu_cores=cpu.usage.cores", "--map", "memory_bytes=mem.working.set",
)  # fmt: skip


@pytest.mark.parametrize("trace", ["dlaas", "vr"])
def test_the_published_parameters_give_the_published_phases(phasewise: Phasewise, tmp_path: Path, trace: str) -> None:
    published = AI4DL / "reference_model.npz"
    assert phasewise("model", "import", published, "-o", tmp_path / "m", "--features", AI4DL_FEATURES).code == 0
    source, out = AI4DL / f"sample-{trace}.csv", tmp_path / "phases.parquet"
    ended = phasewise("research", "phases", source, "--model", tmp_path / "m", "-o", out, "--step", "none", *AI4DL_MAP)
    assert ended.code == 0, ended.err
    found = pd.read_parquet(out)
    assert list(found.columns) == ["container", "timestamp", "phase"]
    np.testing.assert_array_equal(found["phase"], np.load(published)[f"phases_{trace}"])


@pytest.mark.long
@pytest.mark.option("phasewise train", "-o")
def test_training_twice_gives_byte_identical_models(phasewise: Phasewise, tmp_path: Path) -> None:
    simulated(0, containers=4).to_csv(tmp_path / "four.csv", index=False)
    for name in ("a", "b"):
        assert phasewise("train", tmp_path / "four.csv", "-o", tmp_path / name, "--cycle-samples", 10).code == 0
    for file in ("manifest.json", "arrays.npz"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_saved_model_is_loaded_with_all_its_parts(model_folder: Path) -> None:
    model = models.load(model_folder)
    assert model.detector.n_phases == 5
    assert model.graph is not None
    assert model.graph.n_phases == 5 + 1
    assert model.demand is not None
    assert model.statistics is not None
    assert model.facts["containers"] == 14
    assert sum(f.stat().st_size for f in model_folder.iterdir()) < 1 << 20, "it must fit a ConfigMap"


@pytest.mark.option("phasewise model show", "--json")
def test_model_show_describes_every_phase(phasewise: Phasewise, model_folder: Path) -> None:
    ended = phasewise("model", "show", model_folder)
    assert ended.code == 0
    assert "5 phases" in ended.out
    assert "memory around" in " ".join(ended.out.split())
    assert "losses of experts: learned" in ended.out, "although there are runs of two workloads only"
    facts = json.loads(phasewise("model", "show", model_folder, "--json").out)
    assert facts["training"]["compared"] is True
    assert [phase["phase"] for phase in facts["phases"]] == [0, 1, 2, 3, 4]
    assert sum(phase["share"] for phase in facts["phases"]) == pytest.approx(1.0)


def test_model_show_prints_the_name_of_a_folder_with_brackets(
    phasewise: Phasewise, model_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / "model[v2]")
    assert phasewise("model", "show", tmp_path / "model[v2]").out.startswith("model[v2]: 5 phases")


@pytest.mark.option("phasewise model split", "-o", "--phase", "--into")
@pytest.mark.option("phasewise research phases", "-o", "--model")
@pytest.mark.long
def test_a_split_appends_phase_numbers_and_keeps_the_others(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    split = tmp_path / "split"
    ended = phasewise("model", "split", model_folder, runs_csv, "--phase", 3, "--into", 2, "-o", split)
    assert ended.code == 0, ended.err
    assert "3, 5" in ended.err
    before, after = tmp_path / "before.parquet", tmp_path / "after.parquet"
    assert phasewise("research", "phases", runs_csv, "--model", model_folder, "-o", before).code == 0
    assert phasewise("research", "phases", runs_csv, "--model", split, "-o", after).code == 0
    old, new = pd.read_parquet(before)["phase"], pd.read_parquet(after)["phase"]
    others = (old != 3) & (old >= 0)
    assert (new[others] == old[others]).all()
    assert set(new[old == 3]) <= {3, 5, -1}
    ended = phasewise("dry-run", runs_csv, "--model", split, "--cycle-samples", 10)
    assert ended.code == 0 and "was trained on 14 of the 14" in " ".join(ended.out.split())


def test_a_split_on_data_of_another_step_keeps_the_length_of_the_cycle(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    trained = models.load(model_folder).facts
    options = ("--phase", 3, "--into", 2, "--step", f"{2 * trained['step_s']:g}s", "-o", tmp_path / "split")
    ended = phasewise("model", "split", model_folder, runs_csv, *options)
    assert ended.code == 0, ended.err
    facts = models.load(tmp_path / "split").facts
    assert (facts["cycle_s"], facts["cycle_samples"]) == (trained["cycle_s"], trained["cycle_samples"] / 2)


def test_a_split_model_does_not_say_that_its_number_of_phases_was_chosen_in_training(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    model, chosen, split = models.load(model_folder), tmp_path / "chosen", tmp_path / "split"
    facts = {**model.facts, "phases_chosen": {"by": "held-out forecast", "elbow": 5}}
    replace(model, facts=facts).save(chosen)
    assert "number of phases by held-out forecast" in phasewise("model", "show", chosen).out
    ended = phasewise("model", "split", chosen, runs_csv, "--phase", 3, "--into", 2, "-o", split)
    assert ended.code == 0, ended.err
    assert "number of phases by" not in phasewise("model", "show", split).out


def test_training_on_too_few_runs_takes_all_experts_to_be_equal(phasewise: Phasewise, tmp_path: Path) -> None:
    simulated(0, containers=2).to_csv(tmp_path / "two.csv", index=False)
    ended = phasewise("train", tmp_path / "two.csv", "-o", tmp_path / "m", *MODEL_OPTIONS)
    assert "losses of experts are taken to be equal" in " ".join(ended.err.split())
    assert "losses of experts: taken to be equal" in phasewise("model", "show", tmp_path / "m").out


def test_phases_of_a_container_do_not_depend_on_other_containers(
    phasewise: Phasewise, model_folder: Path, tmp_path: Path
) -> None:
    data = simulated(3, containers=4)
    data.to_parquet(tmp_path / "all.parquet")
    data[data["container"] == "job-02"].to_csv(tmp_path / "one.csv", index=False)
    assert (
        phasewise("research", "phases", tmp_path / "all.parquet", "--model", model_folder, "-o", tmp_path / "a").code
        == 0
    )
    assert (
        phasewise("research", "phases", tmp_path / "one.csv", "--model", model_folder, "-o", tmp_path / "b").code == 0
    )
    everything, one = pd.read_parquet(tmp_path / "a"), pd.read_parquet(tmp_path / "b")
    pd.testing.assert_frame_equal(everything[everything["container"] == "job-02"].reset_index(drop=True), one)


def test_data_at_another_step_than_the_models_are_noted(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    options = ("--model", model_folder, "-o", tmp_path / "phases.parquet")
    assert "trained at a step" not in phasewise("research", "phases", runs_csv, *options).err
    step_s = 2 * models.load(model_folder).facts["step_s"]
    assert "trained at a step" in phasewise("research", "phases", runs_csv, *options, "--step", f"{step_s:g}s").err


def test_graph_fit_reads_the_output_of_phases(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    phases = tmp_path / "phases.parquet"
    assert phasewise("research", "phases", runs_csv, "--model", model_folder, "-o", phases).code == 0
    ended = phasewise("research", "graph", "fit", phases, "-o", tmp_path / "graph.json")
    assert ended.code == 0, ended.err
    assert "14 containers" in ended.err


def test_the_data_whose_phases_are_detected_are_not_overwritten(phasewise: Phasewise, tmp_path: Path) -> None:
    columns = {"timestamp": [1, 2], "container": ["a", "a"], "cpu_cores": [1.0, 1.0], "memory_bytes": [1.0, 1.0]}
    pq.write_table(pa.table(columns), tmp_path / "use.parquet")
    before = (tmp_path / "use.parquet").read_bytes()
    ended = phasewise(
        "research", "phases", tmp_path / "use.parquet", "--model", "bundled", "-o", tmp_path / "use.parquet"
    )
    assert (ended.code, (tmp_path / "use.parquet").read_bytes()) == (2, before)
    assert "use.parquet: this command reads it" in ended.err


def test_without_samples_an_existing_output_stays(phasewise: Phasewise, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("timestamp,container,cpu_cores,memory_bytes\n0,a,,5\n15,a,,5\n")
    (tmp_path / "p.parquet").write_text("before")
    ended = phasewise(
        "research", "phases", tmp_path / "empty.csv", "--model", model_folder, "-o", tmp_path / "p.parquet"
    )
    assert ended.code == 2 and "no sample has both" in ended.err
    assert (tmp_path / "p.parquet").read_text() == "before"


@pytest.mark.parametrize("command", [("research", "phases", "--model", "bundled", "-o"), ("dry-run", "--decisions")])
def test_parquet_is_not_written_under_the_name_of_another_format(
    phasewise: Phasewise, tmp_path: Path, command: tuple[str, ...]
) -> None:
    ended = phasewise(*command, tmp_path / "out.csv", tmp_path / "missing.csv")
    assert ended.code == 2 and "Name a .parquet file" in ended.err


def test_a_picture_that_cannot_be_written_is_refused_before_phases_are_detected(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    output, picture = tmp_path / "p.parquet", tmp_path / "nowhere" / "t.png"
    ended = phasewise("research", "phases", runs_csv, "--model", model_folder, "-o", output, "--traces", picture)
    assert ended.code == 2 and "there is no folder" in ended.err
    assert not output.exists()


@pytest.mark.option("phasewise research phases", "--traces", "--variance")
@pytest.mark.long
def test_plots_of_traces_and_variance_are_written(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    pictures = ("--traces", tmp_path / "t.png", "--variance", tmp_path / "v.png")
    assert (
        phasewise("research", "phases", runs_csv, "--model", model_folder, "-o", tmp_path / "p.parquet", *pictures).code
        == 0
    )
    for name in ("t.png", "v.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_training_ignores_columns_other_than_usage_and_workload(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    data = pd.read_csv(runs_csv)
    data["phase"] = np.arange(len(data)) % 3
    data.to_csv(tmp_path / "hinted.csv", index=False)
    assert phasewise("train", tmp_path / "hinted.csv", "-o", tmp_path / "hinted", *MODEL_OPTIONS).code == 0
    assert (tmp_path / "hinted" / "arrays.npz").read_bytes() == (model_folder / "arrays.npz").read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W": None}, "lacks the arrays W"),
        ({"A": np.ones((2, 2))}, "array A has shape (2, 2), expected"),
        ({"centers": np.full((5, 10), np.nan)}, "centers holds values that are not finite numbers"),
        ({"scaler_scale": np.zeros(8)}, "Give 1 for a constant feature"),
    ],
    ids=["missing", "wrong shape", "not finite", "no spread"],
)
def test_imported_arrays_that_fit_no_encoder_are_refused(
    phasewise: Phasewise, tmp_path: Path, change: dict[str, np.ndarray | None], message: str
) -> None:
    arrays = {**np.load(AI4DL / "reference_model.npz"), **change}
    np.savez(tmp_path / "p.npz", **{k: v for k, v in arrays.items() if v is not None})
    ended = phasewise("model", "import", tmp_path / "p.npz", "-o", tmp_path / "m", "--features", AI4DL_FEATURES)
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "m").exists()


@pytest.mark.option("phasewise model import", "-o", "--features")
def test_an_imported_model_cannot_run_phasewise(phasewise: Phasewise, tmp_path: Path) -> None:
    phasewise("model", "import", AI4DL / "reference_model.npz", "-o", tmp_path / "m", "--features", AI4DL_FEATURES)
    source = AI4DL / "sample-dlaas.csv"
    options = ("dry-run", source, "--model", tmp_path / "m", "--cycle-samples", 10, *AI4DL_MAP)
    ended = phasewise(*options, "--policies", "phasewise")
    assert ended.code == 2
    assert "Train a model" in ended.err
    ended = phasewise(*options)
    assert ended.code == 0, ended.err
    assert "phasewise is left out" in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--phases", "some"), "--phases some"),
        (("--phases", "65"), "from 2 to 64"),
        (("--phases", "²"), "from 2 to 64"),
        (("--features", "gpu"), "gpu"),
        (("--target-violation", "0"), "target-violation"),
    ],
    ids=["phases", "many phases", "no decimal", "features", "target"],
)
def test_misuse_of_train_exits_with_2(
    phasewise: Phasewise, runs_csv: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    ended = phasewise("train", runs_csv, "-o", tmp_path / "m", *arguments)
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "m").exists()


def test_train_refuses_a_folder_that_is_not_a_model_before_reading(phasewise: Phasewise, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    ended = phasewise("train", tmp_path / "missing.csv", "-o", tmp_path)
    assert ended.code == 2
    assert "is not a model folder" in " ".join(ended.err.split())


def test_training_on_too_few_samples_is_refused(phasewise: Phasewise, tmp_path: Path) -> None:
    simulated(0, containers=1).head(4).to_csv(tmp_path / "few.csv", index=False)
    ended = phasewise("train", tmp_path / "few.csv", "-o", tmp_path / "m")
    assert ended.code == 2
    assert "5 samples" in ended.err
