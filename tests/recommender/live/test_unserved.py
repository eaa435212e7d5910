"""A VPA without a recommendation is logged every half hour until it has one."""

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
from tests.fakes.records import FakeView, a_pod, a_vpa, recommender, rounds
from tests.recommender.live.behaviours import published_status


def state_with(status: dict[str, Any] | None = None, **spec: Any) -> VpaState:
    return VpaState(read_vpa({**a_vpa(**spec), "status": status or {}}), SelectedPods([a_pod("p")], {}))


def test_a_vpa_without_a_recommendation_is_counted_and_logged_every_half_hour(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    unserved = Unserved(registry)

    def update_at(at_s: float, state: VpaState) -> tuple[int, float | None]:
        caplog.clear()
        unserved.update([state], at_s)
        return len(caplog.records), registry.get_sample_value("phasewise_vpas_unserved")

    assert update_at(0.0, state_with()) == (0, 0.0)
    assert update_at(UNSERVED_AFTER_S - 1.0, state_with()) == (0, 0.0)
    assert update_at(UNSERVED_AFTER_S, state_with()) == (1, 1.0)
    assert "ns/job: no recommendation for 30 minutes: there are no usage metrics" in caplog.text
    assert update_at(UNSERVED_AFTER_S + 15.0, state_with()) == (0, 1.0)
    assert update_at(2 * UNSERVED_AFTER_S, state_with()) == (1, 1.0)
    assert update_at(2 * UNSERVED_AFTER_S + 15.0, state_with(published_status())) == (0, 0.0)
    assert update_at(2 * UNSERVED_AFTER_S + 30.0, state_with()) == (0, 0.0), "its time starts again"


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (SelectedPods([a_pod("p")], {}), "there are no usage metrics of its pods"),
        (SelectedPods((), {}, "Cannot read targetRef"), "Cannot read targetRef"),
    ],
)
def test_the_reason_is_logged(selection: SelectedPods, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    unserved = Unserved(CollectorRegistry())
    for at_s in (0.0, UNSERVED_AFTER_S):
        unserved.update([VpaState(read_vpa(a_vpa()), selection)], at_s)
    assert caplog.messages == [f"ns/job: no recommendation for 30 minutes: {reason}"]


@pytest.mark.parametrize("phase", ["", PENDING, "Succeeded"], ids=["queued or scaled to zero", "waiting", "finished"])
def test_a_vpa_without_running_pods_is_not_counted(phase: str, caplog: pytest.LogCaptureFixture) -> None:
    """Jobs may wait for hours in a queue or for a node, and workloads be scaled to zero: nothing is wrong then."""
    pods = [replace(a_pod("p"), phase=phase)] if phase else []
    registry = CollectorRegistry()
    unserved = Unserved(registry)
    for at_s in (0.0, UNSERVED_AFTER_S):
        unserved.update([VpaState(read_vpa(a_vpa()), SelectedPods(pods, {}))], at_s)
    assert not caplog.records
    assert registry.get_sample_value("phasewise_vpas_unserved") == 0.0


def test_a_vpa_whose_containers_are_all_off_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    off = state_with(resourcePolicy={"containerPolicies": [{"containerName": "*", "mode": "Off"}]})
    unserved = Unserved(CollectorRegistry())
    unserved.update([off], 0.0)
    unserved.update([off], UNSERVED_AFTER_S)
    assert not caplog.records


def test_a_vpa_with_a_recommendation_that_observing_does_not_publish_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeView()
    monkeypatch.setattr(cluster, "publish", lambda *_: None)
    cluster.raw["job"], cluster.pods["job"] = a_vpa(), [a_pod("p")]
    ours = recommender(cluster, observe_only=True)
    unserved = Unserved(CollectorRegistry())
    for at_s in (0.0, UNSERVED_AFTER_S):
        rounds(ours, cluster, 60)
        unserved.update(ours.vpas.values(), at_s)
    assert ours.vpas, "it is followed"
    assert not caplog.records
