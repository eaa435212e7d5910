"""A model folder whose parts cannot be reckoned with is refused, by the name of what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recommender import artifacts
from recommender import model as models
from recommender.errors import BadArtifact
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


def graph_of_fewer_phases(_: Parts, manifest: Parts) -> None:
    manifest["graph"] = graph_io.to_document(PhaseGraph(3))


def first_lost(numbers: np.ndarray) -> np.ndarray:
    return np.where(np.arange(numbers.size).reshape(numbers.shape) == 0, np.nan, numbers)


SPOILT = {
    "one share where two are meant": (training(target_violation=0.02), r"training\.target_violation is 0\.02"),
    "shares in words": (training(target_violation=["5 %", "5 %"]), r"training\.target_violation"),
    "more than all may violate": (training(target_violation=[5, 5]), r"training\.target_violation"),
    "a cycle in words": (training(cycle_s="10m"), r"training\.cycle_s is '10m'"),
    "facts that are none": (lambda _, manifest: manifest.update(training=None), "are inconsistent"),
    "features without names": (lambda _, manifest: manifest.update(features=[{"name": 1}] * 4), "features"),
    "a mean that is lost": (array("scaler.mean", first_lost), r"scaler\.mean"),
    "a centre that is lost": (array("centres.root", first_lost), r"centres\.root"),
    "a reach that is lost": (array("centres.reach", first_lost), r"centres\.reach"),
    "a graph of other phases": (graph_of_fewer_phases, "graph has 3 phases, not 12 and the unknown"),
    "statistics of other phases": (array("phases.usage_mean", lambda table: table[:3]), "usage_mean"),
    "a code of next year": (array("crbm.delay", lambda _: np.array(10**9)), "delay 1000000000"),
}


@pytest.mark.parametrize(("spoil", "said"), SPOILT.values(), ids=SPOILT.keys())
def test_what_cannot_be_reckoned_with_is_refused_with_the_folder_and_the_field(
    tmp_path: Path, spoil: Callable[[Parts, Parts], None], said: str
) -> None:
    BUNDLED.save(tmp_path / "m")
    arrays, manifest = artifacts.load(tmp_path / "m")
    spoil(arrays, manifest)
    artifacts.save(tmp_path / "m", arrays, {k: v for k, v in manifest.items() if not k.startswith("arrays")})
    with pytest.raises(BadArtifact, match=said) as caught:
        models.load(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)
