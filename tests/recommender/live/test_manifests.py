"""The manifests and the image fit the program: arguments are options, probes are served, rights suffice."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from recommender.cli.grouped import keys_of
from recommender.cli.main import COMMANDS, cli
from recommender.cli.recommender import ENVIRONMENT
from recommender.cli.recommender import command as recommender
from recommender.cluster.access.connection import connect
from recommender.live.outside.model_source import ModelWatch, model_source
from tests.rig.cluster import Cluster
from tests.rig.rig import KubectlFailed
from tests.rig.waiting import wait_until

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "manifests" / "recommender"


def one(file: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = (each for each in yaml.safe_load_all((FOLDER / file).read_text()) if each and each["kind"] == kind)
    return found


def pod_specs() -> Iterator[tuple[str, Mapping[str, Any]]]:
    deployment = one("deployment.yaml", "Deployment")
    yield "deployment", deployment["spec"]["template"]["spec"]
    yield "training", one("training.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def containers() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, spec in pod_specs():
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            yield f"{where}-{container['name']}", container


SPECS = [pytest.param(spec, id=where) for where, spec in pod_specs()]
CONTAINERS = [pytest.param(container, id=where) for where, container in containers()]
WITH_ARGUMENTS = [parameter for parameter in CONTAINERS if "args" in parameter.values[0]]


@pytest.mark.parametrize("container", WITH_ARGUMENTS)
def test_the_arguments_of_a_container_are_options_of_the_command(container: Mapping[str, Any], tmp_path: Path) -> None:
    """The settings file that they name is replaced; nothing is run."""
    arguments = [str(argument) for argument in container["args"]]
    assert arguments[0] in COMMANDS
    settings = tmp_path / "settings.yaml"
    settings.write_text(one("deployment.yaml", "ConfigMap")["data"]["settings.yaml"])
    group: click.Command = cli
    context = click.Context(cli)
    while isinstance(group, click.Group):
        name, *arguments = arguments
        found = group.get_command(context, name)
        assert found is not None
        group = found
    given = [argument.replace("/etc/phasewise/settings.yaml", str(settings)) for argument in arguments]
    group.make_context(group.name, given)


def test_the_settings_are_options_of_the_recommender() -> None:
    keys = {key for option in recommender.params if isinstance(option, click.Option) for key in keys_of(option)}
    assert yaml.safe_load(one("deployment.yaml", "ConfigMap")["data"]["settings.yaml"]).keys() <= keys


def test_the_comments_on_a_trained_model_name_its_variable_and_configmap() -> None:
    text = (FOLDER / "training.yaml").read_text()
    name = one("training.yaml", "ConfigMap")["metadata"]["name"]
    assert f"{ENVIRONMENT}_MODEL=configmap:kube-system/{name}" in text
    assert f"--configmap=kube-system/{name}" in text


def test_the_documented_command_moves_the_training_and_its_rights_to_another_namespace() -> None:
    (line,) = (
        line for line in (ROOT / "docs" / "how-to" / "models.md").read_text().splitlines() if line.startswith("sed ")
    )
    output = subprocess.check_output(
        ["sh", "-c", line.partition("|")[0]], cwd=ROOT, env={**os.environ, "namespace": "phasewise-system"}, text=True
    )
    assert output.count("phasewise-system") == (FOLDER / "training.yaml").read_text().count("kube-system")
    binding = next(
        found
        for found in yaml.safe_load_all(output)
        if found["kind"] == "RoleBinding" and found["metadata"]["name"] == "phasewise-model"
    )
    assert [subject["namespace"] for subject in binding["subjects"]] == ["phasewise-system"]


def test_two_replicas_elect_a_leader_with_a_lease_that_the_role_allows() -> None:
    deployment, role = one("deployment.yaml", "Deployment"), one("rbac.yaml", "Role")
    assert deployment["spec"]["replicas"] >= 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--leader-elect" in container["args"]
    defaults = recommender.make_context("recommender", []).params
    leases = [rule for rule in role["rules"] if rule["resources"] == ["leases"] and "resourceNames" in rule]
    assert [rule["resourceNames"] for rule in leases] == [[defaults["replicas.lease_name"]]]
    assert role["metadata"]["namespace"] == defaults["replicas.lease_namespace"]
    assert one("rbac.yaml", "Lease")["metadata"]["name"] == defaults["replicas.lease_name"]  # deleted with the rest
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    assert account == one("rbac.yaml", "ServiceAccount")["metadata"]["name"]
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 10


def test_probes_and_service_use_the_port_that_is_served() -> None:
    spec = one("deployment.yaml", "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (port,) = container["ports"]
    address = recommender.make_context("recommender", container["args"][2:]).params["address"]
    assert address == f":{port['containerPort']}"
    paths = {kind: container[kind]["httpGet"] for kind in ("readinessProbe", "livenessProbe", "startupProbe")}
    assert {kind: probe["path"] for kind, probe in paths.items()} == {
        "readinessProbe": "/readyz",
        "livenessProbe": "/healthz",
        "startupProbe": "/healthz",
    }
    assert {probe["port"] for probe in paths.values()} == {port["name"]}
    service = one("deployment.yaml", "Service")
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert service["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


@pytest.mark.parametrize("spec", SPECS)
def test_each_container_has_the_image_it_needs(spec: Mapping[str, Any]) -> None:
    all_containers = (*spec.get("initContainers", ()), *spec["containers"])
    trains = any("train" in container["args"] for container in all_containers)
    assert {container["image"] for container in all_containers} == {f"phasewise{'-offline' if trains else ''}:latest"}


def test_the_final_stage_of_the_image_builds_nothing_and_is_not_root() -> None:
    last = (ROOT / "Dockerfile").read_text().split("\nFROM ")[-1]
    assert "pip install" not in last
    assert "apt-get" not in last
    assert "USER 65532:65532" in last
    assert {spec["securityContext"]["runAsUser"] for _, spec in pod_specs()} == {65532}


def test_the_image_starts_with_the_kernels_compiled_at_its_build() -> None:
    """The start copies them from where the build put them to a folder that the pods may write to."""
    stages = (ROOT / "Dockerfile").read_text().split("\nFROM ")
    (build,) = (stage for stage in stages if " AS build\n" in stage)
    last = stages[-1]
    assert "NUMBA_CACHE_DIR=/opt/phasewise/kernels" in build
    assert "NUMBA_CACHE_DIR=/tmp/kernels" in last
    assert "COPY scripts/start-in-image /opt/phasewise/start/phasewise" in last
    assert "ENV PATH=/opt/phasewise/start:/opt/phasewise/bin:$PATH" in last
    assert "!scripts/start-in-image" in (ROOT / ".dockerignore").read_text().splitlines()
    for _, spec in pod_specs():
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Folders as in the image, with a program that prints its arguments and the compiled file."""
    for folder in ("start", "bin", "kernels", "tmp"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "scripts" / "start-in-image", tmp_path / "start" / "phasewise")
    (tmp_path / "kernels" / "compiled").write_text("first")
    program = tmp_path / "bin" / "phasewise"
    program.write_text('#!/bin/sh\necho "$#: $*"; cat "$NUMBA_CACHE_DIR/compiled" 2> /dev/null; exit 3\n')
    program.chmod(0o755)
    return tmp_path


