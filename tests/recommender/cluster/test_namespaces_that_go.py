"""Writes into a namespace that is being deleted: nothing is created, and no problem is reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recommender.cluster.access.answers import error_from_status
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Forbidden, NotFound
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.paths import PODS, VPAS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.vpas.checkpoints import Checkpoints
from recommender.cluster.vpas.status import Condition
from recommender.cluster.vpas.writer import VpaWriter
from tests.fakes.clock import Clock
from tests.fakes.profiles import profile_store
from tests.recommender.cluster.checkpointing import make_vpa, status, stored, write
from tests.rig.cluster import Cluster
from tests.rig.waiting import wait_until

CRDS = Path(__file__).parents[3] / "manifests" / "crd"


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        ({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}, NotFound),
        ({"causes": [{"reason": "SomethingElse"}, "no object"]}, Forbidden),
        ({"causes": "no list"}, Forbidden),
        ("no object", Forbidden),
        (None, Forbidden),
    ],
)
def test_a_refusal_in_a_terminating_namespace_is_not_found_and_any_other_forbidden(details: object, kind: type) -> None:
    body = {"kind": "Status", "reason": "Forbidden", "message": "pods is forbidden", "details": details}
    error = error_from_status("POST /x", 403, body)
    assert type(error) is kind
    assert error.status == 403


@pytest.fixture
def vpa_in_a_terminating_namespace(cluster: Cluster, api: Api, namespace: str) -> Iterator[Vpa]:
    """A VPA that a finalizer holds in a namespace that is Terminating."""
    cluster.vpa_resources()
    cluster.apply(CRDS / "phaseprofiles.yaml")
    wait_until(lambda: api.get(path_of(PROFILES)), "PhaseProfiles to be served")
    key = make_vpa(api, namespace, "job")
    path = path_of(VPAS, *key)
    api.patch(path, {"metadata": {"finalizers": ["phasewise.dev/held-by-a-test"]}})
    api.delete(path_of(("v1", "namespaces"), None, namespace))
    wait_until(
        lambda: "deletionTimestamp" in api.get(path)["metadata"], "the namespace's contents to be deleted", timeout_s=60
    )
    yield read_vpa(api.get(path))
    api.patch(path, {"metadata": {"finalizers": None}})


def test_nothing_is_created_in_a_terminating_namespace(api: Api, vpa_in_a_terminating_namespace: Vpa) -> None:
    vpa = vpa_in_a_terminating_namespace
    pod = {"metadata": {"name": "late"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    with pytest.raises(NotFound, match="being terminated") as refusal:
        api.create(path_of(PODS, vpa.key.namespace), pod)
    assert refusal.value.status == 403
    assert profile_store(api).write(vpa, {"model": "bundled"}) is False
    checkpoints = Checkpoints(api, Clock(), vpa.key.namespace)
    report = write(checkpoints, {vpa.key: {"main": status()}})
    assert (report.written, report.failed, report.problems) == (0, 0, [])
    assert stored(api, vpa.key.namespace) == {}
    VpaWriter(api, lambda: 1_787_400_000.0).publish(vpa, [], {"RecommendationProvided": Condition("False")})
    assert read_vpa(api.get(path_of(VPAS, *vpa.key))).status["conditions"], "what exists can be written"


def test_nothing_is_created_in_a_namespace_that_does_not_exist(api: Api, cluster: Cluster, namespace: str) -> None:
    cluster.vpa_resources()
    key = make_vpa(api, namespace, "job")
    gone = read_vpa(api.get(path_of(VPAS, *key)) | {"metadata": {"name": "job", "namespace": "never-was", "uid": "u"}})
    assert profile_store(api).write(gone, {"model": "bundled"}) is False
    report = write(Checkpoints(api, Clock(), "never-was"), {gone.key: {"main": status()}})
    assert (report.written, report.failed) == (0, 0)
    VpaWriter(api, lambda: 1_787_400_000.0).publish(gone, [], {})
