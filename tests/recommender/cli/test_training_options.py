"""Each option of the commands that make models and ask clusters once: another value, another outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recommender.records import UsageSeries
from recommender.training import TrainingOptions
from tests.fakes.command_line import CommandResult
from tests.fakes.served_commands import FakeApi, fake_api, kubeconfig
from tests.fakes.staged_jobs import simulated

Phasewise = Callable[..., CommandResult]

OF_TRAINING = {
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
    """Three runs, with columns besides."""
    file = tmp_path_factory.mktemp("few") / "runs.csv"
    data = simulated(0, containers=3)
    data["other"], data["other2"] = data["cpu_cores"] ** 2, np.sqrt(data["memory_bytes"])
    data.to_csv(file, index=False)
    return file


class Told(Exception):
    """What is to be learned, from what and how."""


@pytest.mark.option("phasewise train", *OF_TRAINING)
def test_another_value_is_learned_otherwise(
    phasewise: Phasewise, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(series: Sequence[UsageSeries], options: TrainingOptions, **_: object) -> None:
        used = [
            (one.usage.tobytes(), sorted((name, row.tobytes()) for name, row in one.features.items())) for one in series
        ]
        raise Told(used, options)

    def trained(*options: str) -> str:
        monkeypatch.setattr("recommender.cli.train.train", tell)
        with pytest.raises(Told) as told:
            phasewise("train", runs, "-o", tmp_path / "model", *options)
        return str(told.value)

    default = trained()
    assert [option for option, value in OF_TRAINING.items() if trained(option, value) == default] == []


@pytest.mark.option("phasewise phases", "--step", "--map")
def test_phases_are_told_of_the_samples_that_are_asked_for(
    phasewise: Phasewise, runs: Path, model_folder: Path, tmp_path: Path
) -> None:
    told = []
    for number, options in enumerate(((), ("--step", "30s"), ("--map", "cpu_cores=other"))):
        file = tmp_path / f"{number}.parquet"
        assert phasewise("phases", runs, "--model", model_folder, "-o", file, *options).code == 0
        told.append(pd.read_parquet(file)["phase"].tolist())
    assert len(told[1]) < len(told[0]) == len(told[2])
    assert told[2] != told[0]


@pytest.mark.option("phasewise model split", "--step", "--seed", "--map")
def test_another_value_splits_otherwise(
    phasewise: Phasewise, runs_csv: Path, model_folder: Path, tmp_path: Path
) -> None:
    data = pd.read_csv(runs_csv)
    data["other"] = data["cpu_cores"] * np.random.default_rng(0).uniform(0.8, 1.2, len(data))
    data.to_csv(tmp_path / "runs.csv", index=False)
    made = []
    for number, options in enumerate(((), ("--step", "30s"), ("--seed", "1"), ("--map", "cpu_cores=other"))):
        folder = tmp_path / str(number)
        split = ("model", "split", model_folder, tmp_path / "runs.csv", "--phase", 3, "--into", 8)
        ended = phasewise(*split, "-o", folder, *options)
        assert ended.code == 0, ended.err
        made.append(hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest())
    assert made[0] not in made[1:], made


@pytest.mark.option("phasewise model publish", "--configmap", "--kubeconfig", "--context")
@pytest.mark.option("phasewise explain", "--kubeconfig", "--context")
def test_which_api_server_is_asked_and_for_what(phasewise: Phasewise, model_folder: Path, tmp_path: Path) -> None:
    def asked(*words: object, more: tuple[object, ...]) -> tuple[list[str], list[str]]:
        with fake_api() as one, fake_api() as two:
            phasewise(*words, "--kubeconfig", kubeconfig(tmp_path, one=one, two=two), *more)
            return paths(one), paths(two)

    def paths(api: FakeApi) -> list[str]:
        return [path for _, path in api.requests]

    for words in (("explain", "ml/job"), ("model", "publish", model_folder, "--configmap", "ml/ours")):
        first, none = asked(*words, more=())
        assert first and not none
        none, second = asked(*words, more=("--context", "two"))
        assert second and not none
    assert any("/namespaces/ml/configmaps" in path for path in first)
