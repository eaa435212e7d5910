"""A real API server accepts the rendered manifests, upgrades from overlay to overlay, and removal of all but the custom
resource definition; the annotation policy refuses typos; promtool tests the alerts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.installing import OPERATOR, left_behind, rendered
from tests.manifests.reading import MANIFESTS, OVERLAYS, ROOT, alert_rules, queries
from tests.rig.cluster import Cluster
from tests.rig.rig import KubectlFailed
from tests.rig.waiting import wait_until

TYPOS = {
    "phasewise.dev/min-cpus": ("1", "no annotation of Phasewise: phasewise.dev/min-cpus"),
    "phasewise.dev/mode": ("InPlce", "one of Off"),
    "phasewise.dev/max-memory": ("2 GB", "positive quantities"),
    "phasewise.dev/min-cpu": ("0", "positive quantities"),
    "phasewise.dev/placement": ("packed", "pack or spread"),
    "phasewise.dev/explain": ("events", "an event alone"),
    "phasewise.dev/input-size": ("12Gi", "a positive number"),
    "phasewise.dev/gang-size": ("six", "a positive integer"),
    "phasewise.dev/target-kills": ("1%", "shares above 0"),
    "phasewise.dev/target-violation": ("0.6", "at most 0.5"),
    "phasewise.dev/weights": ("complement=3,specom=1", "pairs of a scorer and a number"),
}
CONTAINER = {"name": "main", "image": "busybox", "command": ["true"]}
VALID = {
    "phasewise.dev/mode": "InPlaceOrRecreate",
    "phasewise.dev/min-cpu": "250m",
    "phasewise.dev/max-memory": "2Gi",
    "phasewise.dev/placement": "spread",
    "phasewise.dev/explain": "event",
    "phasewise.dev/input-size": "1.2e6",
    "phasewise.dev/gang-size": "10",
    "phasewise.dev/target-kills": "0.001",
    "phasewise.dev/target-violation": ".05",
    "phasewise.dev/weights": "complement = 3, specon=.5,pack=1e3,\n",
    "phasewise.dev/moves": "[]",
    "phasewise.dev/progress-log": r"loss is (?P<loss>\S+)",
    "example.com/min-cpus": "anything",
}


@pytest.fixture(scope="module")
def policy(own: Cluster) -> Cluster:
    """The control plane, once it enforces the annotation policy."""
    own.apply(MANIFESTS / "recommender" / "annotations.yaml")
    wait_until(lambda: refusal(own, job({"phasewise.dev/nothing": "1"})), "the policy to hold", timeout_s=60)
    return own


def arguments(documents: list[dict[str, Any]]) -> list[str]:
    """The arguments of the recommender's container."""
    (found,) = (
        each
        for each in documents
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "phasewise-recommender"
    )
    args: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def job(annotations: Mapping[str, str], **labels: str) -> dict[str, Any]:
    """A Job with these annotations on its pods."""
    pod = {
        "metadata": {"annotations": dict(annotations)},
        "spec": {"restartPolicy": "Never", "containers": [CONTAINER]},
    }
    metadata = {"generateName": "typo-", "namespace": "default", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}}


def controller(api_version: str, kind: str, of_pods: Mapping[str, str], **metadata: Any) -> dict[str, Any]:
    """A controller with these annotations on its pods."""
    labels = {"app": "typo"}
    pod = {"metadata": {"labels": labels, "annotations": dict(of_pods)}, "spec": {"containers": [CONTAINER]}}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    return {
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "typo", "namespace": "default", **metadata},
        "spec": {"selector": selector, "template": pod},
    }  # fmt: skip


def refusal(cluster: Cluster, body: Mapping[str, Any]) -> str:
    """Why the API server refuses an object; empty if it accepts it."""
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    except KubectlFailed as error:
        return str(error)
    return ""


def test_each_overlay_replaces_the_previous_one_and_all_but_the_crd_is_removed(own: Cluster) -> None:
    everything: list[dict[str, Any]] = []
    for overlay in OVERLAYS:
        documents = rendered(own, "overlays", overlay)
        own.apply(*documents)
        everything += documents
        live = own.kubectl("get", "deployment", "-n", "kube-system", "phasewise-recommender", "-o", "json")
        assert arguments([json.loads(live)]) == arguments(documents)
    crds = [each for each in everything if each["kind"] == "CustomResourceDefinition"]
    assert {each["metadata"]["name"] for each in crds} == {"phaseprofiles.phasewise.dev"}
    removed = [each for each in everything if each["kind"] != "CustomResourceDefinition"]
    listing = json.dumps({"apiVersion": "v1", "kind": "List", "items": removed})
    own.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=listing)
    wait_until(lambda: not left_behind(own, removed), "all of it to be deleted", timeout_s=60)
    assert left_behind(own, crds) == ["customresourcedefinition.apiextensions.k8s.io/phaseprofiles.phasewise.dev"]


