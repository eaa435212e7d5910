"""The Helm chart renders what kustomize renders, rejects wrong values, and is installed, upgraded and removed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from extender.cli.main import cli
from recommender import __version__
from tests.contracts.absent import environment_without_left_out
from tests.manifests.installing import left_behind, rendered
from tests.manifests.reading import MANIFESTS, OVERLAYS, ROOT
from tests.rig import building, servers
from tests.rig.autoscaling import create_vpa, recommendation
from tests.rig.cluster import Cluster
from tests.rig.recommender import start_recommender
from tests.rig.simulated.usage import Usage, drive_usage
from tests.rig.waiting import wait_until
from tests.rig.workloads import pod_spec, resources, roll_out

Helm = Callable[..., str]
Json = dict[str, Any]
ELSEWHERE = "phasewise-system"
PARTS = ("extender.enabled=true", "web.enabled=true", "monitoring.enabled=true", "controller.moves=plan")
ALL_PARTS = tuple(word for part in PARTS for word in ("--set", part))
WRONG = {
    "recommender.replicas=two": "got string, want integer",
    "recommender.arguments={--publish=observe}": "additional properties 'arguments' not allowed",
    "recommender.args={publish=observe}": "does not match pattern",
    "controller.moves=often": "must be one of 'off', 'plan', 'act'",
    "image.pullPolicy=Sometimes": "must be one of 'Always', 'IfNotPresent', 'Never'",
    "extender.enabled=yes": "got string, want boolean",
}


PLACED: Json = {
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "priorityClassName": "important",
    "podAnnotations": {"team": "ml"},
    "volumes": [{"name": "token", "secret": {"secretName": "prometheus"}}],
    "volumeMounts": [{"name": "token", "mountPath": "/token"}],
}
"""Where pods run, and what they get besides."""


@pytest.fixture(scope="module")
def helm(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Runs Helm with a home of its own; fails with its output."""
    program = building.build_one(servers.helm())["helm"]
    home = tmp_path_factory.mktemp("helm")

    def run(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
        environment = {"HOME": str(home), "KUBECONFIG": str(kubeconfig or home / "none")}
        result = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
        if result.returncode:
            raise AssertionError(result.stdout + result.stderr)
        return result.stdout

    return run


def template(helm: Helm, *options: str | Path, namespace: str = "kube-system") -> list[Json]:
    """The objects of the chart for the Kubernetes version of the scheduler in the manifests."""
    text = helm("template", "phasewise", MANIFESTS, "-n", namespace, "--kube-version", scheduler_version(), *options)
    return [document for document in yaml.safe_load_all(text) if document]


def scheduler_version() -> str:
    """The version of the scheduler image in the manifests."""
    text = (MANIFESTS / "extender" / "scheduler.yaml").read_text()
    return text.partition("registry.k8s.io/kube-scheduler:")[2].split()[0]


def by_name(documents: Sequence[Json]) -> dict[tuple[str, str], Json]:
    """Objects by kind and name, without the annotation that keeps the custom resource definition on uninstall."""
    for each in documents:
        if each["kind"] == "CustomResourceDefinition":
            assert each["metadata"].pop("annotations", {}) in ({}, {"helm.sh/resource-policy": "keep"})
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def containers(documents: Sequence[Json]) -> dict[str, Json]:
    """The containers of all Deployments, by name."""
    deployments = (each for each in documents if each["kind"] == "Deployment")
    return {one["name"]: one for each in deployments for one in each["spec"]["template"]["spec"]["containers"]}


def options_of(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parsed options of a container's program, which is not run."""
    _, *arguments = container["command"] if "command" in container else ["phasewise", *container["args"]]
    group: click.Command = cli
    while isinstance(group, click.Group):
        name, *arguments = arguments
        command = group.get_command(click.Context(cli), name)
        assert command is not None
        group = command
    return group.make_context(group.name, [each for each in arguments if not each.startswith("--config=")]).params


def test_helm_lint_finds_no_fault_in_the_chart(helm: Helm) -> None:
    for options in ((), ALL_PARTS):
        assert "0 chart(s) failed" in helm("lint", "--strict", MANIFESTS, *options)


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_the_chart_renders_what_kustomize_renders(helm: Helm, control_plane: Cluster, overlay: str) -> None:
    below = ("base",) if overlay == "base" else ("overlays", overlay)
    values = () if overlay == "base" else ("--values", MANIFESTS / "overlays" / overlay / "values.yaml")
    documents = template(helm, *values, "--set", "image.tag=latest")
    assert by_name(documents) == by_name(rendered(control_plane, *below))


def test_the_default_image_is_that_of_the_release_of_the_chart(helm: Helm) -> None:
    """A tag that moves would not be pulled again where a node has an older image."""
    images = {name: container["image"] for name, container in containers(template(helm, *ALL_PARTS)).items()}
    assert {image for name, image in images.items() if name != "scheduler"} == {f"phasewise:{__version__}"}


def test_in_another_namespace_all_objects_and_options_name_that_namespace(helm: Helm) -> None:
    documents = template(helm, *ALL_PARTS, namespace=ELSEWHERE)
    namespaces = {each["metadata"]["namespace"]: each for each in documents if "namespace" in each["metadata"]}
    assert namespaces.keys() == {ELSEWHERE, "kube-system"}
    assert namespaces["kube-system"]["metadata"]["name"] == "phasewise-scheduler-authentication"  # as its role is there
    programs = containers(documents)
    for name in ("recommender", "extender", "controller"):
        options = options_of(programs[name])
        assert (options.get("replicas.lease_namespace") or options["lease_namespace"]) == ELSEWHERE
    webhook = options_of(programs["webhook"])
    assert (webhook["namespace"], webhook["names"]) == (ELSEWHERE, (f"phasewise-webhook.{ELSEWHERE}.svc",))


def test_a_quota_allows_the_priority_of_the_pods_outside_kube_system(helm: Helm) -> None:
    """GKE refuses them otherwise. In kube-system they are allowed."""
    documents = template(helm, *ALL_PARTS, namespace=ELSEWHERE)
    (quota,) = (each["spec"] for each in documents if each["kind"] == "ResourceQuota")
    (scope,) = quota["scopeSelector"]["matchExpressions"]
    pods = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    priorities = {pod["priorityClassName"] for pod in pods if "priorityClassName" in pod}
    assert (scope["scopeName"], set(scope["values"])) == ("PriorityClass", priorities)
    assert "ResourceQuota" not in {each["kind"] for each in template(helm, *ALL_PARTS)}


def test_the_scheduler_image_has_the_version_of_the_cluster(helm: Helm) -> None:
    text = helm("template", "phasewise", MANIFESTS, *ALL_PARTS, "--kube-version", "v1.35.4-gke.100")
    programs = containers([document for document in yaml.safe_load_all(text) if document])
    assert programs["scheduler"]["image"] == "registry.k8s.io/kube-scheduler:v1.35.4"


def test_values_reach_the_program_they_are_for(helm: Helm) -> None:
    values = {
        "image": {"repository": "registry.example/phasewise", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "webhook": {"replicas": 3, "args": ["--scheduler-name=other"], "nodeSelector": {"pool": "system"}},
        "recommender": PLACED,
        "extender": {"enabled": True, "resources": {"requests": {"cpu": "1"}}},
    }
    documents = template(helm, "--set-json", json.dumps(values))
    programs = containers(documents)
    own_programs = {name: container for name, container in programs.items() if name != "scheduler"}
    assert {container["image"] for container in own_programs.values()} == {"registry.example/phasewise:1.2.3"}
    assert {container["imagePullPolicy"] for container in own_programs.values()} == {"Always"}
    webhook = by_name(documents)["Deployment", "phasewise-webhook"]["spec"]
    recommender = by_name(documents)["Deployment", "phasewise-recommender"]["spec"]["template"]
    for name in ("affinity", "topologySpreadConstraints", "priorityClassName"):
        assert recommender["spec"][name] == PLACED[name]
    assert recommender["metadata"]["annotations"]["team"] == "ml"
    assert PLACED["volumes"][0] in recommender["spec"]["volumes"]
    assert PLACED["volumeMounts"][0] in recommender["spec"]["containers"][0]["volumeMounts"]
    assert (webhook["replicas"], webhook["template"]["spec"]["nodeSelector"]) == (3, {"pool": "system"})
    assert webhook["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert options_of(programs["webhook"])["scheduler"] == "other"
    assert programs["extender"]["resources"] == {"requests": {"cpu": "1"}}
    assert programs["scheduler"]["resources"] != programs["extender"]["resources"]


def test_a_controller_that_only_plans_moves_may_write_its_plans_on_profiles_and_nothing_else(helm: Helm) -> None:
    role = by_name(template(helm, *ALL_PARTS))["ClusterRole", "phasewise-controller-moves"]
    assert role["rules"] == [
        {"apiGroups": ["phasewise.dev"], "resources": ["phaseprofiles"], "verbs": ["list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]},
        {"apiGroups": ["autoscaling.k8s.io"], "resources": ["verticalpodautoscalers"], "verbs": ["list", "watch"]},
        {"apiGroups": ["phasewise.dev"], "resources": ["phaseprofiles"], "verbs": ["patch"]},
    ]


@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_value_is_rejected_by_the_schema(helm: Helm, value: str) -> None:
    with pytest.raises(AssertionError, match="values don't meet the specifications") as refused:
        helm("template", "phasewise", MANIFESTS, "--set", value)
    assert WRONG[value] in str(refused.value)


def test_moves_without_the_controller_that_makes_them_are_rejected(helm: Helm) -> None:
    with pytest.raises(AssertionError, match=r"controller\.moves needs extender\.enabled=true"):
        helm("template", "phasewise", MANIFESTS, "--set", "controller.moves=plan")


def test_the_chart_has_the_version_of_the_program() -> None:
    chart = yaml.safe_load((MANIFESTS / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_a_release_is_installed_upgraded_works_and_is_removed_except_for_the_crd(
    helm: Helm, own: Cluster, tmp_path: Path
) -> None:
    admin = own.kubeconfig("admin")
    namespace = a_workload_with_a_vpa(own)
    helm("package", MANIFESTS, "--version", "0.0.9", "--destination", tmp_path)
    release = ("phasewise", "-n", ELSEWHERE)
    observing = (*ALL_PARTS, "--values", MANIFESTS / "overlays" / "observe" / "values.yaml")
    helm("install", *release, tmp_path / "phasewise-0.0.9.tgz", "--create-namespace", *observing, kubeconfig=admin)
    assert "--publish=observe" in in_force(own, "recommender")["args"]
    helm("upgrade", *release, MANIFESTS, *ALL_PARTS, kubeconfig=admin)
    (listed,) = json.loads(helm("list", "-n", ELSEWHERE, "-o", "json", kubeconfig=admin))
    assert (listed["chart"], listed["revision"], listed["status"]) == (f"phasewise-{__version__}", "2", "deployed")
    assert "--publish=observe" not in in_force(own, "recommender")["args"]

    recommends(own, namespace, tmp_path)
    makes_a_certificate(own)

    installed = template(helm, *ALL_PARTS, namespace=ELSEWHERE)
    helm("uninstall", *release, kubeconfig=admin)
    secret: Json = {"apiVersion": "v1", "kind": "Secret"}  # the certificate, and the state that Helm keeps of a release
    gone = [secret, *(each for each in installed if each["kind"] != "CustomResourceDefinition")]
    wait_until(lambda: not left_behind(own, gone), "all of it to be deleted", timeout_s=120)
    assert own.kubectl("get", "crd", "phaseprofiles.phasewise.dev", "-o", "name")


def in_force(own: Cluster, program: str) -> Json:
    """The container of a program in the API server."""
    deployment = json.loads(own.kubectl("get", "deployment", f"phasewise-{program}", "-n", ELSEWHERE, "-o", "json"))
    return containers([deployment])[program]


def a_workload_with_a_vpa(own: Cluster) -> str:
    """The namespace of a new workload. Once the policy is installed, annotations of simulated pods would be refused."""
    own.vpa_resources()
    own.metrics_server()
    nodes = own.start_nodes(1)
    namespace = own.namespace("team")
    (pod,) = roll_out(own, namespace, "steady", pod_spec(nodes.selector, resources({"cpu": "2", "memory": "8Gi"})))
    drive_usage(own, namespace, pod.metadata.name, Usage(0.4, 2.0**30, averaged_over_s=10))
    create_vpa(own, namespace, "steady", update_mode="Off")
    return namespace


def recommends(own: Cluster, namespace: str, tmp_path: Path) -> None:
    """The recommender of the release, with its rights, its arguments and the libraries of its image, serves the VPA."""
    account = own.service_account(ELSEWHERE, "phasewise-recommender")
    command, *options = in_force(own, "recommender")["args"]
    assert command == "recommender"
    options = [each for each in options if not each.startswith(("--address=", "--config="))]
    server = start_recommender(own, account, *options, environment=environment_without_left_out(tmp_path))
    wait_until(lambda: recommendation(own, namespace, "steady"), "a recommendation", timeout_s=180)
    server.stop()
    assert "No module named" not in server.log.read_text()


def makes_a_certificate(own: Cluster) -> None:
    """The webhook of the release, with its rights and its arguments, writes its Secret."""
    account = own.service_account(ELSEWHERE, "phasewise-webhook")
    options = [each for each in in_force(own, "webhook")["command"][1:] if not each.startswith("--address=")]
    address = f"--address=127.0.0.1:{own.ports.free()}"
    command = [sys.executable, "-m", "extender", *options, address, f"--kubeconfig={account}"]
    server = own.start("webhook", command, environment={"PYTHONPATH": str(ROOT)})
    query = ("get", "secret", "phasewise-webhook", "-n", ELSEWHERE, "-o", "jsonpath={.data}")
    wait_until(lambda: own.kubectl(*query), "its certificate", timeout_s=60)
    server.stop()
