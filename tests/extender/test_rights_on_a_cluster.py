"""Each right that the manifests give is taken away once, and is missed: extender, scheduler, gang controller, webhook.

They run with an account that has the rights of one manifest and no others; all but the scheduler in this process. What
is missed is named; once the right is given back, the same object is well again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from local_cluster.cluster import Cluster
from local_cluster.installing import MANIFESTS, documents
from local_cluster.rights import Account, Right, rights_in, roles_in
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.waiting import wait_until
from tests.extender.missing.controller import (
    KUBEFLOW,
    acts_on_nothing,
    never_acts,
    opens_no_gate,
    reserves_nothing,
    says_nothing,
    sees_no_change,
    size_not_known,
)  # fmt: skip
from tests.extender.missing.extender import (
    history_not_known,
    never_leads,
    no_explanation,
    not_followed,
    not_measured,
    not_ready,
)
from tests.extender.missing.scheduler import never_schedules
from tests.extender.missing.stage import Scenario, Stage
from tests.extender.missing.webhook import not_trusted
from tests.recommender.cluster.custom_kinds import definition, served

FOLDER = MANIFESTS / "extender"
LEASES, PODS = ("coordination.k8s.io", "leases"), ("", "pods")

WATCHED = [
    *(("", resource) for resource in ("nodes", "replicationcontrollers", "pods")),
    *(("apps", resource) for resource in ("deployments", "statefulsets", "daemonsets", "replicasets")),
    *(("batch", resource) for resource in ("jobs", "cronjobs")),
]
PROFILES = ("phasewise.dev", "phaseprofiles")


def with_lease(name: str, scenario: Scenario) -> dict[Right, Scenario]:
    rights = [Right("create", *LEASES), Right("get", *LEASES, name), Right("update", *LEASES, name)]
    return dict.fromkeys(rights, scenario)


RESERVED = ("", "configmaps", "phasewise-reservations")

EXTENDER: Mapping[Right, Scenario] = {
    **{Right("list", *what): not_ready for what in WATCHED},
    **{Right("watch", *what): not_followed for what in WATCHED},
    Right("list", *PROFILES): history_not_known,
    Right("watch", *PROFILES): not_followed,
    Right("list", "metrics.k8s.io", "pods"): not_measured,
    Right("list", *RESERVED): not_ready,
    Right("watch", *RESERVED): not_followed,
    Right("create", "", "events"): no_explanation,
    **with_lease("phasewise-extender", never_leads),
}

CONTROLLER: Mapping[Right, Scenario] = {
    **{Right("list", "", resource): acts_on_nothing for resource in ("pods", "nodes")},
    **{Right("watch", "", resource): sees_no_change for resource in ("pods", "nodes")},
    Right("patch", *PODS): opens_no_gate,
    Right("get", *RESERVED): reserves_nothing,
    Right("update", *RESERVED): opens_no_gate,
    Right("create", "", "events"): says_nothing,
    Right("get", "batch", "jobs"): size_not_known,
    Right("get", "jobset.x-k8s.io", "jobsets"): size_not_known,
    **{Right("get", "kubeflow.org", f"{kind.lower()}s"): size_not_known for kind in KUBEFLOW},
    **with_lease("phasewise-controller", never_acts),
}

SCHEDULER: Mapping[Right, Scenario] = {
    Right(verb, *LEASES, "phasewise-scheduler"): never_schedules for verb in ("get", "update")
}
"""Of what it may do the rest is in roles of Kubernetes itself, which are bound to its account."""

WEBHOOK: Mapping[Right, Scenario] = {
    Right("get", "", "secrets", "phasewise-webhook"): not_trusted,
    Right("update", "", "secrets", "phasewise-webhook"): not_trusted,
    **{
        Right(verb, "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "phasewise-webhook"): not_trusted
        for verb in ("get", "patch")
    },
}

PROGRAMS = {
    "extender": ("rbac.yaml", EXTENDER),
    "controller": ("controller.yaml", CONTROLLER),
    "scheduler": ("scheduler.yaml", SCHEDULER),
    "webhook": ("webhook.yaml", WEBHOOK),
}
OF_KUBERNETES = ("phasewise-scheduler", "phasewise-volume-scheduler", "phasewise-scheduler-authentication")
"""Bindings of roles that Kubernetes brings along."""

CASES = [
    pytest.param(program, right, scenario, id=f"{program}: {right}")
    for program, (_, table) in PROGRAMS.items()
    for right, scenario in table.items()
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_right_of_the_manifest_has_its_case_and_nothing_else_has(program: str) -> None:
    file, table = PROGRAMS[program]
    assert sorted(rights_in(roles_in(FOLDER / file))) == sorted(table)


# -- on a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs_of_others(cluster: Cluster) -> Iterator[None]:
    """Kinds of jobs that are no part of Kubernetes."""
    with served(cluster, definition("jobset.x-k8s.io/v1alpha2", "JobSet"), *map(of_kubeflow, KUBEFLOW)):
        yield


def of_kubeflow(kind: str) -> dict[str, Any]:
    return definition("kubeflow.org/v1", kind)


@pytest.fixture(scope="module")
def accounts(cluster: Cluster) -> Iterator[Mapping[str, Account]]:
    hook = next(each for each in documents() if each["kind"] == "MutatingWebhookConfiguration")
    reserved = next(each for each in documents() if each["metadata"]["name"] == RESERVED[-1])
    cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", hook, reserved)
    made = {
        program: Account(cluster, f"phasewise-{program}", roles_in(FOLDER / file))
        for program, (file, _) in PROGRAMS.items()
    }
    made["scheduler"].bind(each for each in documents() if each["metadata"]["name"] in OF_KUBERNETES)
    yield made
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "phasewise-webhook")


@pytest.fixture(scope="module")
def two(cluster: Cluster) -> SimulatedNodes:
    return cluster.start_nodes(2, cpu="8", memory="32Gi")


@pytest.mark.parametrize(("program", "right", "scenario"), CASES)
def test_without_the_right_something_is_missed_and_with_it_all_is_well(
    cluster: Cluster,
    request: pytest.FixtureRequest,
    two: SimulatedNodes,
    accounts: Mapping[str, Account],
    jobs_of_others: None,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    program: str,
    right: Right,
    scenario: Scenario,
) -> None:
    caplog.set_level(logging.INFO)
    account = accounts[program]
    stage = Stage(cluster, account, lambda: request.getfixturevalue("namespace"), two, caplog, tmp_path, right)
    with contextlib.ExitStack() as stack:
        with account.without(right):
            missed = stack.enter_context(scenario(stage))
            wait_until(missed, f"{scenario.__name__.replace('_', ' ')} without the right to {right}", every_s=0.05)
        wait_until(lambda: not missed(), f"all to be well with the right to {right}", every_s=0.05)


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program != "scheduler"])
def test_all_that_it_asked_for_meanwhile_is_what_its_manifest_allows(
    cluster: Cluster, accounts: Mapping[str, Account], program: str
) -> None:
    table = PROGRAMS[program][1]
    assert cluster.requests_of(accounts[program].user) == {(right.verb, right.group, right.resource) for right in table}