def run_start(image: Path, cache: Path, *before: str) -> tuple[int, str, str]:
    """Run the start after shell commands in the same process, so that `$$` is the same."""
    command = ["/bin/sh", "-ec", "\n".join((*before, 'exec "$@"')), "sh"]
    command += [str(image / "start" / "phasewise"), "explain", "two words"]
    done = subprocess.run(
        command, env={"NUMBA_CACHE_DIR": str(cache), "PATH": os.defpath}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_compiled_kernels_are_copied_once(image: Path) -> None:
    cache = image / "tmp" / "kernels"
    assert run_start(image, cache) == (3, "2: explain two words\nfirst", "")
    (image / "kernels" / "compiled").write_text("second")
    assert run_start(image, cache) == (3, "2: explain two words\nfirst", "")
    assert [path.name for path in (image / "tmp").iterdir()] == ["kernels"]


def test_an_incomplete_copy_of_an_interrupted_start_is_replaced(image: Path) -> None:
    interrupted = ('mkdir -p "$NUMBA_CACHE_DIR.$$"', 'echo half > "$NUMBA_CACHE_DIR.$$/compiled"')
    assert run_start(image, image / "tmp" / "kernels", *interrupted) == (3, "2: explain two words\nfirst", "")
    assert [path.name for path in (image / "tmp" / "kernels").iterdir()] == ["compiled"]


def test_the_program_starts_although_the_cache_cannot_be_written(image: Path) -> None:
    assert run_start(image, image / "absent" / "kernels") == (3, "2: explain two words\n", "")


# -- on a real API server ----------------------------------------------------------------------------------------------


def test_the_trainer_may_only_publish_the_model_and_the_recommender_only_watch_it(
    cluster: Cluster, vpa: Cluster
) -> None:
    cluster.apply(ROOT / "manifests" / "crd" / "phaseprofiles.yaml", FOLDER / "rbac.yaml", FOLDER / "training.yaml")
    trainer = cluster.service_account("kube-system", "phasewise-trainer")
    watcher = cluster.service_account("kube-system", "phasewise-recommender")
    events: list[str] = []
    api = connect(watcher, user_agent="test")
    watch = ModelWatch(
        model_source("configmap:kube-system/phasewise-model", lambda: api),
        lambda loaded, problem: events.append(problem or (loaded.model.origin if loaded else "")),
    )
    assert watch.load_first().model.origin == "bundled"
    bundled = ROOT / "recommender" / "data" / "model"
    publish = ["model", "publish", str(bundled), "--kubeconfig", str(trainer), "--configmap"]
    cli.main([*publish, "kube-system/phasewise-model"], standalone_mode=False)

    def adopted() -> bool:
        watch.refresh(lambda model: None)
        return events[-1] == "configmap:kube-system/phasewise-model"

    wait_until(adopted, "the published model to be adopted", timeout_s=20)
    watch.stop()
    for verb, name, account in (
        ("get", "phasewise-model", watcher),
        ("patch", "another", trainer),
        ("create", "", trainer),
    ):
        target = f"configmap/{name}" if name else "configmaps"
        with pytest.raises(KubectlFailed):  # can-i answers no
            cluster.kubectl("auth", "can-i", verb, target, "-n", "kube-system", "--as", user_of(account))


def user_of(kubeconfig: Path) -> str:
    namespace, _, name = kubeconfig.name.partition(".")
    return f"system:serviceaccount:{namespace}:{name}"
