"""`phasewise.PhaseModel`: phases of the rows of a data frame, as scikit-learn's estimators give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks as checks

import phasewise
from recommender.base.errors import BadInput

STEP_S, STAGES = 15, ((0.1, 20), (2.0, 40), (0.1, 20), (2.0, 40), (0.5, 15))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Six jobs that wait and compute by turns, and save in the end."""
    rng = np.random.default_rng(0)
    cpu = np.concatenate([np.full(samples, cores) for cores, samples in STAGES])
    parts = [
        pd.DataFrame(
            {
                "timestamp": 1_700_000_000 + 100_000 * number + STEP_S * np.arange(len(cpu)),
                "container": f"job-{number}",
                "cpu_cores": cpu * (1.0 + 0.02 * rng.standard_normal(len(cpu))),
                "memory_bytes": 2e9 * (1.0 + 0.01 * rng.random(len(cpu))),
            }
        )
        for number in range(6)
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> phasewise.PhaseModel:
    return phasewise.PhaseModel(n_phases=3).fit(frame)


def test_waiting_and_computing_are_different_phases(model: phasewise.PhaseModel, frame: pd.DataFrame) -> None:
    labels = pd.Series(model.predict(frame)).groupby(frame["container"]).agg(list)
    for phases in labels:
        waits, computes = phases[10:18], phases[30:58]
        assert len(set(waits)) == len(set(computes)) == 1
        assert waits[0] != computes[0]
        assert phases[70:78] == waits  # the second time as the first


def test_each_row_gets_its_phase_in_whatever_order_the_rows_are(
    model: phasewise.PhaseModel, frame: pd.DataFrame
) -> None:
    shuffled = frame.sample(frac=1.0, random_state=1)
    labels = pd.Series(model.predict(shuffled), index=shuffled.index).sort_index()
    np.testing.assert_array_equal(labels, model.labels_)


def test_codes_have_a_row_per_sample_and_a_column_per_hidden_unit(
    model: phasewise.PhaseModel, frame: pd.DataFrame
) -> None:
    assert model.transform(frame).shape == (len(frame), 10)


def test_computing_follows_waiting(model: phasewise.PhaseModel, frame: pd.DataFrame) -> None:
    begun = frame[frame["timestamp"] < frame.groupby("container")["timestamp"].transform("min") + 18 * STEP_S]
    computes = int(model.labels_[40])
    likeliest = model.next_phase(begun).groupby("container").first()
    assert (likeliest["next_phase"] == computes).all()
    assert (likeliest["probability"] > 0.6).all()
    assert likeliest["expected_s"].between(0.0, 20 * STEP_S).all()


def arrow(frame: pd.DataFrame) -> Any:
    return pa.Table.from_pandas(frame, preserve_index=False)


def by_time(frame: pd.DataFrame) -> Any:
    return frame.assign(timestamp=pd.to_datetime(frame["timestamp"], unit="s", utc=True)).set_index("timestamp")


def by_pod(frame: pd.DataFrame) -> Any:
    return frame.assign(namespace="team", pod=frame["container"], container="main")


class OnlyInterchange:
    """A frame of a library that knows the older interchange protocol alone."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = arrow(frame)

    def __dataframe__(self, **options: Any) -> Any:
        return self._table.__dataframe__(**options)


@pytest.mark.parametrize("shape", [arrow, by_time, by_pod, OnlyInterchange])
def test_frames_of_other_libraries_and_shapes_are_the_same(
    model: phasewise.PhaseModel, frame: pd.DataFrame, shape: Any
) -> None:
    np.testing.assert_array_equal(model.predict(shape(frame)), model.labels_)


def test_a_saved_model_gives_the_same_phases(model: phasewise.PhaseModel, frame: pd.DataFrame, tmp_path: Path) -> None:
    model.model_.save(tmp_path / "model")
    loaded = phasewise.PhaseModel.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict(frame), model.labels_)
    assert loaded.get_params()["n_phases"] == 3


def test_the_picture_has_a_row_per_container(model: phasewise.PhaseModel, frame: pd.DataFrame) -> None:
    titles = [axes.get_title(loc="left") for axes in model.plot(frame).axes]
    assert [title for title in titles if title] == [f"job-{number}" for number in range(6)]


@pytest.mark.parametrize(
    "check",
    [
        checks.check_no_attributes_set_in_init,
        checks.check_get_params_invariance,
        checks.check_set_params,
        checks.check_parameters_default_constructible,
        checks.check_mixin_order,
    ],
)
def test_it_keeps_the_rules_of_scikit_learn_for_parameters(check: Any) -> None:
    """Other checks pass arrays without times and containers."""
    check("PhaseModel", phasewise.PhaseModel())


def test_a_clone_has_the_parameters_and_learned_nothing(model: phasewise.PhaseModel, frame: pd.DataFrame) -> None:
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(frame)


def test_a_bad_value_is_named_with_its_row(model: phasewise.PhaseModel, frame: pd.DataFrame) -> None:
    bad = frame.copy()
    bad.loc[5, "cpu_cores"] = -1.0
    with pytest.raises(BadInput, match=r"cpu_cores.*-1") as raised:
        model.predict(bad)
    assert "parquet" not in str(raised.value)


def test_something_else_is_no_frame(model: phasewise.PhaseModel) -> None:
    with pytest.raises(TypeError, match="list is no data frame"):
        model.predict([1, 2, 3])
