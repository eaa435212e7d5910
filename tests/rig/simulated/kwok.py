"""The kwok server of a cluster, one process for the kubelets of all simulated nodes, and how their containers end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.rig.control_plane import POD_RANGE, serving_certificate
from tests.rig.processes import Server
from tests.rig.rig import LOOPBACK, Rig
from tests.rig.waiting import wait_until

HERE = Path(__file__).parent
WHAT_ENDS_FIRST = (HERE / "what-ends-first.jq").read_text()
MAX_WATCHED_CONTAINERS = 4
"""Containers per pod that are watched for memory: a stage cannot loop, so each has its own."""

EXIT_CODE = '(.metadata.annotations["phasewise.dev/exit-code"] // "0")'
STARTED_AGAIN = f'(.spec.restartPolicy == "Always" or (.spec.restartPolicy == "OnFailure" and {EXIT_CODE} != "0"))'

PLANNED = """
{{ $code := get (.metadata.annotations | default dict) "phasewise.dev/exit-code" | default "0" | atoi }}
{{ $reason := ternary "Completed" "Error" (eq $code 0) }}
"""
KILLED = """
{{ $code := 137 }}
{{ $reason := "OOMKilled" }}
"""
ENDED = """
{{ $now := Now }}
{{ $chosen := CHOSEN }}
containerStatuses:
{{ range $index, $status := .status.containerStatuses }}
{{ if WHICH }}
{{ $why := ternary $reason "Error" (or (eq $chosen -1) (eq $chosen $index)) }}
{{ $ended := dict "exitCode" $code "reason" $why "startedAt" $status.state.running.startedAt "finishedAt" $now }}
{{ $_ := set $ended "containerID" $status.containerID }}
AFTERWARDS
{{ end }}
- {{ $status | toJson }}
{{ end }}
"""
STARTED = """
{{ $again := add1 (int $status.restartCount) }}
{{ $_ := set $status "restartCount" $again }}
{{ $_ := set $status "containerID" (printf "simulated://%s/%s/%d" $.metadata.uid $status.name $again) }}
{{ $_ := set $status "lastState" (dict "terminated" $ended) }}
{{ $_ := set $status "state" (dict "running" (dict "startedAt" $now)) }}
"""
STOPPED = """
{{ $_ := set $status "ready" false }}
{{ $_ := set $status "started" false }}
{{ $_ := set $status "state" (dict "terminated" $ended) }}
"""
FINISHED = """
phase: {{ ternary "Succeeded" "Failed" (eq $code 0) }}
conditions:
{{ $how := ternary "PodCompleted" "PodFailed" (eq $code 0) }}
{{ range list "Ready" "ContainersReady" }}
- {type: {{ . }}, status: "False", reason: {{ $how }}, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
"""
NOTED = """
metadata:
  annotations:
    {{ $chosen := CHOSEN }}
    {{ range $index, $container := .status.containerStatuses }}
    {{ if WHICH }}
    phasewise.dev/restarted-at.{{ $container.name }}: "{{ now | unixEpoch }}"
    {{ end }}
    {{ end }}
"""
"""Usage expressions cannot read container statuses, so the time of a restart is also stored in an annotation."""


def ending_stages() -> list[dict[str, Any]]:
    """All stages: a planned end with and without restart, and the same for each container that may be killed."""
    stages = [
        _stage("pod-ends", "all", f"{STARTED_AGAIN} | not", PLANNED, again=False),
        _stage("pod-starts-again", "all", STARTED_AGAIN, PLANNED, again=True),
    ]
    for index in range(MAX_WATCHED_CONTAINERS):
        which = str(index)
        stages.append(_stage(f"container-killed-{which}", which, '.spec.restartPolicy != "Never"', KILLED, again=True))
        stages.append(_stage(f"pod-killed-{which}", which, '.spec.restartPolicy == "Never"', KILLED, again=False))
    return stages


def _stage(name: str, who: str, condition: str, why: str, *, again: bool) -> dict[str, Any]:
    def filled(template: str) -> str:
        which = "eq $chosen $index" if again and who != "all" else "true"  # all containers of a failed pod end
        return template.replace("WHICH", which).replace("CHOSEN", "-1" if who == "all" else who)

    status = why + ENDED.replace("AFTERWARDS", STARTED if again else STOPPED) + ("" if again else FINISHED)
    steps = [{"subresource": "status", "root": "status", "template": filled(status)}]
    if again:
        steps.append({"template": filled(NOTED)})
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {
                "matchExpressions": [
                    {"jq": {"key": condition, "operator": "In", "values": ["true"]}},
                    {"jq": {"key": f"{WHAT_ENDS_FIRST} | .who", "operator": "In", "values": [who]}},
                ]
            },
            "delay": {"durationFrom": {"jq": {"expression": f"{WHAT_ENDS_FIRST} | .at | rfc3339"}}},
            "steps": [{"patch": {"type": "strategic", **step}} for step in steps],
        },
    }


SIMULATED_LABEL = "phasewise.dev/simulated"
METRICS_PATH = "/metrics/nodes/{node}/metrics/resource"
"""Path of the metrics that a real kubelet serves at `/metrics/resource` and `/metrics/cadvisor`."""

KINDS = ("Stage", "Metric", "ResourceUsage", "ClusterResourceUsage")
"""Custom kinds in use; each further one costs kwok work at the change of any other."""
LEASE_S = 100
"""kwok renews a lease four times in this: rare enough for 500 nodes, and well within the 50 s until NotReady."""


def kwok_server(rig: Rig) -> Server:
    """The kwok server of this cluster, started on the first call."""
    return rig.servers.get("kwok") or _start(rig)


def kwok_port(rig: Rig) -> int:
    """TLS port of kwok, as the kubelet of every simulated node."""
    return int((rig.folder / "kwok" / "port").read_text())


def metrics_url(rig: Rig, node: str) -> str:
    return f"https://{LOOPBACK}:{kwok_port(rig)}{METRICS_PATH.format(node=node)}"


def _start(rig: Rig) -> Server:
    folder = rig.folder / "kwok"
    folder.mkdir()
    port = rig.ports.free()
    (folder / "port").write_text(str(port))
    _apply_resources(rig)
    empty = folder / "config.yaml"
    empty.write_text("")  # otherwise it would read one from the home folder
    command: list[str | Path] = [
        rig.binaries["kwok"],
        f"--kubeconfig={rig.kubeconfig('kwok')}",
        f"--config={empty}",
        f"--manage-nodes-with-label-selector={SIMULATED_LABEL}=true",
        f"--node-ip={LOOPBACK}",
        f"--node-port={port}",
        f"--server-address={LOOPBACK}:{port}",
        f"--node-lease-duration-seconds={LEASE_S}",
        f"--cidr={POD_RANGE}",
        f"--enable-crds={','.join(KINDS)}",
        *serving_certificate(rig),
    ]
    return rig.start("kwok", command, ready=rig.answers(f"https://{LOOPBACK}:{port}/healthz"))


def _apply_resources(rig: Rig) -> None:
    """Apply custom resources, the role and flow schema of kwok's manifests for its certificate, stages and metrics."""
    upstream = rig.binaries.manifests("kwok", "kustomize")
    schema: dict[str, Any] = yaml.safe_load((upstream / "rbac" / "flow_schema.yaml").read_text())
    for rule in schema["spec"]["rules"]:  # in the queue of ordinary users, 500 nodes would miss heartbeats
        rule["subjects"] = [{"kind": "User", "user": {"name": "kwok"}}]
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kwok-controller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kwok-controller"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "kwok"}],
    }
    kinds = (upstream / "crd" / "bases" / f"kwok.x-k8s.io_{kind.lower()}s.yaml" for kind in KINDS)
    rig.apply(*kinds, upstream / "rbac" / "role.yaml", binding, schema)

    def established() -> bool:
        crds: Any = rig.custom.list_cluster_custom_object("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        ours = [crd["status"]["conditions"] for crd in crds["items"] if crd["spec"]["group"] == "kwok.x-k8s.io"]
        served = {"type": "Established", "status": "True"}.items()
        return len(ours) == len(KINDS) and all(any(served <= one.items() for one in conditions) for conditions in ours)

    wait_until(established, "kwok's custom resources to be served", every_s=0.05, timeout_s=60)
    node_stages = ("fast/node-initialize.yaml", "heartbeat-with-lease/node-heartbeat-with-lease.yaml")
    rig.apply(*(upstream / "stage" / "node" / stage for stage in node_stages), HERE / "stages", *ending_stages())
    rig.apply(HERE / "metrics.yaml", HERE / "usage-from-annotations.yaml")
