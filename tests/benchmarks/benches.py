"""Run benchmarks in this process, on a running cluster, or as processes that are interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import click
from click.testing import CliRunner, Result

from tests.rig.cluster import Cluster
from tests.rig.processes import ProcessRecord
from tests.rig.rig import clusters_folder, recorded_processes

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def invoke(script: str, *arguments: object, on: Cluster | None = None) -> Result:
    """Run a script with these arguments, on this cluster if given; unexpected exceptions are raised."""
    return CliRunner().invoke(_command_of(script), [str(word) for word in arguments], obj=on, catch_exceptions=False)


def _command_of(script: str) -> click.Command:
    command: click.Command = module_of(script).main
    return command


def module_of(script: str) -> ModuleType:
    """A script, loaded anew as a module."""
    spec = spec_from_loader(script, SourceFileLoader(script, str(SCRIPTS / script)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[script] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def interrupted_script(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a script as a process, and interrupt it at the end of the block."""
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent)}  # as scripts/in-environment sets it
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            errors = process.stderr.read()
    assert "all that was started is ended" in errors
    assert process.returncode == 130


def servers_of(process: subprocess.Popen[str], part: str = "") -> dict[str, ProcessRecord]:
    """Servers that a benchmark has started for its own cluster, once the control plane is among them."""
    records = recorded_processes(clusters_folder() / f"bench-{part}{process.pid}")
    return records if {"etcd", "kube-apiserver"} <= records.keys() else {}
