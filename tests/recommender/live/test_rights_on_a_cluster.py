"""Each right of the recommender's manifests is revoked once, and the resulting error names it.

Parts of the recommender run in this process, with an account that has exactly these rights. Once the right is granted
again, the same part works again.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator, Mapping

import pytest
from kubernetes import client

from recommender.cluster.errors import ApiError, Forbidden
from recommender.cluster.workloads.kinds import JOB_KINDS
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
from tests.rig.autoscaling import create_vpa
from tests.rig.cluster import Cluster
from tests.rig.recommender import MANIFESTS, NAME
from tests.rig.rights import Account, Right, rights_in, roles_in
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace, pod_spec, resources

ROLES = roles_in(MANIFESTS / "recommender" / "rbac.yaml", MANIFESTS / "overlays" / "waiting" / "rights.yaml")

WATCHED = [
    *(("", resource) for resource in ("pods", "nodes", "namespaces", "replicationcontrollers", "events")),
    ("", "resourcequotas"),
    ("autoscaling", "horizontalpodautoscalers"),
    *(("apps", resource) for resource in ("deployments", "statefulsets", "daemonsets", "replicasets")),
    *(("batch", resource) for resource in ("jobs", "cronjobs")),
    *((group, f"{kind.lower()}s") for group, kind in sorted(JOB_KINDS)),
    (VPA_GROUP, VPAS),
    (PHASEWISE, "phaseprofiles"),
]

ACTS: Mapping[Right, Act] = {
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


def test_every_right_of_the_manifests_has_a_case_and_no_other_right_has_one() -> None:
    assert sorted(rights_in(ROLES)) == sorted([*LISTS, *ACTS])


# -- on a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def account(cluster: Cluster) -> Iterator[Account]:
    cluster.vpa_resources()
    cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml")
    with served(cluster, *(definition(f"{group}/v1", kind) for group, kind in sorted(JOB_KINDS))):
        yield Account(cluster, NAME, ROLES)


@pytest.fixture(scope="module")
def ns(cluster: Cluster, account: Account) -> Iterator[str]:
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
    cluster: Cluster, account: Account, ns: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Stage:
    caplog.set_level(logging.INFO)
    right: Right = request.node.callspec.params["right"]
    return Stage(cluster, account, ns, f"case-{secrets.token_hex(3)}", right, caplog)


@pytest.mark.parametrize("right", LISTS, ids=str)
def test_a_missing_right_to_watch_is_named_and_the_watch_recovers_with_it(stage: Stage, right: Right) -> None:
    with contextlib.ExitStack() as stack:
        with stage.account.without(right):
            is_missed = stack.enter_context(run_watches(stage))
            wait_until(is_missed, f"an error that names the right to {right}", every_s=0.05)
        wait_until(lambda: not is_missed(), f"the watch to recover with the right to {right}", every_s=0.05)


@pytest.mark.parametrize(("right", "act"), [pytest.param(right, act, id=str(right)) for right, act in ACTS.items()])
def test_a_missing_right_to_act_is_named_and_the_act_succeeds_with_it(stage: Stage, right: Right, act: Act) -> None:
    create_vpa(stage.cluster, stage.namespace, stage.name)
    attempt = act(stage)
    with stage.account.without(right):
        with pytest.raises(Forbidden) as refusal:
            attempt()
        assert stage.refusal in str(refusal.value)
    try:
        attempt()
    except Forbidden:
        raise
    except ApiError as error:
        assert right.resource in ("pods/log", "pods"), error  # allowed, but there is nothing to act on


def test_the_requests_of_all_cases_use_exactly_the_rights_of_the_manifests(cluster: Cluster, account: Account) -> None:
    used = cluster.requests_of(account.user)
    allowed = {(right.verb, right.group, right.resource) for right in rights_in(ROLES)} - {("get", "*", "*/scale")}
    assert used == allowed | {("get", "apps", "deployments/scale")}
