"""A training job saves a checkpoint on SIGTERM, and resumes from it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from click.testing import CliRunner

from tests.benchmarks.benches import SCRIPTS
from tests.jobs import job
from tests.jobs.plan import Run
from tests.jobs.stages import EXIT_TERMINATED, Arrays, Job, Recipe, run_recipe

RUN = Run("c", "mean-numpy", 1, 0, 7, 1, rows=400, epochs=3, steps=5, batch=8, accelerator_wait_s=0.0, part="fit")


class Mean:
    """Learns the mean of its batches, and counts them."""

    def __init__(self) -> None:
        self.state = np.zeros(2)

    def step(self, batch: Arrays) -> float:
        self.state += [1.0, float(batch[0].mean())]
        return float(self.state[1] / self.state[0])

    def evaluate(self, batch: Arrays) -> float:
        return float(batch[0].mean())

    def save(self, to: Path | IO[bytes]) -> None:
        np.save(to, self.state)

    def load(self, file: IO[bytes]) -> None:
        self.state = np.load(file)

    def export(self, path: Path) -> None:
        np.save(path, self.state)


class StoppingJob(Job):
    """A job that is asked to stop when `after` is true."""

    after: Callable[[Job], bool] = staticmethod(lambda _: False)

    def stepped(self, loss: float) -> None:
        if self.after(self):
            self.stop_requested = True
        super().stepped(loss)


def _made(rows: int, rng: np.random.Generator) -> Arrays:
    return (rng.random(rows),)


def trained(folder: Path, checkpoint: Path | None, after: int | None = None) -> np.ndarray | None:
    """The state of a job that completed; None if it was terminated after `after` steps."""
    job = StoppingJob(RUN, folder, None, checkpoint)
    job.after = lambda job: job.step_count + 1 == after
    try:
        run_recipe(Recipe(_made, lambda data: data, lambda _: Mean()), job)
    except SystemExit as ended:
        assert ended.code == EXIT_TERMINATED
        return None
    return np.load(folder / "model.npy")


@pytest.mark.parametrize("at", [1, 4, 5, 7, 10, 15])
def test_a_terminated_and_resumed_job_learns_the_same_as_an_uninterrupted_one(tmp_path: Path, at: int) -> None:
    """Fifteen steps in three epochs: no batch is missed, none is learned twice."""
    uninterrupted = trained(tmp_path, None)
    assert uninterrupted is not None and uninterrupted[0] == 15.0
    checkpoint = tmp_path / "kept"
    assert trained(tmp_path, checkpoint, after=at) is None
    assert not checkpoint.with_suffix(".part").exists()
    np.testing.assert_array_equal(trained(tmp_path, checkpoint), uninterrupted)


def test_a_job_that_is_terminated_repeatedly_completes(tmp_path: Path) -> None:
    ended = [trained(tmp_path, tmp_path / "kept", after=after) for after in (3, 8, 9, None)]
    assert [one is None for one in ended] == [True, True, True, False]
    np.testing.assert_array_equal(ended[-1], trained(tmp_path, None))


def test_a_scikit_learn_job_refuses_a_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.jobs.job", "--class", "text-sklearn", "--checkpoint", str(tmp_path / "c")]
    done = subprocess.run(command, cwd=SCRIPTS.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "scikit-learn" in done.stderr


def test_a_job_prints_the_mean_loss_of_the_last_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the recommender reads in logs: `step=4 loss=0.3`."""
    job, clock_s = Job(RUN, tmp_path), [100.0]
    monkeypatch.setattr("tests.jobs.stages.time.monotonic", lambda: clock_s[0])
    job._logged_at = clock_s[0]
    with caplog.at_level("INFO"):
        for loss in (0.5, 0.25, 0.75, 0.5, 9.0):
            clock_s[0] += 0.5
            job.stepped(loss)
    assert caplog.messages == ["step=4 loss=0.5"]


def test_a_job_with_a_given_folder_creates_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, temporary = tmp_path / "given", tmp_path / "aside"
    temporary.mkdir()
    used: list[tuple[Path, list[Path]]] = []
    monkeypatch.setattr(job, "run_job", lambda _run, folder, *_: used.append((folder, list(temporary.iterdir()))))
    monkeypatch.setattr(job, "thread_environment", lambda _: {})
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for words in (["--folder", str(given)], []):
        assert CliRunner().invoke(job.main, ["--class", "lstm-torch", *words]).exit_code == 0
    (first, others), (second, _) = used
    assert (first, others) == (given, [])
    assert second.parent == temporary and not second.exists()
