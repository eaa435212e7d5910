"""Similar moments found by trees, the demand they saw, and the allocation that is cheapest for it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Forest(NamedTuple):
    """Trees as plain arrays.

    Attributes
    ----------
    roots
        int32 (t,): where each tree starts.
    feature
        int16 (nodes,): column of the facts asked about; -1 at a leaf.
    threshold
        float32 (nodes,): left when the fact is at most this.
    left, right
        int32 (nodes,): children; at a leaf `left` is the leaf's number.
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int16]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]


@njit(cache=True, nogil=True)
def find_leaves(facts: NDArray[np.float64], forest: Forest, leaves: NDArray[np.int32]) -> None:
    """The leaf of every tree that each row of facts falls into.

    Parameters
    ----------
    facts
        float64 (d, f).
    forest
        The trees.
    leaves
        OUT int32 (d, t): leaf numbers, running on from tree to tree.
    """
    for row in range(len(facts)):
        for tree in range(len(forest.roots)):
            node = forest.roots[tree]
            while forest.feature[node] >= 0:
                fact = np.float32(facts[row, forest.feature[node]])
                node = forest.left[node] if fact <= forest.threshold[node] else forest.right[node]
            leaves[row, tree] = forest.left[node]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def pool_leaves(leaves: NDArray[np.int32], curves: NDArray[np.float32], pooled: NDArray[np.float32]) -> None:
    """Mean of the leaves' curves: how the samples of the coming cycle are distributed, judged by similar moments.

    Parameters
    ----------
    leaves
        int32 (d, t), from `find_leaves`.
    curves
        float32 (leaves, g): expected samples at or below each knot.
    pooled
        OUT float32 (d, g).
    """
    trees = leaves.shape[1]
    share = np.float32(1.0 / trees)
    for row in range(len(leaves)):
        pooled[row, :] = 0.0
        for tree in range(trees):
            curve = curves[leaves[row, tree]]
            for knot in range(curves.shape[1]):
                pooled[row, knot] += curve[knot]
        for knot in range(curves.shape[1]):
            pooled[row, knot] *= share


class Grid(NamedTuple):
    """Where curves are known.

    Attributes
    ----------
    knots
        float64 (g,): natural logarithm of level / reference, increasing.
    level
        float64 (g,): level / reference.
    left, part
        int64 (g,), float64 (g,): where the level a tolerance above each knot lies: between knots left and left + 1, at
        this part of the way.
    """

    knots: NDArray[np.float64]
    level: NDArray[np.float64]
    left: NDArray[np.int64]
    part: NDArray[np.float64]


def grid_of(knots: NDArray[np.float64], tolerance: float) -> Grid:
    """The grid on these knots when a sample violates above allocation x tolerance."""
    above = knots + math.log(tolerance)
    left = np.minimum(np.searchsorted(knots, above, side="right") - 1, len(knots) - 2)
    part = np.minimum((above - knots[left]) / (knots[left + 1] - knots[left]), 1.0)
    return Grid(knots, np.exp(knots), left.astype(np.int64), part)


@njit(cache=True, nogil=True)
def cheapest_knot(
    curve: NDArray[np.float32], grid: Grid, reference: float, price: float, fairness: float
) -> tuple[int, float]:
    """The allocation at which expected slack plus the price of expected violations is least.

    With F the expected number of the cycle's samples at or below a level, slack at an allocation a is the integral of F
    up to a, and violations are what lies above a x tolerance.

    Parameters
    ----------
    curve
        float32 (g,): F at the knots.
    grid
        The knots.
    reference
        What levels are relative to, in cores or bytes.
    price
        Slack that one violating sample is worth, in cores or bytes (to the power 1 - fairness).
    fairness
        0: slack counts as it is, so violations are spent where avoiding them is dear, on large containers;
        1: slack counts relative to the container's own expected use; between: between.

    Returns
    -------
    int, float
        The knot, and the share of the expected samples that do not violate there.
    """
    n_knots = len(grid.knots)
    samples = curve[n_knots - 1]
    if samples <= 0.0:
        return n_knots - 1, 1.0
    unit = reference
    if fairness > 0.0:
        mean = grid.level[0] * samples
        for knot in range(1, n_knots):
            mean += (samples - 0.5 * (curve[knot] + curve[knot - 1])) * (grid.level[knot] - grid.level[knot - 1])
        unit *= max(reference * mean / samples, 1e-12) ** (-fairness)
    slack, best, best_cost, best_within = 0.0, 0, math.inf, 0.0
    for knot in range(n_knots):
        if knot > 0:
            slack += 0.5 * (curve[knot] + curve[knot - 1]) * (grid.level[knot] - grid.level[knot - 1])
        below = curve[grid.left[knot]]
        within = below + grid.part[knot] * (curve[grid.left[knot] + 1] - below)
        cost = unit * slack + price * (samples - within)
        if cost < best_cost:
            best_cost, best, best_within = cost, knot, within
    return best, best_within / samples


