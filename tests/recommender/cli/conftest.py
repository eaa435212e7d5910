"""Shared by the tests of commands: recorded runs of simple jobs, and a model trained on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recommender.cli.common import run
from recommender.cli.main import cli
from tests.fakes.staged_jobs import MODEL_OPTIONS, simulated


@pytest.fixture(scope="session")
def runs_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    simulated(0).to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def model_folder(runs_csv: Path) -> Path:
    """A small model, trained once for all tests."""
    folder = runs_csv.parent / "model"
    assert run(cli, ["train", str(runs_csv), "-o", str(folder), *MODEL_OPTIONS]) == 0
    return folder


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables of Phasewise."""
    for name in [name for name in os.environ if name.startswith("PHASEWISE_")]:
        monkeypatch.delenv(name)
