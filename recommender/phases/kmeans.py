"""Cluster codes to phases by scikit-learn's k-means, with our choice of k, stable numbering and splits of phases.

AI4DL (HotCloud '20), section 3: clusters of codes are the phases; k is found beforehand from the within-cluster sums of
squares. Its package splits a phase by clustering its codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.base.errors import Misuse, NotEnoughData
from recommender.base.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray
from recommender.kernels.track import Centres, Places, update_phases

MAX_PHASES = 64
"""Most phases of a model: the memory and time that its forecasts take grow with the third power. At 64 the forecasts of
each workload class take 18 MB, at 256 a gigabyte."""

OUTLIER_QUANTILE = 0.999
OUTLIER_FACTOR = 2.5
"""A window is unknown beyond 2.5 times the 99.9 % quantile of the distances of its phase's training windows, so that
known workloads do not become unknown by noise."""

MIN_REACH = 0.1
"""Of a phase whose training windows are all alike, such as an idle start: codes are between 0 and 1, and a closer one
differs by noise. Without it, rounding would make the training windows themselves unknown."""

SWITCH_RATIO = 0.6
"""Hysteresis: a container changes phase when the new centre is nearer than 0.6 times the distance to the old one. On
real runs phases lasted about twice as long at the same forecast loss; between 0.5 and 0.85 little changes."""

FORECAST_TOLERANCE = 0.02  # the smallest k is chosen whose held-out forecast loss is within 2 % of the best

FORECAST_QUANTILE = 0.95
"""Quantile of the next cycle's peaks in the forecast loss; corresponds to the default target violation of 5 %."""


@dataclass(frozen=True, slots=True)
class Split:
    """One phase split: windows of `parent` go to the nearest of `centres`, whose phase numbers are `children`."""

    parent: int
    children: tuple[int, ...]
    centres: FloatArray


