"""The extender's manifests match the programs: commands, probes, rights, leases, policies, image and examples."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import click
import pytest
import yaml

from extender.cli.controller import LEASE as CONTROLLER_LEASE
from extender.cli.main import cli
from extender.cli.webhook import CONNECTIONS, LIMITS
from extender.gangs.member import GATE, RESERVED_NODE
from extender.gangs.waking import ANNOTATION as RETRY
from extender.pods.pod import GANG_LABEL, GROUPS
from extender.pods.reservations import CONFIG_MAP
from extender.web.app import BodyLimits
from extender.web.server import MAX_CONNECTIONS
from extender.web.service import LEASE as EXTENDER_LEASE
from recommender.cluster.objects.quantities import parse_quantity
from tests.rig.installing import MANIFESTS, configuration, documents
from tests.rig.played_http import Reply, played
from tests.rig.rig import ROOT
from tests.rig.rights import rights_in, roles_in

FOLDER = MANIFESTS / "extender"
OBJECTS = documents()
PODS = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in OBJECTS if each["kind"] == "Deployment"}
CONTAINERS = {container["name"]: container for spec in PODS.values() for container in spec["containers"]}
OURS = [pytest.param(each, id=name) for name, each in CONTAINERS.items() if each["command"][0] == "phasewise"]
POLICY = "ValidatingAdmissionPolicy"
EXAMPLES = sorted((MANIFESTS / "examples").glob("placement-*.yaml"))


def options_of(command: list[str]) -> Mapping[str, Any]:
    """The options that the program parses from a container's command; nothing is run."""
    group: click.Command = cli
    context, rest = click.Context(cli), command[1:]
    while isinstance(group, click.Group):
        name, *rest = rest
        found = group.get_command(context, name)
        assert found is not None, name
        group = found
    return group.make_context(group.name, list(rest)).params


def test_scheduler_and_extender_share_a_pod_and_the_two_others_have_their_own() -> None:
    assert sorted(CONTAINERS) == ["controller", "extender", "scheduler", "webhook"]
    assert {container["name"] for container in PODS["phasewise-scheduler"]["containers"]} == {"scheduler", "extender"}


