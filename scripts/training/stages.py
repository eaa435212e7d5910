"""What every job shares: telling its stage, loss and step, waiting for the accelerator, the order of stages."""

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

from training.plan import Run

_log = logging.getLogger(__name__)

Arrays = tuple[NDArray[Any], ...]
STOPPED = 143
"""Exit code of a job that was told to end: 128 and the number of SIGTERM, as a shell has it."""

TELL_EVERY_S = 2.0
"""The mean loss of so long is printed: that of single batches is mostly noise."""

REPORT_EVERY_S = 0.2
"""Steps come faster than the sampler looks (1 s); writing each would only disturb the job."""


class Job:
    """A running job as the recorder sees it: a line of `stage step loss` in a small file, and a folder.

    Attributes
    ----------
    checkpoint_path
        Where a job that is told to end keeps what it has learned, and goes on from when it is begun again.
    told_to_end
        It ends, and keeps that, at the next step or stage.
    """

    def __init__(
        self, run: Run, folder: Path, progress_path: Path | None = None, checkpoint_path: Path | None = None
    ) -> None:
        self.run = run
        self.folder = folder
        self.progress_path = progress_path
        self.checkpoint_path = checkpoint_path
        self.told_to_end = False
        self._keep: Callable[[], None] | None = None
        self.rng = np.random.default_rng(run.seed)
        self.step_count = 0
        self._stage = "start"
        self._loss = float("nan")
        self._reported_at = 0.0
        self._started_at = self._told_at = time.monotonic()
        self._untold: list[float] = []

    def stage(self, name: str) -> None:
        """Enter the stage `name`."""
        self._end_if_told()
        self._stage = name
        _log.info("stage=%s after_s=%.1f step=%d", name, time.monotonic() - self._started_at, self.step_count)
        self._report()

    def stepped(self, loss: float) -> None:
        """Count one training step and its loss."""
        self.step_count += 1
        self._loss = loss
        now_s = time.monotonic()
        if now_s - self._reported_at >= REPORT_EVERY_S:
            self._report()
        self._untold.append(loss)
        if now_s - self._told_at >= TELL_EVERY_S:
            _log.info("step=%d loss=%.6g", self.step_count, np.mean(self._untold))
            self._told_at, self._untold = now_s, []
        self._end_if_told()

    def go_on(self, learner: Learner) -> None:
        """Begin where the run before this one ended, if it kept anything; keep what is learned from now on."""
        path = self.checkpoint_path
        if path is None:
            return
        if path.exists():
            with path.open("rb") as file:
                kept = json.loads(file.readline())
                learner.load(file)
            self.step_count, self.rng.bit_generator.state = kept["step"], kept["rng"]
            _log.info("resumed step=%d", self.step_count)
        self._keep = partial(self._save, learner, path)

    def _save(self, learner: Learner, path: Path) -> None:
        """What was learned, whole or not at all: a line of JSON, then what the framework writes."""
        aside = path.with_suffix(".part")
        with aside.open("wb") as file:
            file.write(json.dumps({"step": self.step_count, "rng": self.rng.bit_generator.state}).encode() + b"\n")
            learner.save(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _log.info("saved step=%d", self.step_count)

    def _end_if_told(self) -> None:
        if self.told_to_end:
            if self._keep is not None:
                self._keep()
            raise SystemExit(STOPPED)

    def wait_for_accelerator(self) -> None:
        """Sleep as a host does while its accelerator computes; nothing for a class without one."""
        if self.run.accelerator_wait_s > 0:
            time.sleep(self.run.accelerator_wait_s)

    def _report(self) -> None:
        self._reported_at = time.monotonic()
        if self.progress_path is None:
            return
        step = str(self.step_count) if self.step_count else "-"
        aside = self.progress_path.with_suffix(".part")
        aside.write_text(f"{self._stage} {step} {self._loss!r}\n", encoding="ascii")
        aside.replace(self.progress_path)


class Learner(Protocol):
    """A model that learns from batches, whatever the framework."""

    def step(self, batch: Arrays) -> float:
        """Learn from one batch and return its loss."""

    def evaluate(self, batch: Arrays) -> float:
        """Return the loss of a batch without learning."""

    def save(self, to: Path | IO[bytes]) -> None:
        """Write weights and optimiser state."""

    def load(self, file: IO[bytes]) -> None:
        """Take in what `save` wrote to a file, from where that stands."""

    def export(self, path: Path) -> None:
        """Write the model in the form it would be served in."""


def same_batch(batch: Arrays, rng: np.random.Generator) -> Arrays:
    """Return the batch as it is."""
    return batch


@dataclass(frozen=True)
class Recipe:
    """The parts a training job is put together from."""

    make: Callable[[int, np.random.Generator], Arrays]
    """Rows and a generator in, data set out."""
    preprocess: Callable[[Arrays], Arrays]
    learner: Callable[[Arrays], Learner]
    """Called with a first batch, whose shapes say how large the model is."""
    host_work: Callable[[Arrays, np.random.Generator], Arrays] = same_batch
    """What the host does to every batch before it is learnt from."""
    keeps_raw: bool = False
    """Whether the data set as it was read stays in memory beside the prepared one."""
    shard_fraction: float = 0.0
    """Share of the rows that each epoch reads anew before it trains."""
    evaluates_each_epoch: bool = True
    evaluation_rows: int = 4000
    evaluation_passes: int = 1
    """How often the held-out rows are gone through (one metric or one draw of noise each)."""
    batches: Callable[[Arrays, Run, int], Iterator[Arrays]] | None = None
    """Own way to serve an epoch's batches (for example by worker processes)."""


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
        job.wait_for_accelerator()
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
    """Run a job from its data set to its export; the stages are named as they begin.

    One that goes on makes its data anew, from the same seed, and takes every step once.
    """
    run = job.run
    training, held_out, kept = _prepare(job, recipe)
    job.stage("build")
    evaluation_batch = min(4 * run.batch, len(held_out[0]))
    learner = recipe.learner(recipe.host_work(tuple(array[: run.batch] for array in training), job.rng))
    job.go_on(learner)
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
