"""The demand of the coming cycle, as learned: its distribution in similar moments.

A *moment* is a decision of a training container: the facts of its past (`kernels/past.py`), what its phase context and
earlier runs of its class led to expect, and the samples that came. Trees group moments that went on alike. For a new
moment the samples of all moments in its leaves make a distribution of the coming samples; the allocation is the one at
which expected slack plus a price per expected violation is least. Training finds the price that meets the target on
containers left out. So allowed violations are spent where they save most, which no fixed quantile of the peak does.

At a cycle of another length than the trained one the distribution of a sample is taken to be the same: somewhat wide
for shorter cycles, somewhat narrow for longer ones, which the container's own correction makes up for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from recommender.kernels import correction
from recommender.kernels import demand as kernel
from recommender.kernels import past as facts_of
from recommender.policies.contexts import ContextLadder
from recommender.policies.earlier_runs import EarlierRuns
from recommender.records import VIOLATION_TOLERANCE, FloatArray

CURVE_STEPS = 255
"""Curves are kept as bytes: a 255th of a leaf's samples is far below what a leaf of eight moments can tell."""

RULE_SPREADS = 2.0
"""AI4DL, section 4: rules allocate the mean plus two standard deviations."""

OWN_PACE = correction.Pace(gain=2.0, lowest=0.0, highest=3.0, tolerance=VIOLATION_TOLERANCE)
"""How a container's own surprises move its price of a violation: up to twenty times the common one, never below it.
Letting it fall where nothing ever happens lost on every source tried: violations saved up come all at once."""


class Basis(Enum):
    """Which level of the last cycle the coming one is compared with."""

    PEAK = "peak"
    RULES = "mean plus two standard deviations"


@dataclass(frozen=True, slots=True)
class ResourceDemand:
    """What was learned of one resource.

    Attributes
    ----------
    basis, floor
        Levels are relative to sqrt(basis of the last cycle ** 2 + floor ** 2), cores or bytes: relative for containers
        far above the floor, absolute below it; infinite: absolute throughout.
    knots
        float64 (g,): natural logarithm of level / reference, increasing.
    shares
        uint8 (leaves, g): share of a leaf's samples at or below each knot, in 255ths.
    samples
        float32 (leaves,): mean number of samples a moment of the leaf had before it.
    targets, prices
        float64 (p,): target violations, and the price of a violation that met them on containers left out.
    lowest, highest
        Smallest peak so far of a training moment, and largest use seen in training, cores or bytes.
    """

    basis: Basis
    floor: float
    knots: FloatArray
    shares: NDArray[np.uint8]
    samples: NDArray[np.float32]
    targets: FloatArray
    prices: FloatArray
    lowest: float
    highest: float

    def curves(self) -> NDArray[np.float32]:
        """float32 (leaves, g): samples at or below each knot."""
        scale = self.samples[:, np.newaxis] / np.float32(CURVE_STEPS)
        return np.ascontiguousarray(self.shares.astype(np.float32) * scale)

    def grid(self) -> kernel.Grid:
        """The knots with what deciding needs of them."""
        return kernel.grid_of(self.knots, VIOLATION_TOLERANCE)

    def price(self, target: float) -> float:
        """The price of a violation that meets a target, between the calibrated ones."""
        return float(np.exp(np.interp(target, self.targets, np.log(self.prices))))


@dataclass(frozen=True, slots=True)
class DemandModel:
    """Everything `phase.proactive` learned.

    Attributes
    ----------
    cycle_samples, lag, target_violation
        What it was trained for.
    fairness
        Whose slack counts how much, see `kernels.demand.cheapest_knot`.
    ladder, runs, forest
        Phase contexts, earlier runs of each class, the trees.
    leaf_moments
        int32 (leaves,): training moments in each leaf.
    resources
        CPU and memory.
    """

    cycle_samples: int
    lag: int
    target_violation: tuple[float, float]
    fairness: float
    ladder: ContextLadder
    runs: EarlierRuns
    forest: kernel.Forest
    leaf_moments: NDArray[np.int32]
    resources: tuple[ResourceDemand, ResourceDemand]

    def leaves(self, past: FloatArray, workload: str | None) -> NDArray[np.int32]:
        """int32 (m, t): the leaf of each tree, from the facts of `read_past`."""
        leaves = np.empty((len(past), len(self.forest.roots)), np.int32)
        kernel.find_leaves(all_facts(past, self.ladder, self.runs, workload), self.forest, leaves)
        return leaves

    def references(self, past: FloatArray, resource: int) -> FloatArray:
        """float64 (m,): what levels are relative to, cores or bytes."""
        demand = self.resources[resource]
        return references(past, resource, demand.basis, demand.floor)


N_FACTS = facts_of.N_PAST + 4 + 9
"""Facts of the past, of the phase context and of earlier runs."""


def all_facts(
    past: FloatArray, ladder: ContextLadder, runs: EarlierRuns, workload: str | None, besides: int = -1
) -> FloatArray:
    """float64 (m, N_FACTS): facts of the past, of the phase context and of earlier runs, side by side.

    Parameters
    ----------
    past
        float64 (m, N_PAST), from `read_past`.
    ladder, runs
        What phases and classes led to.
    workload
        The container's class.
    besides
        A run of the class that is not to be asked, because it is the one in question.
    """
    return np.ascontiguousarray(
        np.concatenate([past, ladder.look_up(past), runs.look_up(past, workload, besides)], axis=1)
    )


def references(past: FloatArray, resource: int, basis: Basis, floor: float) -> FloatArray:
    """float64 (m,): what levels are relative to, cores or bytes; 1 where they are absolute."""
    if np.isinf(floor):
        return np.ones(len(past))
    at = facts_of.FIRST_LEVEL + resource * facts_of.N_LEVELS
    now = past[:, at + facts_of.NOW]
    if basis is Basis.PEAK:
        level = np.exp(now + past[:, at + facts_of.CYCLE_PEAK])
    else:
        spread = 1.0 + RULE_SPREADS * past[:, at + facts_of.CYCLE_SPREAD]
        level = np.exp(now + past[:, at + facts_of.CYCLE_MEAN]) * spread
    reference: FloatArray = np.sqrt(level**2 + floor**2)
    return reference


def cycle_peaks(past: FloatArray) -> FloatArray:
    """float64 (m, 2): the largest use of the cycle just ended, cores and bytes."""
    return _levels(past, facts_of.CYCLE_PEAK)


def ever_peaks(past: FloatArray) -> FloatArray:
    """float64 (m, 2): the largest use so far, cores and bytes."""
    return _levels(past, facts_of.EVER_PEAK)


def _levels(past: FloatArray, which: int) -> FloatArray:
    at = facts_of.FIRST_LEVEL + np.arange(2) * facts_of.N_LEVELS
    levels: FloatArray = np.exp(past[:, at + facts_of.NOW] + past[:, at + which])
    return levels
