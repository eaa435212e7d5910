"""What the scorers that judge every pod say of each node, in one pass over the nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]


class Worth(NamedTuple):
    """What nodes are worth by `complement`, see there."""

    spared: float
    spoilt: float
    calm: float
    headroom: float
    evenness: float
    doubt: float
    memory_counts: float
    steepness: float


@njit(cache=True)
def complement(
    load: Floats32,
    demand: Floats32,
    per_unit: Floats32,
    peaks: Floats32,
    means: Floats32,
    worth: Worth,
    values: Floats,
    overload: Floats,
    even: Floats,
) -> None:
    """Expected overload first; where there is none the risk of it, headroom and evenness.

    Parameters
    ----------
    load, demand, per_unit
        float32 (2, cells, m), (2, cells), (2, m): what is used of CPU and memory, what the pod adds, and 1 / size.
    peaks, means
        float32 (2, m): the highest and the mean share used.
    values, overload, even
        OUT float64 (m,): 0 to 1; mean excess of CPU and the highest of memory, in shares of the node; mean over peak.
    """
    for node in range(len(values)):
        cpu, memory = float(peaks[0, node]), float(peaks[1, node])
        over, risk = 0.0, 0.0
        if cpu > 1.0 - worth.doubt or memory > 1.0:
            over, risk = _excess(load[:, :, node], demand, per_unit[:, node], worth.doubt, worth.memory_counts)
        evenness = (means[0, node] / cpu if cpu > 0.0 else 1.0) + (means[1, node] / memory if memory > 0.0 else 1.0)
        overload[node], even[node] = over, min(max(0.5 * evenness, 0.0), 1.0)
        if over > 0.0:
            values[node] = worth.spoilt / (1.0 + worth.steepness * over)
        else:
            calm = worth.calm / (1.0 + worth.steepness * risk)
            left = worth.headroom * (1.0 - min(max(cpu, memory, 0.0), 1.0))
            values[node] = worth.spared + calm + left + worth.evenness * even[node]


@njit(cache=True)
def _excess(
    load: Floats32, demand: Floats32, per_unit: Floats32, doubt: float, memory_counts: float
) -> tuple[float, float]:
    """How far a node is filled beyond its size, and how far it might be in the mean if the forecast of CPU errs.

    The true share lies anywhere within `doubt` of the forecast with equal chance.
    """
    cells = load.shape[1]
    over = expected = killed = 0.0
    for cell in range(cells):
        excess = float((load[0, cell] + demand[0, cell]) * per_unit[0]) - 1.0
        reached = min(max(excess + doubt, 0.0), 2.0 * doubt)
        expected += reached * reached / (4.0 * doubt) + max(excess - doubt, 0.0)
        over += max(excess, 0.0)
        killed = max(killed, float((load[1, cell] + demand[1, cell]) * per_unit[1]) - 1.0)
    return over / cells + memory_counts * killed, expected / cells


@njit(cache=True)
def balance(means: Floats32, values: Floats) -> None:
    """1 less the difference of the two shares, each taken as 0 to 1.

    Parameters
    ----------
    means
        float32 (2, m): of CPU and memory.
    values
        OUT float64 (m,).
    """
    for node in range(len(values)):
        cpu, memory = min(max(means[0, node], 0.0), 1.0), min(max(means[1, node], 0.0), 1.0)
        values[node] = 1.0 - abs(cpu - memory)


@njit(cache=True)
def learning(
    held: Floats,
    weights: tuple[float, float, float],
    use: Floats32,
    per_unit: Floats32,
    tie: float,
    numbers: Floats,
    values: Floats,
) -> None:
    """The smallest S gets 1, the largest 0; a node's present use counts a little with it.

    Parameters
    ----------
    held
        float64 (3, m): containers of each category.
    weights
        What one of each adds to S.
    use, per_unit
        float32 (m,): what is used now, and 1 / size.
    tie
        What full use adds beside.
    numbers, values
        OUT float64 (m,): S, and what it is worth.
    """
    low, high = np.inf, -np.inf
    for node in range(len(values)):
        numbers[node] = weights[0] * held[0, node] + weights[1] * held[1, node] + weights[2] * held[2, node]
        values[node] = numbers[node] + tie * min(max(use[node] * per_unit[node], 0.0), 1.0)
        low, high = min(low, values[node]), max(high, values[node])
    for node in range(len(values)):
        values[node] = (high - values[node]) / (high - low) if high > low else 1.0
