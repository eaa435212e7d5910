"""From one container's usage to its phases: features, standardised, encoded by the CRBM, nearest centre."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import BadArtifact, NotEnoughData
from recommender.kernels.windows import carried_forward, column_moments, gap_free
from recommender.phases.crbm import ConditionalRBM
from recommender.phases.features import CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES, feature_matrix
from recommender.phases.kmeans import PhaseCentres, PhaseCount, choose_k, fit_centres
from recommender.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray, PhaseTrace, UsageSeries

CANDIDATE_PHASES = tuple(range(3, 13))
"""Values of k that `phases="auto"` tries. Two phases tell idle from busy and nothing more; the paper found 5."""

HELD_OUT_SHARE = 0.25
"""Of the codes, kept out of clustering with their containers while k is chosen; twice as many at the most."""

LEAST_CONTAINERS = 4
"""With fewer none is kept out."""

CODE_SAMPLE = 20_000
"""Windows that k-means sees at the most: centres of ten dimensions do not move with more, the time does."""


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """How a detector is trained; every field is an option of `phasewise train`."""

    features: tuple[str, ...]
    lag: int = 3
    hidden: int = 10
    phases: int | None = None
    """None chooses k from the data."""
    seed: int = 0
    windows: int = 100_000
    """Windows the encoder is trained on at the most, whole containers drawn at random."""
    updates: int = 20_000_000
    """Windows shown in all: few containers are gone over often, many seldom, for the same few seconds."""
    patience: int = 10
    """Epochs without a better held-out error before training ends. The paper stops after 3 on the training error,
    which is smooth; the error of few held-out windows is not, and 3 would end most trainings after a dozen epochs."""


@dataclass(frozen=True, slots=True)
class PhaseDetector:
    """A fitted encoder with its phases.

    Attributes
    ----------
    features
        Names, in the encoder's order.
    mean, scale : float64 (n_features,)
        Standardisation, from the training set.
    encoder, centres
        The CRBM, and which code is which phase.
    """

    features: tuple[str, ...]
    mean: FloatArray
    scale: FloatArray
    encoder: ConditionalRBM
    centres: PhaseCentres

    @property
    def lag(self) -> int:
        return int(self.encoder.lag)

    @property
    def n_phases(self) -> int:
        return self.centres.n_phases

    def trace(self, series: UsageSeries) -> PhaseTrace:
        """The phase of every sample.

        The first lag + 1 samples of a container carry the all-zero code (AI4DL's package) and so form the warm-up.
        After a gap the encoder is as blind as at the start, but the container is not new: its last phase is carried on
        until there is a full window again.
        """
        codes, coded = self.codes(series)
        labels = np.full(len(series), UNKNOWN_PHASE, dtype=np.int64)
        if coded.any():
            labels[coded] = self.centres.follow(codes[coded])
        return PhaseTrace(carried_forward(labels, ~coded), self.n_phases)

    def codes(self, series: UsageSeries) -> tuple[NDArray[np.floating[Any]], BoolArray]:
        """Codes (n, n_hidden), and a bool (n,): True where the code is a window's or the warm-up's."""
        values = ((feature_matrix(series, self.features) - self.mean) / self.scale).astype(self.encoder.dtype)
        rows, segments = gap_free(values)
        codes = np.zeros((len(series), self.encoder.n_hidden), dtype=values.dtype)
        coded = np.zeros(len(series), dtype=bool)
        if len(rows):
            codes[rows] = self.encoder.transform(values[rows], segments)
            coded[rows] = True
            for start, stop in pairwise(segments[1:]):  # blind again after each gap
                coded[rows[start : min(start + self.lag + 1, stop)]] = False
        return codes, coded

    def split(self, phase: int, into: int, series: Sequence[UsageSeries], seed: int) -> PhaseDetector:
        """The same detector with one phase divided by what these series show of it."""
        codes = np.concatenate([codes[coded] for codes, coded in map(self.codes, series)])
        return replace(self, centres=self.centres.split(phase, into, codes, seed))

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, for the model folder; the feature names go into the manifest."""
        encoder = {f"crbm.{name}": array for name, array in self.encoder.to_state().items()}
        return {"scaler.mean": self.mean, "scaler.scale": self.scale, **encoder, **self.centres.to_state()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]], features: Sequence[str]) -> PhaseDetector:
        """The detector that `to_state` wrote.

        Raises
        ------
        BadArtifact
            An array is missing, not finite, or its shape does not fit the others.
        """
        try:
            encoder = ConditionalRBM.from_state(
                {name.removeprefix("crbm."): a for name, a in state.items() if name.startswith("crbm.")}
            )
            numbers = {
                name: np.asarray(a, np.float64, order="C")
                for name, a in state.items()
                if name.startswith(("scaler.", "centres."))
            }
            mean, scale, centres = numbers["scaler.mean"], numbers["scaler.scale"], PhaseCentres.from_state(numbers)
            detector = cls(tuple(features), mean, scale, encoder, centres)
        except KeyError as error:
            raise BadArtifact(f"the model lacks the array {error}. Train it again.") from error
        for name, array in numbers.items():  # a model need not say how far its phases reach
            if not (array >= 0.0 if name == "centres.reach" else np.isfinite(array)).all():
                raise BadArtifact(f"the model's array {name} holds what is no finite number. Train it again.")
        n = len(detector.features)
        shapes_fit = (
            detector.mean.shape == detector.scale.shape == (n,)
            and bool((detector.scale > 0.0).all())
            and encoder.weights_.shape == (encoder.n_hidden, n)
            and detector.centres.fits(encoder.n_hidden)
        )
        if not shapes_fit:
            raise BadArtifact(
                f"the model's arrays do not fit {n} features and {encoder.n_hidden} hidden units. Train it again."
            )
        return detector


