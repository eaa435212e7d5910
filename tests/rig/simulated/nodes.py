"""Simulated nodes (kwok) with real objects, heartbeats and pod lifecycles.

Optional annotations of a pod control what a simulated node does with it.

| Annotation of a pod | Effect |
|---|---|
| `phasewise.dev/starts-after-s` | seconds from scheduling to running (0) |
| `phasewise.dev/runs-for-s` | whole seconds after which its containers end (never) |
| `phasewise.dev/exit-code` | their exit code (0); the restart policy is followed |
| `phasewise.dev/stops-after-s` | seconds to stop after deletion (0), within its grace period |
| `phasewise.dev/resize` | `Infeasible` or `Deferred`: the node refuses resizes |
| `phasewise.dev/cpu.<container>` | CPU demand of a container, a quantity (`usage.set_usage`) |
| `phasewise.dev/memory.<container>` | its memory, a quantity |
| `phasewise.dev/memory-series.<container>` | memory of a played series (`usage.drive_usage`) |

A container whose memory exceeds its limit is killed and restarted (`OOMKilled`, exit code 137, restart counted) until
the limit is raised; with `restartPolicy: Never` its pod fails. CPU above the limit is throttled. Resizes are done at
once. To simulate an outage of nodes, pause the server (`cluster.servers["kwok"].pause()`): they are NotReady after
50 s, and Ready again within a second of `resume()`.

Objects, scheduling and everything in the control plane are real. Not simulated: containers, cgroups, probes, volumes,
images, exec, logs, back-off of restarts, and the kubelet's admission (a resize that does not fit on the node is done
all the same). Each node itself uses 10m of CPU and 64 MiB. A pod that has ended is still reported, with no memory and
no further CPU, unlike by a real kubelet. Usage is bounded by the limits of the spec, even while a resize is refused.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from kubernetes.client import V1Node
from kubernetes.client.exceptions import NotFoundException

from recommender.base.units import format_time
from tests.rig.rig import LOOPBACK, Rig
from tests.rig.simulated.kwok import METRICS_PATH, SIMULATED_LABEL, kwok_port, kwok_server, metrics_url
from tests.rig.versions import kubernetes_version
from tests.rig.waiting import wait_until

GROUP_LABEL = "phasewise.dev/group"
MACHINE = {"os": "linux", "arch": "amd64"}
PARALLEL_REQUESTS = 8
"""Number of parallel requests."""

T = TypeVar("T")


@dataclass(frozen=True)
class SimulatedNodes:
    """A group of simulated nodes: their `names` (`<group>-0` and so on), and the node `selector` of the group."""

    rig: Rig
    group: str
    names: tuple[str, ...]

    @property
    def selector(self) -> dict[str, str]:
        return {GROUP_LABEL: self.group}

    def metrics_url(self, name: str) -> str:
        return metrics_url(self.rig, name)

    def pods(self) -> list[tuple[str, str]]:
        names = set(self.names)
        bound = listed(self.rig.core.list_pod_for_all_namespaces, field_selector="spec.nodeName!=")
        metadata = (pod["metadata"] for pod in bound if pod["spec"]["nodeName"] in names)
        return [(one["namespace"], one["name"]) for one in metadata]

    def listed(self) -> list[dict[str, Any]]:
        return listed(self.rig.core.list_node, label_selector=f"{GROUP_LABEL}={self.group}")

    def remove(self) -> None:
        """Delete the nodes and their pods."""
        core = self.rig.core
        core.delete_collection_node(label_selector=f"{GROUP_LABEL}={self.group}")
        wait_until(lambda: not self.listed(), f"the nodes of {self.group} to go")

        def delete(pod: tuple[str, str]) -> None:
            with contextlib.suppress(NotFoundException):  # it was deleted already
                core.delete_namespaced_pod(pod[1], pod[0], grace_period_seconds=0)

        in_parallel(delete, self.pods())


def start_simulated_nodes(rig: Rig, group: str, count: int, cpu: str, memory: str) -> SimulatedNodes:
    """Create a group of `count` nodes of this size (quantities), and wait until pods can be scheduled to all."""
    kwok_server(rig)
    capacity = {"cpu": cpu, "memory": memory, "pods": "250", "ephemeral-storage": "100Gi"}
    nodes = SimulatedNodes(rig, group, tuple(f"{group}-{number}" for number in range(count)))
    in_parallel(lambda name: rig.core.create_node(_node(name, group, kwok_port(rig), capacity)), nodes.names)
    wait_until(
        lambda: sum(map(_usable, nodes.listed())) == count,
        f"{count} simulated nodes of {group} to be Ready",
        timeout_s=60 + count / 5,
        every_s=min(0.1 + count / 500, 1.0),
    )
    return nodes


def _node(name: str, group: str, port: int, capacity: Mapping[str, str]) -> V1Node:
    """A node that is Ready from the start: one that first has to become Ready costs five times the requests."""
    architecture = {f"{beta}kubernetes.io/{what}": value for beta in ("", "beta.") for what, value in MACHINE.items()}
    own = {SIMULATED_LABEL: "true", GROUP_LABEL: group, "kubernetes.io/hostname": name}
    unknown = ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID")
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    now = format_time(time.time())
    condition = {"reason": "Simulated", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**architecture, **own},
            "annotations": {"metrics.k8s.io/resource-metrics-path": METRICS_PATH.format(node=name)},
        },
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "addresses": [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": status, **condition}
                for kind, status in {"Ready": "True", **dict.fromkeys(pressures, "False")}.items()
            ],
            "nodeInfo": {
                "kubeletVersion": f"v{kubernetes_version()}",
                "containerRuntimeVersion": "simulated://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
                **dict.fromkeys(unknown, ""),
            },
        },
    }
    return V1Node.model_validate(node)


def _usable(node: Mapping[str, Any]) -> bool:
    """Whether it is Ready and has lost the not-ready taint."""
    ready = {"type": "Ready", "status": "True"}.items()
    taints = (taint["key"] for taint in node["spec"].get("taints", ()))
    return any(ready <= condition.items() for condition in node["status"].get("conditions", ())) and not any(
        key.startswith("node.kubernetes.io/") for key in taints
    )


def listed(listing: Callable[..., Any], *where: str, **arguments: Any) -> list[dict[str, Any]]:
    """Items of a list request as plain dicts; for hundreds of items the client's own objects take seconds."""
    answer = listing(*where, _preload_content=False, **arguments)
    items: list[dict[str, Any]] = json.loads(answer.data)["items"]
    return items


def in_parallel(act: Callable[[T], object], these: Iterable[T]) -> None:
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        list(pool.map(act, these))  # raises exceptions of the calls
