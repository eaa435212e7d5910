"""Trees that group moments that went on alike, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recommender.kernels import demand as kernel
from recommender.kernels import past as facts_of
from recommender.policies.demand_options import DemandOptions
from recommender.policies.moments import FLOORS, Moments
from recommender.records import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Fold:
    """A forest, the moments it learned from, and those of a dry run that it did not learn from.

    Attributes
    ----------
    forest
        The trees.
    learned, others
        bool (m,): which moments.
    learned_leaves, other_leaves
        int32 (., t): their leaves.
    """

    forest: kernel.Forest
    learned: BoolArray
    others: BoolArray
    learned_leaves: NDArray[np.int32]
    other_leaves: NDArray[np.int32]


def grouping_targets(moments: Moments) -> FloatArray:
    """What trees group moments by, float64 (m, 10): peak, ninth decile and mean of the coming cycle, absolute and
    relative to the cycle just ended, for both resources, each scaled to unit spread."""
    columns: list[FloatArray] = []
    for resource in range(2):
        coming = moments.coming[:, :, resource]
        floor = np.fmax(coming, FLOORS[resource])
        low = max(0.02 * float(np.nanmedian(coming)), FLOORS[resource])
        level = np.log(np.where(np.isnan(coming), np.nan, np.fmax(coming, low)))
        real = np.log(np.where(np.isnan(coming), np.nan, floor))
        at = facts_of.FIRST_LEVEL + resource * facts_of.N_LEVELS
        now = moments.past[:, at + facts_of.NOW]
        peak, mean = now + moments.past[:, at + facts_of.CYCLE_PEAK], now + moments.past[:, at + facts_of.CYCLE_MEAN]
        columns += [
            np.nanmax(level, axis=1),
            np.nanquantile(level, 0.9, axis=1),
            np.nanmean(level, axis=1),
            np.clip(np.nanmax(real, axis=1) - peak, -3.0, 3.0),
            np.clip(np.nanmean(real, axis=1) - mean, -3.0, 3.0),
        ]
    targets = np.column_stack(columns)
    scaled: FloatArray = targets / (targets.std(axis=0) + 1e-9)
    return scaled


def grow(facts: FloatArray, targets: FloatArray, samples: IntArray, options: DemandOptions, seed: int) -> kernel.Forest:
    """A random forest, as plain arrays."""
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415  two seconds that only training needs

    forest = RandomForestRegressor(
        options.trees,
        min_samples_leaf=min(options.fewest_moments, max(1, len(facts) // 4)),
        max_leaf_nodes=options.most_leaves,
        max_features=options.share_of_facts,
        random_state=seed,
        n_jobs=1,
    )
    forest.fit(facts.astype(np.float32), targets, sample_weight=np.sqrt(samples))
    trees = [estimator.tree_ for estimator in forest.estimators_]
    nodes = np.cumsum([0, *(tree.node_count for tree in trees)])
    n_leaves = np.cumsum([0, *(tree.n_leaves for tree in trees)])
    parts: list[tuple[NDArray[np.int64], ...]] = []
    for tree, first, first_leaf in zip(trees, nodes, n_leaves, strict=False):
        leaf = tree.children_left < 0
        numbers = first_leaf + np.cumsum(leaf) - 1
        parts.append(
            (
                np.where(leaf, -1, tree.feature),
                np.where(leaf, 0.0, tree.threshold),
                np.where(leaf, numbers, tree.children_left + first),
                np.where(leaf, -1, tree.children_right + first),
            )
        )
    feature, threshold, left, right = (np.concatenate(column) for column in zip(*parts, strict=True))
    return kernel.Forest(
        nodes[:-1].astype(np.int32),
        feature.astype(np.int16),
        threshold.astype(np.float32),
        left.astype(np.int32),
        right.astype(np.int32),
    )


def n_leaves_of(forest: kernel.Forest) -> int:
    """Leaves of all trees together."""
    return int(np.count_nonzero(forest.feature < 0))


def leaves_of(facts: FloatArray, forest: kernel.Forest) -> NDArray[np.int32]:
    """int32 (m, t): the leaf of each tree."""
    leaves = np.empty((len(facts), len(forest.roots)), np.int32)
    kernel.find_leaves(np.ascontiguousarray(facts), forest, leaves)
    return leaves


def gathered(leaves: NDArray[np.int32], curves: NDArray[np.float32], n_leaves: int) -> tuple[FloatArray, IntArray]:
    """Summed curves and number of moments of each leaf."""
    sums, moments = np.empty((n_leaves, curves.shape[1])), np.empty(n_leaves, np.int64)
    kernel.gather_leaves(leaves, curves, sums, moments)
    return sums, moments
