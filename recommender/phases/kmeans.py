"""Phases from codes: scikit-learn's k-means inside; ours are the choice of k, the stable numbering and the splits.

AI4DL (HotCloud '20), section 3: proximity-based clustering of the encoder's codes gives the phases; k is a
hyper-parameter found beforehand from the within-cluster squares. Its package splits a phase by clustering inside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import Misuse, NotEnoughData
from recommender.kernels.track import Centres, Places, label_codes
from recommender.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray

OUTLIER_QUANTILE = 0.999
OUTLIER_REACH = 2.5
"""A window is unknown beyond 2.5 times the distance that holds 99.9 % of a phase's own training windows. One in a
thousand is then still far inside the border, so a known workload is not called unknown for its noise."""

STAY = 0.6
"""A container changes phase when the new centre is nearer than 0.6 times the distance to the old one. On real runs this
made phases last about twice as long and cost nothing in what they foretell; between 0.5 and 0.85 little changes."""

FORECAST_TOLERANCE = 0.02
"""The smallest k whose held-out forecast loss is within 2 % of the best: further phases would be names without use."""

FORECAST_QUANTILE = 0.95
"""The part of the coming cycle's peaks a provision should cover; the same as the default target violation of 5 %."""


@dataclass(frozen=True, slots=True)
class Split:
    """One phase divided: windows of `parent` go to the nearest of `centres`, which bear the numbers `children`."""

    parent: int
    children: tuple[int, ...]
    centres: FloatArray


