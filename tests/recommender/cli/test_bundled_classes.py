"""What the bundled dry run knows of earlier runs is what these runs teach; `scripts/train-bundled-model` writes it."""

from __future__ import annotations

from importlib import resources

import numpy as np
import orjson
import pytest

from recommender.cli.replaying import learn_bundled_classes
from recommender.engine.classes import Classes
from recommender.engine.keys import WorkloadKey


@pytest.mark.long
def test_the_bundled_classes_are_those_that_the_bundled_runs_teach() -> None:
    file = resources.files("recommender.data") / "recordings" / "classes.json"
    shipped, learned = Classes(), Classes()
    states = orjson.loads(file.read_bytes()), learn_bundled_classes()
    assert set(states[0]) == set(states[1])
    for classes, kept in zip((shipped, learned), states, strict=True):
        for workload, state in kept.items():
            classes.load(WorkloadKey("", workload), state, 0.0)
    for workload in states[0]:
        one, other = (classes.known(WorkloadKey("", workload), "main") for classes in (shipped, learned))
        assert one is not None and other is not None and len(one) == len(other) == 4
        np.testing.assert_allclose(one.memory.rises, other.memory.rises)
        for run, same in zip(one.kept, other.kept, strict=True):
            np.testing.assert_allclose(run.levels, same.levels)
        # Machines differ in the last digit of sums, and so may in a rare choice.
        assert one.level == pytest.approx(other.level, abs=0.02)
        np.testing.assert_allclose(one.losses, other.losses, rtol=0.02)
