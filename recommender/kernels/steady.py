"""Which phase a container is in, when a window half-way between two must not make it change for one sample."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def centre_of(
    distances: NDArray[np.float64], current: int, continues: bool, reach: NDArray[np.float64], stay: float
) -> int:
    """Which centre a code belongs to, by its distance to each; see `steady_labels`."""
    nearest = 0
    for j in range(1, len(distances)):
        if distances[j] < distances[nearest]:
            nearest = j
    left = distances[nearest] < stay * distances[current] or distances[current] > reach[current]
    return nearest if left or not continues else current


@njit(cache=True, nogil=True)
def steady_labels(
    distances: NDArray[np.float64],
    continues: NDArray[np.bool_],
    reach: NDArray[np.float64],
    stay: float,
    labels: NDArray[np.int64],
) -> None:
    """Fill `labels` with the nearest centre, staying with the last one unless the new one is clearly nearer.

    Parameters
    ----------
    distances : float64 (n, k)
        Of each code to each centre, in time order.
    continues : bool (n,)
        False where a row does not follow the one before it: there the nearest centre is taken as it is.
    reach : float64 (k,)
        A centre farther away than this is left at once.
    stay : float
        The new centre must be nearer than `stay` times the distance to the old one; 1 takes the nearest always.
    labels : int64 (n,), OUT
        Column of `distances`.
    """
    current = 0
    for t in range(distances.shape[0]):
        current = centre_of(distances[t], current, continues[t], reach, stay)
        labels[t] = current
