"""Detect the phases of a container: standardised features, encoded by the CRBM, nearest centre."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.base.errors import BadArtifact, NotEnoughData
from recommender.base.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray, Progress, UsageSeries, no_progress
from recommender.kernels.track import USAGE_FLOORS
from recommender.kernels.windows import carried_forward, column_moments, gap_free
from recommender.phases.crbm import ConditionalRBM
from recommender.phases.features import USAGE_FEATURES, feature_matrix
from recommender.phases.kmeans import PhaseCentres, PhaseCountChoice, choose_k, fit_centres

CANDIDATE_PHASES = tuple(range(3, 13))
"""Values of k to choose from. Two phases only separate idle from busy; the paper found 5."""

HELD_OUT_SHARE = 0.25
"""Share of codes, by whole containers, held out of clustering while k is chosen; at most twice as many."""

MIN_CONTAINERS_TO_HOLD_OUT = 4  # with fewer containers, single codes are held out instead

MAX_SQUARED_LENGTH = 1000.0
"""Of a training window; its values are clipped. A rare spike of otherwise steady use is hundreds of standard deviations
high, and gradient descent diverges beyond 2 / learning rate, which is 2000."""

LEAST_SCALE = dict.fromkeys(USAGE_FEATURES, 0.25)
"""Of features in log2: where all usage stays within a fifth, differences are noise, and make no phases."""

MAX_CLUSTERED_CODES = 20_000  # maximum number of windows for k-means; more only take longer


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """How a detector is trained; options of `phasewise train` set the first five."""

    features: tuple[str, ...]
    lag: int = 3
    hidden: int = 10
    phases: int | None = None  # None chooses k from the data
    seed: int = 0
    windows: int = 100_000  # maximum number of windows to train the encoder on, from whole containers in random order
    # Total number of updates, which bounds the epochs: training takes equally long on small and large data.
    updates: int = 20_000_000
    # Epochs without a lower held-out error before training stops. The paper uses 3 on the training error, which is
    # smooth; on the noisy held-out error 3 would stop most trainings after a dozen epochs.
    patience: int = 10


@dataclass(frozen=True, slots=True)
class PhaseDetector:
    """A fitted encoder with its phases."""

    features: tuple[str, ...]  # names, in the encoder's order
    # Standardisation of the training set, float64 (n_features,).
    mean: FloatArray
    scale: FloatArray
    # The CRBM, and the phase centres of its codes.
    encoder: ConditionalRBM
    centres: PhaseCentres

    @property
    def lag(self) -> int:
        return int(self.encoder.lag)

    @property
    def n_phases(self) -> int:
        return self.centres.n_phases

    def trace(self, series: UsageSeries) -> IntArray:
        """The phase of every sample, int64 (n,), or `UNKNOWN_PHASE`.

        Before its first full window a container has the all-zero code, as in AI4DL's package, which forms the warm-up.
        After a gap the last phase is carried on until there is a full window again.
        """
        codes, coded = self.codes(series)
        labels = np.full(len(series), UNKNOWN_PHASE, dtype=np.int64)
        if coded.any():
            labels[coded] = self.centres.predict_sequence(codes[coded])
        return carried_forward(labels, ~coded)

    def codes(self, series: UsageSeries) -> tuple[NDArray[np.floating[Any]], BoolArray]:
        """Codes (n, n_hidden), and bool (n,): True where there is a code of a window or of the warm-up."""
        values = ((feature_matrix(series, self.features) - self.mean) / self.scale).astype(self.encoder.dtype)
        rows, segments = gap_free(values)
        codes = np.zeros((len(series), self.encoder.n_hidden), dtype=values.dtype)
        coded = np.zeros(len(series), dtype=bool)
        if len(rows):
            codes[rows] = self.encoder.transform(values[rows], segments)
            coded[rows] = True
            for start, stop in pairwise(segments[1:]):  # no full window after a gap
                coded[rows[start : min(start + self.lag + self.encoder.delay, stop)]] = False
        return codes, coded

    def split(self, phase: int, into: int, series: Sequence[UsageSeries], seed: int) -> PhaseDetector:
        """Split one phase into several by its windows in these series."""
        codes = np.concatenate([codes[coded] for codes, coded in map(self.codes, series)])
        return replace(self, centres=self.centres.split(phase, into, codes, seed))

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Arrays for the model folder; the feature names go into the manifest."""
        encoder = {f"crbm.{name}": array for name, array in self.encoder.to_state().items()}
        return {"scaler.mean": self.mean, "scaler.scale": self.scale, **encoder, **self.centres.to_state()}

    def digest(self) -> str:
        """Digest of everything that decides a label: two detectors with the same one number their phases alike."""
        found = hashlib.sha256(repr(self.features).encode())
        for name, array in sorted(self.to_state().items()):
            found.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return found.hexdigest()[:16]

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]], features: Sequence[str]) -> PhaseDetector:
        """Read the arrays of `to_state`; BadArtifact if one is missing, not finite, or does not fit the others."""
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
        for name, array in numbers.items():  # reach may be infinite
            if not (array >= 0.0 if name == "centres.reach" else np.isfinite(array)).all():
                raise BadArtifact(f"the model's array {name} holds values that are not finite numbers. Train it again.")
        n = len(detector.features)
        shapes_fit = (
            detector.mean.shape == detector.scale.shape == (n,)
            and bool((detector.scale > 0.0).all())
            and encoder.parameters_.W.shape == (encoder.n_hidden, n)
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
    progress: Progress = no_progress,
) -> tuple[PhaseDetector, PhaseCountChoice | None]:
    """Train the encoder and cluster its codes; also returns the choice of k, None if k was given.

    k is chosen by forecasts over `cycle_samples`. NotEnoughData: no full window, or fewer distinct ones than phases.
    """
    matrices = [feature_matrix(s, options.features) for s in series]
    stacked = np.concatenate(matrices) if matrices else np.empty((0, len(options.features)))
    if not np.isfinite(stacked).all(axis=1).any():
        raise NotEnoughData("no sample has all features. Check the columns named by --features.")
    mean, scale = column_moments(stacked)
    scale = np.maximum(scale, [LEAST_SCALE.get(name, 0.0) for name in options.features])
    rng = np.random.default_rng(options.seed)
    values, segments = _training_windows(matrices, mean, scale, options, rng)
    encoder = ConditionalRBM(
        options.hidden,
        options.lag,
        max_epochs=int(np.clip(options.updates // len(values), 20, 1000)),
        patience=options.patience,
        hidden_states="sampled",  # the noise makes codes coarser: phases last two to four times as long as with means
        seed=options.seed,
    )
    encoder.fit(values, segments, progress=lambda done, of: progress("encoder", done, of))
    no_centres = PhaseCentres(np.zeros((1, options.hidden)), (), np.full(1, np.inf))
    unclustered = PhaseDetector(options.features, mean, scale, encoder, no_centres)
    codes, ages, outcomes, owners = _sample_codes(unclustered, series, cycle_samples, rng)
    progress("phases", 0, 1)
    count = None
    k = options.phases
    if k is None:
        held_out = _held_out(owners, rng.permutation(len(series)))
        count = choose_k(codes, outcomes, held_out, CANDIDATE_PHASES, options.seed)
        k = count.k
    progress("phases", 1, 1)
    return replace(unclustered, centres=fit_centres(codes, ages, k, options.seed)), count


def future_peak_ratios(usage: FloatArray, cycle_samples: int) -> FloatArray:
    """log2 of the next cycle's peak relative to present usage, float64 (n, 2); NaN in gaps and at the end."""
    n = len(usage)
    peaks = np.full((n, 2), np.nan)
    padded = np.vstack([np.where(np.isnan(usage), -np.inf, usage)[1:], np.full((cycle_samples, 2), -np.inf)])
    ahead = np.lib.stride_tricks.sliding_window_view(padded, cycle_samples, axis=0).max(axis=2)[:n]
    known = (np.isfinite(ahead) & ~np.isnan(usage)).all(axis=1)
    peaks[known] = np.log2((ahead[known] + USAGE_FLOORS) / (usage[known] + USAGE_FLOORS))
    return peaks


def _training_windows(
    matrices: Sequence[FloatArray],
    mean: FloatArray,
    scale: FloatArray,
    options: DetectorOptions,
    rng: np.random.Generator,
) -> tuple[NDArray[np.floating[Any]], IntArray]:
    """Whole containers in random order until there are enough windows, split into gap-free segments."""
    kept: list[NDArray[np.floating[Any]]] = []
    bounds, total = [0], 0
    highest = math.sqrt(MAX_SQUARED_LENGTH / (len(options.features) * (options.lag + 1)))
    for i in rng.permutation(len(matrices)):
        values = ((matrices[i] - mean) / scale).astype(np.float32)
        rows, segments = gap_free(values)
        for start, stop in pairwise(segments):
            length = min(stop - start, options.windows - total)
            if length > options.lag:
                kept.append(values[rows[start : start + length]].clip(-highest, highest))
                total += length
                bounds.append(total)
    if not kept:
        raise NotEnoughData(
            f"no container has {options.lag + 1} samples in a row. Give longer series, or a coarser --step."
        )
    return np.concatenate(kept), np.array(bounds, dtype=np.int64)


def _sample_codes(
    detector: PhaseDetector, series: Sequence[UsageSeries], cycle_samples: int, rng: np.random.Generator
) -> tuple[NDArray[np.floating[Any]], IntArray, FloatArray, IntArray]:
    """Draw about `MAX_CLUSTERED_CODES` windows: their codes, ages, outcomes (future peak ratios) and containers."""
    total = sum(len(s) for s in series)
    keep = min(1.0, MAX_CLUSTERED_CODES / max(total, 1))
    parts: list[tuple[NDArray[np.floating[Any]], IntArray, FloatArray, IntArray]] = []
    for owner, one in enumerate(series):
        codes, coded = detector.codes(one)
        at = np.flatnonzero(coded & (rng.random(len(one)) < keep))
        parts.append((codes[at], at, future_peak_ratios(one.usage, cycle_samples)[at], np.full(len(at), owner)))
    codes, ages, outcomes, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
    return codes, ages, outcomes, owners


def _held_out(owners: IntArray, ranks: IntArray) -> BoolArray:
    """Which codes to judge k on, bool (n,): whole containers by rank, or every fourth code of too few containers."""
    counts, chosen, size = np.bincount(owners, minlength=len(ranks)), np.zeros(len(ranks), bool), 0
    target = HELD_OUT_SHARE * len(owners)
    for container in np.argsort(ranks).tolist():
        if size < target and size + counts[container] <= 2.0 * target:
            chosen[container], size = True, size + counts[container]
    held_out: BoolArray = chosen[owners]
    if size < target or len(ranks) < MIN_CONTAINERS_TO_HOLD_OUT:
        held_out = np.arange(len(owners)) % round(1.0 / HELD_OUT_SHARE) == 0
    return held_out
