"""How much of the stages that jobs told is found by phases that nobody told: adjusted mutual information."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_mutual_info_score

from quality.plain_features import StageClusters
from recommender.records import FloatArray

OF_A_CLASS, OF_ALL = 6, 24
"""Phases looked for within a class, and over all."""


def agreement(path: Path, stage: str, seed: int = 0) -> dict[str, float]:
    """Of k-means within each class and over all, on runs that were not fitted on; `stage` is only compared with.

    Within a class every other run is fitted on; over all, every other container.
    """
    table = pd.read_parquet(path).sort_values(["container", "timestamp"])
    runs = [(_class_of(run), _usage(run), run[stage].to_numpy()) for _, run in table.groupby("container", sort=True)]
    of_all = StageClusters.fit([usage for _, usage, _ in runs[::2]], OF_ALL, seed)
    found = {
        "plain features of every other run, over all": _agreement(
            [(of_all.label(usage), told) for _, usage, told in runs[1::2]]
        )
    }
    shares = []
    for name in sorted({name for name, _, _ in runs if name}):
        own = [(usage, told) for of, usage, told in runs if of == name]
        clusters = StageClusters.fit([usage for usage, _ in own[::2]], OF_A_CLASS, seed)
        shares.append(_agreement([(clusters.label(usage), told) for usage, told in own[1::2]]))
    if shares:
        found["plain features of every other run, of its class alone"] = float(np.mean(shares))
    return found


def _class_of(run: pd.DataFrame) -> str:
    return str(run["workload"].iloc[0]) if "workload" in run else ""


def _usage(run: pd.DataFrame) -> FloatArray:
    usage: FloatArray = run[["cpu_cores", "memory_bytes"]].to_numpy(np.float64)
    return usage


def _agreement(labelled: list[tuple[np.ndarray, np.ndarray]]) -> float:
    found = np.concatenate([labels for labels, _ in labelled])
    told = np.concatenate([stages for _, stages in labelled])
    return float(adjusted_mutual_info_score(told.astype(str), found))
