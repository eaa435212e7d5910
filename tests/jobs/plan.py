"""The plan of training runs: classes of jobs and, drawn from a seed, every run of each class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

GIB = 2**30
RUNS_PER_CLASS = 6
REPLAY_RUNS_PER_CLASS = 2
"""A third of each class is held out from training, so that every class is judged on unseen runs."""
DOUBLE_EPOCHS_PROBABILITY = 0.06
"""Probability that a run has twice the epochs, as users sometimes ask for; the rest stays the same."""
MAX_EPOCHS = {"boosting-sklearn": 5, "vae-torch": 8}
"""Limits for classes whose doubled epochs would take more than five minutes."""
MAX_EPOCHS_IN_ROUND = {4: 6, 5: 3, 6: 3}
"""Later rounds are shorter, so that a whole recording takes about a hundred minutes with two jobs at a time."""


@dataclass(frozen=True)
class Workload:
    """A class of jobs. Sizes are those of an average run."""

    name: str
    framework: str
    accelerator_wait_s: float
    """Seconds per training step in which the host waits for the simulated accelerator; 0: trains on the CPU."""
    threads: tuple[int, ...]
    """Thread counts that runs draw from."""
    rows: int
    epochs: int
    steps: int
    """Training steps per epoch at `rows` rows; a run with more data takes more steps."""
    batch: int
    cpu_request_cores: float
    memory_request_bytes: int

    @property
    def accelerator(self) -> bool:
        return self.accelerator_wait_s > 0


def _workload(
    name: str,
    wait_s: float,
    threads: tuple[int, ...],
    sizes: tuple[int, int, int, int],
    requests: tuple[float, float],
) -> Workload:
    framework = name.rsplit("-", 1)[1]
    cores, memory_gib = requests
    return Workload(name, framework, wait_s, threads, *sizes, cores, int(memory_gib * GIB))


WORKLOADS: tuple[Workload, ...] = (
    # name, seconds of wait per step, threads, (rows, epochs, steps per epoch, batch), (cores, GiB) requested
    _workload("vae-torch", 0.0, (2,), (60_000, 4, 1400, 128), (2.5, 2.0)),
    _workload("gru-torch", 0.12, (1,), (32_000, 4, 110, 64), (1.5, 3.0)),
    _workload("forest-sklearn", 0.0, (2,), (100_000, 4, 25, 0), (2.5, 0.5)),
    _workload("cnn-jax", 0.0, (2,), (24_000, 4, 800, 64), (2.5, 4.0)),
    _workload("lstm-torch", 0.0, (1,), (30_000, 4, 220, 64), (1.5, 3.0)),
    _workload("transformer-jax", 0.3, (1,), (200_000, 4, 42, 16), (2.0, 1.0)),
    _workload("rnn-torch", 0.0, (1,), (30_000, 4, 1150, 64), (1.5, 4.0)),
    _workload("text-sklearn", 0.0, (1,), (40_000, 4, 600, 2000), (2.0, 1.0)),
    _workload("birnn-torch", 0.15, (2,), (30_000, 4, 75, 64), (2.5, 3.0)),
    _workload("mlp-jax", 0.08, (1, 2), (300_000, 4, 140, 256), (3.0, 2.0)),
    _workload("dynrnn-torch", 0.0, (1,), (24_000, 4, 270, 64), (1.5, 2.0)),
    _workload("vae-jax", 0.1, (1,), (50_000, 4, 140, 128), (2.0, 1.5)),
    _workload("cnn-torch", 0.25, (2,), (30_000, 4, 58, 64), (3.0, 6.0)),
    _workload("gru-jax", 0.0, (1, 2), (30_000, 4, 450, 64), (2.0, 3.0)),
    _workload("boosting-sklearn", 0.0, (1, 2), (120_000, 4, 15, 0), (2.5, 0.5)),
    _workload("transformer-torch", 0.0, (2,), (200_000, 4, 54, 32), (2.5, 2.0)),
    _workload("lstm-jax", 0.15, (1,), (24_000, 4, 92, 64), (2.0, 2.5)),
    _workload("mlp-torch", 0.06, (1,), (400_000, 4, 180, 256), (1.5, 5.0)),
)


@dataclass(frozen=True)
class Run:
    container: str
    workload: str
    number: int
    plan_seed: int
    seed: int
    threads: int
    rows: int
    epochs: int
    steps: int
    batch: int
    accelerator_wait_s: float
    part: str
    """`fit` or `replay`."""

    def scaled(self, scale: float) -> Run:
        """Return the run with data and steps times `scale`, and with two epochs if `scale` is small.

        Raises ValueError: if `scale` is not above zero.
        """
        if not scale > 0:
            raise ValueError(f"scale must be above 0, got {scale}")
        if scale == 1:
            return self
        epochs = self.epochs if scale > 0.25 else 2
        rows = max(400, round(self.rows * scale))
        return replace(self, rows=rows, steps=max(2, round(self.steps * scale)), epochs=epochs)


def workload_named(name: str) -> Workload:
    """Return the class called `name`. Raises KeyError: if there is none; the message lists the known ones."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    known = ", ".join(sorted(workload.name for workload in WORKLOADS))
    raise KeyError(f"no class {name!r}; there are {known}")


def _runs_of(workload: Workload, index: int, seed: int) -> list[Run]:
    """Return the runs of one class; `index` separates the random streams of classes."""
    rng = np.random.default_rng([seed, index])
    replayed = set(rng.choice(RUNS_PER_CLASS, REPLAY_RUNS_PER_CLASS, replace=False).tolist())
    runs = []
    for number in range(1, RUNS_PER_CLASS + 1):
        rows = round(workload.rows * rng.uniform(0.75, 1.25))
        epochs = max(2, round(workload.epochs * rng.uniform(0.75, 1.25)))
        if rng.random() < DOUBLE_EPOCHS_PROBABILITY:
            epochs = min(2 * epochs, MAX_EPOCHS.get(workload.name, 2 * epochs))
        epochs = min(epochs, MAX_EPOCHS_IN_ROUND.get(number, epochs))
        runs.append(
            Run(
                container=f"{workload.name}-r{number:02d}",
                workload=workload.name,
                number=number,
                plan_seed=seed,
                seed=int(rng.integers(1, 2**31)),
                threads=int(rng.choice(workload.threads)),
                rows=rows,
                epochs=epochs,
                steps=max(1, round(workload.steps * rows / workload.rows)),
                batch=workload.batch,
                accelerator_wait_s=workload.accelerator_wait_s,
                part="replay" if number - 1 in replayed else "fit",
            )
        )
    return runs


def planned_runs(seed: int = 0) -> list[Run]:
    """Return every run, round-robin over the classes so that a partial recording covers them all."""
    by_class = [_runs_of(workload, index, seed) for index, workload in enumerate(WORKLOADS)]
    return [runs[number] for number in range(RUNS_PER_CLASS) for runs in by_class]
