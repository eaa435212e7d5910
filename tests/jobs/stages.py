"""Shared by all jobs: reporting of stage, loss and step, waits for the accelerator, and the order of stages."""

from __future__ import annotations

import gc
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tests.jobs.plan import Run

_log = logging.getLogger(__name__)

Arrays = tuple[NDArray[Any], ...]
EXIT_TERMINATED = 143
"""Exit code after SIGTERM: 128 plus its number, as in a shell."""

LOG_INTERVAL_S = 2.0
"""Seconds over which the logged loss is averaged: that of single batches is mostly noise."""

PROGRESS_INTERVAL_S = 0.2
"""Seconds between writes of the progress file: writing each step would disturb the job."""


class Job:
    """A running job: its folder, and the progress file (`stage step loss`) for the recorder.

    `checkpoint_path`: File to which the job saves a checkpoint when it has to stop, and from which it resumes.
    `stop_requested`: Save a checkpoint and exit at the next step or stage.
    """

    def __init__(
        self, run: Run, folder: Path, progress_path: Path | None = None, checkpoint_path: Path | None = None
    ) -> None:
        self.run = run
        self.folder = folder
        self.progress_path = progress_path
        self.checkpoint_path = checkpoint_path
        self.stop_requested = False
        self._save_checkpoint: Callable[[], None] | None = None
        self.rng = np.random.default_rng(run.seed)
        self.step_count = 0
        self._stage = "start"
        self._loss = float("nan")
        self._reported_at = 0.0
        self._started_at = self._logged_at = time.monotonic()
        self._unlogged_losses: list[float] = []

    def stage(self, name: str) -> None:
        self._exit_if_requested()
        self._stage = name
        _log.info("stage=%s after_s=%.1f step=%d", name, time.monotonic() - self._started_at, self.step_count)
        self._report()

    def stepped(self, loss: float) -> None:
        """Count one training step and its loss."""
        self.step_count += 1
        self._loss = loss
        now_s = time.monotonic()
        if now_s - self._reported_at >= PROGRESS_INTERVAL_S:
            self._report()
        self._unlogged_losses.append(loss)
        if now_s - self._logged_at >= LOG_INTERVAL_S:
            _log.info("step=%d loss=%.6g", self.step_count, np.mean(self._unlogged_losses))
            self._logged_at, self._unlogged_losses = now_s, []
        self._exit_if_requested()

    def resume(self, learner: Learner) -> None:
        """Resume from the checkpoint if there is one; save checkpoints to it from now on."""
        path = self.checkpoint_path
        if path is None:
            return
        if path.exists():
            with path.open("rb") as file:
                kept = json.loads(file.readline())
                learner.load(file)
            self.step_count, self.rng.bit_generator.state = kept["step"], kept["rng"]
            _log.info("resumed step=%d", self.step_count)
        self._save_checkpoint = partial(self._save, learner, path)

    def _save(self, learner: Learner, path: Path) -> None:
        """Write a checkpoint atomically: a line of JSON, then the framework's format."""
        aside = path.with_suffix(".part")
        with aside.open("wb") as file:
            file.write(json.dumps({"step": self.step_count, "rng": self.rng.bit_generator.state}).encode() + b"\n")
            learner.save(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _log.info("saved step=%d", self.step_count)

    def _exit_if_requested(self) -> None:
        if self.stop_requested:
            if self._save_checkpoint is not None:
                self._save_checkpoint()
            raise SystemExit(EXIT_TERMINATED)

    def _report(self) -> None:
        self._reported_at = time.monotonic()
        if self.progress_path is None:
            return
        step = str(self.step_count) if self.step_count else "-"
        aside = self.progress_path.with_suffix(".part")
        aside.write_text(f"{self._stage} {step} {self._loss!r}\n", encoding="ascii")
        aside.replace(self.progress_path)


class Learner(Protocol):
    def step(self, batch: Arrays) -> float:
        """Learn from one batch and return its loss."""

    def evaluate(self, batch: Arrays) -> float:
        """Return the loss of a batch without learning."""

    def save(self, to: Path | IO[bytes]) -> None:
        """Write weights and optimiser state."""

    def load(self, file: IO[bytes]) -> None:
        """Read what `save` wrote, from the present position of the file."""

    def export(self, path: Path) -> None:
        """Write the model for serving."""


def same_batch(batch: Arrays, rng: np.random.Generator) -> Arrays:
    return batch


@dataclass(frozen=True)
class Recipe:
    make: Callable[[int, np.random.Generator], Arrays]
    """(rows, generator) -> data set."""
    preprocess: Callable[[Arrays], Arrays]
    learner: Callable[[Arrays], Learner]
    """First batch, whose shapes determine the size of the model -> model."""
    host_work: Callable[[Arrays, np.random.Generator], Arrays] = same_batch
    """Work of the host on every batch before training."""
    keeps_raw: bool = False
    """Whether the raw data set stays in memory beside the prepared one."""
    shard_fraction: float = 0.0
    """Share of the rows that each epoch reloads."""
    evaluates_each_epoch: bool = True
    evaluation_rows: int = 4000
    evaluation_passes: int = 1
    """Passes over the held-out rows (one metric or draw of noise each)."""
    batches: Callable[[Arrays, Run, int], Iterator[Arrays]] | None = None
    """Alternative source of an epoch's batches, for example worker processes."""


def _batches(data: Arrays, run: Run, rng: np.random.Generator) -> Iterator[Arrays]:
    rows = len(data[0])
    for _ in range(run.steps):
        picked = rng.integers(0, rows, run.batch)
        yield tuple(array[picked] for array in data)


def _evaluate(learner: Learner, held_out: Arrays, batch_rows: int, passes: int) -> float:
    rows = len(held_out[0])
    losses = [
        learner.evaluate(tuple(array[start : start + batch_rows] for array in held_out))
        for _ in range(passes)
        for start in range(0, rows - batch_rows + 1, batch_rows)
    ]
    return float(np.mean(losses))


def _train_epoch(job: Job, recipe: Recipe, learner: Learner, data: Arrays, epoch: int) -> None:
    run = job.run
    served = recipe.batches(data, run, epoch) if recipe.batches else _batches(data, run, job.rng)
    for batch in islice(served, (epoch + 1) * run.steps - job.step_count):
        loss = learner.step(recipe.host_work(batch, job.rng))
        if run.accelerator_wait_s > 0:
            time.sleep(run.accelerator_wait_s)  # while the simulated accelerator computes
        job.stepped(loss)


def _prepare(job: Job, recipe: Recipe) -> tuple[Arrays, Arrays, Arrays]:
    """Return training rows, held-out rows, and the raw data when the class keeps it."""
    job.stage("make-data")
    raw = recipe.make(job.run.rows, job.rng)
    job.stage("preprocess")
    prepared = recipe.preprocess(raw)
    kept = raw if recipe.keeps_raw else ()
    del raw
    order = job.rng.permutation(len(prepared[0]))
    held = min(recipe.evaluation_rows, len(order) // 4)
    held_out = tuple(array[order[:held]] for array in prepared)
    training = tuple(array[order[held:]] for array in prepared)
    del prepared
    gc.collect()
    return training, held_out, kept


def run_recipe(recipe: Recipe, job: Job) -> None:
    """Run a job from its data set to its export, reporting stages as they begin.

    A resumed job generates its data again from the same seed, and takes every step once.
    """
    run = job.run
    training, held_out, kept = _prepare(job, recipe)
    job.stage("build")
    evaluation_batch = min(4 * run.batch, len(held_out[0]))
    learner = recipe.learner(recipe.host_work(tuple(array[: run.batch] for array in training), job.rng))
    job.resume(learner)
    for epoch in range(job.step_count // run.steps, run.epochs):
        if recipe.shard_fraction and epoch:
            job.stage("load-shard")
            shard = recipe.preprocess(recipe.make(round(run.rows * recipe.shard_fraction), job.rng))
            training = tuple(np.concatenate([old[len(new) :], new]) for old, new in zip(training, shard, strict=True))
            del shard
        job.stage("train")
        _train_epoch(job, recipe, learner, training, epoch)
        if recipe.evaluates_each_epoch:
            job.stage("evaluate")
            _evaluate(learner, held_out, evaluation_batch, recipe.evaluation_passes)
        job.stage("checkpoint")
        learner.save(job.folder / f"checkpoint-{epoch}")
    if not recipe.evaluates_each_epoch:
        job.stage("evaluate")
        _evaluate(learner, held_out, evaluation_batch, recipe.evaluation_passes)
    del kept
    job.stage("export")
    learner.export(job.folder / "model")
    np.savez_compressed(job.folder / "reference_rows.npz", *held_out)
