"""Nodes without a machine behind them (kwok): as many as wanted, with real objects, heartbeats and pod lifecycles.

What a simulated node does with a pod is told by annotations of the pod. All are optional.

| Annotation of a pod | What it does |
|---|---|
| `phasewise.dev/starts-after-s` | it runs that long after it was scheduled, instead of at once |
| `phasewise.dev/runs-for-s` | its containers end that long after they started (whole seconds), instead of never |
| `phasewise.dev/exit-code` | with which exit code they end (0); the restart policy is followed |
| `phasewise.dev/stops-after-s` | how long it takes to stop when deleted (0), within its grace period |
| `phasewise.dev/resize` | `Infeasible` or `Deferred`: the node refuses resizes, as long as it stands there |
| `phasewise.dev/cpu.<container>` | the cores that a container wants to use, a quantity (`usage.set_usage` writes it) |
| `phasewise.dev/memory.<container>` | the memory that it uses, a quantity |
| `phasewise.dev/memory-series.<container>` | the memory of a driven series (`usage.drive_usage` writes it) |

A container whose memory passes its limit is killed and started again (`OOMKilled`, exit code 137, restart counted)
until the limit is raised; with `restartPolicy: Never` its pod fails. CPU above the limit is throttled. A resize is
acknowledged at once. To see nodes fall silent, pause the server (`cluster.servers["kwok"].pause()`): 50 s later they
are NotReady, and well again within a second of `resume()`.

Real are the objects, the scheduling and everything that the control plane does. Not real: containers, cgroups, probes,
volumes, images, exec, logs, the back-off between restarts, and a kubelet's own admission (a resize that does not fit on
the node is acknowledged all the same). Each node uses 10m of CPU and 64 MiB itself. A pod that has ended goes on being
reported, with no memory and no further CPU, where a kubelet would fall silent about it. Usage is bounded by the limits
of the spec, also while a resize to them is refused.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from kubernetes.client.exceptions import NotFoundException

from local_cluster.rig import LOOPBACK, Rig
from local_cluster.simulated.kwok import METRICS_PATH, SIMULATED_LABEL, kwok_port, kwok_server, metrics_url
from local_cluster.versions import kubernetes_version
from local_cluster.waiting import wait_until

GROUP_LABEL = "phasewise.dev/group"
MACHINE = {"os": "linux", "arch": "amd64"}
AT_A_TIME = 8
"""Requests at a time, of those that come by the hundred."""

T = TypeVar("T")


@dataclass(frozen=True)
class SimulatedNodes:
    """A group of simulated nodes.

    Attributes
    ----------
    names
        Their names: `<group>-0` and so on.
    selector
        The node selector that only this group's nodes satisfy.
    """

    rig: Rig
    group: str
    names: tuple[str, ...]

    @property
    def selector(self) -> dict[str, str]:
        return {GROUP_LABEL: self.group}

    def metrics_url(self, name: str) -> str:
        """Where the node of that name is scraped: by https, under the cluster's authority."""
        return metrics_url(self.rig, name)

    def pods(self) -> list[tuple[str, str]]:
        """Namespace and name of every pod bound to one of these nodes."""
        names = set(self.names)
        bound = listed(self.rig.core.list_pod_for_all_namespaces, field_selector="spec.nodeName!=")
        metadata = (pod["metadata"] for pod in bound if pod["spec"]["nodeName"] in names)
        return [(one["namespace"], one["name"]) for one in metadata]

    def remove(self) -> None:
        """Delete the nodes and the pods on them, as when machines are switched off and given up."""
        self.rig.core.delete_collection_node(label_selector=f"{GROUP_LABEL}={self.group}")
        selector = f"{GROUP_LABEL}={self.group}"
        wait_until(
            lambda: not listed(self.rig.core.list_node, label_selector=selector), f"the nodes of {self.group} to go"
        )
        at_a_time(lambda pod: _force_delete(self.rig, *pod), self.pods())


def start_simulated_nodes(
    rig: Rig,
    group: str,
    count: int,
    *,
    cpu: str,
    memory: str,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    extended: Mapping[str, str] | None = None,
) -> SimulatedNodes:
    """Create `count` nodes of one group and return once pods can be scheduled to all of them.

    Parameters
    ----------
    cpu, memory
        Capacity of each, all of it allocatable, as quantities.
    labels, taints
        Besides those that every node has.
    extended
        Further resources of each (`{"nvidia.com/gpu": "4"}`).
    """
    kwok_server(rig)
    capacity = {"cpu": cpu, "memory": memory, "pods": "250", "ephemeral-storage": "100Gi", **(extended or {})}
    nodes = SimulatedNodes(rig, group, tuple(f"{group}-{number}" for number in range(count)))

    def create(name: str) -> None:
        rig.core.create_node(_node(name, group, kwok_port(rig), capacity, labels or {}, taints))

    at_a_time(create, nodes.names)
    wait_until(
        lambda: _usable(rig, group) == count,
        f"{count} simulated nodes of {group} to be Ready",
        timeout_s=60 + count / 5,
        every_s=min(0.1 + count / 500, 1.0),
    )
    return nodes


def _node(
    name: str,
    group: str,
    port: int,
    capacity: Mapping[str, str],
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]],
) -> dict[str, Any]:
    architecture = {f"{beta}kubernetes.io/{what}": value for beta in ("", "beta.") for what, value in MACHINE.items()}
    own = {SIMULATED_LABEL: "true", GROUP_LABEL: group, "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**architecture, **labels, **own},
            "annotations": {"metrics.k8s.io/resource-metrics-path": METRICS_PATH.format(node=name)},
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "phase": "Running",
            "conditions": _conditions(),
            "nodeInfo": {
                "kubeletVersion": f"v{kubernetes_version()}",
                "containerRuntimeVersion": "simulated://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
                **dict.fromkeys(
                    ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID"), ""
                ),
            },
        },
    }


def _conditions() -> list[dict[str, str]]:
    """All is well from the start: a node that first has to become Ready costs five times the requests."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    states = {
        "Ready": "True",
        **dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"), "False"),
    }
    return [
        {
            "type": kind,
            "status": status,
            "reason": "Simulated",
            "message": "",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status in states.items()
    ]


def _usable(rig: Rig, group: str) -> int:
    """How many nodes are Ready and have lost the taint that keeps pods away until then."""
    nodes = listed(rig.core.list_node, label_selector=f"{GROUP_LABEL}={group}")
    return sum(
        any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"].get("conditions", ())
        )
        and not any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"].get("taints", ()))
        for node in nodes
    )


def listed(listing: Callable[..., Any], *where: str, **arguments: Any) -> list[dict[str, Any]]:
    """The items of a listing as plain dicts; with hundreds of them the client's own objects cost seconds."""
    answer = listing(*where, _preload_content=False, **arguments)
    items: list[dict[str, Any]] = json.loads(answer.data)["items"]
    return items


def _force_delete(rig: Rig, namespace: str, name: str) -> None:
    with contextlib.suppress(NotFoundException):  # it was gone already
        rig.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def at_a_time(act: Callable[[T], None], these: Iterable[T]) -> None:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(act, these))  # what was raised is raised here