def fit_detector(
    series: Sequence[UsageSeries],
    options: DetectorOptions,
    cycle_samples: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[PhaseDetector, PhaseCount | None]:
    """Train encoder and phases on whole containers.

    Parameters
    ----------
    series
        Training containers.
    options
        Features, sizes, seed.
    cycle_samples
        How many samples ahead phases are judged by when their number is chosen.
    progress
        Called with (what, done, of).

    Returns
    -------
    detector, and how k was chosen (None when it was given)

    Raises
    ------
    NotEnoughData
        No container has a full window, or there are fewer different windows than phases.
    """
    matrices = [feature_matrix(s, options.features) for s in series]
    stacked = np.concatenate(matrices) if matrices else np.empty((0, len(options.features)))
    if not np.isfinite(stacked).all(axis=1).any():
        raise NotEnoughData("no sample has all features. Check the columns named by --features.")
    mean, scale = column_moments(stacked)
    rng = np.random.default_rng(options.seed)
    values, segments = _training_windows(matrices, mean, scale, options, rng)
    encoder = ConditionalRBM(
        options.hidden,
        options.lag,
        max_epochs=int(np.clip(options.updates // len(values), 20, 1000)),
        patience=options.patience,
        hidden_states="sampled",  # the noise keeps codes coarse: phases last two to four times as long as with means
        seed=options.seed,
    )
    encoder.fit(values, segments, progress=None if progress is None else lambda done, of: progress("encoder", done, of))
    blind = PhaseDetector(options.features, mean, scale, encoder, _no_centres(options.hidden))
    codes, ages, outcomes, owners = _coded(blind, series, cycle_samples, rng)
    if progress is not None:
        progress("phases", 0, 1)
    count = None
    k = options.phases
    if k is None:
        held_out = _held_out(owners, rng.permutation(len(series)))
        count = choose_k(codes, outcomes, held_out, CANDIDATE_PHASES, options.seed)
        k = count.k
    if progress is not None:
        progress("phases", 1, 1)
    return replace(blind, centres=fit_centres(codes, ages, k, options.seed)), count


def coming_peaks(usage: FloatArray, cycle_samples: int) -> FloatArray:
    """log2 of the coming cycle's peak against the present level, float64 (n, 2); NaN in gaps and at the end."""
    n = len(usage)
    peaks = np.full((n, 2), np.nan)
    if n < 2:
        return peaks
    floors = np.array([CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES])
    padded = np.vstack([np.where(np.isnan(usage), -np.inf, usage)[1:], np.full((cycle_samples, 2), -np.inf)])
    ahead = np.lib.stride_tricks.sliding_window_view(padded, cycle_samples, axis=0).max(axis=2)[:n]
    seen = (np.isfinite(ahead) & ~np.isnan(usage)).all(axis=1)
    peaks[seen] = np.log2((ahead[seen] + floors) / (usage[seen] + floors))
    return peaks


def _training_windows(
    matrices: Sequence[FloatArray],
    mean: FloatArray,
    scale: FloatArray,
    options: DetectorOptions,
    rng: np.random.Generator,
) -> tuple[NDArray[np.floating[Any]], IntArray]:
    """Whole containers in random order until there are enough windows, cut into gap-free segments."""
    kept: list[NDArray[np.floating[Any]]] = []
    borders, total = [0], 0
    for i in rng.permutation(len(matrices)):
        values = ((matrices[i] - mean) / scale).astype(np.float32)
        rows, segments = gap_free(values)
        for start, stop in pairwise(segments):
            room = min(stop - start, options.windows - total)
            if room > options.lag:
                kept.append(values[rows[start : start + room]])
                total += room
                borders.append(total)
    if not kept:
        raise NotEnoughData(
            f"no container has {options.lag + 1} samples in a row. Give longer series, or a coarser --step."
        )
    return np.concatenate(kept), np.array(borders, dtype=np.int64)


def _coded(
    detector: PhaseDetector, series: Sequence[UsageSeries], cycle_samples: int, rng: np.random.Generator
) -> tuple[NDArray[np.floating[Any]], IntArray, FloatArray, IntArray]:
    """Codes, ages, outcomes and owning containers of at most `CODE_SAMPLE` windows, spread evenly over all."""
    total = sum(len(s) for s in series)
    keep = min(1.0, CODE_SAMPLE / max(total, 1))
    parts: list[tuple[NDArray[np.floating[Any]], IntArray, FloatArray, IntArray]] = []
    for owner, one in enumerate(series):
        codes, coded = detector.codes(one)
        at = np.flatnonzero(coded & (rng.random(len(one)) < keep))
        parts.append((codes[at], at, coming_peaks(one.usage, cycle_samples)[at], np.full(len(at), owner)))
    codes, ages, outcomes, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
    return codes, ages, outcomes, owners


def _held_out(owners: IntArray, ranks: IntArray) -> BoolArray:
    """Which codes to judge k on, bool (n,): containers in the order of their ranks; alternate codes where none fit."""
    counts, out, held = np.bincount(owners, minlength=len(ranks)), np.zeros(len(ranks), bool), 0
    wanted = HELD_OUT_SHARE * len(owners)
    for container in np.argsort(ranks).tolist():
        if held < wanted and held + counts[container] <= 2.0 * wanted:
            out[container], held = True, held + counts[container]
    held_out: BoolArray = out[owners]
    if held < wanted or len(ranks) < LEAST_CONTAINERS:
        held_out = np.arange(len(owners)) % round(1.0 / HELD_OUT_SHARE) == 0
    return held_out


def _no_centres(hidden: int) -> PhaseCentres:
    return PhaseCentres(np.zeros((1, hidden)), (), np.full(1, np.inf))
