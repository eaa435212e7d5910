"""Each option of `train`, `phases`, `model split`, `model publish` and `explain`: another value, another outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest

from recommender.base.records import UsageSeries
from recommender.learning.training import TrainingOptions
from tests.fakes.command_line import CommandResult
from tests.fakes.served_commands import FakeApi, fake_api, kubeconfig
from tests.fakes.staged_jobs import simulated

Phasewise = Callable[..., CommandResult]

TRAIN_OPTIONS = {
    "--features": "cpu_cores,memory_bytes,other,other2",
    "--lag": "2",
    "--hidden": "6",
    "--phases": "4",
    "--cycle": "5m",
    "--cycle-samples": "7",
    "--target-violation": "0.2",
    "--seed": "1",
    "--step": "30s",
    "--map": "cpu_cores=other",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, with two additional columns."""
    file = tmp_path_factory.mktemp("few") / "runs.csv"
    data = simulated(0, containers=3)
    data["other"], data["other2"] = data["cpu_cores"] ** 2, np.sqrt(data["memory_bytes"])
    data.to_csv(file, index=False)
    return file


class TrainingInput(Exception):
    """Raised instead of training, with its input and options."""


@pytest.mark.option("phasewise train", *TRAIN_OPTIONS)
def test_another_value_changes_the_training(
    phasewise: Phasewise, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(series: Sequence[UsageSeries], options: TrainingOptions, **_: object) -> None:
        data = [
            (one.usage.tobytes(), sorted((name, row.tobytes()) for name, row in one.features.items())) for one in series
        ]
        raise TrainingInput(data, options)

    def training_input(*options: str) -> str:
        monkeypatch.setattr("recommender.cli.train.train", capture)
        with pytest.raises(TrainingInput) as captured:
            phasewise("train", runs, "-o", tmp_path / "model", *options)
        return str(captured.value)

    default = training_input()
    assert [option for option, value in TRAIN_OPTIONS.items() if training_input(option, value) == default] == []


@pytest.mark.option("phasewise research phases", "--step", "--map")
def test_step_and_map_change_the_samples_of_phases(
    phasewise: Phasewise, runs: Path, model_folder: Path, tmp_path: Path
) -> None:
    phases = []
    for number, options in enumerate(((), ("--step", "30s"), ("--map", "cpu_cores=other"))):
        file = tmp_path / f"{number}.parquet"
        assert phasewise("research", "phases", runs, "--model", model_folder, "-o", file, *options).code == 0
        phases.append(pd.read_parquet(file)["phase"].tolist())
    assert len(phases[1]) < len(phases[0]) == len(phases[2])
    assert phases[2] != phases[0]


@pytest.mark.option("phasewise model split", "--step", "--seed", "--map")
def test_another_value_changes_the_split(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    data = pd.read_csv(runs_csv)
    data["other"] = data["cpu_cores"] * np.random.default_rng(0).uniform(0.8, 1.2, len(data))
    data.to_csv(tmp_path / "runs.csv", index=False)
    hashes, cycles_s = [], set()
    for number, options in enumerate(((), ("--step", "30s"), ("--seed", "1"), ("--map", "cpu_cores=other"))):
        folder = tmp_path / str(number)
        split = ("model", "split", model_folder, tmp_path / "runs.csv", "--phase", 3, "--into", 8)
        ended = phasewise(*split, "-o", folder, *options)
        assert ended.code == 0, ended.err
        hashes.append(hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest())
        cycles_s.add(orjson.loads(phasewise("model", "show", folder, "--json").out)["training"]["cycle_s"])
    assert hashes[0] not in hashes[1:], hashes
    assert len(cycles_s) == 1, "a coarser step keeps the duration of the cycle"


@pytest.mark.option("phasewise model publish", "--configmap", "--kubeconfig", "--context")
@pytest.mark.option("phasewise explain", "--kubeconfig", "--context")
def test_options_choose_the_cluster_and_the_object(phasewise: Phasewise, model_folder: Path, tmp_path: Path) -> None:
    def requested(*command: object, options: tuple[object, ...]) -> tuple[list[str], list[str]]:
        with fake_api() as one, fake_api() as two:
            phasewise(*command, "--kubeconfig", kubeconfig(tmp_path, one=one, two=two), *options)
            return paths(one), paths(two)

    def paths(api: FakeApi) -> list[str]:
        return [path for _, path in api.requests]

    for command in (("explain", "ml/job"), ("model", "publish", model_folder, "--configmap", "ml/ours")):
        first, none = requested(*command, options=())
        assert first and not none
        none, second = requested(*command, options=("--context", "two"))
        assert second and not none
    assert any("/namespaces/ml/configmaps" in path for path in first)
