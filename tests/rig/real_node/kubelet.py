"""Kubelet, containerd and runc of one real node, in a mount namespace that protects the machine's folders."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
from pathlib import Path

import psutil

from tests.rig.identities import NODES
from tests.rig.processes import Server
from tests.rig.real_node.network import (
    SYSTEM_PATH,
    NodeNetwork,
    busybox,
    may_lower_oom_scores,
    plugin_folder,
    program,
)
from tests.rig.required import required
from tests.rig.rig import Rig

IMAGE = "phasewise.dev/test/busybox:1"
"""Name on every real node; use it with `imagePullPolicy: Never`."""

PUBLIC_NAME = "docker.io/library/busybox:stable"
"""Second name, so that manifests with the public image run unchanged."""

_SLEEPS = ["/bin/sleep", "2147483647"]
"""Default command, also of sandbox containers."""


def write_image(file: Path) -> Path:
    layer = _layer()
    digest = hashlib.sha256(layer).hexdigest()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    image = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Cmd": _SLEEPS, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "phasewise tests"}],
    }
    manifest = [{"Config": "image.json", "RepoTags": [IMAGE, PUBLIC_NAME], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(file, "w") as archive:
        _add(archive, "image.json", json.dumps(image).encode())
        _add(archive, f"{digest}/layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return file


def _layer() -> bytes:
    """One layer: busybox under the names of all its commands, and standard folders."""
    content = io.BytesIO()
    commands = subprocess.run([busybox(), "--list"], capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for folder, mode in {"bin": 0o755, "etc": 0o755, "root": 0o700, "tmp": 0o1777}.items():
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        _add(archive, "bin/busybox", busybox().read_bytes(), mode=0o755)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        for command in sorted(set(commands) - {"busybox"}):
            entry = tarfile.TarInfo(f"bin/{command}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(entry)
    return content.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


ENVIRONMENT = {"PATH": SYSTEM_PATH}
_OVERLAID_FOLDERS = ("/run", "/var/lib", "/var/log")
_DEFAULT_SOCKET = "/run/containerd/containerd.sock"
_KUBELET_SYSCTLS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def start_mounts(rig: Rig, name: str) -> Server:
    """Start the process that holds the node's mount namespace, in which kubelet and containerd run.

    Its mounts are invisible outside, and vanish with the last process inside. Folders with fixed names that kubelet and
    containerd write to are covered by overlays, and the kernel settings that a kubelet changes (for example, reboot ten
    seconds after a panic) by copies without effect.
    """
    folder = rig.folder / name / "mounts"
    script = ["set -e"]
    for path in _OVERLAID_FOLDERS:
        if Path(path).is_dir():
            upper, work = (folder / path.strip("/").replace("/", "-") / part for part in ("upper", "work"))
            upper.mkdir(parents=True)
            work.mkdir()
            layers = f"lowerdir={path},upperdir={upper},workdir={work}"
            script.append(shlex.join(["mount", "-t", "overlay", "overlay", "-o", layers, path]))
    for setting in map(Path("/proc/sys").joinpath, _KUBELET_SYSCTLS):
        if setting.exists():
            copy = folder / setting.name
            copy.write_text(setting.read_text())
            script.append(shlex.join(["mount", "--bind", str(copy), str(setting)]))
    # cAdvisor asks containerd for names, at its default socket.
    script += ["mkdir -p /run/containerd", shlex.join(["ln", "-sf", str(socket_of(rig.folder, name)), _DEFAULT_SOCKET])]
    ready = folder / "ready"
    script += [f"touch {shlex.quote(str(ready))}", "exec sleep infinity"]
    command = [program("unshare"), "--mount", "--propagation", "private", "sh", "-c", "\n".join(script)]
    return rig.start(f"{name}-mounts", command, ready=ready.exists, environment=ENVIRONMENT)


def inside(mounts: Server) -> tuple[str, ...]:
    """Command prefix that runs a command in the node's mount namespace, with the same process id."""
    return (program("nsenter"), f"--mount=/proc/{mounts.pid}/ns/mnt", "--")


def socket_of(folder: Path, name: str) -> Path:
    """Socket of a node's containerd. Short, since paths of unix sockets have at most 107 bytes."""
    return folder / name / "c.sock"


def start_containerd(rig: Rig, name: str, network: NodeNetwork, mounts: Server) -> Server:
    folder = rig.folder / name
    socket = socket_of(rig.folder, name)
    plugins = folder / "cni"
    plugins.mkdir()
    (plugins / "pods.conflist").write_text(json.dumps(network.plugin_configuration(folder / "addresses"), indent=1))
    configuration = folder / "containerd.toml"
    configuration.write_text(_containerd_configuration(folder, socket, plugins))
    containerd = rig.start(
        f"{name}-containerd",
        [program("containerd"), "--config", configuration],
        ready=lambda: _ctr(socket, "version"),
        environment=ENVIRONMENT,
        inside=inside(mounts),
        wait=False,
    )
    image = write_image(folder / "image.tar")
    containerd.wait_ready()
    _ctr(socket, "images", "import", str(image), inside=inside(mounts))
    return containerd


def _containerd_configuration(folder: Path, socket: Path, plugins: Path) -> str:
    """containerd's defaults except for paths, the sandbox image, and missing rights."""
    text = json.dumps  # a JSON string is a TOML string
    return f"""\
version = 2
root = {text(str(folder / "containerd"))}
state = {text(str(folder / "state"))}
[grpc]
address = {text(str(socket))}
[plugins."io.containerd.internal.v1.opt"]
path = {text(str(folder / "opt"))}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = {text(IMAGE)}
# Without CAP_SYS_RESOURCE no process may be protected from the OOM killer, and runc would fail.
restrict_oom_score_adj = {text(not may_lower_oom_scores())}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {text(str(plugin_folder()))}
conf_dir = {text(str(plugins))}
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def _ctr(socket: Path, *arguments: str, inside: tuple[str, ...] = ()) -> bool:
    command = [*inside, program("ctr"), "--address", str(socket), "--namespace", "k8s.io", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
    return True


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
    reserved: dict[str, str] = {}
    # System reservations make the allocatable amounts the size of the node.
    if cpu_cores is not None:
        reserved["cpu"] = f"{round((_machine_cores() - cpu_cores) * 1000)}m"
    if memory_bytes is not None:
        reserved["memory"] = str(psutil.virtual_memory().total - memory_bytes)
    settings = _configuration(rig, name, network.address, port, cgroup) | {"systemReserved": reserved}
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

    def ready() -> bool:
        conditions = required(rig.core.read_node(name).status).conditions or []
        return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)

    return rig.start(f"{name}-kubelet", command, ready=ready, environment=ENVIRONMENT, inside=inside(mounts))


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


def check_size(cpu_cores: float | None, memory_bytes: int | None) -> None:
    """Raise ValueError if the node is larger than the machine."""
    if cpu_cores is not None and not 0 < cpu_cores <= _machine_cores():
        raise ValueError(f"a node of {cpu_cores} cores on a machine of {_machine_cores()}")
    if memory_bytes is not None and not 0 < memory_bytes <= psutil.virtual_memory().total:
        raise ValueError(f"a node of {memory_bytes} bytes on a machine of {psutil.virtual_memory().total}")


def _machine_cores() -> int:
    return psutil.cpu_count() or 1