@njit(cache=True, nogil=True)
def cheapest(
    pooled: NDArray[np.float32],
    grid: Grid,
    references: NDArray[np.float64],
    price: float,
    fairness: float,
    allocated: NDArray[np.float64],
    coverage: NDArray[np.float64],
) -> None:
    """`cheapest_knot` for many moments at one price.

    Parameters
    ----------
    pooled
        float32 (d, g): expected samples at or below each knot.
    grid, price, fairness
        As there.
    references
        float64 (d,): cores or bytes.
    allocated
        OUT float64 (d,): cores or bytes.
    coverage
        OUT float64 (d,): share of the expected samples that do not violate.
    """
    for row in range(len(pooled)):
        best, coverage[row] = cheapest_knot(pooled[row], grid, references[row], price, fairness)
        allocated[row] = references[row] * grid.level[best]


@njit(cache=True, nogil=True)
def sample_curves(
    futures: NDArray[np.float64],
    references: NDArray[np.float64],
    knots: NDArray[np.float64],
    width: float,
    curves: NDArray[np.float32],
) -> None:
    """How many of each moment's coming samples lie at or below each knot, softened.

    Parameters
    ----------
    futures
        float64 (m, cycle): the coming samples, cores or bytes, NaN where there is none.
    references
        float64 (m,): what levels are relative to.
    knots
        float64 (g,): natural logarithm of level / reference.
    width
        Logistic width of the softening, in natural logarithm; 0 counts exactly.
    curves
        OUT float32 (m, g).
    """
    tiny = 1e-9
    for row in range(len(futures)):
        curves[row, :] = 0.0
        for sample in range(futures.shape[1]):
            used = futures[row, sample]
            if math.isnan(used):
                continue
            at = math.log(max(used, tiny * references[row]) / references[row])
            for knot in range(len(knots)):
                if width > 0.0:
                    off = (knots[knot] - at) / width
                    if off > 30.0:
                        curves[row, knot] += 1.0
                    elif off > -30.0:
                        curves[row, knot] += 1.0 / (1.0 + math.exp(-off))
                elif knots[knot] >= at:
                    curves[row, knot] += 1.0
        curves[row, len(knots) - 1] = np.float32(np.sum(~np.isnan(futures[row])))


@njit(cache=True, nogil=True)
def gather_leaves(
    leaves: NDArray[np.int32], curves: NDArray[np.float32], sums: NDArray[np.float64], rows: NDArray[np.int64]
) -> None:
    """Sum the curves of the training moments that fell into each leaf.

    Parameters
    ----------
    leaves
        int32 (m, t).
    curves
        float32 (m, g).
    sums
        OUT float64 (leaves, g).
    rows
        OUT int64 (leaves,): moments per leaf.
    """
    sums[:, :] = 0.0
    rows[:] = 0
    for row in range(len(leaves)):
        for tree in range(leaves.shape[1]):
            leaf = leaves[row, tree]
            rows[leaf] += 1
            for knot in range(curves.shape[1]):
                sums[leaf, knot] += curves[row, knot]
