"""Simulated usage of jobs with plain stages, and options for models that tests of commands train on it."""

from __future__ import annotations

import numpy as np
import pandas as pd

STAGES = ((12, 0.1, 200e6), (20, 1.0, 800e6), (40, 3.0, 900e6), (9, 0.5, 950e6))
"""Start, load, compute, save: samples of 15 s, cores, bytes."""


MODEL_OPTIONS = ("--cycle-samples", "10", "--phases", "5")
"""The options that `model_folder` is trained with."""


def simulated(seed: int, containers: int = 14) -> pd.DataFrame:
    """Runs of two classes of jobs with plain stages, in the normal form."""
    rng = np.random.default_rng(seed)
    frames = []
    for i in range(containers):
        size = rng.uniform(0.8, 1.25) * (1 + i % 2)
        rows = np.concatenate(
            [np.tile([cpu, memory], (max(5, round(n * rng.uniform(0.8, 1.2))), 1)) for n, cpu, memory in STAGES]
        )
        usage = rows * size * rng.normal(1, 0.03, rows.shape).clip(0.8, 1.2)
        frames.append(
            pd.DataFrame(
                {
                    "timestamp": 1_700_000_000 + 15 * np.arange(len(usage)),
                    "container": f"job-{i:02d}",
                    "cpu_cores": usage[:, 0],
                    "memory_bytes": usage[:, 1],
                    "workload": f"class-{i % 2}",
                    "cpu_request_cores": 8.0,
                    "memory_request_bytes": 4e9,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)