def documented(own: Cluster, page: str, folder: Path) -> list[dict[str, Any]]:
    """What the kustomization in a page renders beside the folder of the manifests."""
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "how-to" / page).read_text(), re.DOTALL)
    (folder / "kustomization.yaml").write_text(textwrap.dedent(example))
    shutil.copytree(MANIFESTS, folder / "manifests")
    return [each for each in yaml.safe_load_all(own.kubectl("kustomize", folder)) if each]


def test_the_documented_combination_of_overlays_has_their_objects_their_options_and_its_images(
    own: Cluster, tmp_path: Path
) -> None:
    combined = documented(own, "install-recommender.md", tmp_path)
    assert {"--prometheus=http://prometheus.monitoring.svc:9090", "--resize-waiting"} < set(arguments(combined))
    pods = [each["spec"]["template"]["spec"] for each in combined if each["kind"] == "Deployment"]
    images = {container["image"] for pod in pods for container in pod["containers"]}
    assert images == {"registry.example/phasewise:0.1.0", "registry.k8s.io/kube-scheduler:v1.35.4"}
    parts = ("extender", "prometheus", "waiting", "web")
    named = {(each["kind"], each["metadata"]["name"]) for part in parts for each in rendered(own, "overlays", part)}
    assert {(each["kind"], each["metadata"]["name"]) for each in combined} == named


def test_the_documented_patch_serves_the_pages_by_https_and_probes_them_so(own: Cluster, tmp_path: Path) -> None:
    patched = [each for each in documented(own, "web.md", tmp_path) if each["metadata"]["name"] == "phasewise-web"]
    by_kind = {each["kind"]: each["spec"] for each in patched if "spec" in each}
    pod = by_kind["Deployment"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][-2:] == ["--tls-certificate=/tls/tls.crt", "--tls-key=/tls/tls.key"]
    assert [each["name"] for each in container["volumeMounts"]] == [each["name"] for each in pod["volumes"]]
    schemes = {container[kind]["httpGet"]["scheme"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert schemes == {"HTTPS"}
    assert by_kind["Service"]["ports"] == [{"name": "http", "port": 443, "targetPort": "http"}]


def test_the_documented_patch_mounts_the_token_for_pushed_progress_where_the_recommender_reads_it(
    own: Cluster, tmp_path: Path
) -> None:
    patched = documented(own, "training-progress.md", tmp_path)
    assert arguments(patched)[-1] == "--progress-token-file=/progress/token"
    (pod,) = (each["spec"]["template"]["spec"] for each in patched if each["kind"] == "Deployment")
    assert {"name": "progress", "mountPath": "/progress", "readOnly": True} in pod["containers"][0]["volumeMounts"]
    assert {"name": "progress", "secret": {"secretName": "phasewise-progress"}} in pod["volumes"]


def test_overlays_differ_by_the_options_they_are_named_for(own: Cluster) -> None:
    options = {overlay: set(arguments(rendered(own, "overlays", overlay))) for overlay in OVERLAYS}
    assert options["observe"] - options["extender"] == {"--publish=observe"}
    assert options["prometheus"] - options["extender"] == {"--prometheus=http://prometheus.monitoring.svc:9090"}
    assert options["waiting"] - options["extender"] == {"--resize-waiting"}
    assert {each.partition("=")[0] for each in options["large"] - options["extender"]} == {
        "--kube-api-qps", "--kube-api-burst", "--update-worker-count",
    }  # fmt: skip
    (controller,) = (
        each
        for each in rendered(own, "overlays", "moves")
        if each["metadata"]["name"] == "phasewise-controller" and each["kind"] == "Deployment"
    )
    assert "--moves=act" in controller["spec"]["template"]["spec"]["containers"][0]["command"]
    kinds = {each["kind"] for each in rendered(own, "overlays", "prometheus")}
    assert kinds > OPERATOR.keys()


@pytest.mark.parametrize("name", TYPOS)
def test_a_typo_in_an_annotation_is_refused(policy: Cluster, name: str) -> None:
    value, message = TYPOS[name]
    assert message in refusal(policy, job({name: value}))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "typo", "annotations": {name: value}}}
    assert message in refusal(policy, namespace)


def test_valid_annotations_and_those_of_others_are_accepted(policy: Cluster) -> None:
    assert refusal(policy, job(VALID)) == ""


