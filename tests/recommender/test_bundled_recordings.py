"""The recordings that ship with the package: columns, size, plausibility, and agreement with their origin file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import as_file, files
from typing import Any

import orjson
import pandas as pd
import pyarrow.parquet as pq
import pytest

PARTS = ("fit", "replay")
COLUMNS = {
    "timestamp": "int64",
    "container": "string",
    "cpu_cores": "float",
    "memory_bytes": "int64",
    "workload": "string",
    "node": "string",
    "cpu_request_cores": "float",
    "memory_request_bytes": "int64",
    "loss": "float",
    "step": "int32",
    "stage": "string",
}
LONGEST_RUN_S = 335
MOST_BYTES = 4 * 2**20


@pytest.fixture(scope="module")
def recordings() -> Mapping[str, pd.DataFrame]:
    """Both parts as data frames."""
    with as_file(files("recommender") / "data" / "recordings") as folder:
        return {part: pq.read_table(folder / f"{part}.parquet").to_pandas() for part in PARTS}


@pytest.fixture(scope="module")
def samples(recordings: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Both parts together."""
    return pd.concat([frame.assign(part=part) for part, frame in recordings.items()], ignore_index=True)


@pytest.fixture(scope="module")
def origin() -> dict[str, Any]:
    """The origin file."""
    read: dict[str, Any] = orjson.loads((files("recommender") / "data/recordings/origin.json").read_bytes())
    return read


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_the_columns_of_the_normal_form(part: str) -> None:
    with as_file(files("recommender") / "data" / "recordings" / f"{part}.parquet") as path:
        assert {field.name: str(field.type) for field in pq.read_schema(path)} == COLUMNS
        assert path.stat().st_size < MOST_BYTES


def test_there_are_at_least_ninety_runs_three_hours_and_twelve_classes_of_five_runs(samples: pd.DataFrame) -> None:
    assert samples["container"].nunique() >= 90
    classes = samples.groupby("workload")["container"].nunique()
    assert (classes >= 5).sum() >= 12
    assert len(samples) >= 3 * 3600


def test_both_parts_have_every_class_and_share_no_run(recordings: Mapping[str, pd.DataFrame]) -> None:
    fit, replay = (recordings[part] for part in PARTS)
    assert not set(fit["container"]) & set(replay["container"])
    assert set(fit["workload"]) == set(replay["workload"])


def test_timestamps_of_a_run_increase_with_rare_gaps_and_its_length_is_plausible(samples: pd.DataFrame) -> None:
    steps = samples.groupby("container")["timestamp"].diff().dropna()
    assert (steps >= 1).all()
    assert (steps > 1).mean() < 0.01
    spans = samples.groupby("container")["timestamp"].agg(lambda times: times.max() - times.min() + 1)
    assert spans.between(45, LONGEST_RUN_S).all()


def test_usage_is_finite_and_within_the_size_of_the_machine(samples: pd.DataFrame, origin: dict[str, Any]) -> None:
    assert samples["cpu_cores"].between(0, origin["machine"]["cores"] * 1.05).all()
    assert samples["memory_bytes"].between(2**20, origin["machine"]["memory_bytes"]).all()


def test_each_class_has_one_cpu_and_memory_request_that_covers_its_peak(samples: pd.DataFrame) -> None:
    pairs = samples.groupby("workload")[["cpu_request_cores", "memory_request_bytes"]].nunique()
    assert (pairs == 1).all(axis=None)
    assert (samples["cpu_cores"] <= samples["cpu_request_cores"] * 1.05).all()
    assert (samples["memory_bytes"] <= samples["memory_request_bytes"]).all()


def test_stages_and_steps_of_every_run_are_in_order_and_its_loss_falls(samples: pd.DataFrame) -> None:
    for container, run in samples.groupby("container"):
        stages = list(dict.fromkeys(run["stage"]))
        assert stages.index("make-data") < stages.index("train"), container
        losses = run["loss"].dropna()
        assert losses.iloc[-1] < losses.iloc[0], container
        steps = run["step"].dropna()
        assert steps.is_monotonic_increasing, container


def test_classes_with_a_simulated_accelerator_use_less_cpu_in_training(
    samples: pd.DataFrame, origin: dict[str, Any]
) -> None:
    accelerated = {run["workload"] for run in origin["runs"] if run["accelerator_stand_in"]}
    training = samples[samples["stage"] == "train"].groupby("workload")["cpu_cores"].mean()
    assert 0.4 <= len(accelerated) / len(training) <= 0.6
    assert training[training.index.isin(accelerated)].max() < training[~training.index.isin(accelerated)].min()


def test_the_origin_file_agrees_with_the_samples(samples: pd.DataFrame, origin: dict[str, Any]) -> None:
    counted = samples.groupby(["container", "workload", "part"]).size()
    stated = {(run["container"], run["workload"], run["part"]): run["samples"] for run in origin["runs"]}
    assert counted.to_dict() == stated
    assert origin["container_hours"] == pytest.approx(len(samples) / 3600, abs=0.001)
    assert {"torch", "jax", "scikit-learn"} <= set(origin["libraries"])
    for run in origin["runs"]:
        assert run["duration_s"] == pytest.approx(run["samples"], abs=3)


def test_the_origin_file_has_no_host_name_and_no_absolute_path(origin: dict[str, Any]) -> None:
    text = orjson.dumps(origin).decode()
    assert not re.search(r'"/|[ (]/(home|root|usr|var|srv)\b|hostname', text)
