"""What is rendered is taken by a real API server, upgraded from one overlay to the next, and removed without a trace
but the custom resource; slips of the pen are refused where they are applied; the alerts fire by promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from local_cluster.cluster import Cluster
from local_cluster.rig import KubectlFailed
from local_cluster.waiting import wait_until
from tests.manifests.installing import OPERATOR, left_behind, rendered
from tests.manifests.reading import MANIFESTS, OVERLAYS, alert_rules, queries

TYPOS = {
    "phasewise.dev/min-cpus": ("1", "no annotation of Phasewise: phasewise.dev/min-cpus"),
    "phasewise.dev/mode": ("InPlce", "one of Off"),
    "phasewise.dev/max-memory": ("2 GB", "positive quantities"),
    "phasewise.dev/min-cpu": ("0", "positive quantities"),
    "phasewise.dev/placement": ("packed", "pack or spread"),
    "phasewise.dev/explain": ("events", "an event alone"),
    "phasewise.dev/input-size": ("12Gi", "a positive number"),
}
RIGHT = {
    "phasewise.dev/mode": "InPlaceOrRecreate",
    "phasewise.dev/min-cpu": "250m",
    "phasewise.dev/max-memory": "2Gi",
    "phasewise.dev/placement": "spread",
    "phasewise.dev/explain": "event",
    "phasewise.dev/input-size": "1.2e6",
    "phasewise.dev/moves": "[]",
    "phasewise.dev/progress-log": r"loss is (?P<loss>\S+)",
    "example.com/min-cpus": "anything",
}


@pytest.fixture(scope="module")
def policy(own: Cluster) -> Cluster:
    """The control plane, once it refuses what the policy of annotations has it refuse."""
    own.apply(MANIFESTS / "recommender" / "annotations.yaml")
    wait_until(lambda: refused(own, job({"phasewise.dev/nothing": "1"})), "the policy to hold", timeout_s=60)
    return own


def arguments(documents: list[dict[str, Any]]) -> list[str]:
    """Of the recommender's container."""
    (found,) = (
        each
        for each in documents
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "phasewise-recommender"
    )
    given: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
    return given


def job(annotations: Mapping[str, str], **labels: str) -> dict[str, Any]:
    """A job that says of its pods what is given."""
    container = {"name": "main", "image": "busybox", "command": ["true"]}
    pod = {
        "metadata": {"annotations": dict(annotations)},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    metadata = {"generateName": "typo-", "namespace": "default", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}}


def refused(cluster: Cluster, body: Mapping[str, Any]) -> str:
    """What the API server says against it; empty where it is taken."""
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    except KubectlFailed as error:
        return str(error)
    return ""


def test_each_overlay_follows_the_one_before_and_what_was_installed_goes_without_a_trace(own: Cluster) -> None:
    everything: list[dict[str, Any]] = []
    for overlay in OVERLAYS:
        documents = rendered(own, "overlays", overlay)
        own.apply(*documents)
        everything += documents
        kept = own.kubectl("get", "deployment", "-n", "kube-system", "phasewise-recommender", "-o", "json")
        assert arguments([json.loads(kept)]) == arguments(documents)
    crds = [each for each in everything if each["kind"] == "CustomResourceDefinition"]
    assert {each["metadata"]["name"] for each in crds} == {"phaseprofiles.phasewise.dev"}
    gone = [each for each in everything if each["kind"] != "CustomResourceDefinition"]
    listing = json.dumps({"apiVersion": "v1", "kind": "List", "items": gone})
    own.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=listing)
    wait_until(lambda: not left_behind(own, gone), "all of it to be gone", timeout_s=60)
    assert left_behind(own, crds) == ["customresourcedefinition.apiextensions.k8s.io/phaseprofiles.phasewise.dev"]


