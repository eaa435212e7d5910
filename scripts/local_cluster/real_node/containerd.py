"""containerd and runc of one real node, in a mount namespace that protects the machine's folders."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from local_cluster.processes import Server
from local_cluster.real_node.image import IMAGE, write_image
from local_cluster.real_node.network import NodeNetwork
from local_cluster.real_node.packages import SYSTEM_PATH, may_lower_oom_scores, plugin_folder, program
from local_cluster.rig import Rig

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
    configuration.write_text(_configuration(folder, socket, plugins))
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


def _configuration(folder: Path, socket: Path, plugins: Path) -> str:
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
