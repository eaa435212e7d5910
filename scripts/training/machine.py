"""What a recording was made on: processor, memory, kernel, Python and library versions; nothing that names the host."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import psutil

LIBRARIES = ("torch", "jax", "jaxlib", "scikit-learn", "scipy", "numpy", "pandas", "pyarrow", "psutil")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def machine_facts() -> dict[str, Any]:
    """Return the facts of this machine and this Python that a reader of a recording needs."""
    return {
        "machine": {
            "cpu": _processor(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        },
        "python": platform.python_version(),
        "libraries": _versions(),
    }
