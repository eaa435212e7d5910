"""The status written to a VPA, and when two statuses are equal."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import ContainerRecommendation
from recommender.cluster.objects.resizability import Resizability
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.vpas.status import (
    PHASEWISE_CONDITIONS,
    Condition,
    disruption_warning,
    is_fetching_history,
    same_status,
    status_of,
    status_without,
)
from tests.fakes.records import a_container, a_pod, a_vpa, pod_of

NOON = 1_787_400_000.9


def vpa(status: dict[str, Any] | None = None) -> Vpa:
    metadata = {"namespace": "n", "name": "v", "generation": 4}
    return read_vpa({"metadata": metadata, "spec": {"targetRef": {"kind": "Job", "name": "j"}}, "status": status})


def recommended(container: str, cpu_cores: float, memory_bytes: float) -> ContainerRecommendation:
    amounts = (cpu_cores, memory_bytes)
    return ContainerRecommendation(container, amounts, amounts, amounts, amounts)


def test_containers_are_sorted_and_those_without_a_target_left_out() -> None:
    wanted = [recommended("b", 1, 2**30), recommended("c", math.nan, math.nan), recommended("a", math.nan, 2**20)]
    status = status_of(vpa(), wanted, {}, NOON)
    entries = status["recommendation"]["containerRecommendations"]
    assert [(entry["containerName"], entry["target"]) for entry in entries] == [
        ("a", {"memory": "1Mi"}), ("b", {"cpu": "1", "memory": "1Gi"}),
    ]  # fmt: skip
    assert status_of(vpa(), [], {}, NOON) == {"observedGeneration": 4, "conditions": [], "recommendation": {}}


def test_conditions_of_others_are_kept_and_all_conditions_are_sorted() -> None:
    old = {"type": "M", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m"}
    gone = {"type": "NoPodsMatched", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    updates = {"Z": Condition("False", "R", "why"), "A": Condition("True"), "NoPodsMatched": None, "Never": None}
    assert status_of(vpa({"conditions": [gone, old]}), [], updates, NOON)["conditions"] == [
        {"type": "A", "status": "True", "lastTransitionTime": "2026-08-22T12:00:00Z"},
        old,
        {
            "type": "Z",
            "status": "False",
            "lastTransitionTime": "2026-08-22T12:00:00Z",
            "reason": "R",
            "message": "why",
        },
    ]


def test_the_previous_status_is_not_modified() -> None:
    read = vpa({"conditions": [{"type": "A", "status": "True"}], "recommendation": {}})
    before = str(read.status)
    status_of(read, [recommended("a", 1, 1)], {"A": Condition("False")}, NOON)
    assert str(read.status) == before


def test_a_condition_without_a_time_gets_one() -> None:
    read = vpa({"conditions": [{"type": "A", "status": "True", "lastTransitionTime": None}]})
    assert status_of(read, [], {"A": Condition("True")}, NOON)["conditions"][0]["lastTransitionTime"]


def entry(**values: Any) -> dict[str, Any]:
    return {"recommendation": {"containerRecommendations": [{"containerName": "a", **values}]}}


def test_statuses_are_equal_by_value_and_absent_equals_empty() -> None:
    assert same_status(entry(target={"cpu": "1"}), entry(target={"cpu": "1000m"}))
    assert same_status(entry(target={"memory": "250Mi"}), entry(target={"memory": "262144000"}))
    assert same_status(entry(target={"cpu": "1"}, lowerBound={}), entry(target={"cpu": "1"}))
    assert same_status({}, {"recommendation": {}, "conditions": []})
    assert same_status({}, {"recommendation": {"containerRecommendations": []}})
    assert not same_status(entry(target={"cpu": "1"}), entry(target={"cpu": "1001m"}))
    assert not same_status(entry(target={"cpu": "1"}), entry(target={"cpu": "1", "memory": "1"}))
    assert not same_status(entry(target={"cpu": "1"}), {})
    assert not same_status({"observedGeneration": 1}, {"observedGeneration": 2})
    assert not same_status(
        {"conditions": [{"type": "A", "status": "True", "message": "x"}]},
        {"conditions": [{"type": "A", "status": "True"}]},
    )


def test_a_malformed_status_differs_and_is_replaced() -> None:
    for malformed in ("nan", None, [], {"a": 1}):
        assert not same_status(entry(target={"cpu": malformed}), entry(target={"cpu": "1"}))
    for malformed_status in ({"recommendation": 3}, {"conditions": "x"}, {"conditions": [3, {}]}):
        assert not same_status(malformed_status, entry(target={"cpu": "1"}))
        wanted = [recommended("a", 1, 1)]
        assert status_of(vpa(malformed_status), wanted, {}, NOON) == status_of(vpa(), wanted, {}, NOON)


values = st.floats(0, 1e6) | st.just(math.nan)


@given(st.lists(st.tuples(st.sampled_from("abc"), values, values), max_size=3, unique_by=lambda r: r[0]))
def test_publishing_the_same_recommendations_again_leaves_the_status_equal(
    rows: list[tuple[str, float, float]],
) -> None:
    wanted = [recommended(*row) for row in rows]
    conditions = {"RecommendationProvided": Condition("True"), "LowConfidence": None}
    first = status_of(vpa(), wanted, conditions, NOON)
    assert same_status(first, status_of(vpa(first), reversed(wanted), conditions, NOON + 1000))


def test_status_without_removes_the_given_conditions_and_keeps_all_else() -> None:
    conditions = [{"type": kind, "status": "True"} for kind in ("DisruptiveUpdates", "LowConfidence", "Provided")]
    status = {"conditions": conditions, "recommendation": {"containerRecommendations": []}, "observedGeneration": 2}
    assert status_without(vpa(status), PHASEWISE_CONDITIONS) == {**status, "conditions": conditions[2:]}


def test_is_fetching_history_depends_on_its_condition() -> None:
    assert is_fetching_history(vpa({"conditions": [{"type": "FetchingHistory", "status": "True"}]}))
    assert not is_fetching_history(vpa({"conditions": [{"type": "FetchingHistory", "status": "False"}]}))
    assert not is_fetching_history(
        vpa({"conditions": [{"type": "Other", "status": "True", "reason": "FetchingHistory"}]})
    )
    assert not is_fetching_history(vpa())


def test_a_vpa_that_resizes_pods_which_kueue_admits_one_by_one_warns_that_they_are_deleted() -> None:
    pod = replace(a_pod("serves"), resizability=Resizability(queued=True))
    warning = disruption_warning(read_vpa(a_vpa()), [pod])
    assert warning is not None
    assert "Kueue" in warning.message
    assert disruption_warning(read_vpa(a_vpa(updatePolicy={"updateMode": "Initial"})), [pod]) is None


def test_pod_level_resources_that_the_containers_may_outgrow_are_reported() -> None:
    pod = pod_of("p", a_container(cpu="1"), resources={"requests": {"cpu": "2"}})
    warning = disruption_warning(read_vpa(a_vpa()), [pod])
    assert warning is not None
    assert warning.message.startswith("its pods have pod-level resources")
    assert disruption_warning(read_vpa(a_vpa(updatePolicy={"updateMode": "Off"})), [pod]) is None
    assert disruption_warning(read_vpa(a_vpa()), [replace(pod, phase="Succeeded")]) is None
