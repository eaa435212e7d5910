"""What each phase needs, as learned from finished runs, and what a violation must cost for few enough of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import BadArtifact
from recommender.kernels.phase_plan import LEANS, LEVEL_SAMPLES, LOWEST, STEP, STEPS, Expected
from recommender.records import CPU, BoolArray, FloatArray, IntArray

FLOORS = np.array([0.01, 16.0 * 2**20])
"""Cores and bytes: the least that is ever allocated, and what amounts are counted in."""

QUANTILES = 40
MIN_OWN_SAMPLES = 3
"""A container's own mean of a phase is kept from so many samples on."""

LATER = (1, 3, 6, 11, 20, 40, 80)
"""Samples ahead at which use is compared with the level now."""

CREDIT_SAMPLES = 3.0
"""What the plan may cost more than a rule before that is believed, in samples of what it asks for."""

PRICES = np.array([1.0, 1.4, 1.8, 2.2, 2.6, 3.0, 3.5, 4.0, 5.0, 6.5, 8.0, 12.0])
"""Of a violation: those at which violations are counted."""

RULES = ("as it comes", "once a cycle")
"""When the plan decides: at each sample under a budget of changes, late; or once a cycle, in force at once."""

EVERY_SAMPLE, ONCE_A_CYCLE = range(len(RULES))


@dataclass(frozen=True, slots=True)
class DemandModel:
    """What the plan learned, in equally likely levels (`kernels.phase_plan`), sorted; the first axis is the resource.

    Attributes
    ----------
    staying
        float32 (2, later, phases, q): use later in the same visit, against the level now.
    visiting
        float32 (2, phases, q): use in the phase.
    returning
        float32 (2, phases, q): use in the phase, against the container's own mean level of it so far.
    mean
        float64 (2,): mean use over all that was learned from, in floors.
    violations
        float64 (rules, 2, prices): share of samples of runs kept out that violated at each of `PRICES`.
    """

    staying: NDArray[np.float32]
    visiting: NDArray[np.float32]
    returning: NDArray[np.float32]
    mean: FloatArray
    violations: FloatArray

    @classmethod
    def fit(cls, usages: Sequence[FloatArray], labels: Sequence[IntArray], phases: int) -> DemandModel:
        """Gather the demands of finished runs; prices are learned by playing them (`recommender.pricing`).

        Parameters
        ----------
        usages, labels
            Of each run: float64 (n, 2) cores and bytes without gaps, and the phase of each sample, 0..phases - 1.
        """
        gathered = [_gathered([usage[:, r] / FLOORS[r] for usage in usages], labels, phases) for r in range(2)]
        staying, visiting, returning = (
            np.stack([part[place] for part in gathered]).astype(np.float32) for place in range(3)
        )
        mean = np.concatenate(list(usages)).mean(axis=0) / FLOORS
        return cls(staying, visiting, returning, mean, np.zeros((len(RULES), 2, len(PRICES))))

    def price(self, rule: int, target: tuple[float, float]) -> FloatArray:
        """float64 (2,): the least price at which violations were at these shares, between the ones that were tried."""
        found = np.empty(2)
        for resource in range(2):
            falling = np.minimum.accumulate(self.violations[rule, resource])[::-1]
            found[resource] = np.exp(np.interp(target[resource], falling, np.log(PRICES)[::-1]))
        return found

    def expected(self, occupancy: FloatArray, lead_samples: int, ahead_samples: int) -> Expected:
        """With the occupancy by context, ready to be looked up.

        Parameters
        ----------
        occupancy
            float64 (tables, 1 + phases, phases, buckets, phases).
        lead_samples, ahead_samples
            What it is the occupancy of: samples until a decision is in force, and those that are looked at after them.
        """
        staying = np.stack([_pooled(self.staying[r], lead_samples + 1, lead_samples + ahead_samples) for r in range(2)])
        visiting, returning = self.visiting.astype(float), self.returning.astype(float)
        return Expected(
            occupancy=np.ascontiguousarray(occupancy),
            staying=_tables(staying),
            visiting=_tables(visiting),
            returning=_tables(returning),
            largest=np.stack([demand[:, :, -1] for demand in (staying, visiting, returning)], axis=1),
            mean=self.mean,
            credit=np.full(len(occupancy), CREDIT_SAMPLES),
        )

    def needed_cores(self, phase: int, share: float, own_sum: float, own_samples: float) -> float:
        """What covers this share of a container's samples in a phase, of which it had some itself (`PlanArrays`)."""
        level = float(np.quantile(self.visiting[CPU, phase], share))
        if own_samples > 0:
            own = own_sum / own_samples + float(np.quantile(self.returning[CPU, phase], share))
            level += own_samples / (own_samples + LEANS) * (own - level)
        return float(np.expm1(level) * FLOORS[CPU])

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, for the model folder."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], phases: int) -> DemandModel:
        """The model that `to_state` wrote, of so many phases.

        Raises
        ------
        BadArtifact
            Something is missing, or the parts do not fit one another.
        """
        try:
            model = cls(**{field.name: arrays[field.name] for field in fields(cls)})
        except KeyError as error:
            raise BadArtifact(f"the model's demand lacks the array {error}. Train it again.") from error
        shapes = {
            "staying": (2, len(LATER), phases, QUANTILES),
            "visiting": (2, phases, QUANTILES),
            "returning": (2, phases, QUANTILES),
            "mean": (2,),
            "violations": (len(RULES), 2, len(PRICES)),
        }
        for name, shape in shapes.items():
            array = getattr(model, name)
            if array.shape != shape or not np.isfinite(array).all():
                raise BadArtifact(f"the model's demand: {name} does not fit {phases} phases. Train it again.")
        return model


