"""What the next pod of a job will request: the larger of what the present one does and what its template asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gangs.member import read_member
from extender.moves.board import MoveInputs
from extender.moves.job import read_job
from extender.moves.replacement import read_vpa_targets
from recommender.cluster.objects.requests import MAX_CORES
from tests.extender.gangs.herds import pod_json
from tests.extender.moves.trainings import job_json

ADMITTED_BY_VPA = {"vpaObservedContainers": "main"}


def cores(
    present: str,
    template: dict[str, Any],
    target: str = "",
    *,
    annotations: dict[str, str] | None = None,
    kind: str = "Job",
    mode: str = "InPlaceOrRecreate",
    **policy: Any,
) -> float:
    """Cores that the next pod of the Job `vae` of the CronJob `nightly` requests; `template`: spec of its pods."""
    pod = read_member(pod_json("vae-1", cpu=present, on="a", owner=("Job", "vae"), annotations=annotations))
    owner = {"kind": "CronJob", "name": "nightly", "uid": "n", "controller": True}
    raw = job_json("vae", template={"metadata": {}, "spec": template})
    job = read_job({**raw, "metadata": {**raw["metadata"], "ownerReferences": [owner]}})
    vpa = {
        "metadata": {"name": "v", "namespace": "team"},
        "spec": {
            "targetRef": {"kind": kind, "name": "nightly" if kind == "CronJob" else "vae"},
            "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": [{"containerName": "main", **policy}]},
        },
        "status": {
            "recommendation": {"containerRecommendations": [{"containerName": "main", "target": {"cpu": target}}]}
        }
        if target
        else {},
    }
    found = read_vpa_targets(vpa)
    inputs = MoveInputs(jobs={"vae": job}, targets={(found.namespace, found.controller): found.targets})
    return dict(inputs.replacement_of(pod).needs)["cpu"]


def requesting(cpu: str, part: str = "requests") -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {part: {"cpu": cpu}}}]}


@pytest.mark.parametrize(
    ("present", "template", "target", "annotations", "asked"),
    [
        ("2", "10", "", None, 10.0),  # shrunk in place
        ("10", "2", "", None, 10.0),  # grown in place
        ("2", "10", "2", None, 10.0),  # nothing shows that the admission controller is there
        ("2", "10", "3", ADMITTED_BY_VPA, 3.0),
        ("2", "10", "", ADMITTED_BY_VPA, 10.0),  # the VPA recommends nothing yet
        ("2", "1", "5", None, 5.0),  # it may have come since
    ],
)
def test_the_next_pod_requests_the_larger_of_the_present_and_what_admission_makes_of_the_template(
    present: str, template: str, target: str, annotations: dict[str, str] | None, asked: float
) -> None:
    assert cores(present, requesting(template), target, annotations=annotations) == asked


def test_a_template_that_states_only_limits_requests_them() -> None:
    assert cores("2", requesting("10", "limits")) == 10.0


def test_a_vpa_may_target_the_owner_of_the_job_and_in_the_mode_off_sets_nothing() -> None:
    grown = {"target": "9", "annotations": ADMITTED_BY_VPA}
    assert cores("2", requesting("1"), **grown, kind="CronJob") == 9.0
    assert cores("2", requesting("1"), **grown, kind="CronJob", mode="Off") == 2.0


def test_sidecars_init_containers_and_the_overhead_count_beside_the_target() -> None:
    """3 for the target, 1 for the sidecar and 0.5 of overhead; or 6.5 while the init container runs."""
    sidecar = {"name": "log", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    init = {"name": "load", "resources": {"requests": {"cpu": "6"}}}
    spec = {**requesting("10"), "overhead": {"cpu": "500m"}}
    admitted = {"target": "3", "annotations": ADMITTED_BY_VPA}
    assert cores("2", {**spec, "initContainers": [sidecar]}, **admitted) == 4.5
    assert cores("2", {**spec, "initContainers": [init]}, **admitted) == 6.5


def test_a_pod_whose_start_its_vpa_boosts_fits_nowhere_as_the_boost_is_unknown() -> None:
    boosted = {"target": "1", "annotations": ADMITTED_BY_VPA, "startupBoost": {"cpu": {"type": "Factor", "factor": 2}}}
    assert cores("2", requesting("1"), **boosted) == MAX_CORES


@given(present=st.floats(0.1, 20.0), template=st.floats(0.1, 20.0), target=st.floats(0.1, 20.0), admitted=st.booleans())
def test_it_is_never_less_than_the_present_pod_nor_than_what_admission_may_make_of_the_template(
    present: float, template: float, target: float, admitted: bool
) -> None:
    annotations = ADMITTED_BY_VPA if admitted else None
    texts = [f"{amount:.3f}" for amount in (present, template, target)]
    asked = cores(texts[0], requesting(texts[1]), texts[2], annotations=annotations)
    assert asked >= max(float(texts[0]), float(texts[2]) if admitted else max(map(float, texts[1:]))) - 1e-9
