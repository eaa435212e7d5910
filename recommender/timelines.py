"""Which containers of a dry run are worth drawing, chosen as they pass by."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from recommender.records import CPU, MEMORY, ContainerReplay, Tally, Timeline
from recommender.units import BYTES_PER_GIB

BASELINES = {"static": "the declared requests", "vpa": "the default VPA", "histogram": "the default VPA"}
"""What savings may be counted against, the best first, and how a sentence calls it."""

GIB_PER_CORE = 4.0
"""What a general-purpose machine carries beside each core; makes core-seconds and byte-seconds one number."""


def waste(tally: Tally) -> float:
    """Slack of both resources in core-seconds, memory counted by the cores that would carry it."""
    return tally.slack[CPU] + tally.slack[MEMORY] / (GIB_PER_CORE * BYTES_PER_GIB)


def saving(replay: ContainerReplay, policy: str, baseline: str) -> float:
    """How much less `policy` wastes on this container than `baseline`, in core-seconds; negative when more."""
    return waste(replay.tallies[baseline]) - waste(replay.tallies[policy])


def suffering(replay: ContainerReplay, policy: str) -> int:
    """Violating samples of either resource and kills for memory of `policy` on this container."""
    tally, run = replay.tallies[policy], replay.runs.get(policy)
    return sum(tally.violations) + (tally.oom_events if run is None else run.kills)


def focus_of(policies: Sequence[str], oracles: Collection[str]) -> str:
    """The policy a report is about: ours, else one that is neither oracle nor baseline, else whatever there is."""
    choices = [name for name in policies if name not in oracles]
    others = [name for name in choices if name not in BASELINES]
    return next((name for name in ("phasewise", "phase.rules") if name in choices), [*others, *choices, *policies][0])


def baseline_of(policies: Collection[str]) -> str | None:
    """What savings are counted against: the first of `BASELINES` that was judged."""
    return next((name for name in BASELINES if name in policies), None)


class TimelineChoice:
    """Keeps the `n` most telling containers of a stream: half for what they save, half for what they suffer.

    Only the kept ones stay in memory.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._saving: list[tuple[float, int, Timeline]] = []
        self._suffering: list[tuple[float, int, Timeline]] = []
        self._seen = 0

    def offer(self, replay: ContainerReplay, timeline: Timeline, oracles: Collection[str]) -> None:
        """Consider a container; oracles are no policy that could be chosen."""
        self._seen += 1
        if not replay.tallies:
            return
        policy = focus_of(tuple(replay.tallies), oracles)
        baseline = baseline_of(replay.tallies) or policy
        # Among equals the earlier container wins, whatever its name.
        ranks = (saving(replay, policy, baseline), float(suffering(replay, policy)))
        for heap, rank in zip((self._saving, self._suffering), ranks, strict=True):
            heapq.heappush(heap, (rank, -self._seen, timeline))
            if len(heap) > self.n:
                heapq.heappop(heap)

    def timelines(self) -> tuple[Timeline, ...]:
        """At most n: the largest savings first, then the largest sufferings; no container twice."""
        savers, sufferers = (
            [timeline for _, _, timeline in sorted(heap, reverse=True, key=lambda entry: entry[:2])]
            for heap in (self._saving, [entry for entry in self._suffering if entry[0] > 0])
        )
        half = (self.n + 1) // 2
        by_name = {timeline.container: timeline for timeline in savers[:half] + sufferers + savers[half:]}
        return tuple(by_name.values())[: self.n]
