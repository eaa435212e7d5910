"""The extender's manifests say what the programs do: their commands are understood, their probes served, their rights
are those of the account that runs them, and the image holds what they name."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

import click
import pytest
import yaml
from kubernetes.client.exceptions import ConflictException

from extender.cli.controller import LEASE as CONTROLLER_LEASE
from extender.cli.main import cli
from extender.gangs.member import GATE, RESERVED_NODE
from extender.gangs.waking import ANNOTATION as RETRY
from extender.pods.pod import GANG_LABEL, GROUPS
from extender.pods.reservations import CONFIG_MAP
from extender.web.app import BodyLimits
from extender.web.server import Serving
from extender.web.service import LEASE as EXTENDER_LEASE
from local_cluster.cluster import Cluster
from local_cluster.installing import MANIFESTS, ROOT, configuration, documents
from local_cluster.rights import rights_in, roles_in
from recommender.cluster.objects.quantities import parse_quantity

FOLDER = MANIFESTS / "extender"
OBJECTS = documents()
PODS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] == "Deployment"}
CONTAINERS = {container["name"]: container for spec in PODS.values() for container in spec["containers"]}
OURS = [pytest.param(each, id=name) for name, each in CONTAINERS.items() if each["command"][0] == "phasewise"]
POLICY = "ValidatingAdmissionPolicy"
EXAMPLES = sorted((MANIFESTS / "examples").glob("placement-*.yaml"))


def options_of(command: list[str]) -> Mapping[str, Any]:
    """What the program takes a container's command for; nothing is run."""
    group: click.Command = cli
    context, rest = click.Context(cli), command[1:]
    while isinstance(group, click.Group):
        name, *rest = rest
        found = group.get_command(context, name)
        assert found is not None, name
        group = found
    return group.make_context(group.name, list(rest)).params


def test_a_pod_is_that_of_scheduler_and_extender_and_two_others_stand_alone() -> None:
    assert sorted(CONTAINERS) == ["controller", "extender", "scheduler", "webhook"]
    assert {container["name"] for container in PODS["phasewise-scheduler"]["containers"]} == {"scheduler", "extender"}


@pytest.mark.parametrize("container", OURS)
def test_its_command_is_understood_and_it_answers_where_it_is_probed(container: Mapping[str, Any]) -> None:
    host, _, port = options_of(container["command"])["address"].rpartition(":")
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[kind]
        if host == "127.0.0.1":  # nobody outside the pod could ask
            assert f"127.0.0.1:{port}/" in probe["exec"]["command"][-1]
        else:
            assert probe["httpGet"]["port"] in {each["name"] for each in container["ports"]}
            assert [str(each["containerPort"]) for each in container["ports"]] == [port]
    assert port in re.findall(r"^EXPOSE (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0].split()


@pytest.mark.parametrize("container", OURS)
def test_its_image_is_that_of_the_project_and_holds_its_command(container: Mapping[str, Any]) -> None:
    assert container["image"] == "phasewise:latest"
    words = " ".join(each for each in container["command"] if not each.startswith("--"))
    assert f"{words} --help > /dev/null" in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)
