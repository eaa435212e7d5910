"""CPU demand of each phase, learned from finished runs, and what experts would have cost in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.base.errors import BadArtifact
from recommender.base.records import BoolArray, FloatArray, IntArray
from recommender.kernels.coming_demand import (
    LEVEL_SAMPLES,
    PRIOR_SAMPLES,
    TABLE_LOWEST,
    TABLE_SIZE,
    TABLE_STEP,
    Expected,
)
from recommender.kernels.experts import EXPERTS

FLOOR_CORES = 0.01  # the minimum allocation, and the unit of amounts

QUANTILES = 40
MIN_OWN_SAMPLES = 3  # samples of a container in a phase that its own mean there must rest on
HORIZONS = (1, 3, 6, 11, 20, 40, 80)  # samples ahead at which use is compared with the level now


@dataclass(frozen=True, slots=True)
class DemandModel:
    """Demand per phase, as q equally likely levels (`kernels.coming_demand`), sorted."""

    # float32 (horizons, phases, q): later use in the same visit, relative to the level now.
    staying: NDArray[np.float32]
    visiting: NDArray[np.float32]  # float32 (phases, q): use in the phase
    # float32 (phases, q): use in the phase, relative to the container's own mean level in it so far.
    returning: NDArray[np.float32]
    mean: FloatArray  # float64 (): mean use in the training data, in floors
    losses: (
        FloatArray  # float64 (EXPERTS,): loss of each expert in held-out runs, relative to the mean over all of them
    )

    @classmethod
    def fit(cls, usages: Sequence[FloatArray], labels: Sequence[IntArray], phases: int) -> DemandModel:
        """Fit the demand to finished runs; losses are learned in a replay (`recommender.learning.forecasting`).

        Of each run `usages` has float64 (n,) cores without gaps, `labels` the phase of each sample.
        """
        amounts = [cpu_cores / FLOOR_CORES for cpu_cores in usages]
        staying, visiting, returning = _demand_quantiles(amounts, labels, phases)
        of_kinds = staying.astype(np.float32), visiting.astype(np.float32), returning.astype(np.float32)
        return cls(*of_kinds, np.concatenate(amounts).mean(), np.ones(EXPERTS))

    def expected(self, occupancy: FloatArray, lead_samples: int, ahead_samples: int) -> Expected:
        """Lookup tables from the demand and an occupancy, float64 (tables, 1 + phases, phases, buckets, phases).

        It covers `ahead_samples` after the `lead_samples` until a decision is in force.
        """
        staying = _pooled(self.staying, lead_samples + 1, lead_samples + ahead_samples)
        kinds = np.stack([staying, self.visiting.astype(float), self.returning.astype(float)])
        return Expected(
            occupancy=np.ascontiguousarray(occupancy),
            above=np.stack([_tables(demand) for demand in kinds]),
            largest=np.ascontiguousarray(kinds[:, :, -1]),
        )

    def needed_cores(self, phase: int, share: float, own_sum: float, own_samples: float) -> float:
        """CPU that covers this share of a container's samples in a phase; for its own ones see `Visits`."""
        level = float(np.quantile(self.visiting[phase], share))
        if own_samples > 0:
            own = own_sum / own_samples + float(np.quantile(self.returning[phase], share))
            level += own_samples / (own_samples + PRIOR_SAMPLES) * (own - level)
        return float(np.expm1(level) * FLOOR_CORES)

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Arrays for the model folder."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], phases: int) -> DemandModel:
        """Read what `to_state` wrote; BadArtifact if an array is missing, of another shape, or not finite."""
        shapes = {
            "staying": (len(HORIZONS), phases, QUANTILES),
            "visiting": (phases, QUANTILES),
            "returning": (phases, QUANTILES),
            "mean": (),
            "losses": (EXPERTS,),
        }
        demand: dict[str, NDArray[Any]] = {}
        for name, shape in shapes.items():
            if name not in arrays:
                raise BadArtifact(f"the model's demand lacks the array {name!r}. Train it again.")
            array = arrays[name]
            if array.dtype.kind not in "fiu" or array.shape != shape or not np.isfinite(array).all():
                raise BadArtifact(f"the model's demand: {name} does not fit {phases} phases. Train it again.")
            # Kernels cannot be compiled for every type.
            keeps_type = array.dtype == np.float32 and name not in ("mean", "losses")
            demand[name] = array if keeps_type else np.asarray(array, np.float64)
        return cls(**demand)


