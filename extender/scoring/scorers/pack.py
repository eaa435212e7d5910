"""FfDL's PACK: the pods of a job on as few nodes as possible."""

from __future__ import annotations

import numpy as np

from extender.scoring.request import Facts, NodeScores, PlacementRequest
from recommender.units import counted


def score(request: PlacementRequest) -> NodeScores | None:
    """Nodes with most pods of the job are best; for its first pod the fullest ones, by requests of CPU, memory and the
    pod's extended resources."""
    peers = request.peers_on
    snapshot, places = request.snapshot, request.places
    asked = snapshot.requested[:, places] + np.asarray(request.pod.requests)[:, None]
    shares = [*(asked * snapshot.per_unit[:, places])]
    for name, need in request.pod.extended.items():
        if name in snapshot.devices.extended:
            there = snapshot.devices.extended[name]
            shares.append((there.requested[places] + need) / np.maximum(there.allocatable[places], need))
    full = np.mean(shares, axis=0).clip(0.0, 1.0)
    values = 0.5 + 0.5 * peers / peers.max() if peers.any() else full
    return NodeScores(np.where(peers.any() & (peers == 0), 0.5 * full, values), {"peers": peers, "full": full})


def explain(facts: Facts) -> str:
    """Such as `2 pods of its job, 60% requested`."""
    return f"{counted(int(facts['peers']), 'pod')} of its job, {facts['full']:.0%} requested"
