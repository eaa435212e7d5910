"""Features of samples and phases of codes: for a whole series, or for the next sample of each live container.

Hysteresis keeps a window half-way between two phases from changing the phase for one sample.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from recommender.kernels import BoolArray, FloatArray, IntArray

USAGE_FLOORS = np.array([0.01, 2.0**20])  # cores and bytes: below them a container is idle, and differences are noise
MAX_HISTORY_SAMPLES = 2000  # samples of the mean level: all of a training job, or the last days of a service


@njit(cache=True, nogil=True, inline="always")
def levels_of(used: float, resource: int, mean_level: float, seen: int) -> tuple[float, float]:
    """Log2 of a sample, and the running mean of `seen` such levels, given that of the ones before.

    The floor is added before: an idle container has a finite level, and its noise is small.
    """
    level = math.log2(used + USAGE_FLOORS[resource])
    return level, mean_level + (level - mean_level) / seen


@njit(cache=True, nogil=True)
def usage_features(usage: FloatArray, out: FloatArray) -> None:
    """Fill OUT float64 (n, 4) with the features of `recommender.phases.features.USAGE_FEATURES`, in that order.

    `usage`, float64 (n, 2), is NaN in gaps, as is `out`; they leave the mean level unchanged. Beyond
    `MAX_HISTORY_SAMPLES` older samples fade from it exponentially.
    """
    for resource in range(2):
        mean_level, seen = 0.0, 0
        for t in range(usage.shape[0]):
            used = usage[t, resource]
            if math.isnan(used):
                out[t, resource] = out[t, 2 + resource] = math.nan
                continue
            seen = min(seen + 1, MAX_HISTORY_SAMPLES)
            level, mean_level = levels_of(used, resource, mean_level, seen)
            out[t, resource] = level
            out[t, 2 + resource] = level - mean_level


@njit(cache=True, nogil=True)
def centre_of(distances: FloatArray, current: int, continues: bool, reach: FloatArray, stay: float) -> int:
    """The centre nearest to a code, or the current one unless another is clearly nearer.

    `distances`, float64 (k,), are those of the code to each centre. Unless it `continues` the previous one without a
    gap, the nearest centre is taken; and a current one beyond its `reach`, float64 (k,), is left at once. `stay` is the
    hysteresis: a new centre must be nearer than this share of the distance to the current one; 1 is none.
    """
    nearest = 0
    for j in range(1, len(distances)):
        if distances[j] < distances[nearest]:
            nearest = j
    left = distances[nearest] < stay * distances[current] or distances[current] > reach[current]
    return nearest if left or not continues else current


class Tracks(NamedTuple):
    """Feature state per container (slot)."""

    mean_level: FloatArray
    """float64 (n, 2): mean log2 of its usage."""
    seen: IntArray
    in_row: IntArray
    """int64 (n,): samples so far, up to `MAX_HISTORY_SAMPLES`, and samples since the last gap."""
    gapped: BoolArray
    """bool (n,): True after a gap, when a code needs a full window again."""
    rows: NDArray[np.float32]
    """float (n, window, n_features): the latest standardised samples, the newest last."""


class Places(NamedTuple):
    """Phase state per container (slot)."""

    coded: IntArray
    """int64 (n,): samples with a code."""
    at: IntArray
    label: IntArray
    """int64 (n,): present centre, and last phase."""
    child_at: IntArray
    child_when: IntArray
    """int64 (n, splits): the present centre in each split phase, and the number of the coded sample it is from."""
    confidence: FloatArray
    """float64 (n,): 1 at the centre of the phase, 0 at its reach or in an unknown phase."""


class Standard(NamedTuple):
    """How a sample is turned into standardised features."""

    columns: IntArray
    """int64 (f,): index of each feature among the levels of CPU and memory, both relative to their means, and both
    amounts themselves."""
    mean: FloatArray
    scale: FloatArray
    """float64 (f,)."""


class Centres(NamedTuple):
    """Cluster centres of the phases, see `phases.kmeans.PhaseCentres`."""

    root: FloatArray
    """float64 (k, hidden)."""
    root_reach: FloatArray
    reach: FloatArray
    """float64 (k,) and (phases,): infinite for a root centre that is split."""
    stay: float
    """See `centre_of`."""
    parents: IntArray
    """int64 (splits,): the phase that each split divides."""
    begins: IntArray
    """int64 (splits + 1,): range of children of each split."""
    children: IntArray
    child_centres: FloatArray
    child_reach: FloatArray
    """int64 (c,), float64 (c, hidden) and (c,): phases and centres of the children; infinite for one that is split."""


@njit(cache=True, nogil=True)
def append_features(slots: IntArray, usage: FloatArray, standard: Standard, tracks: Tracks) -> None:
    """Append the standardised features of the next sample of each container, float64 (m, 2); NaN is a gap."""
    levels = np.empty(6)
    for row in range(len(slots)):
        k = slots[row]
        if math.isnan(usage[row, 0]):
            tracks.gapped[k] |= tracks.seen[k] > 0
            tracks.in_row[k] = 0
            continue
        tracks.seen[k] = min(tracks.seen[k] + 1, MAX_HISTORY_SAMPLES)
        for resource in range(2):
            used = usage[row, resource]
            level, mean = levels_of(used, resource, tracks.mean_level[k, resource], tracks.seen[k])
            tracks.mean_level[k, resource] = mean
            levels[resource], levels[2 + resource], levels[4 + resource] = level, level - mean, used
        newest = tracks.rows.shape[1] - 1
        for feature in range(len(standard.columns)):
            for back in range(newest):
                tracks.rows[k, back, feature] = tracks.rows[k, back + 1, feature]
            value = levels[standard.columns[feature]]
            tracks.rows[k, newest, feature] = (value - standard.mean[feature]) / standard.scale[feature]
        tracks.in_row[k] += 1


@njit(cache=True, nogil=True)
def update_phases(
    slots: IntArray, codes: NDArray[np.float32], centres: Centres, unknown: int, places: Places, labels: IntArray
) -> None:
    """Update the phase of each container by its next code, (m, hidden); a slot may repeat.

    `labels`, int64 (m,), is OUT: the phase after each.
    """
    for row in range(len(slots)):
        _update_phase(slots[row], codes[row], centres, unknown, places)
        labels[row] = places.label[slots[row]]


@njit(cache=True, nogil=True, inline="always")
def _update_phase(k: int, code: NDArray[np.float32], centres: Centres, unknown: int, places: Places) -> None:
    coded = places.coded[k]
    distances = _distances(code, centres.root)
    label = centre_of(distances, places.at[k], coded > 0, centres.root_reach, centres.stay)
    places.at[k], distance = label, distances[label]
    for split in range(len(centres.parents)):
        if label != centres.parents[split]:
            continue
        of = slice(centres.begins[split], centres.begins[split + 1])
        children, distances = centres.children[of], _distances(code, centres.child_centres[of])
        continues = places.child_when[k, split] == coded - 1
        child = centre_of(distances, places.child_at[k, split], continues, centres.child_reach[of], centres.stay)
        places.child_at[k, split], places.child_when[k, split] = child, coded
        label, distance = children[child], distances[child]
    places.coded[k] = coded + 1
    confidence = 0.0
    if distance <= centres.reach[label]:
        confidence = 1.0 - distance / centres.reach[label] if distance > 0.0 else 1.0
    else:
        label = unknown
    places.label[k], places.confidence[k] = label, confidence


@njit(cache=True, nogil=True)
def _distances(code: NDArray[np.float32], centres: FloatArray) -> FloatArray:
    distances = np.empty(len(centres))
    for place in range(len(centres)):
        squares = 0.0
        for hidden in range(len(code)):
            squares += (code[hidden] - centres[place, hidden]) ** 2
        distances[place] = math.sqrt(squares)
    return distances