@pytest.mark.parametrize("container", OURS)
def test_each_command_is_valid_and_listens_on_the_probed_port(container: Mapping[str, Any]) -> None:
    host, _, port = options_of(container["command"])["address"].rpartition(":")
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = container[kind]
        if host == "127.0.0.1":  # not reachable from outside the pod
            assert f"127.0.0.1:{port}/" in probe["exec"]["command"][-1]
        else:
            assert probe["httpGet"]["port"] in {each["name"] for each in container["ports"]}
            assert [str(each["containerPort"]) for each in container["ports"]] == [port]
    assert port in re.findall(r"^EXPOSE (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0].split()


@pytest.mark.parametrize("kind", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_by_a_command_asks_the_extender_and_not_a_proxy_of_the_environment(kind: str) -> None:
    with played(lambda _: Reply()) as extender:
        *_, code = CONTAINERS["extender"][kind]["exec"]["command"]
        code = re.sub(r":[0-9]+/", f":{extender.port}/", code)
        subprocess.run([sys.executable, "-c", code], env={"HTTP_PROXY": "http://127.0.0.1:9"}, check=True)
    assert [each.path for each in extender.asked] == ["/readyz" if kind == "readinessProbe" else "/healthz"]


@pytest.mark.parametrize("container", OURS)
def test_each_image_is_that_of_the_project_and_contains_the_command(container: Mapping[str, Any]) -> None:
    assert container["image"] == "phasewise:latest"
    words = " ".join(each for each in container["command"] if not each.startswith("--"))
    assert f"{words} --help > /dev/null" in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("name", ["webhook", "controller", "extender"])
def test_connections_and_bodies_fit_into_the_memory_limit(name: str) -> None:
    """With 100 MiB for everything else. Anybody can open the maximum number of connections to the two workers of the
    webhook, and send them bodies that take forty times their size to parse."""
    limit_bytes = parse_quantity(CONTAINERS[name]["resources"]["limits"]["memory"])
    bodies = LIMITS if name == "webhook" else BodyLimits()
    needed_bytes = max(bodies.total_bytes, bodies.largest_bytes)
    needed_bytes += (CONNECTIONS if name == "webhook" else MAX_CONNECTIONS) * (40 << 10)
    if name == "webhook":
        needed_bytes = 2 * (needed_bytes + 40 * bodies.largest_bytes)
    assert needed_bytes + (100 << 20) < limit_bytes


@pytest.mark.parametrize("name", PODS)
def test_every_account_exists_and_no_pod_uses_our_own_scheduler(name: str) -> None:
    spec = PODS[name]
    assert spec["serviceAccountName"] in {o["metadata"]["name"] for o in OBJECTS if o["kind"] == "ServiceAccount"}
    assert spec.get("schedulerName", "default-scheduler") == "default-scheduler"


def test_rights_to_leases_name_those_that_the_programs_hold() -> None:
    held = {"rbac.yaml": EXTENDER_LEASE, "controller.yaml": CONTROLLER_LEASE, "scheduler.yaml": "phasewise-scheduler"}
    for file, name in held.items():
        rights = rights_in(roles_in(FOLDER / file))
        assert {right.name for right in rights if right.resource == "leases" and right.verb != "create"} == {name}


def test_leases_are_installed_and_so_are_removed_with_the_rest() -> None:
    leases = {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "Lease"}
    assert leases == {CONTROLLER_LEASE, "phasewise-scheduler"}


def test_the_scheduler_asks_the_extender_in_its_pod() -> None:
    config = configuration(OBJECTS)
    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == f"http://{options_of(CONTAINERS['extender']['command'])['address']}"
    (profile,) = config["profiles"]
    assert (profile["schedulerName"],) == options_of(CONTAINERS["extender"]["command"])["schedulers"]
    assert profile["schedulerName"] == options_of(CONTAINERS["webhook"]["command"])["scheduler"]
    assert config["leaderElection"]["resourceName"] == "phasewise-scheduler"


def test_score_plugins_weigh_less_than_one_point_of_ours_and_one_spreads_pods_without_us() -> None:
    """Those of weight 1; preferences by taints, affinity or spread are the pod's own, and may outvote us."""
    config = configuration(OBJECTS)
    (profile,), (extender,) = config["profiles"], config["extenders"]
    off = {each["name"] for each in profile["plugins"]["score"]["disabled"]}
    left = {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality"} - off
    assert left == {"NodeResourcesFit"}
    assert len(left) * 100 < extender["weight"] * 10
    assert config["clientConnection"]["qps"] > 50


def test_the_webhook_is_called_for_all_groups_that_the_controller_knows() -> None:
    hook = next(o for o in OBJECTS if o["kind"] == "MutatingWebhookConfiguration")["webhooks"][0]
    assert set(re.findall(r"'([^']+)'", hook["matchConditions"][0]["expression"])) == {name for name, _ in GROUPS}
    service = hook["clientConfig"]["service"]
    host = f"{service['name']}.{service['namespace']}.svc"
    assert host in options_of(CONTAINERS["webhook"]["command"])["names"]


def test_one_account_may_write_reservations_and_two_may_read_them() -> None:
    (config_map,) = [each for each in OBJECTS if each["metadata"]["name"] == CONFIG_MAP]
    assert (config_map["kind"], config_map["metadata"]["namespace"]) == ("ConfigMap", "kube-system")
    rights = {file.name: rights_in(roles_in(file)) for file in FOLDER.glob("*.yaml")}
    allowed = {(f, r.verb, r.name) for f, granted in rights.items() for r in granted if r.resource == "configmaps"}
    assert allowed == {
        ("controller.yaml", "get", CONFIG_MAP),
        ("controller.yaml", "update", CONFIG_MAP),
        ("rbac.yaml", "list", CONFIG_MAP),
        ("rbac.yaml", "watch", CONFIG_MAP),
    }
    for command in ("controller", "extender"):
        assert options_of(CONTAINERS[command]["command"])["lease_namespace"] == "kube-system"


def test_no_account_may_create_a_secret_or_read_another_than_its_own() -> None:
    """Whoever may create secrets in kube-system may have one filled with the token of any account there."""
    (secret,) = [each for each in OBJECTS if each["kind"] == "Secret"]
    assert secret["metadata"]["name"] == options_of(CONTAINERS["webhook"]["command"])["secret"]
    assert not secret.keys() & {"data", "stringData", "type"}
    rights = {
        each for file in FOLDER.glob("*.yaml") for each in rights_in(roles_in(file)) if each.resource == "secrets"
    }
    assert {(each.verb, each.name) for each in rights} == {(verb, "phasewise-webhook") for verb in ("get", "update")}


def test_the_annotations_that_the_controller_writes_are_reserved_for_it() -> None:
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


def test_a_pod_of_a_gang_is_denied_without_the_gate_that_the_controller_opens() -> None:
    """How the API server applies it is tested on a cluster."""
    (policy,) = [o["spec"] for o in OBJECTS if o["kind"] == POLICY and named_as(o, "phasewise-gang-gate")]
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "UPDATE"])
    refuses, named = policy["validations"][0]["expression"], policy["variables"][0]["expression"]
    for words in ("labels", "annotations"):
        assert f"has(object.metadata.{words}) && '{GANG_LABEL}' in object.metadata.{words}" in named
    assert refuses.startswith("!variables.named || variables.namedBefore ||")
    assert f"object.spec.schedulingGates.exists(gate, gate.name == '{GATE}')" in refuses


def named_as(manifest: Mapping[str, Any], name: str) -> bool:
    return bool(manifest["metadata"]["name"] == name)


def test_the_examples_name_existing_files_and_classes() -> None:
    text = "\n".join(file.read_text() for file in EXAMPLES)
    for file in re.findall(r"manifests/[\w./-]+\.yaml", text):
        assert (ROOT / file).is_file(), file
    objects = [each for file in EXAMPLES for each in yaml.safe_load_all(file.read_text())]
    learned = {each["metadata"]["name"].removeprefix("class.") for each in objects if each["kind"] == "PhaseProfile"}
    jobs = {each["metadata"]["name"] for each in objects if each["kind"] == "Job"}
    assert learned == jobs - {"ring"}, "the gang is judged by its requests"