def test_nothing_may_become_root_and_what_is_ours_has_a_limit_of_memory(container: Mapping[str, Any]) -> None:
    confined = container["securityContext"]
    assert confined["readOnlyRootFilesystem"] is True
    assert confined["allowPrivilegeEscalation"] is False
    assert confined["capabilities"]["drop"] == ["ALL"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"].get("limits", {}).keys() <= {"memory"}
    assert "limits" in container["resources"] or container["name"] == "scheduler"


@pytest.mark.parametrize("name", ["webhook", "controller", "extender"])
def test_what_connections_and_bodies_may_take_fits_into_the_limit_of_memory(name: str) -> None:
    """Beside 100 MiB for all else; whoever reaches the webhook may open as many connections as there may be."""
    limit_bytes = parse_quantity(CONTAINERS[name]["resources"]["limits"]["memory"])
    connections, bodies = Serving("").max_connections, BodyLimits()
    assert connections * (40 << 10) + max(bodies.total_bytes, bodies.largest_bytes) + (100 << 20) < limit_bytes


@pytest.mark.parametrize("name", PODS)
def test_every_account_and_volume_is_there_and_nothing_is_placed_by_our_own_scheduler(name: str) -> None:
    spec = PODS[name]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["serviceAccountName"] in {o["metadata"]["name"] for o in OBJECTS if o["kind"] == "ServiceAccount"}
    mounted = {mount["name"] for each in spec["containers"] for mount in each.get("volumeMounts", ())}
    assert mounted == {volume["name"] for volume in spec.get("volumes", ())}
    assert spec.get("schedulerName", "default-scheduler") == "default-scheduler"


def test_leases_are_those_that_the_programs_hold() -> None:
    held = {"rbac.yaml": EXTENDER_LEASE, "controller.yaml": CONTROLLER_LEASE, "scheduler.yaml": "phasewise-scheduler"}
    for file, name in held.items():
        rights = rights_in(roles_in(FOLDER / file))
        assert {right.name for right in rights if right.resource == "leases" and right.verb != "create"} == {name}


def test_what_the_replicas_hold_is_installed_and_so_goes_with_the_rest() -> None:
    leases = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "Lease"}
    assert leases == {CONTROLLER_LEASE, "phasewise-scheduler"}


def test_the_scheduler_asks_the_extender_beside_it() -> None:
    given = configuration(OBJECTS)
    (asked,) = given["extenders"]
    assert asked["urlPrefix"] == f"http://{options_of(CONTAINERS['extender']['command'])['address']}"
    (profile,) = given["profiles"]
    assert (profile["schedulerName"],) == options_of(CONTAINERS["extender"]["command"])["schedulers"]
    assert profile["schedulerName"] == options_of(CONTAINERS["webhook"]["command"])["scheduler"]
    assert given["leaderElection"]["resourceName"] == "phasewise-scheduler"


def test_the_scheduler_s_own_scorers_make_up_for_no_step_of_ours_and_one_spreads_pods_without_us() -> None:
    """Those of weight 1; whoever prefers nodes by taints, affinity or spread said so of the pod, and may outvote us."""
    given = configuration(OBJECTS)
    (profile,), (asked,) = given["profiles"], given["extenders"]
    off = {each["name"] for each in profile["plugins"]["score"]["disabled"]}
    left = {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"} - off
    assert left == {"NodeResourcesFit"}
    assert len(left) * 100 < asked["weight"] * 10
    assert given["clientConnection"]["qps"] > 50


def test_the_webhook_is_asked_about_all_groups_that_the_controller_knows() -> None:
    hook = next(o for o in OBJECTS if o["kind"] == "MutatingWebhookConfiguration")["webhooks"][0]
    assert set(re.findall(r"'([^']+)'", hook["matchConditions"][0]["expression"])) == {name for name, _ in GROUPS}
    service = hook["clientConfig"]["service"]
    host = f"{service['name']}.{service['namespace']}.svc"
    assert host in options_of(CONTAINERS["webhook"]["command"])["names"]


def test_what_is_reserved_lies_where_one_account_may_write_it_and_two_may_read_it() -> None:
    (kept,) = [each for each in OBJECTS if each["metadata"]["name"] == CONFIG_MAP]
    assert (kept["kind"], kept["metadata"]["namespace"]) == ("ConfigMap", "kube-system")
    rights = {file.name: rights_in(roles_in(file)) for file in FOLDER.glob("*.yaml")}
    allowed = {(f, r.verb, r.name) for f, found in rights.items() for r in found if r.resource == "configmaps"}
    assert allowed == {
        ("controller.yaml", "get", CONFIG_MAP),
        ("controller.yaml", "update", CONFIG_MAP),
        ("rbac.yaml", "list", CONFIG_MAP),
        ("rbac.yaml", "watch", CONFIG_MAP),
    }
    for command in ("controller", "extender"):
        assert options_of(CONTAINERS[command]["command"])["lease_namespace"] == "kube-system"


def test_nobody_may_make_a_secret_or_read_another_than_its_own() -> None:
    """Who may make one beside kube-system's accounts may make one that is filled with the token of any of them."""
    (kept,) = [each for each in OBJECTS if each["kind"] == "Secret"]
    assert kept["metadata"]["name"] == options_of(CONTAINERS["webhook"]["command"])["secret"]
    assert not kept.keys() & {"data", "stringData", "type"}
    rights = {
        each for file in FOLDER.glob("*.yaml") for each in rights_in(roles_in(file)) if each.resource == "secrets"
    }
    assert {(each.verb, each.name) for each in rights} == {(verb, "phasewise-webhook") for verb in ("get", "update")}


def test_the_annotations_that_nobody_else_may_write_are_those_that_the_controller_writes() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in OBJECTS if each["kind"] == POLICY}
    reserved = policies["phasewise-reserved-annotations"]
    named = re.findall(r"'([a-z.]+/[a-z-]+)'", reserved["validations"][0]["expression"])
    assert set(named) == {RESERVED_NODE, RETRY}
    account = PODS["phasewise-controller"]["serviceAccountName"]
    assert f"'system:serviceaccount:kube-system:{account}'" in reserved["matchConditions"][0]["expression"]
    for name, spec in policies.items():
        bound = next(each["spec"] for each in OBJECTS if each["kind"] == f"{POLICY}Binding" and named_as(each, name))
        assert (bound["policyName"], bound["validationActions"]) == (name, ["Deny"])
        assert spec["failurePolicy"] == "Fail"


