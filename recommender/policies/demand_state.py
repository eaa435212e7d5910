"""A demand model as plain arrays and plain facts, and back; nothing that is read is executed or trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import BadArtifact
from recommender.kernels import demand as kernel
from recommender.policies.contexts import RUNGS, ContextLadder, rung_sizes
from recommender.policies.demand import N_FACTS, Basis, DemandModel, ResourceDemand
from recommender.policies.earlier_runs import N_OUTCOMES, N_POINTS, EarlierRuns
from recommender.records import RESOURCES

STATE_VERSION = 1

_RUN_ARRAYS = ("starts", "points", "outcomes", "owners")
_RESOURCE_ARRAYS = ("knots", "shares", "samples", "targets", "prices")


def to_state(model: DemandModel) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Plain arrays and JSON-ready facts, for the model folder."""
    arrays: dict[str, NDArray[Any]] = {f"forest.{name}": a for name, a in model.forest._asdict().items()}
    arrays["leaf_moments"] = model.leaf_moments
    for rung in range(len(RUNGS)):
        arrays[f"context.{rung}.expected"] = model.ladder.expected[rung]
        arrays[f"context.{rung}.counts"] = model.ladder.counts[rung]
    for name in _RUN_ARRAYS:
        arrays[f"runs.{name}"] = getattr(model.runs, name)
    for resource, demand in zip(RESOURCES, model.resources, strict=True):
        for name in _RESOURCE_ARRAYS:
            arrays[f"{resource}.{name}"] = getattr(demand, name)
    facts = {
        "version": STATE_VERSION,
        "cycle_samples": model.cycle_samples,
        "lag": model.lag,
        "target_violation": list(model.target_violation),
        "fairness": model.fairness,
        "phases": model.ladder.n_phases,
        "classes": list(model.runs.classes),
        "bases": [d.basis.value for d in model.resources],
        "floors": [None if np.isinf(d.floor) else d.floor for d in model.resources],
        "lowest": [d.lowest for d in model.resources],
        "highest": [d.highest for d in model.resources],
    }
    return arrays, facts


def from_state(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> DemandModel:
    """The model that `to_state` wrote.

    Raises
    ------
    BadArtifact
        Something is missing, or the parts do not fit one another.
    """
    try:
        if facts["version"] != STATE_VERSION:
            raise BadArtifact(
                f"the model's demand part has version {facts['version']}, not {STATE_VERSION}. Train it again."
            )
        cpu, memory = facts["target_violation"]
        model = DemandModel(
            int(facts["cycle_samples"]),
            int(facts["lag"]),
            (float(cpu), float(memory)),
            float(facts["fairness"]),
            _ladder_of(arrays, int(facts["phases"])),
            EarlierRuns(tuple(facts["classes"]), *(arrays[f"runs.{name}"] for name in _RUN_ARRAYS)),
            kernel.Forest(*(arrays[f"forest.{name}"] for name in kernel.Forest._fields)),
            arrays["leaf_moments"],
            (_resource_of(arrays, facts, 0), _resource_of(arrays, facts, 1)),
        )
        sound = _fits(model)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise BadArtifact(
            f"the model's demand part is incomplete ({type(error).__name__}: {error}). Train it again."
        ) from error
    if not sound:
        raise BadArtifact("the arrays of the model's demand part do not fit one another. Train it again.")
    return model


def _ladder_of(arrays: Mapping[str, NDArray[Any]], n_phases: int) -> ContextLadder:
    rungs = range(len(RUNGS))
    return ContextLadder(
        tuple(arrays[f"context.{rung}.expected"] for rung in rungs),
        tuple(arrays[f"context.{rung}.counts"] for rung in rungs),
        n_phases,
    )


def _resource_of(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], resource: int) -> ResourceDemand:
    floor = facts["floors"][resource]
    own = {name: arrays[f"{RESOURCES[resource]}.{name}"] for name in _RESOURCE_ARRAYS}
    return ResourceDemand(
        basis=Basis(facts["bases"][resource]),
        floor=np.inf if floor is None else float(floor),
        lowest=float(facts["lowest"][resource]),
        highest=float(facts["highest"][resource]),
        **own,
    )


def _fits(model: DemandModel) -> bool:
    """Whether compiled code stays within these arrays."""
    n_leaves = len(model.leaf_moments)
    return (
        model.cycle_samples > 0
        and _forest_fits(model.forest, n_leaves)
        and all(_resource_fits(demand, n_leaves) for demand in model.resources)
        and all(
            expected.shape == (size, N_OUTCOMES) and counts.shape == (size,)
            for expected, counts, size in zip(
                model.ladder.expected, model.ladder.counts, rung_sizes(model.ladder.n_phases), strict=True
            )
        )
        and _runs_fit(model.runs)
    )


def _forest_fits(forest: kernel.Forest, n_leaves: int) -> bool:
    """Every walk from a root goes forward and ends at a known leaf."""
    nodes = len(forest.feature)
    leaf = forest.feature < 0
    own = np.arange(nodes)
    onward = (forest.left > own) & (forest.left < nodes) & (forest.right > own) & (forest.right < nodes)
    at_leaf = (forest.left >= 0) & (forest.left < n_leaves)
    return (
        len(forest.roots) > 0
        and all(len(array) == nodes for array in forest[1:])
        and tuple(array.dtype for array in forest) == _FOREST_KINDS
        and bool(((forest.roots >= 0) & (forest.roots < nodes)).all())
        and bool((forest.feature < N_FACTS).all())
        and bool(np.where(leaf, at_leaf, onward).all())
    )


_FOREST_KINDS = tuple(map(np.dtype, (np.int32, np.int16, np.float32, np.int32, np.int32)))


def _resource_fits(demand: ResourceDemand, n_leaves: int) -> bool:
    return (
        demand.shares.dtype == np.uint8
        and demand.shares.shape == (n_leaves, len(demand.knots))
        and demand.samples.shape == (n_leaves,)
        and len(demand.knots) > 1
        and bool((np.diff(demand.knots) > 0).all())
        and len(demand.targets) > 0
        and demand.targets.shape == demand.prices.shape
        and bool((demand.prices > 0).all())
    )


def _runs_fit(runs: EarlierRuns) -> bool:
    moments = int(runs.starts[-1])
    return (
        len(runs.starts) == len(runs.classes) + 1
        and bool((np.diff(runs.starts) >= 0).all())
        and int(runs.starts[0]) == 0
        and runs.points.shape == (moments, N_POINTS)
        and runs.outcomes.shape == (moments, N_OUTCOMES)
        and runs.owners.shape == (moments,)
    )
