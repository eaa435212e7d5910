"""FfDL's PACK: the pods of a job on as few machines as can be."""

from __future__ import annotations

import numpy as np

from extender.judging.question import Question
from extender.judging.scorers.opinion import Facts, Opinion


def judge(question: Question) -> Opinion | None:
    """Nodes that hold most of the job are best; for its first pod, those that are fullest by requests."""
    peers = question.peers_on
    snapshot, places = question.snapshot, question.places
    asked = snapshot.requested[:, places] + np.asarray(question.pod.requests)[:, None]
    full = (asked * snapshot.per_unit[:, places]).clip(0.0, 1.0).mean(axis=0)
    values = 0.5 + 0.5 * peers / peers.max() if peers.any() else full
    return Opinion(np.where(peers.any() & (peers == 0), 0.5 * full, values), {"peers": peers, "full": full})


def words(facts: Facts) -> str:
    """Such as `2 pods of its job, 60% asked for`."""
    return f"{facts['peers']:g} pods of its job, {facts['full']:.0%} asked for"