@dataclass(frozen=True, slots=True)
class PhaseCentres:
    """Assigns codes to phases."""

    root: FloatArray  # float64 (k, n_hidden): centres of the first clustering; the row is the phase
    # Applied in order after the root. The child nearest to the parent's mean keeps its number.
    splits: tuple[Split, ...]
    reach: FloatArray  # float64 (n_phases,): distance beyond which a window of that phase is unknown; may be inf
    # Ratio of distances below which a container changes phase, see `SWITCH_RATIO`; 1 always takes the nearest centre,
    # as the published package does.
    stay: float = 1.0

    @property
    def n_phases(self) -> int:
        return len(self.reach)

    def predict_sequence(self, codes: NDArray[np.floating[Any]]) -> IntArray:
        """Phases of codes, floating (n, n_hidden), in time order; with hysteresis, from codes up to each one's own."""
        coded, at, label = np.zeros((3, 1), np.int64)
        splits = (1, len(self.splits))
        places = Places(coded, at, label, np.zeros(splits, np.int64), np.full(splits, -2), np.zeros(1))
        slots, labels = np.zeros((2, len(codes)), np.int64)
        update_phases(slots, codes, self.arrays(), UNKNOWN_PHASE, places, labels)
        return labels

    def arrays(self) -> Centres:
        """Convert to arrays for the kernels."""
        splits, hidden = self.splits, self.root.shape[1]
        child_reach = [self._reach_of(split.children, splits[i + 1 :]) for i, split in enumerate(splits)]
        return Centres(
            root=self.root,
            root_reach=self._reach_of(range(len(self.root)), splits),
            reach=self.reach,
            stay=self.stay,
            parents=np.array([split.parent for split in splits], np.int64),
            begins=np.cumsum([0, *(len(split.children) for split in splits)]),
            children=np.array([child for split in splits for child in split.children], np.int64),
            child_centres=np.concatenate([np.empty((0, hidden)), *(split.centres for split in splits)]),
            child_reach=np.concatenate([np.empty(0), *child_reach]),
        )

    def _reach_of(self, phases: Sequence[int], later: Sequence[Split]) -> FloatArray:
        """Reach of phases before later splits; infinite where one divides a phase, whose reach is then a child's."""
        divided = np.isin(phases, [split.parent for split in later])
        return np.where(divided, np.inf, self.reach[np.asarray(phases)])

    def nearest(self, codes: NDArray[np.floating[Any]]) -> tuple[IntArray, FloatArray]:
        """Phase of the nearest centre and Euclidean distance of each code, never unknown."""
        labels, distances = _nearest(codes, self.root)
        for split in self.splits:
            inside = np.flatnonzero(labels == split.parent)
            if inside.size:
                child, distances[inside] = _nearest(codes[inside], split.centres)
                labels[inside] = np.asarray(split.children)[child]
        return labels, distances

    def split(self, phase: int, into: int, codes: NDArray[np.floating[Any]], seed: int) -> PhaseCentres:
        """Split one phase by k-means; existing numbers stay, new ones are appended.

        Raises Misuse: there is no such phase, `into` is below two, or there would be more than `MAX_PHASES`.
        Raises NotEnoughData: the phase has fewer than `into` distinct windows.
        """
        if not 0 <= phase < self.n_phases:
            raise Misuse(f"there is no phase {phase}; the model has 0 to {self.n_phases - 1}.")
        if into < 2:
            raise Misuse(f"--into {into}: a phase is split into two or more.")
        if self.n_phases + into - 1 > MAX_PHASES:
            raise Misuse(f"--into {into}: the model would have more than {MAX_PHASES} phases.")
        labels, _ = self.nearest(codes)
        own = np.asarray(codes[labels == phase], dtype=np.float64)
        if len(np.unique(own, axis=0)) < into:
            raise NotEnoughData(
                f"phase {phase} has {len(own)} windows here, not {into} distinct ones. Give data with more of it."
            )
        centres = _k_means(own, into, seed)[0]
        keeper = int(np.argmin(np.linalg.norm(centres - own.mean(axis=0), axis=1)))
        order = [keeper, *(i for i in range(into) if i != keeper)]
        children = (phase, *range(self.n_phases, self.n_phases + into - 1))
        reach = np.concatenate([self.reach, np.full(into - 1, np.inf)])
        divided = replace(self, splits=(*self.splits, Split(phase, children, centres[order])), reach=reach)
        return replace(divided, reach=divided.reaches(codes, only=children))

    def reaches(self, codes: NDArray[np.floating[Any]], only: Sequence[int] | None = None) -> FloatArray:
        """Compute `reach` from training codes; phases not in `only` keep theirs."""
        labels, distances = self.nearest(codes)
        reach = self.reach.copy()
        for phase in range(self.n_phases) if only is None else only:
            own = distances[labels == phase]
            outlier = OUTLIER_FACTOR * float(np.quantile(own, OUTLIER_QUANTILE)) if own.size else math.inf
            reach[phase] = max(outlier, MIN_REACH)
        return reach

    def fits(self, hidden: int) -> bool:
        """Whether shapes fit this number of hidden units, and every split is of an existing phase."""
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
        """Arrays for the model folder."""
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
        """Read the arrays of `to_state`."""
        splits: list[Split] = []
        while f"centres.split{len(splits)}.children" in state:
            numbers = state[f"centres.split{len(splits)}.children"]
            centres = state[f"centres.split{len(splits)}.centres"]
            splits.append(Split(int(numbers[0]), tuple(int(n) for n in numbers[1:]), centres))
        return cls(state["centres.root"], tuple(splits), state["centres.reach"], float(state["centres.stay"]))


@dataclass(frozen=True, slots=True)
class PhaseCountChoice:
    """The chosen k, and the criteria by k: within-cluster sums of squares, held-out forecast loss."""

    k: int
    elbow_k: int  # the choice of the paper
    squares: dict[int, float]
    forecast_loss: dict[int, float]


