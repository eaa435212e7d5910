"""Jobs end soonest: what a job adds to the time until completion of the jobs of a node, and itself, by what they have
left of a run of their workload classes."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from extender.pods.work import Work, peak_cores
from extender.scoring.request import ROUNDING, PlacementRequest
from extender.scoring.scorers.scorer import Facts, NodeScores
from extender.view.snapshot import Integers
from recommender.contention.adding import added_s
from recommender.contention.phasewise import Sharing
from recommender.contention.sharing import Stage
from recommender.records import CPU, MEMORY

ALIKE = 0.05
"""Of the time that the job takes alone: nodes where it adds no more above the least are as good."""

LEAST_CORES = 0.05
"""A node that others hold altogether still has its pauses to share."""

BELIEVED_S = 5.0
"""What was worked out of a node holds for so long while nothing changes there: pods of a class come in groups."""

MOST_PAIRS, LEAST_NODES, MOST_JOBS = 32, 4, 16
"""Jobs of a node, the new one among them, squared and summed over the nodes that are judged, the least crowded: a
millisecond or two. So many are judged in any case that hold no more jobs than that: in a small cluster they may be all.
"""


def score(request: PlacementRequest) -> NodeScores | None:
    """1 where least is added, a half where that is as much more as the job takes alone.

    Nothing to say of a job whose class is not known, and where its place makes no difference. A node that will overload
    by the forecast gets no more for it than one that will not, nor one without enough memory than one with it.
    """
    if not request.run:
        return None
    cores = _shared_cores(request)
    alone = _alone_s(request.run, cores)
    added = _added(request, cores, alone)
    least_s = alone.min()
    further = (added - added.min()) / least_s
    if (further < ALIKE).all():
        return None
    values = 1.0 / (1.0 + np.where(further < ALIKE, 0.0, further))
    for spoilt in (request.overload > 0.0, request.peak[MEMORY] > 1.0 + ROUNDING):
        if spoilt.any() and not spoilt.all():
            values[spoilt] = values[spoilt].clip(None, values[~spoilt].min())
    return NodeScores(values, {"added": added, "alone": np.full(len(added), least_s)})


def _shared_cores(request: PlacementRequest) -> NDArray[np.float64]:
    """(m,): what pods of which nobody knows what they have left leave of each node; of one without a size, all."""
    snapshot = request.snapshot
    cores: NDArray[np.float64] = request.here(snapshot.allocatable[CPU] - snapshot.held)
    return np.where(np.isnan(cores), np.inf, cores).clip(LEAST_CORES, None)


def _alone_s(run: tuple[Stage, ...], cores: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m,): how long a run takes where it shares the cores with nobody."""
    core_s, wants = np.array(run).T[:, :, None]
    seconds: NDArray[np.float64] = (core_s / np.minimum(wants, cores)).sum(axis=0)
    return seconds


def _added(request: PlacementRequest, cores: NDArray[np.float64], alone: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m,): seconds; of crowded nodes not judged as much as of the worst that was, and more the more crowded."""
    there = request.here(request.snapshot.wanted)
    wanted = there + peak_cores(request.run)
    crowded = np.flatnonzero((there > 0.0) & (wanted > cores))
    if not len(crowded):
        return alone
    guess = alone * wanted / cores
    order = crowded[np.lexsort((request.here(request.snapshot.rank)[crowded], guess[crowded]))]
    judged = _few_of(order, request)
    now_s = math.floor(request.now_s / BELIEVED_S) * BELIEVED_S
    works = [request.snapshot.works[place] for place in request.places[judged].tolist()]
    found = [
        _added_beside(request.run, beside, cores_there, now_s)
        for beside, cores_there in zip(works, cores[judged].tolist(), strict=True)
    ]
    added, worst_s = alone.copy(), max(found, default=0.0)
    scale = worst_s / guess[judged].max() if found else 1.0
    added[order] = (scale * guess[order]).clip(worst_s, None)
    added[judged] = found
    return added


def _few_of(order: Integers, request: PlacementRequest) -> Integers:
    """Those that can be judged in a moment; each holds a job at least."""
    first = order[: MOST_PAIRS // 4]
    jobs = np.array([1 + len(request.snapshot.works[place]) for place in request.places[first].tolist()])
    few = (np.arange(len(first)) < LEAST_NODES) & (jobs <= MOST_JOBS)
    return first[few | ((jobs**2).cumsum() <= MOST_PAIRS)]


@lru_cache(maxsize=4096)
def _added_beside(run: tuple[Stage, ...], works: tuple[Work, ...], cores: float, now_s: float) -> float:
    """Cores are taken to be divided equally: whether somebody has more of them is for VPAs to say, not known here."""
    jobs = [Sharing("", 0, work.left(now_s), math.inf, foreseen=False) for work in works]
    return added_s(Sharing("", 0, run, math.inf, foreseen=False), jobs, cores, now_s)


def words(facts: Facts) -> str:
    """Such as `adds 340 s until jobs end, alone it takes 120 s`."""
    return f"adds {facts['added']:.0f} s until jobs end, alone it takes {facts['alone']:.0f} s"
