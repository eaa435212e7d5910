"""VPAs that ask for shares: their pods divide what their node leaves them, from the round on in which they ask."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from recommender.engine.keys import Instance
from recommender.engine.seen import Evaluation
from recommender.growth import Growth, GrowthOptions
from recommender.live.round import Recommender
from recommender.readings import Reading
from tests.fakes.records import FakeView, a_pod, a_vpa, recommender, rounds, target_of

SHARES = "phasewise.dev/shares"


@pytest.fixture
def busy() -> FakeView:
    """Two pods of one VPA use half of a core each; they leave nothing of their node, which has 0.8 for them."""
    cluster = FakeView()
    cluster.raw["job"] = a_vpa()
    cluster.pods["job"] = [replace(a_pod(f"job-{number}"), node="n0") for number in range(2)]
    cluster.left = {"n0": (0.8, math.inf)}
    return cluster


def ask(cluster: FakeView, word: str | None) -> None:
    cluster.raw["job"]["metadata"]["annotations"] = {} if word is None else {SHARES: word}


def settled(cluster: FakeView, ours: Recommender) -> float:
    rounds(ours, cluster, 60)
    return target_of(cluster)[0]


def test_pods_that_share_a_busy_node_are_given_what_it_has_and_those_that_do_not_what_is_foreseen(
    busy: FakeView,
) -> None:
    ours = recommender(busy)
    assert settled(busy, ours) >= 0.5
    ask(busy, "flowcon")
    assert settled(busy, ours) == 0.4
    assert "shares" in [rail["name"] for rail in busy.profiles["job"][-1]["containers"][0]["why"]["rails"]]
    ask(busy, None)
    assert settled(busy, ours) >= 0.5


def test_a_word_that_is_no_policy_shares_nothing_and_is_reported(busy: FakeView) -> None:
    ask(busy, "fair")
    ours = recommender(busy)
    assert settled(busy, ours) >= 0.5
    assert rounds(ours, busy, 1).problems == {"VPA ns/job": f"{SHARES}: 'fair' is none of flowcon, phasewise"}


def test_the_engine_is_told_the_loss_of_pods_that_share_and_of_no_others(busy: FakeView) -> None:
    ours = recommender(busy)
    rounds(ours, busy, 1)
    growth = Growth.begin("log", Reading(busy.now_s, 2.5, "loss"), GrowthOptions())
    for state in ours.vpas.values():
        state.growth["uid-job-0"] = growth
    told = ours._sharing.collect(ours.vpas.values(), rounds(ours, busy, 1))
    assert told == ({}, {})
    ask(busy, "flowcon")
    rounds(ours, busy, 1)
    nodes, losses = ours._sharing.collect(ours.vpas.values(), rounds(ours, busy, 1))
    told = Evaluation(2.5, 2.5, growth.seen_s, "log loss")
    assert (nodes, losses) == ({}, {Instance("ns", "uid-job-0", "main"): told}), "the node was told of already"
    busy.left = {}
    assert ours._sharing.collect(ours.vpas.values(), rounds(ours, busy, 1))[0] == {}
    assert ours._sharing._reported == {}
