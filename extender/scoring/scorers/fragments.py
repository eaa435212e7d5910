"""Leave no GPUs that nobody can use: the expected fragments grow as little as can be (fragmentation gradient)."""

from __future__ import annotations

import numpy as np

from extender.pods.gpus import WHOLE
from extender.scoring.fragmentation import Free, starved, unusable
from extender.scoring.request import PlacementRequest
from extender.scoring.scorers.scorer import Facts, NodeScores

STEEPNESS = 10.0
"""A node where a tenth of a GPU more becomes of no use than on the best is worth half: a fixed number, so that a GPU
counts the same whatever else is in the cluster. As configured, a hundredth of a GPU counts more than twenty jobs that
still learn."""

STARVED = 0.3
"""A GPU for whose pods too little CPU or memory is left, though the next one may still fit, counts as so much of one of
no use: who goes by the next pod alone sees too late that none will follow."""


def score(request: PlacementRequest) -> NodeScores | None:
    """1 where least is spoilt for what the cluster's pods ask for; nothing to say where no node has free GPUs."""
    snapshot = request.snapshot
    if snapshot.mix is None:
        return None
    gpus = request.here(snapshot.devices.gpu_free)
    if not gpus.any():
        return None
    cpu_cores, memory_bytes = np.nan_to_num(request.here(snapshot.allocatable - snapshot.requested), nan=np.inf)
    free = Free(cpu_cores, memory_bytes, gpus, request.here(snapshot.devices.gpu_part))
    then = free.without(request.pod.requests, request.pod.gpu)
    spoilt = unusable(then, snapshot.mix) - unusable(free, snapshot.mix)
    starving = starved(then, snapshot.mix) - starved(free, snapshot.mix)
    cost = spoilt + STARVED * starving
    values = 1.0 / (1.0 + STEEPNESS * (cost - cost.min()))
    return NodeScores(values, {"spoilt": spoilt, "starving": starving, "free": gpus.sum(axis=0) / WHOLE})


def words(facts: Facts) -> str:
    """Such as `0.25 GPUs of 3.5 free would be of no use any more, 1 more would lack CPU or memory`."""
    told = f"{facts['spoilt']:.2g} GPUs of {facts['free']:g} free would be of no use any more"
    return f"{told}, {facts['starving']:.2g} more would lack CPU or memory" if facts["starving"] > 0.0 else told
