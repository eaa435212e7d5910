"""The chart renders what kustomize renders, refuses wrong values, and is installed, upgraded and removed."""

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
from local_cluster import building, servers
from local_cluster.cluster import Cluster
from local_cluster.recommender import start_recommender
from local_cluster.simulated.usage import Usage, drive_usage
from local_cluster.vpa_objects import create_vpa, recommendation
from local_cluster.waiting import wait_until
from local_cluster.workloads import pod_spec, resources, roll_out
from recommender import __version__
from tests.contracts.absent import environment_without_left_out
from tests.manifests.installing import left_behind, rendered
from tests.manifests.reading import MANIFESTS, OVERLAYS, ROOT

Helm = Callable[..., str]
Json = dict[str, Any]
ELSEWHERE = "phasewise-system"
PARTS = ("extender.enabled=true", "web.enabled=true", "monitoring.enabled=true", "controller.moves=plan")
EVERYTHING = tuple(word for part in PARTS for word in ("--set", part))
WRONG = {
    "recommender.replicas=two": "got string, want integer",
    "recommender.arguments={--publish=observe}": "additional properties 'arguments' not allowed",
    "recommender.args={publish=observe}": "does not match pattern",
    "controller.moves=often": "must be one of 'off', 'plan', 'act'",
    "image.pullPolicy=Sometimes": "must be one of 'Always', 'IfNotPresent', 'Never'",
    "extender.enabled=yes": "got string, want boolean",
}


