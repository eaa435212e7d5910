"""A VPA without a recommendation is said after half an hour, each half hour, until it has one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from recommender.cluster.objects.pods import PENDING
from recommender.cluster.objects.vpa import read_vpa
from recommender.live.telemetry import UNSERVED_AFTER_S, Unserved
from recommender.live.view.view import SelectedPods
from recommender.live.vpa_state import VpaState
from tests.fakes.records import a_pod, a_vpa
from tests.recommender.live.behaviours import published_status


def workload(status: dict[str, Any] | None = None, **spec: Any) -> VpaState:
    return VpaState(read_vpa({**a_vpa(**spec), "status": status or {}}), SelectedPods([a_pod("p")], {}))


def test_it_is_said_each_half_hour_and_counted_until_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    unserved = Unserved(registry)

    def look(at_s: float, one: VpaState) -> tuple[int, float | None]:
        caplog.clear()
        unserved.update([one], at_s)
        return len(caplog.records), registry.get_sample_value("phasewise_vpas_unserved")

    assert look(0.0, workload()) == (0, 0.0)
    assert look(UNSERVED_AFTER_S - 1.0, workload()) == (0, 0.0)
    assert look(UNSERVED_AFTER_S, workload()) == (1, 1.0)
    assert "ns/job: no recommendation for 30 minutes: there are no usage metrics" in caplog.text
    assert look(UNSERVED_AFTER_S + 15.0, workload()) == (0, 1.0)
    assert look(2 * UNSERVED_AFTER_S, workload()) == (1, 1.0)
    assert look(2 * UNSERVED_AFTER_S + 15.0, workload(published_status())) == (0, 0.0)
    assert look(2 * UNSERVED_AFTER_S + 30.0, workload()) == (0, 0.0), "it counts anew"


@pytest.mark.parametrize(
    ("selection", "why"),
    [
        (SelectedPods((), {}), "no pods match it"),
        (SelectedPods([replace(a_pod("p"), phase=PENDING)], {}), "its pods have not started"),
        (SelectedPods([a_pod("p")], {}), "there are no usage metrics of its pods"),
        (SelectedPods((), {}, "Cannot read targetRef"), "Cannot read targetRef"),
    ],
)
def test_it_is_said_why(selection: SelectedPods, why: str, caplog: pytest.LogCaptureFixture) -> None:
    unserved = Unserved(CollectorRegistry())
    for at_s in (0.0, UNSERVED_AFTER_S):
        unserved.update([VpaState(read_vpa(a_vpa()), selection)], at_s)
    assert caplog.messages == [f"ns/job: no recommendation for 30 minutes: {why}"]


def test_who_wants_nothing_lacks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    off = workload(resourcePolicy={"containerPolicies": [{"containerName": "*", "mode": "Off"}]})
    unserved = Unserved(CollectorRegistry())
    unserved.update([off], 0.0)
    unserved.update([off], UNSERVED_AFTER_S)
    assert not caplog.records
