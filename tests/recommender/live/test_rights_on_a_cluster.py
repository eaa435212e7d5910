"""Each right that the recommender's manifests give is taken away once, and what is missed names it.

Its parts run in this process, with an account that has the rights of these manifests and no others. Once the right is
given back, the same part is well again.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator, Mapping

import pytest
from kubernetes import client

from local_cluster.clearing import clear_namespace
from local_cluster.cluster import Cluster
from local_cluster.recommender import MANIFESTS, NAME
from local_cluster.rights import Account, Right, rights_in, roles_in
from local_cluster.vpa_objects import create_vpa
from local_cluster.waiting import wait_until
from local_cluster.workloads import pod_spec, resources
from recommender.cluster.errors import ApiError, Forbidden
from recommender.cluster.workloads.training_jobs import TRAINING_JOB_KINDS
from tests.recommender.cluster.custom_kinds import definition, served
from tests.recommender.live.missing import (
    CHECKPOINTS,
    LEASES,
    PHASEWISE,
    VPA_GROUP,
    VPAS,
    Act,
    Stage,
    acquire_lease,
    change_vpa,
    delete_checkpoint,
    delete_class_profile,
    list_checkpoints,
    look_up_scale,
    make_vpa,
    overwrite_checkpoint,
    read_metrics,
    read_pod_log,
    remove_vpa,
    resize_waiting_pod,
    run_watches,
    take_over_profile,
    write_checkpoint,
    write_outdated_vpa,
    write_profile,
    write_status,
)

ROLES = roles_in(MANIFESTS / "recommender" / "rbac.yaml", MANIFESTS / "overlays" / "waiting" / "rights.yaml")

WATCHED = [
    *(("", resource) for resource in ("pods", "nodes", "namespaces", "replicationcontrollers", "events")),
    ("", "resourcequotas"),
    *(("apps", resource) for resource in ("deployments", "statefulsets", "daemonsets", "replicasets")),
    *(("batch", resource) for resource in ("jobs", "cronjobs")),
    *((group, f"{kind.lower()}s") for group, kind in sorted(TRAINING_JOB_KINDS)),
    (VPA_GROUP, VPAS),
    (PHASEWISE, "phaseprofiles"),
]

DONE: Mapping[Right, Act] = {
    Right("get", "", "pods/log"): read_pod_log,
    Right("patch", "", "pods/resize"): resize_waiting_pod,
    Right("get", "*", "*/scale"): look_up_scale,
    Right("list", "metrics.k8s.io", "pods"): read_metrics,
    Right("get", VPA_GROUP, VPAS): write_outdated_vpa,
    Right("create", VPA_GROUP, VPAS): make_vpa,
    Right("patch", VPA_GROUP, VPAS): change_vpa,
    Right("delete", VPA_GROUP, VPAS): remove_vpa,
    Right("patch", VPA_GROUP, f"{VPAS}/status"): write_status,
    Right("list", VPA_GROUP, CHECKPOINTS): list_checkpoints,
    Right("create", VPA_GROUP, CHECKPOINTS): write_checkpoint,
    Right("patch", VPA_GROUP, CHECKPOINTS): overwrite_checkpoint,
    Right("delete", VPA_GROUP, CHECKPOINTS): delete_checkpoint,
    Right("create", PHASEWISE, "phaseprofiles"): write_profile,
    Right("patch", PHASEWISE, "phaseprofiles"): take_over_profile,
    Right("delete", PHASEWISE, "phaseprofiles"): delete_class_profile,
    Right("patch", PHASEWISE, "phaseprofiles/status"): write_profile,
    Right("create", *LEASES): acquire_lease,
    Right("get", *LEASES, NAME): acquire_lease,
    Right("update", *LEASES, NAME): acquire_lease,
}

LISTS = [Right(verb, *what) for what in WATCHED for verb in ("list", "watch")]


def test_every_right_of_the_manifest_has_its_case_and_nothing_else_has() -> None:
    assert sorted(rights_in(ROLES)) == sorted([*LISTS, *DONE])


# -- on a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Iterator[Account]:
    cluster.vpa_resources()
    cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml")
    versions = {"kubeflow.org": "v1", "jobset.x-k8s.io": "v1alpha2"}
    with served(
        cluster, *(definition(f"{group}/{versions[group]}", kind) for group, kind in sorted(TRAINING_JOB_KINDS))
    ):
        yield Account(cluster, NAME, ROLES)


@pytest.fixture(scope="module")
def room(cluster: Cluster, account: Account) -> Iterator[str]:
    """The namespace of all cases, with a Deployment that has no pods."""
    name = cluster.namespace("rights")
    labels = {"app": "app"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec({}, resources({"cpu": "1"}))}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    client.AppsV1Api(cluster.client()).create_namespaced_deployment(name, {"metadata": {"name": "app"}, "spec": spec})
    yield name
    clear_namespace(cluster, name)


@pytest.fixture
def stage(
    cluster: Cluster, account: Account, room: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Stage:
    caplog.set_level(logging.INFO)
    right: Right = request.node.callspec.params["right"]
    return Stage(cluster, account, room, f"case-{secrets.token_hex(3)}", right, caplog)


@pytest.mark.parametrize("right", LISTS, ids=str)
def test_without_the_right_to_watch_it_says_which_and_goes_on_when_it_has_it(stage: Stage, right: Right) -> None:
    with contextlib.ExitStack() as stack:
        with stage.account.without(right):
            missed = stack.enter_context(run_watches(stage))
            wait_until(missed, f"it to miss the right to {right}", every_s=0.05)
        wait_until(lambda: not missed(), f"it to go on with the right to {right}", every_s=0.05)


@pytest.mark.parametrize(("right", "act"), [pytest.param(right, act, id=str(right)) for right, act in DONE.items()])
def test_without_the_right_to_act_it_says_which_and_does_it_when_it_has_it(
    stage: Stage, right: Right, act: Act
) -> None:
    create_vpa(stage.cluster, stage.namespace, stage.name)
    attempt = act(stage)
    with stage.account.without(right):
        with pytest.raises(Forbidden) as said:
            attempt()
        assert stage.refusal in str(said.value)
    try:
        attempt()
    except Forbidden:
        raise
    except ApiError as error:
        assert right.resource in ("pods/log", "pods"), error  # allowed, and there is nothing to be had here


def test_all_that_it_asked_for_meanwhile_is_what_its_manifest_allows(cluster: Cluster, account: Account) -> None:
    asked = cluster.requests_of(account.user)
    allowed = {(right.verb, right.group, right.resource) for right in rights_in(ROLES)} - {("get", "*", "*/scale")}
    assert asked == allowed | {("get", "apps", "deployments/scale")}