@pytest.fixture(scope="module")
def helm(control_plane: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Runs Helm with a home of its own; fails with what it said."""
    program = building.build_one(servers.helm())["helm"]
    home = tmp_path_factory.mktemp("helm")

    def run(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
        environment = {"HOME": str(home), "KUBECONFIG": str(kubeconfig or home / "none")}
        done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout

    return run


def template(helm: Helm, *options: str | Path, namespace: str = "kube-system") -> list[Json]:
    """The objects of the chart for the Kubernetes whose scheduler the manifests name."""
    text = helm("template", "phasewise", MANIFESTS, "-n", namespace, "--kube-version", scheduler_version(), *options)
    return [document for document in yaml.safe_load_all(text) if document]


def scheduler_version() -> str:
    """Of the image that the manifests name."""
    text = (MANIFESTS / "extender" / "scheduler.yaml").read_text()
    return text.partition("registry.k8s.io/kube-scheduler:")[2].split()[0]


def by_name(documents: Sequence[Json]) -> dict[tuple[str, str], Json]:
    """By kind and name; without what keeps the custom resource when a release goes."""
    for each in documents:
        if each["kind"] == "CustomResourceDefinition":
            assert each["metadata"].pop("annotations", {}) in ({}, {"helm.sh/resource-policy": "keep"})
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def containers(documents: Sequence[Json]) -> dict[str, Json]:
    """Of all Deployments, by name."""
    deployments = (each for each in documents if each["kind"] == "Deployment")
    return {one["name"]: one for each in deployments for one in each["spec"]["template"]["spec"]["containers"]}


def options_of(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a container's program makes of its arguments; nothing is run."""
    _, *words = container["command"] if "command" in container else ["phasewise", *container["args"]]
    group: click.Command = cli
    while isinstance(group, click.Group):
        name, *words = words
        found = group.get_command(click.Context(cli), name)
        assert found is not None
        group = found
    return group.make_context(group.name, [each for each in words if not each.startswith("--config=")]).params


def test_helm_finds_no_fault_in_it(helm: Helm) -> None:
    for options in ((), EVERYTHING):
        assert "0 chart(s) failed" in helm("lint", "--strict", MANIFESTS, *options)


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_it_renders_what_kustomize_renders(helm: Helm, control_plane: Cluster, overlay: str) -> None:
    below = ("base",) if overlay == "base" else ("overlays", overlay)
    values = () if overlay == "base" else ("--values", MANIFESTS / "overlays" / overlay / "values.yaml")
    assert by_name(template(helm, *values)) == by_name(rendered(control_plane, *below))


def test_in_another_namespace_everything_is_there_and_the_programs_know_it(helm: Helm) -> None:
    documents = template(helm, *EVERYTHING, namespace=ELSEWHERE)
    places = {each["metadata"]["namespace"]: each for each in documents if "namespace" in each["metadata"]}
    assert places.keys() == {ELSEWHERE, "kube-system"}
    assert places["kube-system"]["metadata"]["name"] == "phasewise-scheduler-authentication"  # its role is there
    found = containers(documents)
    for name in ("recommender", "extender", "controller"):
        given = options_of(found[name])
        assert (given.get("replicas.lease_namespace") or given["lease_namespace"]) == ELSEWHERE
    webhook = options_of(found["webhook"])
    assert (webhook["namespace"], webhook["names"]) == (ELSEWHERE, (f"phasewise-webhook.{ELSEWHERE}.svc",))


def test_the_scheduler_is_that_of_the_version_of_the_cluster(helm: Helm) -> None:
    text = helm("template", "phasewise", MANIFESTS, *EVERYTHING, "--kube-version", "v1.35.4-gke.100")
    found = containers([document for document in yaml.safe_load_all(text) if document])
    assert found["scheduler"]["image"] == "registry.k8s.io/kube-scheduler:v1.35.4"


def test_values_reach_the_program_that_they_are_of(helm: Helm) -> None:
    said = {
        "image": {"repository": "registry.example/phasewise", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "webhook": {"replicas": 3, "args": ["--scheduler-name=other"], "nodeSelector": {"pool": "system"}},
        "extender": {"enabled": True, "resources": {"requests": {"cpu": "1"}}},
    }
    documents = template(helm, "--set-json", json.dumps(said))
    found = containers(documents)
    ours = {name: container for name, container in found.items() if name != "scheduler"}
    assert {container["image"] for container in ours.values()} == {"registry.example/phasewise:1.2.3"}
    assert {container["imagePullPolicy"] for container in ours.values()} == {"Always"}
    webhook = by_name(documents)["Deployment", "phasewise-webhook"]["spec"]
    assert (webhook["replicas"], webhook["template"]["spec"]["nodeSelector"]) == (3, {"pool": "system"})
    assert webhook["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert options_of(found["webhook"])["scheduler"] == "other"
    assert found["extender"]["resources"] == {"requests": {"cpu": "1"}}
    assert found["scheduler"]["resources"] != found["extender"]["resources"]


def test_who_only_plans_moves_may_read_profiles_and_jobs_and_no_more(helm: Helm) -> None:
    role = by_name(template(helm, *EVERYTHING))["ClusterRole", "phasewise-controller-moves"]
    assert role["rules"] == [
        {"apiGroups": ["phasewise.dev"], "resources": ["phaseprofiles"], "verbs": ["list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]},
    ]


@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_value_is_refused_by_the_schema(helm: Helm, value: str) -> None:
    with pytest.raises(AssertionError, match="values don't meet the specifications") as refused:
        helm("template", "phasewise", MANIFESTS, "--set", value)
    assert WRONG[value] in str(refused.value)


def test_its_version_is_that_of_the_program() -> None:
    chart = yaml.safe_load((MANIFESTS / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_it_is_installed_upgraded_works_and_goes_without_a_trace_but_the_custom_resource(
    helm: Helm, own: Cluster, tmp_path: Path
) -> None:
    admin = own.kubeconfig("admin")
    namespace = a_workload_with_a_vpa(own)
    helm("package", MANIFESTS, "--version", "0.0.9", "--destination", tmp_path)
    release = ("phasewise", "-n", ELSEWHERE)
    observing = (*EVERYTHING, "--values", MANIFESTS / "overlays" / "observe" / "values.yaml")
    helm("install", *release, tmp_path / "phasewise-0.0.9.tgz", "--create-namespace", *observing, kubeconfig=admin)
    assert "--publish=observe" in in_force(own, "recommender")["args"]
    helm("upgrade", *release, MANIFESTS, *EVERYTHING, kubeconfig=admin)
    (told,) = json.loads(helm("list", "-n", ELSEWHERE, "-o", "json", kubeconfig=admin))
    assert (told["chart"], told["revision"], told["status"]) == (f"phasewise-{__version__}", "2", "deployed")
    assert "--publish=observe" not in in_force(own, "recommender")["args"]

    recommends(own, namespace, tmp_path)
    makes_a_certificate(own)

    installed = template(helm, *EVERYTHING, namespace=ELSEWHERE)
    helm("uninstall", *release, kubeconfig=admin)
    made_besides: Json = {"apiVersion": "v1", "kind": "Secret"}  # the certificate, and what Helm keeps of a release
    gone = [made_besides, *(each for each in installed if each["kind"] != "CustomResourceDefinition")]
    wait_until(lambda: not left_behind(own, gone), "all of it to be gone", timeout_s=120)
    assert own.kubectl("get", "crd", "phaseprofiles.phasewise.dev", "-o", "name")


def in_force(own: Cluster, program: str) -> Json:
    """The container of a program, as the API server holds it."""
    found = json.loads(own.kubectl("get", "deployment", f"phasewise-{program}", "-n", ELSEWHERE, "-o", "json"))
    return containers([found])[program]


def a_workload_with_a_vpa(own: Cluster) -> str:
    """In a namespace of its own. The annotations of simulated pods would be refused once the policy is there."""
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
    given = [each for each in options if not each.startswith(("--address=", "--config="))]
    server = start_recommender(own, account, *given, environment=environment_without_left_out(tmp_path))
    wait_until(lambda: recommendation(own, namespace, "steady"), "a recommendation", timeout_s=180)
    server.stop()
    assert "No module named" not in server.log.read_text()


def makes_a_certificate(own: Cluster) -> None:
    """The webhook of the release, with its rights and its arguments, writes its Secret."""
    account = own.service_account(ELSEWHERE, "phasewise-webhook")
    given = [each for each in in_force(own, "webhook")["command"][1:] if not each.startswith("--address=")]
    address = f"--address=127.0.0.1:{own.ports.free()}"
    command = [sys.executable, "-m", "extender", *given, address, f"--kubeconfig={account}"]
    server = own.start("webhook", command, environment={"PYTHONPATH": str(ROOT)})
    told = ("get", "secret", "phasewise-webhook", "-n", ELSEWHERE, "-o", "jsonpath={.data}")
    wait_until(lambda: own.kubectl(*told), "its certificate", timeout_s=60)
    server.stop()
