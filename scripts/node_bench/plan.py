"""Which jobs there are: one class, whose runs differ a little in data, epochs and speed. Drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EPOCHS = (3, 5)
VARIATION = 0.15
QUICK_SCALE = 0.25


@dataclass(frozen=True)
class Plan:
    """One training job: everything that decides what it does.

    Attributes
    ----------
    number
        Its place in the queue, from 1.
    size
        Rows of its data set against a middling job's; memory and work on the CPU follow.
    pace
        How long its waits (storage, accelerator) are against a middling job's.
    scale
        1 for a job of about a minute; less makes data, work and waits smaller.
    waits, work
        So many times as long are the stages that wait, and those that compute, with the same data.
    """

    number: int
    seed: int
    size: float
    epochs: int
    pace: float
    scale: float = 1.0
    waits: int = 1
    work: int = 1

    def arguments(self) -> list[str]:
        """The options of `python -m node_bench.job` for it."""
        sizes = {"seed": self.seed, "size": self.size, "epochs": self.epochs, "pace": self.pace, "scale": self.scale}
        sizes |= {"waits": self.waits, "work": self.work}
        return [word for name, value in sizes.items() for word in (f"--{name}", str(value))]


def draw(count: int, seed: int, scale: float = 1.0, waits: int = 1, work: int = 1) -> list[Plan]:
    """The first `count` jobs of a batch; the same seed gives the same batch.

    A scale below 1 is for trying things out: two epochs are enough there.
    """
    plans = []
    for number in range(1, count + 1):
        chance = np.random.default_rng([seed, number])
        size, pace = (round(float(factor), 3) for factor in chance.uniform(1 - VARIATION, 1 + VARIATION, 2))
        epochs = int(chance.integers(EPOCHS[0], EPOCHS[1] + 1))
        own = int(chance.integers(1, 2**20))
        plans.append(Plan(number, own, size, epochs if scale == 1.0 else 2, pace, scale, waits, work))
    return plans
