"""VPAs with the annotation for shares: their pods divide what their node leaves them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from recommender.engine.keys import Instance
from recommender.engine.seen import Evaluation
from recommender.live.round import Recommender
from recommender.progress.growth import Growth, GrowthOptions
from recommender.progress.readings import Reading
from tests.fakes.records import FakeView, a_pod, a_vpa, recommender, rounds, target_of

SHARES = "phasewise.dev/shares"


@pytest.fixture
def busy() -> FakeView:
    """Two pods of one VPA on a node that leaves them 0.8 cores; each uses half a core."""
    cluster = FakeView()
    cluster.raw["job"] = a_vpa()
    cluster.pods["job"] = [replace(a_pod(f"job-{number}"), node="n0") for number in range(2)]
    cluster.left = {"n0": (0.8, math.inf)}
    return cluster


def annotate(cluster: FakeView, policy: str | None) -> None:
    cluster.raw["job"]["metadata"]["annotations"] = {} if policy is None else {SHARES: policy}


def settled(cluster: FakeView, ours: Recommender) -> float:
    rounds(ours, cluster, 60)
    return target_of(cluster)[0]


def test_pods_that_share_a_busy_node_divide_it_and_others_get_the_forecast(busy: FakeView) -> None:
    ours = recommender(busy)
    assert settled(busy, ours) >= 0.5
    annotate(busy, "flowcon")
    assert settled(busy, ours) == 0.4
    assert "shares" in [rail["name"] for rail in busy.profiles["job"][-1]["containers"][0]["why"]["rails"]]
    annotate(busy, None)
    assert settled(busy, ours) >= 0.5


def test_an_unknown_sharing_policy_is_ignored_and_reported(busy: FakeView) -> None:
    annotate(busy, "fair")
    ours = recommender(busy)
    assert settled(busy, ours) >= 0.5
    assert rounds(ours, busy, 1).problems == {"VPA ns/job": f"{SHARES}: 'fair' is none of flowcon, phasewise"}


def test_the_loss_of_pods_is_collected_only_while_they_share(busy: FakeView) -> None:
    ours = recommender(busy)
    rounds(ours, busy, 1)
    growth = Growth.begin("log", Reading(busy.now_s, 2.5, "loss"), GrowthOptions())
    for state in ours.vpas.values():
        state.growth["uid-job-0"] = growth
    rounds(ours, busy, 1)
    collected = ours._node_sharing()
    assert collected == ({}, {})
    annotate(busy, "flowcon")
    rounds(ours, busy, 1)
    rounds(ours, busy, 1)
    nodes, losses = ours._node_sharing()
    evaluation = Evaluation(2.5, 2.5, growth.seen_s, "log loss")
    assert (nodes, losses) == ({}, {Instance("ns", "uid-job-0", "main"): evaluation}), "the node was reported before"
    busy.left = {}
    assert ours._node_sharing()[0] == {"n0": None}, "no longer shared"
    assert ours._shared_cores == {}
