"""Every script named in the documents can be called by its name, from any folder, without a prepared environment.

Those that start by the same line are called in this process, except one: most import for seconds.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.benches import SCRIPTS, invoke

ROOT = SCRIPTS.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NAMED = sorted({name for page in PAGES for name in re.findall(r"\bscripts/([\w-]+)", page.read_text())})
CALLED = [name for name in NAMED if (SCRIPTS / name).is_file()]
FIRST_LINES = {name: (SCRIPTS / name).read_text().partition("\n")[0] for name in CALLED}
IN_ENVIRONMENT = [name for name in CALLED if FIRST_LINES[name] == FIRST_LINES["record_training"]]
AS_PROCESSES = [*(name for name in CALLED if name not in IN_ENVIRONMENT), "bench_crbm", "record_training"]
"""Those that start in their own way, the one that takes its arguments without click, and one of all others."""


def test_the_documents_name_the_benchmarks_and_the_tools() -> None:
    assert {"dry-run", "test", "check", "cluster", "make-docs", "train-bundled-model", "record_training"} <= set(CALLED)
    assert {file.name for file in SCRIPTS.glob("bench_*") if file.is_file()} <= set(CALLED)


@pytest.mark.parametrize("name", [name for name in IN_ENVIRONMENT if name not in AS_PROCESSES])
def test_a_script_in_the_common_environment_prints_its_help(name: str) -> None:
    done = invoke(name, "--help")
    assert done.exit_code == 0
    assert len(done.output.split()) > 5


@pytest.mark.long
@pytest.mark.parametrize("name", AS_PROCESSES)
def test_a_script_prints_its_help_from_any_folder(name: str, tmp_path: Path) -> None:
    """The python3 on the PATH and the click beside the data fail here: a script has an environment of its own."""
    (tmp_path / "click.py").write_text("raise SystemExit(97)\n")
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 97\n")
    (tmp_path / "python3").chmod(0o755)
    clean = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [SCRIPTS / name, "--help"], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5


def test_record_training_without_a_framework_prints_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "jax" else object())
    done = invoke("record_training", "run", "-o", tmp_path / "raw", "--only", "cnn-jax", "--only", "text-sklearn")
    assert done.exit_code == 1
    assert "no jax: .venv/bin/python -m pip install -r requirements-record.txt" in done.output
    assert not (tmp_path / "raw").exists()
