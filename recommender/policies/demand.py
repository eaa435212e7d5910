"""The demand of the coming cycle, as learned: its distribution in similar moments, and the cheapest allocation for it.

A *moment* is a decision of a training container: the facts of its past (`kernels/past.py`), what its phase context and
earlier runs of its class led to expect, and the samples that came. Trees group moments that went on alike. For a new
moment the samples of all moments in its leaves make a distribution of the coming samples; the allocation is the one at
which expected slack plus a price per expected violation is least. Training finds the price that meets the target on
containers left out. So allowed violations are spent where they save most, which no fixed quantile of the peak does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import BadArtifact
from recommender.kernels import correction
from recommender.kernels import demand as kernel
from recommender.kernels import past as facts_of
from recommender.policies.contexts import RUNGS, ContextLadder
from recommender.policies.earlier_runs import EarlierRuns
from recommender.records import RESOURCES, VIOLATION_TOLERANCE, FloatArray

CURVE_STEPS = 255
"""Curves are kept as bytes: a 255th of a leaf's samples is far below what a leaf of eight moments can tell."""

STATE_VERSION = 1

OWN_PACE = correction.Pace(gain=2.0, lowest=0.0, highest=3.0, tolerance=VIOLATION_TOLERANCE)
"""How a container's own surprises move its price of a violation: up to twenty times the common one, never below it.
Letting it fall where nothing ever happens lost on every source tried: violations saved up come all at once."""


@dataclass(frozen=True, slots=True)
class ResourceDemand:
    """What was learned of one resource.

    Attributes
    ----------
    floor
        What levels are relative to is sqrt(peak of the last cycle ** 2 + floor ** 2), cores or bytes: relative for
        containers far above the floor, absolute below it; infinite: absolute throughout.
    knots
        float64 (g,): natural logarithm of level / reference, increasing.
    shares
        uint8 (leaves, g): share of a leaf's samples at or below each knot, in 255ths.
    samples
        float32 (leaves,): mean number of samples a moment of the leaf had before it.
    targets, prices
        float64 (p,): target violations, and the price of a violation that met them on containers left out.
    highest
        Largest level seen in training, cores or bytes.
    """

    floor: float
    knots: FloatArray
    shares: NDArray[np.uint8]
    samples: NDArray[np.float32]
    targets: FloatArray
    prices: FloatArray
    highest: float

    def curves(self) -> NDArray[np.float32]:
        """float32 (leaves, g): samples at or below each knot."""
        scale = self.samples[:, np.newaxis] / np.float32(CURVE_STEPS)
        return np.ascontiguousarray(self.shares.astype(np.float32) * scale)

    def grid(self) -> kernel.Grid:
        """The knots with what deciding needs of them."""
        return kernel.grid_of(self.knots, VIOLATION_TOLERANCE)

    def references(self, facts: FloatArray, resource: int) -> FloatArray:
        """float64 (m,): what levels are relative to, cores or bytes."""
        return references(facts, resource, self.floor)

    def price(self, target: float) -> float:
        """The price of a violation that meets a target, between and beyond the calibrated ones."""
        return float(np.exp(np.interp(target, self.targets, np.log(self.prices))))