def test_overlays_differ_in_what_they_are_called_for(own: Cluster) -> None:
    said = {overlay: set(arguments(rendered(own, "overlays", overlay))) for overlay in OVERLAYS}
    assert said["observe"] - said["extender"] == {"--publish=observe"}
    assert said["prometheus"] - said["extender"] == {"--prometheus=http://prometheus.monitoring.svc:9090"}
    assert said["waiting"] - said["extender"] == {"--resize-waiting"}
    assert {each.partition("=")[0] for each in said["large"] - said["extender"]} == {
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
def test_a_slip_of_the_pen_is_refused_when_it_is_applied(policy: Cluster, name: str) -> None:
    value, told = TYPOS[name]
    assert told in refused(policy, job({name: value}))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "typo", "annotations": {name: value}}}
    assert told in refused(policy, namespace)


def test_what_is_written_right_is_taken_and_what_is_not_ours_is_none_of_our_business(policy: Cluster) -> None:
    assert refused(policy, job(RIGHT)) == ""


def test_what_stood_there_before_may_stay(policy: Cluster) -> None:
    """Else nobody could take a finalizer off a pod that was made before the policy was there."""
    metadata = {"name": "older", "annotations": {"phasewise.dev/min-cpus": "1"}}
    policy.kubectl("delete", "validatingadmissionpolicybinding", "phasewise-annotations")
    older = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    wait_until(lambda: not refused(policy, older), "the policy to be lifted", timeout_s=60)
    policy.apply(older)
    policy.apply(MANIFESTS / "recommender" / "annotations.yaml")
    wait_until(lambda: refused(policy, job({"phasewise.dev/nothing": "1"})), "the policy to hold", timeout_s=60)
    policy.kubectl("label", "namespace", "older", "team=a")
    with pytest.raises(KubectlFailed, match="no annotation of Phasewise"):
        policy.kubectl("annotate", "namespace", "older", "phasewise.dev/min-cpus=2", "--overwrite")


def test_what_a_controller_makes_of_an_older_template_is_taken(policy: Cluster) -> None:
    def pod(**owner: object) -> dict[str, Any]:
        owners = [{"apiVersion": "apps/v1", "name": "older", "uid": "older", **owner}] if owner else []
        metadata = {"name": "older", "namespace": "default", "ownerReferences": owners}
        metadata["annotations"] = {"phasewise.dev/min-cpus": "1"}
        spec = {"containers": [{"name": "main", "image": "busybox"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    assert refused(policy, pod(kind="ReplicaSet", controller=True)) == ""
    for judged in (pod(), pod(kind="ReplicaSet"), pod(kind="JobSet", controller=True)):
        assert "no annotation of Phasewise" in refused(policy, judged)


def test_who_may_view_a_namespace_may_read_profiles_and_not_change_them(own: Cluster) -> None:
    own.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", MANIFESTS / "crd" / "access.yaml")
    own.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--user=vera", "-n", "default")

    def may(verb: str) -> bool:
        words = ("auth", "can-i", verb, "phaseprofiles.phasewise.dev", "-n", "default", "--as=vera")
        try:
            return own.kubectl(*words).strip() == "yes"
        except KubectlFailed:
            return False

    wait_until(lambda: may("list"), "the rules to be added to the role", timeout_s=60)
    assert may("get") and may("watch")
    assert not any(may(verb) for verb in ("create", "patch", "delete"))


def test_each_alert_fires_when_it_should_and_only_then(control_plane: Cluster, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "phasewise", "rules": alert_rules()}]}))
    played = Path(__file__).with_name("alerts.yaml")
    shutil.copy(played, tmp_path)
    promtool = control_plane.binaries["promtool"]
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / played.name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    fired = {test["alertname"] for group in yaml.safe_load(played.read_text())["tests"]
             for test in group["alert_rule_test"] if "exp_alerts" in test}  # fmt: skip
    assert fired == {rule["alert"] for rule in alert_rules()}


def test_every_query_of_a_panel_can_be_read_by_prometheus(control_plane: Cluster, tmp_path: Path) -> None:
    rules = [{"record": f"query_{number}", "expr": expression} for number, expression in enumerate(queries().values())]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool = control_plane.binaries["promtool"]
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
