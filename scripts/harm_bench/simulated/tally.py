"""What happened to the containers of a workload, to be laid beside what happens under another recommender."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from recommender.records import CPU, MEMORY, VIOLATION_TOLERANCE, Amounts


@dataclass(slots=True)
class Tally:
    """Counts, and seconds and amounts summed over containers and time.

    Attributes
    ----------
    evictions
        Pods that the updater had made again.
    kills
        Containers that were killed for want of memory, and pods that a node short of memory evicted.
    restarts
        Containers that a resize restarted.
    updates
        Pods resized in place.
    failed_jobs
        Jobs that ended otherwise than well.
    down_s
        Container-seconds in which one that should have run did not.
    ran_s, below_cpu_s, below_memory_s
        Container-seconds in all, and those in which more than 1.05 times what was requested was wanted.
    used, reserved, slack
        Core-seconds and byte-seconds; slack is what was reserved and not used.
    """

    evictions: int = 0
    kills: int = 0
    restarts: int = 0
    updates: int = 0
    failed_jobs: int = 0
    down_s: float = 0.0
    ran_s: float = 0.0
    below_cpu_s: float = 0.0
    below_memory_s: float = 0.0
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])
    reserved: list[float] = field(default_factory=lambda: [0.0, 0.0])
    slack: list[float] = field(default_factory=lambda: [0.0, 0.0])

    def ran(self, wanted: Amounts, requests: Amounts, lasted_s: float) -> None:
        """A container ran for so long, wanted this and had requested that (NaN: nothing)."""
        self.ran_s += lasted_s
        self.below_cpu_s += lasted_s * (wanted[CPU] > requests[CPU] * VIOLATION_TOLERANCE)
        self.below_memory_s += lasted_s * (wanted[MEMORY] > requests[MEMORY] * VIOLATION_TOLERANCE)
        for i in (CPU, MEMORY):
            self.used[i] += wanted[i] * lasted_s
            if requests[i] >= 0.0:
                self.reserved[i] += requests[i] * lasted_s
                self.slack[i] += max(0.0, requests[i] - wanted[i]) * lasted_s

    def __add__(self, other: Tally) -> Tally:
        both = Tally()
        for part in fields(Tally):
            mine, theirs = getattr(self, part.name), getattr(other, part.name)
            total = [a + b for a, b in zip(mine, theirs, strict=True)] if isinstance(mine, list) else mine + theirs
            setattr(both, part.name, total)
        return both