@dataclass(frozen=True, slots=True)
class DemandModel:
    """Everything `phase.proactive` learned.

    Attributes
    ----------
    cycle_samples, lag
        What it was trained for.
    fairness
        Whose slack counts how much, see `kernels.demand.cheapest`.
    ladder, runs, forest
        Phase contexts, earlier runs of each class, the trees.
    leaf_moments
        int32 (leaves,): training moments in each leaf.
    resources
        CPU and memory.
    """

    cycle_samples: int
    lag: int
    fairness: float
    ladder: ContextLadder
    runs: EarlierRuns
    forest: kernel.Forest
    leaf_moments: NDArray[np.int32]
    resources: tuple[ResourceDemand, ResourceDemand]

    def facts(self, past: FloatArray, workload: str | None) -> FloatArray:
        """float64 (m, f): the facts the trees ask about, from those of `read_past`."""
        return all_facts(past, self.ladder, self.runs, workload)

    def leaves(self, facts: FloatArray) -> NDArray[np.int32]:
        """int32 (m, t): the leaf of each tree."""
        leaves = np.empty((len(facts), len(self.forest.roots)), np.int32)
        kernel.find_leaves(facts, self.forest, leaves)
        return leaves

    def pool(self, leaves: NDArray[np.int32], curves: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 (m, g): expected samples of the coming cycle at or below each knot."""
        pooled = np.empty((len(leaves), curves.shape[1]), np.float32)
        kernel.pool_leaves(leaves, curves, pooled)
        return pooled

    def to_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Plain arrays and plain facts, for the model folder."""
        arrays: dict[str, NDArray[Any]] = {f"forest.{n}": a for n, a in self.forest._asdict().items()}
        arrays["leaf_moments"] = self.leaf_moments
        for rung, (expected, counts) in enumerate(zip(self.ladder.expected, self.ladder.counts, strict=True)):
            arrays[f"context.{rung}.expected"], arrays[f"context.{rung}.counts"] = expected, counts
        for name in ("starts", "points", "outcomes", "owners"):
            arrays[f"runs.{name}"] = getattr(self.runs, name)
        for resource, demand in zip(RESOURCES, self.resources, strict=True):
            for name in ("knots", "shares", "samples", "targets", "prices"):
                arrays[f"{resource}.{name}"] = getattr(demand, name)
        facts = {
            "version": STATE_VERSION,
            "cycle_samples": self.cycle_samples,
            "lag": self.lag,
            "fairness": self.fairness,
            "phases": self.ladder.n_phases,
            "classes": list(self.runs.classes),
            "floors": [None if np.isinf(d.floor) else d.floor for d in self.resources],
            "highest": [d.highest for d in self.resources],
        }
        return arrays, facts

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> DemandModel:
        """The model that `to_state` wrote.

        Raises
        ------
        BadArtifact
            Something is missing, or the arrays do not fit one another.
        """
        try:
            if facts["version"] != STATE_VERSION:
                raise BadArtifact(f"the demand part has version {facts['version']}, not {STATE_VERSION}. Train again.")
            model = cls(
                int(facts["cycle_samples"]),
                int(facts["lag"]),
                float(facts["fairness"]),
                _ladder_of(arrays, int(facts["phases"])),
                EarlierRuns(tuple(facts["classes"]), *(arrays[f"runs.{n}"] for n in _RUN_ARRAYS)),
                kernel.Forest(*(arrays[f"forest.{n}"] for n in kernel.Forest._fields)),
                arrays["leaf_moments"],
                (_resource_of(arrays, facts, 0), _resource_of(arrays, facts, 1)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadArtifact(f"the model's demand part is incomplete: {error}. Train it again.") from error
        model.check()
        return model

    def check(self) -> None:
        """Refuse arrays on which the compiled code would read outside of bounds.

        Raises
        ------
        BadArtifact
            They do not fit one another.
        """
        forest, n_leaves, nodes = self.forest, len(self.leaf_moments), len(self.forest.feature)
        leaf = forest.feature < 0
        own = np.arange(nodes)
        sound = (
            all(len(a) == nodes for a in forest[1:])
            and len(forest.roots) > 0
            and bool(((forest.roots >= 0) & (forest.roots < nodes)).all())
            and bool((forest.feature < N_FACTS).all())
            and bool(((forest.left >= 0) & (forest.left < np.where(leaf, n_leaves, nodes))).all())
            and bool((leaf | ((forest.left > own) & (forest.right > own) & (forest.right < nodes))).all())
            and all(d.fits(n_leaves) for d in map(_Shapes, self.resources))
            and [len(e) for e in self.ladder.counts] == [len(e) for e in self.ladder.expected]
            and len(self.runs.starts) == len(self.runs.classes) + 1
            and len(self.runs.points) == len(self.runs.outcomes) == len(self.runs.owners) == self.runs.starts[-1]
        )
        if not sound:
            raise BadArtifact("the arrays of the model's demand part do not fit one another. Train it again.")


@dataclass(frozen=True, slots=True)
class _Shapes:
    demand: ResourceDemand

    def fits(self, n_leaves: int) -> bool:
        d = self.demand
        return (
            d.shares.shape == (n_leaves, len(d.knots))
            and d.samples.shape == (n_leaves,)
            and len(d.knots) > 1
            and bool((np.diff(d.knots) > 0).all())
            and d.targets.shape == d.prices.shape
            and bool((d.prices > 0).all())
        )


N_FACTS = facts_of.N_PAST + 4 + 9
_RUN_ARRAYS = ("starts", "points", "outcomes", "owners")


def all_facts(
    past: FloatArray, ladder: ContextLadder, runs: EarlierRuns, workload: str | None, besides: int = -1
) -> FloatArray:
    """float64 (m, N_FACTS): facts of the past, of the phase context and of earlier runs, side by side."""
    return np.ascontiguousarray(
        np.concatenate([past, ladder.look_up(past), runs.look_up(past, workload, besides)], axis=1)
    )


def references(past: FloatArray, resource: int, floor: float) -> FloatArray:
    """float64 (m,): what levels are relative to, cores or bytes; 1 where they are absolute."""
    if np.isinf(floor):
        return np.ones(len(past))
    at = facts_of.FIRST_LEVEL + resource * facts_of.N_LEVELS
    peak = np.exp(past[:, at + facts_of.NOW] + past[:, at + facts_of.CYCLE_PEAK])
    return np.sqrt(peak**2 + floor**2)


def _ladder_of(arrays: Mapping[str, NDArray[Any]], n_phases: int) -> ContextLadder:
    rungs = range(len(RUNGS))
    return ContextLadder(
        tuple(arrays[f"context.{rung}.expected"] for rung in rungs),
        tuple(arrays[f"context.{rung}.counts"] for rung in rungs),
        n_phases,
    )


def _resource_of(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], resource: int) -> ResourceDemand:
    name = RESOURCES[resource]
    floor = facts["floors"][resource]
    return ResourceDemand(
        np.inf if floor is None else float(floor),
        *(arrays[f"{name}.{part}"] for part in ("knots", "shares", "samples", "targets", "prices")),
        float(facts["highest"][resource]),
    )


__all__ = ["DemandModel", "ResourceDemand", "all_facts", "references"]
