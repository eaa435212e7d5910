"""A model folder with invalid contents is refused, naming the folder and the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recommender.base.errors import BadArtifact
from recommender.learning import artifacts
from recommender.learning import model as models
from recommender.phases import graph_io
from recommender.phases.graph import PhaseGraph

Parts = dict[str, Any]
BUNDLED = models.load(models.BUNDLED)


def array(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Parts, Parts], None]:
    def change(arrays: Parts, _: Parts) -> None:
        arrays[name] = make(arrays[name])

    return change


def training(**facts: Any) -> Callable[[Parts, Parts], None]:
    return lambda _, manifest: manifest.update(training={**manifest["training"], **facts})


def without_training_fact(name: str) -> Callable[[Parts, Parts], None]:
    return lambda _, manifest: manifest["training"].pop(name)


def graph_of_fewer_phases(_: Parts, manifest: Parts) -> None:
    manifest["graph"] = graph_io.to_document(PhaseGraph(3))


def first_nan(numbers: np.ndarray) -> np.ndarray:
    return np.where(np.arange(numbers.size).reshape(numbers.shape) == 0, np.nan, numbers)


INVALID = {
    "one share instead of two": (training(target_violation=0.02), r"training\.target_violation is 0\.02"),
    "shares as text": (training(target_violation=["5 %", "5 %"]), r"training\.target_violation"),
    "shares above one": (training(target_violation=[5, 5]), r"training\.target_violation"),
    "cycle as text": (training(cycle_s="10m"), r"training\.cycle_s is '10m'"),
    "no step": (without_training_fact("step_s"), r"training\.step_s is None"),
    "no number of containers": (without_training_fact("containers"), r"training\.containers is None"),
    "no way of choosing": (training(phases_chosen={"elbow": 5}), r"training\.phases_chosen has by: None and elbow: 5"),
    "no elbow": (training(phases_chosen={"by": "the user"}), r"training\.phases_chosen has by: 'the user' and elbow"),
    "a choice that is no object": (training(phases_chosen=[5]), r"training\.phases_chosen"),
    "no training facts": (lambda _, manifest: manifest.update(training=None), "are inconsistent"),
    "feature names that are not text": (lambda _, manifest: manifest.update(features=[{"name": 1}] * 4), "features"),
    "scaler mean of NaN": (array("scaler.mean", first_nan), r"scaler\.mean"),
    "centre of NaN": (array("centres.root", first_nan), r"centres\.root"),
    "reach of NaN": (array("centres.reach", first_nan), r"centres\.reach"),
    "graph of other phases": (graph_of_fewer_phases, "graph has 3 phases, not 12 and the unknown"),
    "demand without a graph": (lambda _, manifest: manifest.pop("graph"), "only some of phase statistics, graph"),
    "statistics of other phases": (array("phases.usage_mean", lambda table: table[:3]), "usage_mean"),
    "demand of complex numbers": (array("demand.losses", lambda losses: losses.astype(np.complex64)), "losses"),
    "variances of memory of zero": (array("memory.variances", lambda found: 0.0 * found), "memory.variances"),
    "variances of memory of other ages": (array("memory.variances", lambda found: found[:, :, 1:]), "of 13 amounts"),
    "delay out of range": (array("crbm.delay", lambda _: np.array(10**9)), "delay 1000000000"),
}


@pytest.mark.parametrize(("change", "message"), INVALID.values(), ids=INVALID.keys())
def test_invalid_contents_are_refused_with_the_folder_and_the_field(
    tmp_path: Path, change: Callable[[Parts, Parts], None], message: str
) -> None:
    BUNDLED.save(tmp_path / "m")
    arrays, manifest = artifacts.load(tmp_path / "m")
    change(arrays, manifest)
    artifacts.save(
        tmp_path / "m", artifacts.pack(arrays, {k: v for k, v in manifest.items() if not k.startswith("arrays")})
    )
    with pytest.raises(BadArtifact, match=message) as caught:
        models.load(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)


def test_demand_of_a_type_that_kernels_do_not_take_is_converted(tmp_path: Path) -> None:
    assert BUNDLED.demand is not None
    replace(BUNDLED, demand=replace(BUNDLED.demand, mean=BUNDLED.demand.mean.astype(np.float16))).save(tmp_path / "m")
    loaded = models.load(tmp_path / "m")
    assert loaded.demand is not None
    assert loaded.demand.mean.dtype == np.float64


def test_a_model_of_before_the_spread_of_memory_is_read_and_knows_none(tmp_path: Path) -> None:
    BUNDLED.save(tmp_path / "m")
    arrays, manifest = artifacts.load(tmp_path / "m")
    del arrays["memory.variances"]
    artifacts.save(
        tmp_path / "m", artifacts.pack(arrays, {k: v for k, v in manifest.items() if not k.startswith("arrays")})
    )
    assert models.load(tmp_path / "m").memory_variances.shape == (2, 0, 13)
    assert BUNDLED.memory_variances.shape == (2, 18, 13), "the classes of the bundled recordings"


def test_the_name_of_a_model_whose_folder_is_not_utf8_can_be_written(tmp_path: Path) -> None:
    BUNDLED.save(tmp_path / "caf\udce9")
    assert models.load(tmp_path / "caf\udce9").origin == r"caf\xe9"
