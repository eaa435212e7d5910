"""Which runs a model counts as ended when it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recommender.base.records import RunFacts, UsageSeries
from recommender.learning.training import TrainingOptions, with_forecasts
from recommender.phases import graph_io
from tests.fakes.records import MODEL

STEP_S, END_S = 15, 15 * 400


def recorded(name: str, last_s: int, facts: RunFacts) -> UsageSeries:
    """A container that was recorded up to `last_s`, at two levels of usage."""
    usage = np.repeat([[0.1, 2e8], [2.0, 1e9]], 30, axis=0) * np.random.default_rng(0).normal(1.0, 0.02, (60, 2))
    return UsageSeries(name, last_s - STEP_S * np.arange(59, -1, -1), float(STEP_S), usage, facts=facts)


@pytest.mark.parametrize(
    ("last_s", "facts", "open_end"),
    [
        (END_S, RunFacts(), True),
        (END_S - 2 * STEP_S, RunFacts(), True),
        (END_S - 3 * STEP_S, RunFacts(), False),
        (END_S, RunFacts(started_s=0.0, finished_s=END_S), False),
        (END_S - 10 * STEP_S, RunFacts(started_s=0.0, finished_s=math.nan), True),
    ],
    ids=["up to the end", "two samples less", "three samples less", "known to have ended", "known to run on"],
)
def test_a_container_that_outlived_its_recording_is_not_counted_as_ended(
    last_s: int, facts: RunFacts, open_end: bool
) -> None:
    series = [recorded("one", last_s, facts), recorded("longest", END_S, RunFacts(0.0, END_S))]
    options = TrainingOptions(MODEL.detector.features)
    graph = with_forecasts(MODEL.detector, series, options, {}).graph
    assert graph is not None
    counts = [entry["next"] for entry in graph_io.to_document(graph)["contexts"].values()]
    assert sum(count.get("open", 0) for count in counts) == open_end
    assert sum(count.get("end", 0) for count in counts) == 2 - open_end