def test_invalid_annotations_older_than_the_policy_may_stay(policy: Cluster) -> None:
    """Otherwise no finalizer could be removed from a pod that is older than the policy."""
    metadata = {"name": "older", "annotations": {"phasewise.dev/min-cpus": "1"}}
    policy.kubectl("delete", "validatingadmissionpolicybinding", "phasewise-annotations")
    older = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    wait_until(lambda: not refusal(policy, older), "the policy to be lifted", timeout_s=60)
    policy.apply(older)
    policy.apply(MANIFESTS / "recommender" / "annotations.yaml")
    wait_until(lambda: refusal(policy, job({"phasewise.dev/nothing": "1"})), "the policy to hold", timeout_s=60)
    policy.kubectl("label", "namespace", "older", "team=a")
    with pytest.raises(KubectlFailed, match="no annotation of Phasewise"):
        policy.kubectl("annotate", "namespace", "older", "phasewise.dev/min-cpus=2", "--overwrite")


def test_pods_that_a_controller_creates_from_an_older_template_are_accepted(policy: Cluster) -> None:
    def pod(**owner: object) -> dict[str, Any]:
        owners = [{"apiVersion": "apps/v1", "name": "older", "uid": "older", **owner}] if owner else []
        metadata = {"name": "older", "namespace": "default", "ownerReferences": owners}
        metadata["annotations"] = {"phasewise.dev/min-cpus": "1"}
        spec = {"containers": [{"name": "main", "image": "busybox"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    assert refusal(policy, pod(kind="ReplicaSet", controller=True)) == ""
    for refused_pod in (pod(), pod(kind="ReplicaSet"), pod(kind="JobSet", controller=True)):
        assert "no annotation of Phasewise" in refusal(policy, refused_pod)


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("apps/v1", "DaemonSet"), ("apps/v1", "ReplicaSet"), ("v1", "ReplicationController")],
)
def test_a_typo_is_refused_with_the_controller_and_not_with_the_pods_that_an_older_one_creates(
    policy: Cluster, api_version: str, kind: str
) -> None:
    typo = {"phasewise.dev/min-cpus": "1"}
    assert "no annotation of Phasewise" in refusal(policy, controller(api_version, kind, typo))
    assert "no annotation of Phasewise" in refusal(policy, controller(api_version, kind, {}, annotations=typo))
    assert refusal(policy, controller(api_version, kind, VALID)) == ""
    owner = {"apiVersion": api_version, "kind": kind, "name": "older", "uid": "older", "controller": True}
    metadata = {"name": "older", "namespace": "default", "annotations": typo, "ownerReferences": [owner]}
    assert (
        refusal(policy, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [CONTAINER]}})
        == ""
    )


def test_a_replica_set_that_an_older_deployment_or_rollout_creates_is_accepted(policy: Cluster) -> None:
    typo = {"phasewise.dev/min-cpus": "1"}
    for api_version, kind in (("apps/v1", "Deployment"), ("argoproj.io/v1alpha1", "Rollout")):
        owner = {"apiVersion": api_version, "kind": kind, "name": "older", "uid": "older", "controller": True}
        assert (
            refusal(policy, controller("apps/v1", "ReplicaSet", typo, annotations=typo, ownerReferences=[owner])) == ""
        )


def test_users_who_may_view_a_namespace_may_read_profiles_but_not_change_them(own: Cluster) -> None:
    own.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", MANIFESTS / "crd" / "access.yaml")
    own.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--user=vera", "-n", "default")

    def may(verb: str) -> bool:
        command = ("auth", "can-i", verb, "phaseprofiles.phasewise.dev", "-n", "default", "--as=vera")
        try:
            return own.kubectl(*command).strip() == "yes"
        except KubectlFailed:
            return False

    wait_until(lambda: may("list"), "the rules to be added to the role", timeout_s=60)
    assert may("get") and may("watch")
    assert not any(may(verb) for verb in ("create", "patch", "delete"))


def test_each_alert_fires_when_it_should_and_only_then(control_plane: Cluster, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "phasewise", "rules": alert_rules()}]}))
    tests_file = Path(__file__).with_name("alerts.yaml")
    shutil.copy(tests_file, tmp_path)
    promtool = control_plane.binaries["promtool"]
    result = subprocess.run(
        [promtool, "test", "rules", tmp_path / tests_file.name], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    fired = {test["alertname"] for group in yaml.safe_load(tests_file.read_text())["tests"]
             for test in group["alert_rule_test"] if "exp_alerts" in test}  # fmt: skip
    assert fired == {rule["alert"] for rule in alert_rules()}


def test_every_query_of_a_panel_is_valid_promql(control_plane: Cluster, tmp_path: Path) -> None:
    rules = [{"record": f"query_{number}", "expr": expression} for number, expression in enumerate(queries().values())]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool = control_plane.binaries["promtool"]
    result = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