@dataclass(frozen=True, slots=True)
class PhaseCentres:
    """Which code belongs to which phase.

    Attributes
    ----------
    root : float64 (k, n_hidden)
        Centres of the first clustering; their row is their phase.
    splits
        Applied in order after the root. The child nearest to the old centre keeps the parent's number.
    reach : float64 (n_phases,)
        Distance beyond which a window of that phase is unknown; inf where a model does not say.
    stay
        How much nearer another centre must be before a container is said to change phase: see `STAY`. 1 takes the
        nearest centre always, as the published package does.
    """

    root: FloatArray
    splits: tuple[Split, ...]
    reach: FloatArray
    stay: float = 1.0

    @property
    def n_phases(self) -> int:
        return len(self.reach)

    def follow(self, codes: NDArray[np.floating[Any]]) -> IntArray:
        """The phases one container goes through, `UNKNOWN_PHASE` where a code is too far from every centre.

        Parameters
        ----------
        codes : floating (n, n_hidden)
            Of one container, in time order. A label depends on codes up to its own only.
        """
        coded, at, label = np.zeros((3, 1), np.int64)
        splits = (1, len(self.splits))
        places = Places(coded, at, label, np.zeros(splits, np.int64), np.full(splits, -2), np.zeros(1))
        labels = np.empty(len(codes), np.int64)
        label_codes(codes, self.arrays(), UNKNOWN_PHASE, places, labels)
        return labels

    def arrays(self) -> Centres:
        """The same as kernels take it."""
        splits, hidden = self.splits, self.root.shape[1]
        return Centres(
            root=self.root,
            root_reach=np.full(len(self.root), np.inf) if splits else self.reach,
            reach=self.reach,
            stay=self.stay,
            parents=np.array([split.parent for split in splits], np.int64),
            begins=np.cumsum([0, *(len(split.children) for split in splits)]),
            children=np.array([child for split in splits for child in split.children], np.int64),
            child_centres=np.concatenate([np.empty((0, hidden)), *(split.centres for split in splits)]),
        )

    def nearest(self, codes: NDArray[np.floating[Any]]) -> tuple[IntArray, FloatArray]:
        """Phase and distance (Euclidean, in code space) of each code, never unknown."""
        labels, distances = _nearest(codes, self.root)
        for split in self.splits:
            inside = np.flatnonzero(labels == split.parent)
            if inside.size:
                child, distances[inside] = _nearest(codes[inside], split.centres)
                labels[inside] = np.asarray(split.children)[child]
        return labels, distances

    def split(self, phase: int, into: int, codes: NDArray[np.floating[Any]], seed: int) -> PhaseCentres:
        """k-means inside one phase; old numbers stay, the new ones are appended.

        Raises
        ------
        Misuse
            There is no such phase, or `into` is below two.
        NotEnoughData
            Fewer distinct windows of that phase than parts asked for.
        """
        if not 0 <= phase < self.n_phases:
            raise Misuse(f"there is no phase {phase}; the model has 0 to {self.n_phases - 1}.")
        if into < 2:
            raise Misuse(f"--into {into}: a phase is split into two or more.")
        labels, _ = self.nearest(codes)
        own = np.asarray(codes[labels == phase], dtype=np.float64)
        if len(np.unique(own, axis=0)) < into:
            raise NotEnoughData(
                f"phase {phase} has {len(own)} windows here, not {into} different ones. Give data that show it more."
            )
        centres = _k_means(own, into, seed)[0]
        keeper = int(np.argmin(np.linalg.norm(centres - own.mean(axis=0), axis=1)))
        order = [keeper, *(i for i in range(into) if i != keeper)]
        children = (phase, *range(self.n_phases, self.n_phases + into - 1))
        reach = np.concatenate([self.reach, np.full(into - 1, np.inf)])
        divided = replace(self, splits=(*self.splits, Split(phase, children, centres[order])), reach=reach)
        return replace(divided, reach=divided.reaches(codes, only=children))

    def reaches(self, codes: NDArray[np.floating[Any]], only: Sequence[int] | None = None) -> FloatArray:
        """How far each phase reaches on these training codes; phases not in `only` keep theirs."""
        labels, distances = self.nearest(codes)
        reach = self.reach.copy()
        for phase in range(self.n_phases) if only is None else only:
            own = distances[labels == phase]
            reach[phase] = OUTLIER_REACH * float(np.quantile(own, OUTLIER_QUANTILE)) if own.size else math.inf
        return reach

    def fits(self, hidden: int) -> bool:
        """Whether all centres are of so many hidden units, and every split divides a phase that is there."""
        known = len(self.root)
        for split in self.splits:
            added = len(split.children) - 1
            if (
                not 0 <= split.parent < known
                or split.children != (split.parent, *range(known, known + added))
                or split.centres.shape != (added + 1, hidden)
            ):
                return False
            known += added
        return len(self.root) > 0 and self.root.shape[1:] == (hidden,) and self.reach.shape == (known,)

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, for the model folder."""
        state: dict[str, NDArray[Any]] = {
            "centres.root": self.root,
            "centres.reach": self.reach,
            "centres.stay": np.array(self.stay),
        }
        for i, split in enumerate(self.splits):
            state[f"centres.split{i}.children"] = np.array([split.parent, *split.children], dtype=np.int64)
            state[f"centres.split{i}.centres"] = split.centres
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> PhaseCentres:
        """The centres that `to_state` wrote."""
        splits: list[Split] = []
        while f"centres.split{len(splits)}.children" in state:
            numbers = state[f"centres.split{len(splits)}.children"]
            centres = state[f"centres.split{len(splits)}.centres"]
            splits.append(Split(int(numbers[0]), tuple(int(n) for n in numbers[1:]), centres))
        return cls(state["centres.root"], tuple(splits), state["centres.reach"], float(state["centres.stay"]))


@dataclass(frozen=True, slots=True)
class PhaseCount:
    """How many phases, and what each criterion says: k -> within-cluster squares, k -> held-out forecast loss."""

    k: int
    elbow_k: int
    squares: dict[int, float]
    forecast_loss: dict[int, float]


def fit_centres(codes: NDArray[np.floating[Any]], ages: IntArray, k: int, seed: int) -> PhaseCentres:
    """k-means on codes, phases numbered by when in a container's life they are met.

    Parameters
    ----------
    codes : floating (n, n_hidden)
    ages : int64 (n,)
        Sample number inside its container, from 0. Phases are numbered by the median of it, so that the same data give
        the same numbers whatever the seed's order, and 0 is the warm-up.
    """
    distinct = len(np.unique(codes, axis=0))
    if distinct < k:
        raise NotEnoughData(f"{distinct} different windows cannot make {k} phases. Give more data, or fewer --phases.")
    centres, labels = _k_means(np.asarray(codes, dtype=np.float64), k, seed)
    median_age = [float(np.median(ages[labels == phase])) for phase in range(k)]
    ordered = PhaseCentres(centres[np.argsort(median_age, kind="stable")], (), np.full(k, np.inf), STAY)
    return replace(ordered, reach=ordered.reaches(codes))


def choose_k(
    codes: NDArray[np.floating[Any]],
    outcomes: FloatArray,
    held_out: BoolArray,
    candidates: Sequence[int],
    seed: int,
) -> PhaseCount:
    """Choose k by what phases are for: how well they foretell the coming cycle on windows not clustered.

    Parameters
    ----------
    codes : floating (n, n_hidden)
    outcomes : float64 (n, m)
        What came in the cycle after each window (log2 of its peak against the present level, per resource), or NaN.
    held_out : bool (n,)
        Windows of containers kept out of clustering.
    candidates
        Values of k to try, in increasing order.

    Returns
    -------
    PhaseCount
        `k` is the smallest within `FORECAST_TOLERANCE` of the least held-out loss; `elbow_k` is the paper's choice.
    """
    squares: dict[int, float] = {}
    losses: dict[int, float] = {}
    fitted, scored = np.asarray(codes[~held_out], dtype=np.float64), codes[held_out]
    possible = [k for k in candidates if k <= len(np.unique(fitted, axis=0))]
    if not possible or not len(scored):
        raise NotEnoughData("too few different windows to choose the number of phases. Give more data, or --phases K.")
    for k in possible:
        centres, labels = _k_means(fitted, k, seed)
        squares[k] = float(((fitted - centres[labels]) ** 2).sum())
        losses[k] = _forecast_loss(labels, outcomes[~held_out], _nearest(scored, centres)[0], outcomes[held_out])
    best = min(losses.values())
    chosen = next(k for k in possible if losses[k] <= best * (1 + FORECAST_TOLERANCE) + 1e-12)
    return PhaseCount(chosen, _elbow(squares), squares, losses)


def _forecast_loss(labels: IntArray, outcomes: FloatArray, held_labels: IntArray, held_outcomes: FloatArray) -> float:
    """Mean pinball loss of each phase's quantile on windows it was not made from."""
    total, count = 0.0, 0
    for column in range(outcomes.shape[1]):
        everywhere = float(np.nanquantile(outcomes[:, column], FORECAST_QUANTILE))
        for phase in range(int(labels.max()) + 1):
            seen = outcomes[labels == phase, column]
            seen = seen[~np.isnan(seen)]
            quantile = float(np.quantile(seen, FORECAST_QUANTILE)) if seen.size else everywhere
            miss = held_outcomes[held_labels == phase, column] - quantile
            miss = miss[~np.isnan(miss)]
            total += float(np.maximum(FORECAST_QUANTILE * miss, (FORECAST_QUANTILE - 1) * miss).sum())
            count += miss.size
    return total / max(count, 1)


