"""Pods of a GPU cluster placed without servers: filling nodes until nothing fits, and replaying the trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from benchmarks.placement.gpu_fleet import WHOLE, Fleet, GpuTrace, Integers, Placement
from benchmarks.placement.gpu_policies import POLICIES, PolicyFactory

LONG_WAIT_S = 900.0
"""Waits longer than this are counted."""


SHARES = (1.0, 2.0)
"""GPUs requested so far, as a share of all GPUs, at which the allocated share is noted."""

BUSY_GPUS = 48
"""With this many GPUs, pods of the trace (at most 66 GPUs at a time, 38 on average) sometimes have to wait."""


@dataclass(frozen=True)
class Filled:
    """Shares of all GPUs allocated: at each of `SHARES`, and at the end."""

    when_requested: tuple[float, ...]
    in_the_end: float
    pods: int


def fill(trace: GpuTrace, make: PolicyFactory, seed: int) -> Filled:
    """Place pods drawn from the trace, which stay; drop those that do not fit; end when no kind fits any more.

    Room only shrinks, so a kind that did not fit once is not tried again.
    """
    fleet, kinds = Fleet(trace), trace.kinds
    policy, capacity, chance = make(fleet, seed), int(trace.gpus.sum()) * WHOLE, np.random.default_rng([seed, 4])
    asked = taken = pods = 0
    when_requested, fits = list[float](), np.bincount(trace.kind_of, minlength=len(kinds)) > 0
    while fits.any() or len(when_requested) < len(SHARES):
        for kind in trace.kind_of[chance.integers(len(trace.kind_of), size=len(trace.kind_of))].tolist():
            if len(when_requested) < len(SHARES) and asked >= SHARES[len(when_requested)] * capacity:
                when_requested.append(taken / capacity)
            asked += int(kinds.gpu_total_milli[kind])
            if not fits[kind]:
                continue
            fitting = np.flatnonzero(fleet.fitting(kind))
            fits[kind] = len(fitting) > 0
            if len(fitting) and policy.place(kind, pods, fitting) is not None:
                taken += int(kinds.gpu_total_milli[kind])
                pods += 1
    return Filled(tuple(when_requested), taken / capacity, pods)


@dataclass(frozen=True)
class Waited:
    pods: int
    long: int
    mean_s: float


def some_nodes(trace: GpuTrace, gpus: int, seed: int) -> Integers:
    """Draw nodes until they have this many GPUs, including one with the most GPUs."""
    chance = np.random.default_rng([seed, 5])
    order = chance.permutation(len(trace.gpus))
    largest = next(node for node in order if trace.gpus[node] == trace.gpus.max())
    order = np.concatenate([[largest], order[order != largest]])
    return np.sort(order[: int(np.searchsorted(trace.gpus[order].cumsum(), gpus)) + 1])


def play_trace(trace: GpuTrace, make: PolicyFactory, seed: int) -> Waited:
    """Replay the trace; pods without room wait for one to end, in order; those that fit no empty node are left out."""
    fleet = Fleet(trace)
    policy, possible = make(fleet, seed), [bool(fleet.fitting(kind).any()) for kind in range(len(trace.kinds))]
    events = [(at_s, 1, pod) for pod, at_s in enumerate(trace.came_s.tolist()) if possible[trace.kind_of[pod]]]
    heapify(events)
    arrived, placements, waiting, waited_s = len(events), dict[int, Placement](), list[int](), list[float]()
    while events:
        now_s, came, pod = heappop(events)
        if came:
            waiting.append(pod)
            candidates: Sequence[int] = [pod]
        else:
            kind, placement = int(trace.kind_of[pod]), placements.pop(pod)
            fleet.release(placement, kind)
            policy.ended(kind, pod, placement)
            candidates = waiting.copy()
        without_room = set[int]()
        for each in candidates:
            kind = int(trace.kind_of[each])
            if kind in without_room:
                continue
            fitting = np.flatnonzero(fleet.fitting(kind))
            placed = policy.place(kind, each, fitting) if len(fitting) else None
            if placed is None:
                without_room.add(kind)
                continue
            placements[each] = placed
            waiting.remove(each)
            waited_s.append(now_s - float(trace.came_s[each]))
            heappush(events, (now_s + float(trace.runs_s[each]), 0, each))
    return Waited(arrived, sum(wait_s > LONG_WAIT_S for wait_s in waited_s), float(np.mean(waited_s)))


@dataclass(frozen=True)
class GpuResult:
    policy: str
    seed: int
    filled: Filled
    waited: Waited


def run_gpus(trace: GpuTrace, seeds: Sequence[int], found: list[GpuResult], progress: Callable[[], None]) -> None:
    for seed in seeds:
        few = trace.on(some_nodes(trace, BUSY_GPUS, seed))
        for name, make in POLICIES.items():
            found.append(GpuResult(name, seed, fill(trace, make, seed), play_trace(few, make, seed)))
            progress()


def by_policy(rows: Sequence[GpuResult]) -> Mapping[str, Sequence[GpuResult]]:
    return {name: [row for row in rows if row.policy == name] for name in dict.fromkeys(row.policy for row in rows)}
