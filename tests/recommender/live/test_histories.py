"""Histories between rounds and checkpoints: whose are written, and what of a checkpoint is still worth anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.vpas.checkpoints import CONTAINER_UNUSED_S, CheckpointKey
from recommender.live.outside.histories import Histories
from recommender.live.view.scope import Scope
from recommender.policies.histogram import HistogramSession
from recommender.records import Block
from tests.fakes.records import a_vpa

NOW_S = 1_000_000_000.0
JOB, OTHER = ObjectKey("ns", "job"), ObjectKey("ns", "other")


@pytest.fixture
def histories() -> Histories:
    """With no API server: nothing is asked of one, since nobody has anything to write."""
    return Histories(None, Scope(), lambda: NOW_S)  # type: ignore[arg-type]


@pytest.mark.parametrize(("status", "written"), [("True", [OTHER]), ("False", [JOB, OTHER])])
def test_while_somebody_fetches_the_history_of_a_vpa_none_is_written_over_it(
    histories: Histories, status: str, written: list[ObjectKey]
) -> None:
    fetching = {"status": {"conditions": [{"type": "FetchingHistory", "status": status}]}}
    vpas = {JOB: read_vpa(a_vpa() | fetching), OTHER: read_vpa(a_vpa("other"))}
    asked: list[ObjectKey] = []

    def telling(key: ObjectKey) -> Callable[[], Mapping[str, Mapping[str, Any]]]:
        def tell() -> Mapping[str, Mapping[str, Any]]:
            asked.append(key)
            return {}

        return tell

    histories.keep({key: telling(key) for key in vpas}, vpas, within_s=60.0, every_s=0.0, at_most=10)
    assert sorted(asked) == written


def test_a_container_of_which_nothing_was_seen_for_eight_days_is_not_remembered(histories: Histories) -> None:
    past = {name: HistogramSession() for name in ("lately", "long-ago")}
    for session, age_s in zip(past.values(), (CONTAINER_UNUSED_S - 60.0, CONTAINER_UNUSED_S + 60.0), strict=True):
        session.advance(Block(np.array([[0.5, 2.0**30]]), np.array([int(NOW_S - age_s)]), np.empty(0, np.int64)))
    histories.adopt({CheckpointKey(JOB, name): session for name, session in past.items()})
    assert list(histories.containers(JOB)) == ["lately"]
