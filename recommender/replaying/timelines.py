"""Choose which containers of a dry run are worth plotting, in one pass over them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from recommender.base.records import CPU, MEMORY, ContainerReplay, Tally, Timeline
from recommender.base.units import BYTES_PER_GIB
from recommender.policies.registry import POLICIES

BASELINES = {"static": "the declared requests", "vpa": "the default VPA", "histogram": "the default VPA"}
"""Policies that savings may be relative to, the preferred first, and their names in sentences."""

GIB_PER_CORE = 4.0  # memory per core of a general-purpose machine, to add core-seconds and byte-seconds


def waste(tally: Tally) -> float:
    """Slack of both resources in core-seconds, memory converted by `GIB_PER_CORE`."""
    return tally.slack[CPU] + tally.slack[MEMORY] / (GIB_PER_CORE * BYTES_PER_GIB)


def saving(replay: ContainerReplay, policy: str, baseline: str) -> float:
    """By how much `policy` wastes less on this container than `baseline`, in core-seconds."""
    return waste(replay.tallies[baseline]) - waste(replay.tallies[policy])


def harm(replay: ContainerReplay, policy: str) -> int:
    """Violating samples of both resources plus OOM kills of `policy` on this container."""
    tally, run = replay.tallies[policy], replay.runs.get(policy)
    return sum(tally.violations) + (tally.oom_events if run is None else run.kills)


def focus_of(policies: Sequence[str], oracles: Collection[str]) -> str:
    """The policy a report is about: ours, else one of the simulated cluster, baselines last, else any other."""
    choices = [name for name in policies if name not in oracles]
    others = [name for name in choices if name not in BASELINES]
    simulated = [name for name in (*others, *reversed(choices)) if name not in POLICIES]
    return next((name for name in ("phasewise",) if name in choices), [*simulated, *others, *choices, *policies][0])


def baseline_of(policies: Collection[str]) -> str | None:
    """The policy that savings are relative to: the first of `BASELINES` that was judged."""
    return next((name for name in BASELINES if name in policies), None)


class TimelineChoice:
    """Keeps the timelines of `n` containers of a stream: half with the largest savings, half with the most harm."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._savings: list[tuple[float, int, Timeline]] = []
        self._harm: list[tuple[float, int, Timeline]] = []
        self._seen = 0

    def offer(self, replay: ContainerReplay, timeline: Timeline, oracles: Collection[str]) -> None:
        """Consider a container; oracles cannot be its focus."""
        self._seen += 1
        if not replay.tallies:
            return
        policy = focus_of(tuple(replay.tallies), oracles)
        baseline = baseline_of(replay.tallies) or policy
        # Of equal ranks the earlier container wins, whatever its name.
        ranks = (saving(replay, policy, baseline), float(harm(replay, policy)))
        for heap, rank in zip((self._savings, self._harm), ranks, strict=True):
            heapq.heappush(heap, (rank, -self._seen, timeline))
            if len(heap) > self.n:
                heapq.heappop(heap)

    def timelines(self) -> tuple[Timeline, ...]:
        """At most n: the largest savings first, then the most harm; no container twice."""
        by_savings, by_harm = (
            [timeline for _, _, timeline in sorted(heap, reverse=True, key=lambda entry: entry[:2])]
            for heap in (self._savings, [entry for entry in self._harm if entry[0] > 0])
        )
        half = (self.n + 1) // 2
        by_name = {timeline.container: timeline for timeline in by_savings[:half] + by_harm + by_savings[half:]}
        return tuple(by_name.values())[: self.n]
