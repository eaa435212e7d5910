"""What Prometheus gets to see: parsed as it would parse it, named by its rules, with few label values."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from recommender import model as models
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.tally import Report
from recommender.live.outside.model_source import Loaded
from recommender.live.telemetry import Telemetry
from tests.fakes.clock import Clock

UNITS = ("_seconds", "_ratio", "_info", "_bytes")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def telemetry(clock: Clock) -> Telemetry:
    return Telemetry(CollectorRegistry(), clock, clock)


def families(telemetry: Telemetry) -> dict[str, Metric]:
    found = text_string_to_metric_families(generate_latest(telemetry.registry).decode())
    return {family.name: family for family in found if not family.name.endswith("_created")}


def values(telemetry: Telemetry) -> dict[tuple[str, ...], float]:
    """By sample name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(telemetry).values()
        for sample in family.samples
    }


def a_report() -> Report:
    return Report(
        step_s={"load_vpas": 0.25, "publish": 0.5},
        problems={"ns/a": "it is broken"},
        samples=7,
        decisions=3,
        published=2,
        phase_changes=5,
        forecast_hits=3,
        forecast_misses=1,
        resizes_s=[20.0, 40.0],
        kills=1,
        refused=Counter({"negative use": 2}),
        judged=4,
        violating=[2, 0],
        used=[2.0, 4e9],
        slack=[1.0, 1e9],
    )


def an_engine(containers: int) -> Any:
    """What of an engine is told: how many containers live, and how often each of two groups violated."""
    groups = GroupArrays()
    groups.grow(3)
    groups.judge(np.array([0, 0, 1]), np.array([[True, False], [False, False], [False, False]]))
    groups.alive[:2], groups.deferred_since_s[:3] = True, (970.0, 950.0, 10.0)  # the third is no more
    return SimpleNamespace(
        fleet=SimpleNamespace(members=range(containers)),
        groups=SimpleNamespace(arrays=groups),
        rails_acting=lambda: {"room": 1, "fallback": 0},
    )


def test_a_round_is_told_in_full(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.round_done(a_report(), [], an_engine(9))
    telemetry.lead_s.set(85.0)
    clock.now_s += 12.0
    told = values(telemetry)
    assert told["phasewise_rounds_total",] == 1
    assert told["phasewise_last_round_age_seconds",] == 12
    assert told["phasewise_round_seconds_sum",] == 0.75
    assert told["phasewise_round_step_seconds_sum", "publish"] == 0.5
    assert told["phasewise_samples_total",] == 7
    assert told["phasewise_targets_changed_total",] == 2
    assert told["phasewise_resize_seconds_count",] == 2
    assert told["phasewise_resize_seconds_sum",] == 60
    assert told["phasewise_phase_changes_total",] == 5
    assert told["phasewise_lead_time_seconds",] == 85
    assert told["phasewise_next_phase_forecasts_total", "hit"] == 3
    assert told["phasewise_next_phase_forecasts_total", "miss"] == 1
    assert told["phasewise_oom_kills_total",] == 1
    assert told["phasewise_samples_refused_total", "negative use"] == 2
    assert told["phasewise_violation_ratio", "cpu"] == pytest.approx(0.25, rel=0.01)  # mean of a half and none
    assert told["phasewise_judged_samples_total",] == 4
    assert told["phasewise_violating_samples_total", "cpu"] == 2
    assert told["phasewise_slack_ratio", "cpu"] == 0.5
    assert told["phasewise_slack_ratio", "memory"] == 0.25
    assert told["phasewise_containers",] == 9
    assert told["phasewise_problems",] == 1
    assert told["phasewise_guard_rails", "room"] == 1
    assert told["phasewise_guard_rails", "fallback"] == 0


def test_the_resize_that_a_full_node_puts_off_longest_is_told_and_none_is_none(telemetry: Telemetry) -> None:
    telemetry.round_done(a_report(), [], an_engine(2))
    assert values(telemetry)["phasewise_resize_deferred_seconds",] == 50  # it is 1000 now
    engine = an_engine(2)
    engine.groups.arrays.deferred_since_s[:] = np.inf
    telemetry.round_done(a_report(), [], engine)
    assert values(telemetry)["phasewise_resize_deferred_seconds",] == 0


def test_the_model_in_use_is_told_with_its_age_and_a_refused_one_does_not_hide_it(
    telemetry: Telemetry, clock: Clock
) -> None:
    model = models.load(models.BUNDLED)
    telemetry.model(Loaded(model, "ab" * 32, clock.now_s - 60.0), "")
    telemetry.model(None, "it is damaged")
    told = values(telemetry)
    assert told["phasewise_model_info", "abababababab", "bundled"] == 1
    assert told["phasewise_model_age_seconds",] == 60
    assert told["phasewise_model_changes_total", "refused"] == 1
    telemetry.model(Loaded(model, "cd" * 32, None), "")
    told = values(telemetry)
    assert ("phasewise_model_info", "abababababab", "bundled") not in told
    assert np.isnan(told["phasewise_model_age_seconds",])


def test_answers_of_the_api_server_are_counted_by_verb_and_code(telemetry: Telemetry) -> None:
    for status in (200, 200, 409, 0):
        telemetry.api_request("PATCH", status, 0.2)
    told = values(telemetry)
    assert told["phasewise_api_requests_total", "200", "PATCH"] == 2
    assert told["phasewise_api_requests_total", "409", "PATCH"] == 1
    assert told["phasewise_api_requests_total", "0", "PATCH"] == 1
    assert told["phasewise_api_request_seconds_sum", "PATCH"] == pytest.approx(0.8)


def test_names_keep_the_rules_of_prometheus(telemetry: Telemetry) -> None:
    """One prefix, lower case, base units at the end, a total on counters only, and words for each."""
    telemetry.round_done(a_report(), [], an_engine(1))
    found = families(telemetry)
    assert len(found) > 20
    for name, family in found.items():
        assert re.fullmatch(r"phasewise(_[a-z]+)+", name)
        assert family.documentation.endswith(".")
        assert not re.search(r"_(milliseconds|minutes|hours|megabytes|percent|count|sum|bucket)$", name)
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample
        if family.type == "histogram":
            assert name.endswith(UNITS)


def test_labels_take_few_values_however_many_objects_there_are(telemetry: Telemetry) -> None:
    for number in range(500):
        telemetry.round_done(Report(problems={f"ns/{number}": "broken"}), [], an_engine(number))
    assert len(values(telemetry)) < 150
