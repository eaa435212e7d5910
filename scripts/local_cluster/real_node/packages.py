"""Requirements of a real node, with messages for users."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from local_cluster.real_node.cgroups import ROOT, trees

PACKAGES = ("busybox-static", "containerd", "containernetworking-plugins", "iproute2", "mount", "runc", "util-linux")
"""Debian and Ubuntu packages that a real node needs."""

SYSTEM_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
"""PATH with the sbin folders."""

_PROGRAMS = {
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
_PLUGINS = ("bridge", "host-local", "loopback")
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
    absent = {package for name, package in _PROGRAMS.items() if not shutil.which(name, path=SYSTEM_PATH)}
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
        raise FileNotFoundError(f"{name} is not installed: apt-get install {_PROGRAMS[name]}")
    return found


def busybox() -> Path:
    return Path(program("busybox")).resolve()


def plugin_folder() -> Path | None:
    complete = (folder for folder in _PLUGIN_FOLDERS if all((folder / plugin).exists() for plugin in _PLUGINS))
    return next(complete, None)


def may_lower_oom_scores() -> bool:
    """Whether processes may be protected from the OOM killer (CAP_SYS_RESOURCE), as kubelets do for some pods."""
    return _has_capability(_SYS_RESOURCE)


def _has_capability(number: int) -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff"))
    return bool(int(effective, 16) >> number & 1)
