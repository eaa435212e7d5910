"""The recorder's real training jobs as pods: the host's interpreter and packages, read-only, in a tiny image."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster.real_node.node import RealNode

REPOSITORY = Path(__file__).resolve().parents[3]
LIGHT = 0.02
"""Scale at which a scikit-learn job takes some five seconds, most of them importing."""

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
"""The job keeps `stage step loss` in a file; whoever wants it in the log has to put it there."""


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
    name: str | None = None,
    run: int = 1,
    scale: float = LIGHT,
    cpu: str = "250m",
    memory: str = "256Mi",
    limits: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A pod for a real node that runs one of the recorder's jobs from start to end.

    Its log tells each stage as it begins, and stage, step and loss as they change (`progress_in`).

    Parameters
    ----------
    workload, run, scale
        Class, number and size of the job, as in `python -m training.job`. The classes that end in `-sklearn` need
        only the project's own packages.
    cpu, memory, limits
        What it requests, and its limits if it is to have any.
    """
    job = [sys.executable, "-m", "training.job", "--class", workload, "--run", str(run), "--scale", str(scale)]
    command = _REPORTING.format(job=shlex.join(job))
    pod = node.pod(name or f"{workload}-r{run:02d}", command, cpu=cpu, memory=memory, limits=limits)
    return with_host_python(pod)


def with_host_python(pod: dict[str, Any], prefixes: Sequence[str] = OWN_PREFIXES) -> dict[str, Any]:
    """Let a pod's containers run an interpreter of the host with its packages, and what this repository holds.

    Parameters
    ----------
    prefixes
        The interpreter's `sys.base_prefix` and `sys.prefix`; by default those of this very process.
    """
    folders = host_python_folders(prefixes)
    volumes = [{"name": f"host-{place}", "hostPath": {"path": str(path)}} for place, path in enumerate(folders)]
    mounts = [
        {"name": volume["name"], "mountPath": str(path), "readOnly": True}
        for volume, path in zip(volumes, folders, strict=True)
    ]
    environment = [
        {"name": "PYTHONPATH", "value": f"{REPOSITORY}:{REPOSITORY / 'scripts'}"},
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
    """The host's folders that an interpreter lives on: system libraries, its own, its packages, the repository."""
    own = [Path(prefix) for prefix in prefixes]
    named = [*map(Path, _SYSTEM_FOLDERS), *own, *(path.resolve() for path in own), REPOSITORY]
    there = sorted({path for path in named if path.is_dir()})
    return [path for path in there if not any(parent in there for parent in path.parents)]


def stages_in(log: str) -> list[str]:
    """The stages that a job says it went through, in order."""
    return re.findall(r"^stage=(\S+)", log, re.MULTILINE)


def progress_in(log: str) -> list[Progress]:
    """The progress that a job's pod has reported."""
    lines: Sequence[tuple[str, str, str]] = re.findall(
        r"^progress stage=(\S+) step=(\S+) loss=(\S+)", log, re.MULTILINE
    )
    return [Progress(stage, None if step == "-" else int(step), float(loss)) for stage, step, loss in lines]
