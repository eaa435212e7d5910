"""The kubelet of one real node, with ordinary identity, rights and TLS, and reservations that set its size."""

from __future__ import annotations

import json
from pathlib import Path

import psutil

from local_cluster.identities import NODES
from local_cluster.processes import Server
from local_cluster.real_node.containerd import ENVIRONMENT, inside, socket_of
from local_cluster.real_node.network import NodeNetwork
from local_cluster.rig import Rig

LABEL = "phasewise.dev/real"
TAINT = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
_NO_EVICTION = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree")
"""Eviction signals of the whole machine, on which the node must not act."""


def start_kubelet(
    rig: Rig,
    name: str,
    network: NodeNetwork,
    mounts: Server,
    *,
    cgroup: str,
    cpu_cores: float | None,
    memory_bytes: int | None,
) -> Server:
    folder = rig.folder / name
    port = rig.ports.free(network.address)
    rig.authority.serving(f"{name}-serving", network.address, name)
    configuration = folder / "kubelet.json"
    settings = _configuration(rig, name, network.address, port, cgroup) | {
        "systemReserved": _reserved(cpu_cores, memory_bytes)
    }
    configuration.write_text(json.dumps(settings, indent=1))
    command: list[str | Path] = [
        rig.binaries["kubelet"],
        f"--config={configuration}",
        f"--kubeconfig={rig.kubeconfig(f'{name}-kubelet', f'system:node:{name}', NODES)}",
        f"--hostname-override={name}",
        f"--node-ip={network.address}",
        f"--node-labels={LABEL}=true",
        f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={folder / 'kubelet-pki'}",
        "--housekeeping-interval=1s",  # interval of cAdvisor; default 10 s
    ]
    return rig.start(
        f"{name}-kubelet", command, ready=lambda: is_ready(rig, name), environment=ENVIRONMENT, inside=inside(mounts)
    )


def is_ready(rig: Rig, name: str) -> bool:
    conditions = rig.core.read_node(name).status.conditions or []
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


def _configuration(rig: Rig, name: str, address: str, port: int, cgroup: str) -> dict[str, object]:
    resolver = rig.folder / name / "resolv.conf"
    resolver.write_text("")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": port,
        "healthzPort": 0,
        "tlsCertFile": str(rig.authority.folder / f"{name}-serving.crt"),
        "tlsPrivateKeyFile": str(rig.authority.folder / f"{name}-serving.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(rig.authority.file)},
        },
        # Short, so that a role that is bound a moment later takes effect.
        "authorization": {"mode": "Webhook", "webhook": {"cacheUnauthorizedTTL": "1s"}},
        "containerRuntimeEndpoint": f"unix://{socket_of(rig.folder, name)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,  # no protection of this kubelet on a shared machine
        "makeIPTablesUtilChains": False,  # leave the machine's packet filter alone
        "evictionHard": dict.fromkeys(_NO_EVICTION, "0%"),
        "imageGCHighThresholdPercent": 100,
        "registerWithTaints": [TAINT],
        "clusterDNS": ["10.98.0.10"],  # unreachable, but without it every pod gets a warning event
        "resolvConf": str(resolver),
    }


def _reserved(cpu_cores: float | None, memory_bytes: int | None) -> dict[str, str]:
    """System reservations that make the allocatable amounts the size of the node."""
    reserved: dict[str, str] = {}
    if cpu_cores is not None:
        reserved["cpu"] = f"{round((_machine_cores() - cpu_cores) * 1000)}m"
    if memory_bytes is not None:
        reserved["memory"] = str(psutil.virtual_memory().total - memory_bytes)
    return reserved


def check_size(cpu_cores: float | None, memory_bytes: int | None) -> None:
    """Raise ValueError if the node is larger than the machine."""
    if cpu_cores is not None and not 0 < cpu_cores <= _machine_cores():
        raise ValueError(f"a node of {cpu_cores} cores on a machine of {_machine_cores()}")
    if memory_bytes is not None and not 0 < memory_bytes <= psutil.virtual_memory().total:
        raise ValueError(f"a node of {memory_bytes} bytes on a machine of {psutil.virtual_memory().total}")


def _machine_cores() -> int:
    return psutil.cpu_count() or 1
