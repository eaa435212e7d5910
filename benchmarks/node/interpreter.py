"""The host's Python interpreter that the jobs run on, mounted into their pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import click

ENVIRONMENT = "PHASEWISE_BENCH_PYTHON"
NEEDS = {"torch": ("torch", "numpy"), "numpy": ("numpy",)}
"""Packages that each workload imports."""

_PROBE = """
import importlib.util, json, sys
found = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print(json.dumps({"found": found, "prefixes": [sys.base_prefix, sys.prefix]}))
"""


class NoInterpreter(click.ClickException):
    """The interpreter lacks packages of the workload; the message says what to install."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that can run a workload. `prefixes`: its `sys.base_prefix` and `sys.prefix`, which a pod needs."""

    path: str
    workload: str
    prefixes: tuple[str, str]

    def warm_up(self) -> None:
        """Import once on the host, so that the files are in the page cache and charged to no pod."""
        code = f"import {', '.join(NEEDS[self.workload])}"
        subprocess.run([self.path, "-c", code], check=True, capture_output=True)


def find(workload: str, path: str | None = None) -> Interpreter:
    """Find the interpreter for a workload: `path`, else the environment variable's, else the running one.

    Raises NoInterpreter: it cannot be started or lacks a package.
    """
    path = path or os.environ.get(ENVIRONMENT) or sys.executable
    try:
        probe = [path, "-c", _PROBE, *NEEDS[workload]]
        output = subprocess.run(probe, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoInterpreter(f"{path} does not run as a Python interpreter: {error}") from error
    facts = json.loads(output)
    if absent := [name for name in NEEDS[workload] if name not in facts["found"]]:
        raise NoInterpreter(
            f"{path} has no {' and no '.join(absent)}. Make an environment "
            "(python3 -m venv ENV; ENV/bin/pip install -r requirements-record.txt) "
            f"and name it: --python ENV/bin/python, or {ENVIRONMENT}."
        )
    return Interpreter(path, workload, tuple(facts["prefixes"]))
