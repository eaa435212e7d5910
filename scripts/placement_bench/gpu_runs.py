"""The pods of a GPU cluster placed without servers: nodes filled until nothing fits, and pods that come and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from placement_bench.gpu_fleet import Fleet, Placement
from placement_bench.gpu_policies import POLICIES, MakesPolicy
from placement_bench.gpu_trace import WHOLE, GpuTrace, Integers

LONG_S = 900.0
"""A pod that waits longer is counted."""


AT_CAPACITY = (1.0, 2.0)
"""How much was asked for when it is told what is allocated, as a share of all GPUs."""

BUSY_GPUS = 48
"""On so many GPUs the pods of the trace, which need 66 at most and 38 in the mean, have to wait now and then."""


@dataclass(frozen=True)
class Filled:
    """Shares of all GPUs that are allocated: when so much was asked for as in `AT_CAPACITY`, and in the end."""

    when_asked: tuple[float, ...]
    in_the_end: float
    pods: int


def fill(trace: GpuTrace, make: MakesPolicy, seed: int) -> Filled:
    """Pods drawn from the trace come one by one, and stay; who finds no room goes. It ends when no kind has any left.

    Room only ever shrinks: a kind that did not fit once never will, and is not tried again.
    """
    fleet, kinds = Fleet(trace), trace.kinds
    policy, there, chance = make(fleet, seed), int(trace.gpus.sum()) * WHOLE, np.random.default_rng([seed, 4])
    asked = taken = pods = 0
    when_asked, fits = list[float](), np.bincount(trace.kind_of, minlength=len(kinds)) > 0
    while fits.any() or len(when_asked) < len(AT_CAPACITY):
        for kind in trace.kind_of[chance.integers(len(trace.kind_of), size=len(trace.kind_of))].tolist():
            if len(when_asked) < len(AT_CAPACITY) and asked >= AT_CAPACITY[len(when_asked)] * there:
                when_asked.append(taken / there)
            asked += int(kinds.gpu_total_milli[kind])
            if not fits[kind]:
                continue
            fitting = np.flatnonzero(fleet.fitting(kind))
            fits[kind] = len(fitting) > 0
            if len(fitting) and policy.place(kind, pods, fitting) is not None:
                taken += int(kinds.gpu_total_milli[kind])
                pods += 1
    return Filled(tuple(when_asked), taken / there, pods)


@dataclass(frozen=True)
class Waited:
    """Of the pods that came: how many waited long, and their mean wait."""

    pods: int
    long: int
    mean_s: float


def some_nodes(trace: GpuTrace, gpus: int, seed: int) -> Integers:
    """Nodes drawn until they have so many GPUs, one among them on which every pod fits that fits on any."""
    chance = np.random.default_rng([seed, 5])
    order = chance.permutation(len(trace.gpus))
    largest = next(node for node in order if trace.gpus[node] == trace.gpus.max())
    order = np.concatenate([[largest], order[order != largest]])
    return np.sort(order[: int(np.searchsorted(trace.gpus[order].cumsum(), gpus)) + 1])


def come_and_go(trace: GpuTrace, make: MakesPolicy, seed: int) -> Waited:
    """Pods come when they did and run as long as they did; who finds no room waits, and is tried again in its order
    whenever a pod ends. Pods that no empty node has room for are left out."""
    fleet = Fleet(trace)
    policy, possible = make(fleet, seed), [bool(fleet.fitting(kind).any()) for kind in range(len(trace.kinds))]
    events = [(at_s, 1, pod) for pod, at_s in enumerate(trace.came_s.tolist()) if possible[trace.kind_of[pod]]]
    heapify(events)
    arrived, placements, waiting, waited_s = len(events), dict[int, Placement](), list[int](), list[float]()
    while events:
        now_s, came, pod = heappop(events)
        if came:
            waiting.append(pod)
            turn: Sequence[int] = [pod]
        else:
            kind, placement = int(trace.kind_of[pod]), placements.pop(pod)
            fleet.release(placement, kind)
            policy.ended(kind, pod, placement)
            turn = waiting.copy()
        without_room = set[int]()
        for each in turn:
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
    return Waited(arrived, sum(wait_s > LONG_S for wait_s in waited_s), float(np.mean(waited_s)))


@dataclass(frozen=True)
class Gpus:
    """What came of one order of the pods under one policy."""

    policy: str
    seed: int
    filled: Filled
    waited: Waited


def run_gpus(trace: GpuTrace, seeds: Sequence[int], found: list[Gpus], told: Callable[[], None]) -> None:
    """Every policy on every order, and on a few nodes drawn for it."""
    for seed in seeds:
        few = trace.on(some_nodes(trace, BUSY_GPUS, seed))
        for name, make in POLICIES.items():
            found.append(Gpus(name, seed, fill(trace, make, seed), come_and_go(few, make, seed)))
            told()


def by_policy(rows: Sequence[Gpus]) -> Mapping[str, Sequence[Gpus]]:
    """Policy -> its runs."""
    return {name: [row for row in rows if row.policy == name] for name in dict.fromkeys(row.policy for row in rows)}
