"""The host's interpreter that the jobs run on, mounted into their pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

ENVIRONMENT = "PHASEWISE_BENCH_PYTHON"
NEEDS = {"torch": ("torch", "numpy"), "numpy": ("numpy",)}
"""What each workload imports."""

_ASKED = """
import importlib.util, json, sys
found = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print(json.dumps({"found": found, "prefixes": [sys.base_prefix, sys.prefix]}))
"""


class NoInterpreter(Exception):
    """No interpreter has what the workload imports; the message says what to install."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that can run a workload.

    Attributes
    ----------
    prefixes
        Its `sys.base_prefix` and `sys.prefix`: the folders that a pod needs of it.
    """

    path: str
    workload: str
    prefixes: tuple[str, str]

    def warm_up(self) -> None:
        """Import once on the host, so that the files lie in memory, and in nobody's account, before the first job."""
        code = f"import {', '.join(NEEDS[self.workload])}"
        subprocess.run([self.path, "-c", code], check=True, capture_output=True)


def find(workload: str, path: str | None = None) -> Interpreter:
    """The interpreter for a workload: the one named, else the environment's, else the one that runs this.

    Raises
    ------
    NoInterpreter
        It cannot be started or lacks a package.
    """
    path = path or os.environ.get(ENVIRONMENT) or sys.executable
    try:
        told = subprocess.run([path, "-c", _ASKED, *NEEDS[workload]], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoInterpreter(f"{path} does not run as a Python interpreter: {error}") from error
    facts = json.loads(told)
    if absent := [name for name in NEEDS[workload] if name not in facts["found"]]:
        raise NoInterpreter(
            f"{path} has no {' and no '.join(absent)}. Make an environment "
            "(python3 -m venv ENV; ENV/bin/pip install -r requirements-record.txt) "
            f"and name it: --python ENV/bin/python, or {ENVIRONMENT}."
        )
    return Interpreter(path, workload, tuple(facts["prefixes"]))
