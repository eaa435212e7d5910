"""The recorder's training jobs as pods: a tiny image with the host's interpreter and packages, read-only."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.real_node.node import RealNode

REPOSITORY = Path(__file__).resolve().parents[3]
OWN_PREFIXES = (sys.base_prefix, sys.prefix)

_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64")
_REPORTING = """\
{job} --progress /tmp/progress &
job=$!
while kill -0 $job 2>/dev/null; do
  now=$(cat /tmp/progress 2>/dev/null)
  if [ "$now" != "$last" ]; then set -- $now; echo "progress stage=$1 step=$2 loss=$3"; last=$now; fi
  sleep 0.2
done
wait $job
"""
"""Copies `stage step loss` from the job's progress file to the log."""


@dataclass(frozen=True)
class Progress:
    """One line of a job's progress; step is None before the first, loss NaN before it is known."""

    stage: str
    step: int | None
    loss: float


def training_pod(
    node: RealNode,
    workload: str,
    *,
    name: str,
    scale: float,
) -> dict[str, Any]:
    """A pod for a real node that runs a job of the recorder, see `python -m training.job`.

    It logs each stage as it begins, and stage, step and loss as they change (`progress_in`). Classes that end in
    `-sklearn` need only the project's own packages.
    """
    job = [sys.executable, "-m", "tests.jobs.job", "--class", workload, "--scale", str(scale)]
    return with_host_python(node.pod(name, _REPORTING.format(job=shlex.join(job)), cpu="250m", memory="256Mi"))


def with_host_python(pod: dict[str, Any], prefixes: Sequence[str] = OWN_PREFIXES) -> dict[str, Any]:
    """Mount a Python interpreter of the host with its packages, and this repository, into a pod's containers.

    `prefixes`: the interpreter's `sys.base_prefix` and `sys.prefix`; by default those of this process.
    """
    folders = host_python_folders(prefixes)
    volumes = [{"name": f"host-{place}", "hostPath": {"path": str(path)}} for place, path in enumerate(folders)]
    mounts = [
        {"name": volume["name"], "mountPath": str(path), "readOnly": True}
        for volume, path in zip(volumes, folders, strict=True)
    ]
    environment = [
        {"name": "PYTHONPATH", "value": str(REPOSITORY)},
        {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - inside the container
    ]
    spec = pod["spec"]
    spec["volumes"] = [*spec.get("volumes", []), *volumes]
    for container in spec["containers"]:
        container["volumeMounts"] = [*container.get("volumeMounts", []), *mounts]
        container["env"] = [*container.get("env", []), *environment]
    return pod


def host_python_folders(prefixes: Sequence[str] = OWN_PREFIXES) -> list[Path]:
    """Folders of the host that an interpreter needs: system libraries, its own, its packages, the repository."""
    own = [Path(prefix) for prefix in prefixes]
    named = [*map(Path, _SYSTEM_FOLDERS), *own, *(path.resolve() for path in own), REPOSITORY]
    there = sorted({path for path in named if path.is_dir()})
    return [path for path in there if not any(parent in there for parent in path.parents)]


def stages_in(log: str) -> list[str]:
    return re.findall(r"^stage=(\S+)", log, re.MULTILINE)


def progress_in(log: str) -> list[Progress]:
    lines: Sequence[tuple[str, str, str]] = re.findall(
        r"^progress stage=(\S+) step=(\S+) loss=(\S+)", log, re.MULTILINE
    )
    return [Progress(stage, None if step == "-" else int(step), float(loss)) for stage, step, loss in lines]