def _elbow(squares: Mapping[int, float]) -> int:
    """The k farthest below the chord from the first to the last point of the curve, both axes scaled to 0..1."""
    ks = sorted(squares)
    first, last = squares[ks[0]], squares[ks[-1]]
    if len(ks) < 3 or first <= last:
        return ks[0]
    depth = {k: (first - squares[k]) / (first - last) - (k - ks[0]) / (ks[-1] - ks[0]) for k in ks}
    return max(ks, key=lambda k: (depth[k], -k))


def _nearest(codes: NDArray[np.floating[Any]], centres: FloatArray) -> tuple[IntArray, FloatArray]:
    """Row of the nearest centre and the distance to it, for each code."""
    wide = np.asarray(codes, dtype=np.float64)
    squared: FloatArray = (wide**2).sum(axis=1)[:, None] - 2.0 * wide @ centres.T + (centres**2).sum(axis=1)
    squared = np.maximum(squared, 0.0)
    labels = squared.argmin(axis=1)
    return labels, np.sqrt(squared[np.arange(len(squared)), labels])


def _k_means(codes: FloatArray, k: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Centres and labels; scikit-learn is imported here, since only training needs it.

    On one thread: several add up in any order, and the same data shall give the same phases on every machine.
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1):
        result = KMeans(n_clusters=k, n_init=4, random_state=seed).fit(codes)
    return np.ascontiguousarray(result.cluster_centers_), result.labels_.astype(np.int64)
