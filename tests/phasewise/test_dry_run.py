"""`phasewise.dry_run`: the dry run on a data frame."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import phasewise
from recommender.base.errors import Misuse


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    samples = 120
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "timestamp": 1_700_000_000 + 60 * np.arange(samples),
                    "container": f"job-{number}",
                    "cpu_cores": np.where(np.arange(samples) % 40 < 20, 0.2, 1.5),
                    "memory_bytes": 1e9,
                    "cpu_request_cores": 4.0,
                    "memory_request_bytes": 4e9,
                }
            )
            for number in range(2)
        ],
        ignore_index=True,
    )


@pytest.fixture(scope="module")
def replayed(frame: pd.DataFrame) -> phasewise.DryRun:
    return phasewise.dry_run(frame, ["static", "phasewise"], model="bundled")


def test_ours_reserves_less_than_was_declared(replayed: phasewise.DryRun) -> None:
    table = replayed.to_pandas()
    assert list(table.index) == ["static", "phasewise"]
    assert table.loc["static", "cpu.allocated_core_hours"] > table.loc["phasewise", "cpu.allocated_core_hours"]


def test_workloads_have_what_to_write(replayed: phasewise.DryRun) -> None:
    workloads = replayed.workloads()
    assert set(workloads["now_cpu_cores"]) == {4.0}
    assert (workloads["recommended_cpu_cores"] < 4.0).all()


def test_in_a_notebook_it_is_a_table_of_policies(replayed: phasewise.DryRun) -> None:
    page = replayed._repr_html_()
    assert "<table" in page and "phasewise" in page and "cpu.violation_ratio" in page


def test_a_fitted_model_is_taken_as_it_is(frame: pd.DataFrame) -> None:
    model = phasewise.PhaseModel(n_phases=3).fit(frame)
    result = phasewise.dry_run(frame, ["phasewise"], model=model).result
    assert result.model["phases"] == 3


def test_an_unknown_policy_is_misuse(frame: pd.DataFrame) -> None:
    with pytest.raises(Misuse, match=r"there is no policy 'phaswise'\. Did you mean 'phasewise'"):
        phasewise.dry_run(frame, ["phaswise"])
