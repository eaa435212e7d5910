"""Programs that a real node needs, and its network: an address on loopback, and a bridge without uplink."""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.real_node.cgroups import ROOT, trees

PACKAGES = ("busybox-static", "containerd", "containernetworking-plugins", "iproute2", "mount", "runc", "util-linux")
"""Debian and Ubuntu packages that a real node needs."""

SYSTEM_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
"""PATH with the sbin folders."""

PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "busybox": "busybox-static",
}
_PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
PLUGINS = ("bridge", "host-local", "loopback")
_NET_ADMIN, _SYS_ADMIN, _SYS_RESOURCE = 12, 21, 24


def what_is_missing() -> str | None:
    """What this machine lacks for a real node, as a message; None if nothing."""
    if sys.platform != "linux":
        return "it needs Linux, for control groups and namespaces"
    if os.geteuid() != 0:
        return "it needs root, for control groups, mounts and a bridge"
    if not (_has_capability(_SYS_ADMIN) and _has_capability(_NET_ADMIN)):
        return "root may not mount or change the network here (a container that is not privileged?)"
    if not {"cpu", "memory"} <= trees().keys() or not all(os.access(tree, os.W_OK) for tree in trees().values()):
        return f"control groups for cpu and memory are missing or not writable ({ROOT})"
    if absent := missing_packages():
        return f"packages are missing: apt-get install {' '.join(absent)}"
    return None


def missing_packages() -> list[str]:
    """Packages to install, by their missing programs."""
    absent = {package for name, package in PROGRAMS.items() if not shutil.which(name, path=SYSTEM_PATH)}
    if plugin_folder() is None:
        absent.add("containernetworking-plugins")
    if "busybox-static" not in absent:
        with busybox().open("rb") as file:
            if b"/ld-" in file.read(4096):  # a dynamic program names its loader at the start of its file
                absent.add("busybox-static")
    return sorted(absent)


def program(name: str) -> str:
    """The path of a program that `missing_packages` has found."""
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: apt-get install {PROGRAMS[name]}")
    return found


def busybox() -> Path:
    return Path(program("busybox")).resolve()


def plugin_folder() -> Path | None:
    complete = (folder for folder in _PLUGIN_FOLDERS if all((folder / plugin).exists() for plugin in PLUGINS))
    return next(complete, None)


def may_lower_oom_scores() -> bool:
    """Whether processes may be protected from the OOM killer (CAP_SYS_RESOURCE), as kubelets do for some pods."""
    return _has_capability(_SYS_RESOURCE)


def _has_capability(number: int) -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff"))
    return bool(int(effective, 16) >> number & 1)


NUMBERS = range(1, 255)


@dataclass(frozen=True)
class NodeNetwork:
    """Addresses of the node with this number, unique on the machine.

    The kubelet refuses loopback addresses such as 127.0.0.1, so each node gets an address of its own on the loopback
    *interface*. Packets still do not leave the machine, and API server, metrics-server and Prometheus reach the kubelet
    by the InternalIP of the node. Should a neighbour send packets here, the kubelet answers only with a certificate of
    the cluster.

    Pods are on a bridge without uplink, default route and forwarding: they only reach each other and the bridge, and
    the host reaches them for probes.
    """

    number: int

    @property
    def address(self) -> str:
        return f"10.99.{self.number}.1"

    @property
    def pod_range(self) -> str:
        return f"10.100.{self.number}.0/24"

    @property
    def bridge(self) -> str:
        return f"phasewise{self.number}"

    def add(self) -> None:
        _ip("address", "add", f"{self.address}/32", "dev", "lo")
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("address", "add", f"10.100.{self.number}.1/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")

    def remove(self) -> None:
        if self.bridge in {link["ifname"] for link in _ip_json("link")}:
            _ip("link", "delete", self.bridge)
        if self.address in {entry["local"] for link in _ip_json("address") for entry in link["addr_info"]}:
            _ip("address", "delete", f"{self.address}/32", "dev", "lo")

    def plugin_configuration(self, folder: Path) -> dict[str, object]:
        """CNI configuration for the node's container runtime; `folder` stores allocated addresses."""
        # Not `isGateway`: the plugin would enable forwarding for the whole machine.
        addresses = {"type": "host-local", "ranges": [[{"subnet": self.pod_range}]], "dataDir": str(folder)}
        bridge = {"type": "bridge", "bridge": self.bridge, "isGateway": False, "ipMasq": False, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def claim_network(lock: Path, record: Callable[[NodeNetwork], None]) -> NodeNetwork:
    """Find the first number with free addresses, record it, and add its network.

    `lock`: Lock file shared by all clusters of this machine.
    `record`: Called before the network is added.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        network = next(network for network in map(NodeNetwork, NUMBERS) if _is_free(network))
        record(network)
        network.add()
    return network


def _is_free(network: NodeNetwork) -> bool:
    wanted = [ipaddress.ip_network(network.pod_range), ipaddress.ip_network(network.address)]
    taken = [entry["local"] for link in _ip_json("-4", "address") for entry in link["addr_info"]]
    taken += [route["dst"] for route in _ip_json("-4", "route") if route["dst"] != "default"]
    overlaps = any(ours.overlaps(ipaddress.ip_network(other, strict=False)) for ours in wanted for other in taken)
    return not overlaps and network.bridge not in {link["ifname"] for link in _ip_json("link")}


def _ip(*arguments: str) -> None:
    subprocess.run([program("ip"), *arguments], check=True, capture_output=True, text=True)


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    answer = subprocess.run([program("ip"), "-json", *arguments], check=True, capture_output=True, text=True)
    entries: list[dict[str, Any]] = json.loads(answer.stdout or "[]")
    return entries
