"""A container image made from the host's busybox, since there is no registry."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

from local_cluster.real_node.packages import busybox

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
