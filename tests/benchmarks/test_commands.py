"""The shell scripts that people run first: from any folder, after an upgrade of Python, and stopped half-way."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from shutil import copy

import pytest

ROOT = Path(__file__).parents[2]

Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Makes a checkout with the named scripts; `files` are further executables by path."""

    def make(*scripts: str, **files: str) -> Path:
        (tmp_path / "scripts").mkdir()
        (tmp_path / ".venv/bin").mkdir(parents=True)
        (tmp_path / "requirements-dev.txt").write_text("pytest\n")
        for name in scripts:
            copy(ROOT / "scripts" / name, tmp_path / "scripts")
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/")
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)
        return tmp_path

    return make


def run(*command: str | Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )


@pytest.mark.parametrize("script", ["test", "check"])
def test_help_is_shown_from_any_folder_and_with_cdpath_exported(script: str) -> None:
    done = run(f"./{script}", "--help", folder=ROOT / "scripts", CDPATH=f".:{ROOT}")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"scripts/{script}" in done.stdout


def test_an_environment_of_another_python_is_created_again(folder: Folder) -> None:
    """As after an upgrade: the interpreter starts, but its packages belong to the one before."""
    root = folder("environment.sh", **{".venv__bin__python": '[[ "$*" != *pip* ]]', "base": 'echo "$@" >asked; exit 3'})
    stamp = subprocess.run("cksum", input=b"pytest\n", capture_output=True, check=True).stdout
    (root / ".venv/.installed-requirements-dev.txt").write_bytes(stamp)
    script = f"source scripts/environment.sh; find_python() {{ echo {root}/base; }}; prepare requirements-dev.txt"
    assert run("bash", "-c", script, folder=root).returncode == 3
    assert (root / "asked").read_text() == f"-m venv --clear {root}/.venv\n"


def test_without_a_suitable_python_only_the_remedy_is_printed(folder: Folder) -> None:
    root = folder("environment.sh", **{".venv__bin__python": "exit 1", "old": "exit 1"})
    names = "python3 python3.14 python3.13 python3.12 python3.11"
    script = f'source scripts/environment.sh; for name in {names}; do eval "$name() {{ false; }}"; done; '
    done = run("bash", "-c", f"{script}prepare requirements-dev.txt", folder=root, PYTHON="")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Phasewise needs Python 3.11 or newer")


def test_ctrl_c_during_the_tests_starts_no_cluster(folder: Folder) -> None:
    environment = "set -euo pipefail; root=$PWD; prepare() { python=$PWD/python; }"
    files = {
        "scripts__environment.sh": environment,
        "scripts__cluster": "touch built",
        "python": "trap '' INT; kill -INT 0; exit 2",  # pytest ends itself, not its caller
    }
    root = folder("test", **files)
    assert run(root / "scripts/test", folder=root).returncode == 130
    assert not (root / "built").exists()