def _gathered(
    amounts: Sequence[FloatArray], labels: Sequence[IntArray], phases: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Staying, visiting and returning demands of one resource, from amounts in floors."""
    run = np.repeat(np.arange(len(labels)), [len(of_run) for of_run in labels])
    phase = np.concatenate([np.empty(0, np.int64), *labels])
    used = np.log1p(np.concatenate([np.empty(0), *amounts]))
    level = np.concatenate([np.empty(0), *map(_levels, amounts)])
    staying = []
    for steps in LATER:
        earlier = max(len(used) - steps, 0)
        both = (run[steps:] == run[:earlier]) & (phase[steps:] == phase[:earlier])
        staying.append(_quantiles((used[steps:] - level[:earlier])[both], phase[steps:][both], phases))
    beyond, known = _beyond_own_mean(used, run * phases + phase)
    return (
        np.stack(staying),
        _quantiles(used, phase, phases),
        _quantiles(beyond[known], phase[known], phases),
    )


def _beyond_own_mean(used: FloatArray, visits: IntArray) -> tuple[FloatArray, BoolArray]:
    """What each sample is above the mean of those before it with the same number, and whether those are enough."""
    beyond, known = np.empty_like(used), np.zeros(len(used), bool)
    order = np.argsort(visits, kind="stable")
    for of_one in np.split(order, np.flatnonzero(np.diff(visits[order])) + 1):
        values, before = used[of_one], np.arange(len(of_one))
        beyond[of_one] = values - (np.cumsum(values) - values) / np.maximum(before, 1)
        known[of_one] = before >= MIN_OWN_SAMPLES
    return beyond, known


def _levels(amounts: FloatArray) -> FloatArray:
    """Level of the mean of the latest samples, at each."""
    total = np.concatenate([np.zeros(LEVEL_SAMPLES), np.cumsum(amounts)])
    number = np.minimum(np.arange(1, len(amounts) + 1), LEVEL_SAMPLES)
    levels: FloatArray = np.log1p(np.maximum(total[LEVEL_SAMPLES:] - total[:-LEVEL_SAMPLES], 0.0) / number)
    return levels


def _quantiles(values: FloatArray, phase: IntArray, phases: int) -> FloatArray:
    """float64 (phases, QUANTILES): equally likely values of each phase; of all phases where one has too few."""
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    if not len(values):
        return np.zeros((phases, QUANTILES))
    rows = [values[phase == one] for one in range(phases)]
    return np.array([np.quantile(row if len(row) >= QUANTILES // 4 else values, shares) for row in rows])


def _pooled(staying: NDArray[np.float32], first: int, last: int) -> FloatArray:
    """float64 (phases, QUANTILES): what was learned for the samples `first` to `last` ahead, or as near as there is."""
    near = [place for place, steps in enumerate(LATER) if first <= steps <= last]
    if not near:
        near = [int(np.abs(np.log(np.array(LATER) / first)).argmin())]
    together = np.sort(np.concatenate([staying[place] for place in near], axis=1), axis=1).astype(float)
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    pooled: FloatArray = np.quantile(together, shares, axis=1).T
    return pooled


def _tables(demand: FloatArray) -> FloatArray:
    """float64 (2, phases, STEPS): share of each phase's demands above each level of the table."""
    levels = LOWEST + STEP * np.arange(STEPS)
    rows = demand.reshape(-1, demand.shape[-1])
    above = [len(row) - np.searchsorted(row, levels, side="right") for row in rows]
    tables: FloatArray = np.array(above).reshape(*demand.shape[:2], STEPS) / demand.shape[-1]
    return tables
