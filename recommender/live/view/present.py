"""What there is of one container name under one VPA now: looked through once, for everything that is asked of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from recommender.live.fleet.member import CLASS, Decision, Member
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE, Amounts

NOTHING: Amounts = (math.nan, math.nan)

PINNED_SAMPLES = 2
"""One sample near the request is chance."""


class Used(NamedTuple):
    """By all live containers of one name; for the attributes see `Present`."""

    working_set_bytes: float
    pinned: bool


class Present(NamedTuple):
    """The live containers of one name, those that are to come, and what they need together.

    Attributes
    ----------
    members
        The live containers.
    requests
        Cores and bytes: the most that one of them has now, NaN where nothing is requested.
    deferred_s
        For how long a resize has waited for room on a node, the longest; 0 when none does.
    forecast
        Cores and bytes: the largest demand among them, NaN where none could be forecast. Pods of one VPA may be in
        different phases; what the most demanding one needs is for all, per resource.
    leading, decision
        The running container whose demand in CPU that is, and where the demand comes from; None where nothing is.
    doubt
        Why the forecast is not to be trusted; None when it is.
    working_set_bytes
        The largest present one; NaN where none is known.
    pinned
        Whether a container has used just the CPU that it has for a while, as one does that gets no more.
    run_s
        How long a run takes, where enough earlier ones show what the rest of it needs; else infinite.
    """

    members: Sequence[Member]
    requests: Amounts
    deferred_s: float
    forecast: Amounts
    leading: Member | None
    decision: Decision | None
    doubt: str | None
    working_set_bytes: float
    pinned: bool
    run_s: float


def look_through(
    members: Sequence[Member], expected: Sequence[Decision], used: Used, requests: Amounts, deferred_s: float
) -> Present:
    """What there is; `expected` is what containers that have not used anything yet are to have, where that is known."""
    cpu_cores = memory_bytes = run_s = -math.inf
    leading, decision = None, None
    unknown = decided = 0
    for member in members:
        if (made := member.decision) is None:
            continue
        decided += 1
        unknown += member.phase == UNKNOWN_PHASE and made.policy != CLASS
        if made.allocation[CPU] > cpu_cores:
            cpu_cores, leading, decision = made.allocation[CPU], member, made
        memory_bytes, run_s = max(memory_bytes, made.allocation[MEMORY]), max(run_s, made.run_s)
    for made in expected:
        if made.allocation[CPU] > cpu_cores:
            cpu_cores, decision = made.allocation[CPU], made
        memory_bytes, run_s = max(memory_bytes, made.allocation[MEMORY]), max(run_s, made.run_s)
    doubt = None
    if decision is None:
        doubt = "too little history" if members else "no running container"
    elif 2 * unknown > decided:
        doubt = "phase unknown"
    forecast, run_s = (NOTHING, math.inf) if decision is None else ((cpu_cores, memory_bytes), run_s)
    return Present(members, requests, deferred_s, forecast, leading, decision, doubt, *used, run_s)