def _demand_quantiles(
    amounts: Sequence[FloatArray], labels: Sequence[IntArray], phases: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Quantiles of the staying, visiting and returning demand, from amounts in floors."""
    run = np.repeat(np.arange(len(labels)), [len(of_run) for of_run in labels])
    phase = np.concatenate(labels)
    used = np.log1p(np.concatenate(amounts))
    level = np.concatenate([*map(_levels, amounts)])
    staying = []
    for steps in HORIZONS:
        earlier = max(len(used) - steps, 0)
        same = (run[steps:] == run[:earlier]) & (phase[steps:] == phase[:earlier])
        staying.append(_quantiles((used[steps:] - level[:earlier])[same], phase[steps:][same], phases))
    excess, known = _excess_over_own_mean(used, run * phases + phase)
    return np.stack(staying), _quantiles(used, phase, phases), _quantiles(excess[known], phase[known], phases)


def _excess_over_own_mean(used: FloatArray, groups: IntArray) -> tuple[FloatArray, BoolArray]:
    """Each sample minus the mean of the earlier ones of its group, and whether there were `MIN_OWN_SAMPLES` of them."""
    excess, known = np.empty_like(used), np.zeros(len(used), bool)
    order = np.argsort(groups, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        values, before = used[rows], np.arange(len(rows))
        excess[rows] = values - (np.cumsum(values) - values) / np.maximum(before, 1)
        known[rows] = before >= MIN_OWN_SAMPLES
    return excess, known


def _levels(amounts: FloatArray) -> FloatArray:
    """Level of the mean of the latest `LEVEL_SAMPLES` samples, at each sample."""
    total = np.concatenate([np.zeros(LEVEL_SAMPLES), np.cumsum(amounts)])
    counts = np.minimum(np.arange(1, len(amounts) + 1), LEVEL_SAMPLES)
    levels: FloatArray = np.log1p(np.maximum(total[LEVEL_SAMPLES:] - total[:-LEVEL_SAMPLES], 0.0) / counts)
    return levels


def _quantiles(values: FloatArray, phase: IntArray, phases: int) -> FloatArray:
    """float64 (phases, QUANTILES): equally likely values per phase; those of all phases where one has too few."""
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    if not len(values):
        return np.zeros((phases, QUANTILES))
    rows = [values[phase == one] for one in range(phases)]
    return np.array([np.quantile(row if len(row) >= QUANTILES // 4 else values, shares) for row in rows])


def _pooled(staying: NDArray[np.float32], first: int, last: int) -> FloatArray:
    """float64 (phases, QUANTILES): quantiles over the horizons `first` to `last`, or the horizon nearest to `first`."""
    within = [place for place, steps in enumerate(HORIZONS) if first <= steps <= last]
    if not within:
        within = [int(np.abs(np.log(np.array(HORIZONS) / first)).argmin())]
    values = np.sort(np.concatenate([staying[place] for place in within], axis=1), axis=1).astype(float)
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    pooled: FloatArray = np.quantile(values, shares, axis=1).T
    return pooled


def _tables(demand: FloatArray) -> FloatArray:
    """float64 (phases, TABLE_SIZE): share of the demand of each phase above each level of the grid."""
    levels = TABLE_LOWEST + TABLE_STEP * np.arange(TABLE_SIZE)
    tables: FloatArray = np.array([1.0 - np.searchsorted(row, levels, side="right") / len(row) for row in demand])
    return tables
