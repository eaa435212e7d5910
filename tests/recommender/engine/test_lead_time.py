"""The lead time: worked by hand, and with random delays."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.engine.lead_time import DEFAULT_DELAY_S, MAX_DELAY_S, MAX_DELAYS, MIN_DELAYS, LeadTime

GIB = 2.0**30
LITTLE, MUCH = (0.1, 1 * GIB), (0.9, 2 * GIB)
NOTHING = (math.nan, math.nan)
VPAS = itertools.count()


@pytest.fixture
def lead() -> LeadTime:
    return LeadTime(None, 0.0)


def published(
    lead: LeadTime, key: object, target: tuple[float, float], requests: tuple[float, float], at_s: float
) -> None:
    """Publish a target of a container that is the only one of its VPA."""
    lead.published(key, target, requests, at_s, ("team", str(next(VPAS))))


def resized(lead: LeadTime, after_s: float, key: str = "a", at_s: float = 0.0) -> None:
    """One container gets its target `after_s` after it was published, observed every second."""
    published(lead, key, MUCH, LITTLE, at_s)
    for second in range(math.ceil(after_s)):
        lead.observe(key, LITTLE, at_s + second)
    lead.observe(key, MUCH, at_s + after_s)


def test_before_the_first_resize_the_lead_time_is_the_default_and_one_sample() -> None:
    assert LeadTime(None, 15.0).seconds == DEFAULT_DELAY_S + 15.0


def test_the_lead_time_is_what_nine_of_ten_resizes_took_and_one_sample() -> None:
    lead = LeadTime(None, 15.0)
    for number in range(11):
        resized(lead, after_s=10.0 + 5.0 * number)  # 10, 15, ... 60
    assert len(lead) == 11
    assert lead.seconds == 55.0 + 15.0


def test_from_three_resizes_on_the_longest_delay_is_taken_with_a_margin(lead: LeadTime) -> None:
    """Under the default, stages shorter than it never get less, so there might be no fourth resize."""
    for number in range(MIN_DELAYS):
        assert lead.seconds == DEFAULT_DELAY_S
        resized(lead, after_s=3.0, key=str(number))
    assert lead.seconds == 4.0


def test_a_configured_lead_time_is_used_as_it_is() -> None:
    lead = LeadTime(120.0, 15.0)
    for _ in range(MIN_DELAYS):
        resized(lead, after_s=3.0)
    assert lead.seconds == 120.0


def test_a_delay_counts_from_the_first_time_a_target_was_published(lead: LeadTime) -> None:
    for at_s in range(0, MIN_DELAYS * 100, 100):
        for round_s in (0.0, 15.0, 30.0):
            published(lead, "a", MUCH, LITTLE, at_s + round_s)
            lead.observe("a", LITTLE, at_s + round_s)
        lead.observe("a", MUCH, at_s + 45.0)
    assert lead.seconds == 45.0 * (MIN_DELAYS + 1) / MIN_DELAYS


def test_another_target_restarts_the_measurement(lead: LeadTime) -> None:
    for _ in range(MIN_DELAYS):
        published(lead, "a", (0.5, GIB), LITTLE, 0.0)
        published(lead, "a", MUCH, LITTLE, 40.0)
        lead.observe("a", MUCH, 50.0)
    assert lead.seconds == 10.0 * (MIN_DELAYS + 1) / MIN_DELAYS


def test_the_delay_of_a_target_that_was_withdrawn_counts_from_its_next_publication(lead: LeadTime) -> None:
    published(lead, "a", MUCH, LITTLE, 0.0)
    published(lead, "a", LITTLE, LITTLE, 10.0)
    published(lead, "a", MUCH, LITTLE, 20.0)
    assert lead.observe("a", MUCH, 30.0) == 10.0


@pytest.mark.parametrize(
    ("target", "requests", "resizes"),
    [
        pytest.param(MUCH, MUCH, 0, id="the same"),
        pytest.param((0.9, math.nan), (0.9, 5 * GIB), 0, id="no memory target"),
        pytest.param((0.9004, 2 * GIB), (0.9, 2 * GIB), 0, id="whole millicores"),
        pytest.param((0.9, 2 * GIB), (0.9, 2 * GIB + 1000.0), 0, id="a page more"),
        pytest.param((10.0, GIB), (10.08, GIB), 0, id="within 1%"),
        pytest.param((10.0, GIB), (10.12, GIB), 1, id="more than 1% above"),
        pytest.param((10.0, GIB), (9.88, GIB), 1, id="more than 1% below"),
        pytest.param((0.05, GIB), (0.0508, GIB), 0, id="within a millicore"),
        pytest.param((0.05, GIB), (0.0512, GIB), 1, id="more than a millicore above"),
    ],
)
def test_a_target_that_is_already_met_is_no_resize(
    lead: LeadTime, target: tuple[float, float], requests: tuple[float, float], resizes: int
) -> None:
    published(lead, "a", target, requests, 0.0)
    lead.observe("a", target, 1.0)
    assert len(lead) == resizes


@pytest.mark.parametrize(
    ("first", "then"), [(NOTHING, NOTHING), (LITTLE, (MUCH[0], LITTLE[1]))], ids=["without requests", "CPU alone"]
)
def test_a_container_is_resized_once_it_has_the_whole_target(
    lead: LeadTime, first: tuple[float, float], then: tuple[float, float]
) -> None:
    published(lead, "a", MUCH, first, 0.0)
    lead.observe("a", then, 1.0)
    assert len(lead) == 0
    lead.observe("a", MUCH, 2.0)
    assert len(lead) == 1


def test_the_wait_for_room_on_a_full_node_is_not_measured(lead: LeadTime) -> None:
    published(lead, "a", MUCH, LITTLE, 0.0)
    lead.observe("a", LITTLE, 5.0, deferred=True)
    published(lead, "a", MUCH, LITTLE, 15.0)
    lead.observe("a", MUCH, 100.0)
    assert len(lead) == 0


def test_a_delay_above_the_maximum_is_not_measured(lead: LeadTime) -> None:
    resized(lead, after_s=MAX_DELAY_S + 1.0)
    assert len(lead) == 0
    resized(lead, after_s=MAX_DELAY_S, key="b")
    assert len(lead) == 1


def test_a_removed_container_is_not_measured(lead: LeadTime) -> None:
    published(lead, "a", MUCH, LITTLE, 0.0)
    lead.keep_only({"b"})
    lead.observe("a", MUCH, 5.0)
    assert len(lead) == 0


def test_an_updater_that_becomes_quicker_shortens_the_lead_time(lead: LeadTime) -> None:
    for _ in range(MAX_DELAYS):
        resized(lead, after_s=60.0)
    for _ in range(MAX_DELAYS):
        resized(lead, after_s=5.0)
    assert (len(lead), lead.seconds) == (MAX_DELAYS, 5.0)


def test_a_deployment_of_many_pods_counts_as_one_resize(lead: LeadTime) -> None:
    for number in range(10):
        resized(lead, after_s=60.0, key=str(number))
    for number in range(200):
        lead.published(("web", number), MUCH, LITTLE, 100.0, ("team", "web"))
    for number in range(200):
        lead.observe(("web", number), MUCH, 103.0)
    assert (len(lead), lead.seconds) == (11, 60.0)


def test_of_the_pods_of_a_vpa_the_last_to_get_its_target_counts(lead: LeadTime) -> None:
    for number in range(11):  # of two replicas the updater resizes one in each of its rounds
        for replica in range(2):
            lead.published((number, replica), MUCH, LITTLE, 100.0, ("team", str(number)))
        for replica in range(2):
            lead.observe((number, replica), MUCH, 160.0 + 60.0 * replica)
    assert (len(lead), lead.seconds) == (11, 120.0)


def test_a_namespace_that_resizes_its_own_pods_at_once_does_not_shorten_the_lead_time_of_others(lead: LeadTime) -> None:
    for number in range(MAX_DELAYS):
        lead.published("a", MUCH, LITTLE, 100.0 * number, ("other", str(number)))
        lead.observe("a", MUCH, 100.0 * number + 60.0)
    for number in range(4 * MAX_DELAYS):
        lead.published("a", MUCH, LITTLE, float(number), ("busy", str(number)))
        lead.observe("a", MUCH, float(number))
    assert (len(lead), lead.seconds) == (MAX_DELAYS, 60.0)


def test_an_updater_that_runs_every_minute_gives_about_a_minute() -> None:
    lead = LeadTime(None, 15.0)
    for delay_s in np.random.default_rng(7).uniform(2.0, 62.0, MAX_DELAYS):
        resized(lead, after_s=delay_s)
    assert 65.0 < lead.seconds < 77.0


@given(delays_s=st.lists(st.floats(0.0, 5000.0), max_size=30), sample_s=st.floats(1.0, 60.0))
def test_the_lead_time_is_bounded_for_all_delays(delays_s: list[float], sample_s: float) -> None:
    lead = LeadTime(None, sample_s)
    for number, delay_s in enumerate(delays_s):
        published(lead, number, MUCH, LITTLE, 0.0)
        lead.observe(number, MUCH, delay_s)
    assert sample_s <= lead.seconds <= MAX_DELAY_S + sample_s


def test_after_a_clock_is_set_back_a_resize_has_no_delay(lead: LeadTime) -> None:
    published(lead, "a", MUCH, LITTLE, 100.0)
    assert lead.observe("a", MUCH, 50.0) == 0.0
    assert (len(lead), lead.seconds <= DEFAULT_DELAY_S) == (1, True)
