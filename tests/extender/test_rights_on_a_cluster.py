"""Each right of the manifests is needed: extender, scheduler, gang controller and webhook fail without it.

They run with an account that has the rights of one manifest and no others; all but the scheduler in this process. What
fails is named; once the right is given back, the same object works again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.extender.missing.controller import (
    KUBEFLOW,
    acts_on_nothing,
    never_acts,
    opens_no_gate,
    reserves_nothing,
    sees_no_change,
    size_not_known,
    writes_no_event,
)  # fmt: skip
from tests.extender.missing.extender import (
    history_not_known,
    never_leads,
    no_explanation,
    not_measured,
    not_ready,
    not_watched,
)
from tests.extender.missing.scheduler import never_schedules
from tests.extender.missing.stage import Scenario, Stage
from tests.extender.missing.webhook import not_trusted
from tests.recommender.cluster.custom_kinds import definition, served
from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS, documents
from tests.rig.rights import Account, Right, rights_in, roles_in
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.waiting import wait_until

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


RESERVATIONS = ("", "configmaps", "phasewise-reservations")

EXTENDER: Mapping[Right, Scenario] = {
    **{Right("list", *what): not_ready for what in WATCHED},
    **{Right("watch", *what): not_watched for what in WATCHED},
    Right("list", *PROFILES): history_not_known,
    Right("watch", *PROFILES): not_watched,
    Right("list", "metrics.k8s.io", "pods"): not_measured,
    Right("list", *RESERVATIONS): not_ready,
    Right("watch", *RESERVATIONS): not_watched,
    Right("create", "", "events"): no_explanation,
    **with_lease("phasewise-extender", never_leads),
}

CONTROLLER: Mapping[Right, Scenario] = {
    **{Right("list", "", resource): acts_on_nothing for resource in ("pods", "nodes")},
    **{Right("watch", "", resource): sees_no_change for resource in ("pods", "nodes")},
    Right("patch", *PODS): opens_no_gate,
    Right("get", *RESERVATIONS): reserves_nothing,
    Right("update", *RESERVATIONS): opens_no_gate,
    Right("create", "", "events"): writes_no_event,
    Right("get", "batch", "jobs"): size_not_known,
    Right("get", "jobset.x-k8s.io", "jobsets"): size_not_known,
    **{Right("get", "kubeflow.org", f"{kind.lower()}s"): size_not_known for kind in KUBEFLOW},
    **with_lease("phasewise-controller", never_acts),
}

SCHEDULER: Mapping[Right, Scenario] = {
    Right(verb, *LEASES, "phasewise-scheduler"): never_schedules for verb in ("get", "update")
}
"""Its other rights are those of roles of Kubernetes itself, which are bound to its account."""

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
KUBERNETES_BINDINGS = ("phasewise-scheduler", "phasewise-volume-scheduler", "phasewise-scheduler-authentication")
"""Bindings of roles that Kubernetes defines."""

CASES = [
    pytest.param(program, right, scenario, id=f"{program}: {right}")
    for program, (_, table) in PROGRAMS.items()
    for right, scenario in table.items()
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_cases_are_exactly_the_rights_of_the_manifest(program: str) -> None:
    file, table = PROGRAMS[program]
    assert sorted(rights_in(roles_in(FOLDER / file))) == sorted(table)


# -- on a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def job_kinds(cluster: Cluster) -> Iterator[None]:
    """Kinds of jobs that are not part of Kubernetes."""
    with served(cluster, definition("jobset.x-k8s.io/v1alpha2", "JobSet"), *map(kubeflow_definition, KUBEFLOW)):
        yield


def kubeflow_definition(kind: str) -> dict[str, Any]:
    return definition("kubeflow.org/v1", kind)


@pytest.fixture(scope="module")
def accounts(cluster: Cluster) -> Iterator[Mapping[str, Account]]:
    hook = next(each for each in documents() if each["kind"] == "MutatingWebhookConfiguration")
    reservations = next(each for each in documents() if each["metadata"]["name"] == RESERVATIONS[-1])
    cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", hook, reservations)
    account_of = {
        program: Account(cluster, f"phasewise-{program}", roles_in(FOLDER / file))
        for program, (file, _) in PROGRAMS.items()
    }
    account_of["scheduler"].bind(each for each in documents() if each["metadata"]["name"] in KUBERNETES_BINDINGS)
    yield account_of
    cluster.kubectl("delete", "mutatingwebhookconfiguration", "phasewise-webhook")


@pytest.fixture(scope="module")
def two_nodes(cluster: Cluster) -> SimulatedNodes:
    return cluster.start_nodes(2, cpu="8", memory="32Gi")


@pytest.mark.parametrize(("program", "right", "scenario"), CASES)
def test_something_fails_without_the_right_and_works_with_it(
    cluster: Cluster,
    request: pytest.FixtureRequest,
    two_nodes: SimulatedNodes,
    accounts: Mapping[str, Account],
    job_kinds: None,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    program: str,
    right: Right,
    scenario: Scenario,
) -> None:
    caplog.set_level(logging.INFO)
    account = accounts[program]
    stage = Stage(cluster, account, lambda: request.getfixturevalue("namespace"), two_nodes, caplog, tmp_path, right)
    with contextlib.ExitStack() as stack:
        with account.without(right):
            fails = stack.enter_context(scenario(stage))
            wait_until(fails, f"{scenario.__name__.replace('_', ' ')} without the right to {right}", every_s=0.05)
        wait_until(lambda: not fails(), f"recovery with the right to {right}", every_s=0.05)


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program != "scheduler"])
def test_the_programs_requested_exactly_what_the_manifest_allows(
    cluster: Cluster, accounts: Mapping[str, Account], program: str
) -> None:
    table = PROGRAMS[program][1]
    assert cluster.requests_of(accounts[program].user) == {(right.verb, right.group, right.resource) for right in table}