def test_a_pod_of_a_gang_is_refused_without_the_very_gate_that_the_controller_opens() -> None:
    """What the API server makes of it is tried on a cluster."""
    (policy,) = [o["spec"] for o in OBJECTS if o["kind"] == POLICY and named_as(o, "phasewise-gang-gate")]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "UPDATE"])
    refuses = policy["validations"][0]["expression"]
    assert refuses.startswith(f"!has(object.metadata.labels) || !('{GANG_LABEL}' in object.metadata.labels) ||")
    assert f"object.spec.schedulingGates.exists(gate, gate.name == '{GATE}')" in refuses


def named_as(found: Mapping[str, Any], name: str) -> bool:
    return bool(found["metadata"]["name"] == name)


def test_the_examples_speak_of_what_is_there() -> None:
    words = "\n".join(file.read_text() for file in EXAMPLES)
    for file in re.findall(r"manifests/[\w./-]+\.yaml", words):
        assert (ROOT / file).is_file(), file
    objects = [each for file in EXAMPLES for each in yaml.safe_load_all(file.read_text())]
    learned = {each["metadata"]["name"].removeprefix("class.") for each in objects if each["kind"] == "PhaseProfile"}
    jobs = {each["metadata"]["name"] for each in objects if each["kind"] == "Job"}
    assert learned == jobs - {"ring"}, "the gang is judged by its requests"


@pytest.mark.parametrize("name", PODS)
def test_its_pods_are_allowed_where_the_strictest_standard_holds(cluster: Cluster, name: str, namespace: str) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    spec = {key: value for key, value in PODS[name].items() if key not in ("serviceAccountName", "priorityClassName")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ours", "namespace": namespace}, "spec": spec}
    created = cluster.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(pod))
    assert json.loads(created)["metadata"]["name"] == "ours"


def test_the_api_server_takes_all_of_it_to_the_letter(cluster: Cluster) -> None:
    """Strict: a field that it does not know is an error. The namespace of the examples has to be there for that."""
    cluster.kubectl("apply", "-f", MANIFESTS / "crd" / "phaseprofiles.yaml")
    cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", FOLDER)
    with contextlib.suppress(ConflictException):  # whoever walked through the README here has left it
        cluster.core.create_namespace({"metadata": {"name": "research"}})
    for file in EXAMPLES:
        cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", file)