def fit_centres(codes: NDArray[np.floating[Any]], ages: IntArray, k: int, seed: int) -> PhaseCentres:
    """Fit centres to codes, floating (n, n_hidden), by k-means.

    Phases are ordered by the median of `ages`, int64 (n,), the sample numbers in their containers: so their numbers do
    not depend on the seed, and 0 is the warm-up.
    """
    distinct = len(np.unique(codes, axis=0))
    if distinct < k:
        raise NotEnoughData(f"{distinct} distinct windows cannot make {k} phases. Give more data, or fewer --phases.")
    centres, labels = _k_means(np.asarray(codes, dtype=np.float64), k, seed)
    median_age = [float(np.median(ages[labels == phase])) for phase in range(k)]
    ordered = PhaseCentres(centres[np.argsort(median_age, kind="stable")], (), np.full(k, np.inf), SWITCH_RATIO)
    return replace(ordered, reach=ordered.reaches(codes))


def choose_k(
    codes: NDArray[np.floating[Any]],
    outcomes: FloatArray,
    held_out: BoolArray,
    candidates: Sequence[int],
    seed: int,
) -> PhaseCountChoice:
    """Choose k among increasing `candidates` by how well phases predict the next cycle on windows held out, bool (n,).

    `codes`: floating (n, n_hidden).
    `outcomes`: float64 (n, m): log2 of the next cycle's peak relative to present usage, per resource; or NaN.
    """
    squares: dict[int, float] = {}
    losses: dict[int, float] = {}
    fitted, scored = np.asarray(codes[~held_out], dtype=np.float64), codes[held_out]
    possible = [k for k in candidates if k <= len(np.unique(fitted, axis=0))]
    if not possible or not len(scored):
        raise NotEnoughData("too few distinct windows to choose the number of phases. Give more data, or --phases K.")
    for k in possible:
        centres, labels = _k_means(fitted, k, seed)
        squares[k] = float(((fitted - centres[labels]) ** 2).sum())
        losses[k] = _forecast_loss(labels, outcomes[~held_out], _nearest(scored, centres)[0], outcomes[held_out])
    best = min(losses.values())
    chosen = next(k for k in possible if losses[k] <= best * (1 + FORECAST_TOLERANCE) + 1e-12)
    return PhaseCountChoice(chosen, _elbow(squares), squares, losses)


def _forecast_loss(labels: IntArray, outcomes: FloatArray, held_labels: IntArray, held_outcomes: FloatArray) -> float:
    """Mean pinball loss of each phase's quantile on held-out windows."""
    total, count = 0.0, 0
    for column in range(outcomes.shape[1]):
        overall = float(np.nanquantile(outcomes[:, column], FORECAST_QUANTILE))
        for phase in range(int(labels.max()) + 1):
            seen = outcomes[labels == phase, column]
            seen = seen[~np.isnan(seen)]
            quantile = float(np.quantile(seen, FORECAST_QUANTILE)) if seen.size else overall
            error = held_outcomes[held_labels == phase, column] - quantile
            error = error[~np.isnan(error)]
            total += float(np.maximum(FORECAST_QUANTILE * error, (FORECAST_QUANTILE - 1) * error).sum())
            count += error.size
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
    """Index of the nearest centre and distance to it, for each code."""
    codes = np.asarray(codes, dtype=np.float64)
    squared: FloatArray = (codes**2).sum(axis=1)[:, None] - 2.0 * codes @ centres.T + (centres**2).sum(axis=1)
    squared = np.maximum(squared, 0.0)
    labels = squared.argmin(axis=1)
    return labels, np.sqrt(squared[np.arange(len(squared)), labels])


def _k_means(codes: FloatArray, k: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Centres and labels of k-means; scikit-learn is imported here, since only training needs it.

    Runs on one thread, since the order of summation on several is random: the phases do not depend on the number of
    cores. Another kind of processor may change last digits.
    """
    from sklearn.cluster import KMeans  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1):  # a seed of scikit-learn has 32 bits, and cross-fitting adds to the given one
        result = KMeans(n_clusters=k, n_init=4, random_state=seed % 2**32).fit(codes)
    return np.ascontiguousarray(result.cluster_centers_), result.labels_.astype(np.int64)
