"""A node with a real kubelet, containerd and runc: real containers in real cgroups."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from kubernetes.client import ApiException, V1Pod
from urllib3.exceptions import HTTPError

from tests.rig.processes import ProcessRecord, end_processes
from tests.rig.real_node.cgroups import Cgroup, kill_all_in, make_node_cgroup, pin_node_cgroup, remove_cgroup
from tests.rig.real_node.kubelet import (
    IMAGE,
    LABEL,
    TAINT,
    check_size,
    socket_of,
    start_containerd,
    start_kubelet,
    start_mounts,
)
from tests.rig.real_node.network import NodeNetwork, claim_network, what_is_missing
from tests.rig.required import required
from tests.rig.rig import Rig, clusters_folder, end_recorded
from tests.rig.waiting import wait_until

__all__ = ["TAINT", "TOLERATION", "RealNode", "clear_real_nodes", "start_real_node", "what_is_missing"]

TOLERATION = {"key": LABEL, "operator": "Exists"}
RUNNING_TIMEOUT_S = 90.0
ANSWER_TIMEOUT_S = 5.0
"""When a node is removed; without etcd the API server does not answer at all."""
RECORDS = "real-nodes"
SERVERS = ("kubelet", "containerd", "mounts")
"""A node's servers in the order in which they are stopped; their names in the cluster start with the node's."""


@dataclass(frozen=True)
class NodeRecord:
    """Changes of a node to the machine, written to disk beforehand, so that any process can undo them."""

    name: str
    cgroup: str
    network_number: int

    @classmethod
    def all_in(cls, cluster_folder: Path, name: str = "*") -> list[NodeRecord]:
        files = sorted((cluster_folder / RECORDS).glob(f"{name}.json"))
        return [cls(**json.loads(file.read_text())) for file in files]

    def write(self, cluster_folder: Path) -> None:
        (cluster_folder / RECORDS).mkdir(exist_ok=True)
        aside = cluster_folder / RECORDS / f"{self.name}.part"
        aside.write_text(json.dumps(asdict(self)))
        aside.replace(aside.with_suffix(".json"))

    def take_down(self, cluster_folder: Path) -> None:
        """Remove what is left of the node: processes, network, control groups, folder, record."""
        kubelet, containerd, mounts = (f"{self.name}-{part}" for part in SERVERS)
        end_recorded(cluster_folder, [kubelet])  # first: it would restart the others
        kill_all_in(self.cgroup)
        end_processes(_shims(socket_of(cluster_folder, self.name)))
        end_recorded(cluster_folder, [containerd, mounts])
        NodeNetwork(self.network_number).remove()
        remove_cgroup(self.cgroup)
        shutil.rmtree(cluster_folder / self.name, ignore_errors=True)
        (cluster_folder / RECORDS / f"{self.name}.json").unlink(missing_ok=True)


class RealNode:
    """A real node of a cluster.

    `name`: Name in the cluster.
    `selector`, `toleration`: `nodeSelector` and toleration that a pod needs to run there.
    `image`: The only image (busybox); use it with `imagePullPolicy: Never`.
    `cgroup`: Its control group, which limits all its containers together.
    """

    image = IMAGE
    toleration = TOLERATION

    def __init__(self, rig: Rig, record: NodeRecord) -> None:
        self._rig = rig
        self._record = record
        self.name = record.name
        self.selector = {"kubernetes.io/hostname": record.name}
        self.cgroup = Cgroup(record.cgroup)

    @property
    def url(self) -> str:
        """URL of its kubelet: `/metrics/resource` and `/metrics/cadvisor`, for users who may read nodes/metrics."""
        endpoints = required(required(self._rig.core.read_node(self.name).status).daemon_endpoints)
        return f"https://{self.address}:{required(endpoints.kubelet_endpoint).port}"

    @property
    def address(self) -> str:
        return NodeNetwork(self._record.network_number).address

    def pod(
        self,
        name: str,
        command: Sequence[str] | str = ("sleep", "3600"),
        *,
        cpu: str | None = "10m",
        memory: str | None = "16Mi",
        limits: Mapping[str, str] | None = None,
        restart: str = "Never",
    ) -> dict[str, Any]:
        """A pod for this node with one container, `main`.

        `command`: Arguments, or a shell script.
        `cpu`, `memory`: Requests; None for none.
        `limits`: For example `{"cpu": "500m", "memory": "64Mi"}`.
        `restart`: Never, OnFailure or Always.
        """
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        requests = {key: value for key, value in {"cpu": cpu, "memory": memory}.items() if value is not None}
        container = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "Never",
            "command": words,
            "resources": {"requests": requests, "limits": dict(limits or {})},
        }
        spec = {
            "nodeSelector": self.selector,
            "tolerations": [self.toleration],
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 1,  # busybox as PID 1 ignores SIGTERM
            "automountServiceAccountToken": False,
            "containers": [container],
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def run(self, namespace: str, pod: Mapping[str, Any]) -> V1Pod:
        """Create a pod and wait until it runs (or has run)."""
        name = pod["metadata"]["name"]
        self._rig.core.create_namespaced_pod(namespace, V1Pod.model_validate(pod))
        return self.wait_for_phase(namespace, name, "Running", "Succeeded", "Failed")

    def wait_for_phase(self, namespace: str, name: str, *phases: str, timeout_s: float = RUNNING_TIMEOUT_S) -> V1Pod:
        def there() -> V1Pod | None:
            pod = self._rig.core.read_namespaced_pod(name, namespace)
            return pod if required(pod.status).phase in phases else None

        return wait_until(there, f"pod {namespace}/{name} to be {' or '.join(phases)}", timeout_s=timeout_s)

    def cgroup_of(self, namespace: str, pod: str) -> Cgroup:
        return self.cgroup_in(self._rig.core.read_namespaced_pod(pod, namespace))

    def cgroup_in(self, pod: V1Pod) -> Cgroup:
        (status,) = required(required(pod.status).container_statuses)
        identity = required(status.container_id).removeprefix("containerd://")
        return Cgroup(f"{self.pod_cgroup(pod).name}/{identity}")

    def pod_cgroup(self, pod: V1Pod) -> Cgroup:
        """Control group of a pod, which exists once the kubelet has seen the pod."""
        quality = required(required(pod.status).qos_class)
        folder = {"Guaranteed": "", "Burstable": "burstable/", "BestEffort": "besteffort/"}[quality]
        return Cgroup(f"{self.cgroup.name}/kubepods/{folder}pod{required(pod.metadata).uid}")

    def log(self, namespace: str, pod: str) -> str:
        return self._rig.kubectl("logs", f"--namespace={namespace}", pod)

    def execute(self, namespace: str, pod: str, *command: str) -> str:
        return self._rig.kubectl("exec", f"--namespace={namespace}", pod, "--", *command)

    def stop(self) -> None:
        core, here, timeout_s = self._rig.core, f"spec.nodeName={self.name}", ANSWER_TIMEOUT_S
        with contextlib.suppress(ApiException, HTTPError):  # the API server may be gone
            for pod in core.list_pod_for_all_namespaces(field_selector=here, _request_timeout=timeout_s).items:
                metadata = required(pod.metadata)
                name, namespace = required(metadata.name), required(metadata.namespace)
                core.delete_namespaced_pod(name, namespace, grace_period_seconds=0, _request_timeout=timeout_s)
            core.delete_node(self.name, _request_timeout=timeout_s)
        self._record.take_down(self._rig.folder)
        for part in SERVERS:
            if server := self._rig.servers.pop(f"{self.name}-{part}", None):
                server.stop()  # reap it


def start_real_node(
    rig: Rig, name: str, *, cpu_cores: float | None = None, memory_bytes: int | None = None
) -> RealNode:
    """Start a node, and wait until it is Ready.

    `cpu_cores`, `memory_bytes`: allocatable amounts of the node, and limits of all its pods together (by CPU quota, CPU
    set and memory limit of their control group). None for the whole machine.
    """
    check_size(cpu_cores, memory_bytes)
    (rig.folder / name).mkdir()
    cgroup = f"phasewise-{rig.folder.name}-{name}"

    def record(network: NodeNetwork) -> None:
        NodeRecord(name, cgroup, network.number).write(rig.folder)

    try:
        network = claim_network(clusters_folder() / "real-nodes.lock", record)
        make_node_cgroup(cgroup, cpu_cores, memory_bytes)
        mounts = start_mounts(rig, name)
        start_containerd(rig, name, network, mounts)
        start_kubelet(rig, name, network, mounts, cgroup=cgroup, cpu_cores=cpu_cores, memory_bytes=memory_bytes)
        if cpu_cores is not None:
            pin_node_cgroup(cgroup, network.number, cpu_cores)
    except BaseException:
        for partial in NodeRecord.all_in(rig.folder, name):
            RealNode(rig, partial).stop()
        raise
    return RealNode(rig, NodeRecord(name, cgroup, network.number))


def clear_real_nodes(folder: Path) -> None:
    for record in NodeRecord.all_in(folder):
        record.take_down(folder)


def _shims(socket: Path) -> list[ProcessRecord]:
    """The shims of a containerd, which outlive it; their command lines name its socket."""
    found = []
    for process in psutil.process_iter(["name", "cmdline", "pid"]):
        if (process.info["name"] or "").startswith(("containerd-shim", "runc")) and any(
            f"{socket.parent}/" in word for word in process.info["cmdline"] or ()
        ):
            with contextlib.suppress(psutil.Error):
                found.append(ProcessRecord.of(process.pid))
    return found
