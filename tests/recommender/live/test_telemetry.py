"""The metrics for Prometheus: read by its parser, named by its conventions, with few label values."""

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

from recommender.engine.container_arrays import NO_GROUP, ContainerArrays
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.keys import Group
from recommender.engine.tally import Report
from recommender.learning import model as models
from recommender.live.outside.model_source import Loaded
from recommender.live.telemetry import Telemetry
from tests.fakes.clock import Clock
from tests.recommender.engine.worked import GIB

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
    """The parts of an engine that metrics read: containers, and violations and deferred resizes of its groups.

    The first group declares two cores and 4 GiB, the second two cores; two containers of the first and one of the other
    request half a core and 1 GiB each.
    """
    groups = GroupArrays()
    groups.grow(3)
    groups.judged[:2], groups.violations[0, 0] = (2.0, 1.0), 1.0
    groups.alive[:2], groups.deferred_since_s[:3] = True, (970.0, 950.0, 10.0)  # the third group is gone
    groups.declared_cores[:2], groups.declared_bytes[0], groups.applied[:2] = 2.0, 4 * GIB, True
    fleet = ContainerArrays()
    fleet.grow(4)
    fleet.alive[:], fleet.group[:3], fleet.requests[:] = True, (0, 0, 1), (0.5, GIB)
    return SimpleNamespace(
        fleet=SimpleNamespace(members=range(containers), arrays=fleet),
        groups=SimpleNamespace(arrays=groups, by_slot=[Group("team", "vpa", "main"), Group("other", "vpa", "main")]),
        rails_acting=lambda: {"room": 1, "fallback": 0},
    )


def test_what_is_requested_less_than_declared_is_summed_by_namespace(telemetry: Telemetry) -> None:
    engine = an_engine(4)
    telemetry.round_done(a_report(), [], engine)
    found = values(telemetry)
    assert found["phasewise_saved_cpu_cores", "team"] == pytest.approx(2 * 1.5)
    assert found["phasewise_saved_memory_bytes", "team"] == pytest.approx(2 * 3 * GIB)
    assert found["phasewise_saved_cpu_cores", "other"] == pytest.approx(1.5)
    assert found["phasewise_saved_memory_bytes", "other"] == 0.0, "nothing is declared"
    engine.groups.arrays.applied[0], engine.fleet.arrays.group[2] = False, NO_GROUP
    telemetry.round_done(a_report(), [], engine)
    found = values(telemetry)
    assert found["phasewise_saved_cpu_cores", "team"] == 0.0, "targets are not applied"
    assert ("phasewise_saved_cpu_cores", "other") not in found, "its container has ended"


def test_all_metrics_of_a_round_are_exposed(telemetry: Telemetry, clock: Clock) -> None:
    telemetry.round_done(a_report(), [], an_engine(9))
    telemetry.lead_s.set(85.0)
    clock.now_s += 12.0
    found = values(telemetry)
    assert found["phasewise_rounds_total",] == 1
    assert found["phasewise_last_round_age_seconds",] == 12
    assert found["phasewise_round_seconds_sum",] == 0.75
    assert found["phasewise_round_step_seconds_sum", "publish"] == 0.5
    assert found["phasewise_samples_total",] == 7
    assert found["phasewise_targets_changed_total",] == 2
    assert found["phasewise_resize_seconds_count",] == 2
    assert found["phasewise_resize_seconds_sum",] == 60
    assert found["phasewise_phase_changes_total",] == 5
    assert found["phasewise_lead_time_seconds",] == 85
    assert found["phasewise_next_phase_forecasts_total", "hit"] == 3
    assert found["phasewise_next_phase_forecasts_total", "miss"] == 1
    assert found["phasewise_oom_kills_total",] == 1
    assert found["phasewise_samples_refused_total", "negative use"] == 2
    assert found["phasewise_violation_ratio", "cpu"] == pytest.approx(0.25, rel=0.01)  # mean of a half and none
    assert found["phasewise_judged_samples_total",] == 4
    assert found["phasewise_violating_samples_total", "cpu"] == 2
    assert found["phasewise_slack_ratio", "cpu"] == 0.5
    assert found["phasewise_slack_ratio", "memory"] == 0.25
    assert found["phasewise_containers",] == 9
    assert found["phasewise_problems",] == 1
    assert found["phasewise_guard_rails", "room"] == 1
    assert found["phasewise_guard_rails", "fallback"] == 0


def test_the_number_of_shards_is_exposed() -> None:
    assert values(Telemetry(CollectorRegistry(), shards=3))["phasewise_shards",] == 3


def test_the_longest_deferral_of_a_resize_is_exposed_and_zero_without_any(telemetry: Telemetry) -> None:
    telemetry.round_done(a_report(), [], an_engine(2))
    assert values(telemetry)["phasewise_resize_deferred_seconds",] == 50  # it is 1000 now
    engine = an_engine(2)
    engine.groups.arrays.deferred_since_s[:] = np.inf
    telemetry.round_done(a_report(), [], engine)
    assert values(telemetry)["phasewise_resize_deferred_seconds",] == 0


def test_the_model_in_use_is_exposed_with_its_age_even_if_another_was_refused(
    telemetry: Telemetry, clock: Clock
) -> None:
    model = models.load(models.BUNDLED)
    telemetry.model(Loaded(model, "ab" * 32, clock.now_s - 60.0), "")
    telemetry.model(None, "it is damaged")
    found = values(telemetry)
    assert found["phasewise_model_info", "abababababab", "bundled"] == 1
    assert found["phasewise_model_age_seconds",] == 60
    assert found["phasewise_model_changes_total", "refused"] == 1
    telemetry.model(Loaded(model, "cd" * 32, None), "")
    found = values(telemetry)
    assert ("phasewise_model_info", "abababababab", "bundled") not in found
    assert np.isnan(found["phasewise_model_age_seconds",])


def test_requests_to_the_api_server_are_counted_by_verb_and_code(telemetry: Telemetry) -> None:
    for status in (200, 200, 409, 0):
        telemetry.api_request("PATCH", status, 0.2)
    found = values(telemetry)
    assert found["phasewise_api_requests_total", "200", "PATCH"] == 2
    assert found["phasewise_api_requests_total", "409", "PATCH"] == 1
    assert found["phasewise_api_requests_total", "0", "PATCH"] == 1
    assert found["phasewise_api_request_seconds_sum", "PATCH"] == pytest.approx(0.8)


def test_names_of_metrics_follow_the_conventions_of_prometheus(telemetry: Telemetry) -> None:
    """One prefix, lower case, base units at the end, `_total` on counters only, and a help text for each."""
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


def test_the_number_of_series_does_not_grow_with_the_number_of_objects(telemetry: Telemetry) -> None:
    for number in range(500):
        telemetry.round_done(Report(problems={f"ns/{number}": "broken"}), [], an_engine(number))
    assert len(values(telemetry)) < 150
