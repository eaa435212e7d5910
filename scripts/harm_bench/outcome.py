"""Outcomes of the cells of a world: the default recommender's beside ours, and where ours is worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from harm_bench.playing import HOUR_S, START_S, TICK_S, Contender, Play
from harm_bench.simulated.pods import Tally, UpdateMode
from harm_bench.worlds import WORLDS, Cell, World, cells_of, workload_of
from recommender.records import CPU, MEMORY, RESOURCES

ROUND_S = 60.0
"""Interval between rounds of either recommender; ours would do four in that time by default."""

COUNTED_HARMS = ("evictions", "kills", "restarts", "failed_jobs")
"""Counts that may not exceed the default recommender's."""


class Task(NamedTuple):
    """All cells of a world under one recommender."""

    world: str
    who: Contender
    modes: tuple[UpdateMode, ...]
    days: float
    seed: int


class Outcome(NamedTuple):
    """What happened to a workload: in total, and after the first day."""

    total: Tally
    after_first_day: Tally


def play_task(task: Task) -> tuple[Task, dict[Cell, Outcome]]:
    """Play a task; returns the task as well, since tasks end in any order."""
    world = WORLDS[task.world]
    cells = list(cells_of(world, task.modes))
    workloads = [workload_of(world, cell, number, task.seed) for number, cell in enumerate(cells)]
    play = Play(task.who, workloads, distort=world.distort, round_s=ROUND_S)
    every_s = world.restarts_every_h * HOUR_S

    def restart() -> None:
        if (play.cluster.now_s - START_S) % every_s < TICK_S:
            play.recommender.stop()
            play.recommender.start()

    play.until(24.0 * task.days, restart)
    return task, {cell: _outcome_of(workload.tallies) for cell, workload in zip(cells, workloads, strict=True)}


def _outcome_of(days: dict[int, Tally]) -> Outcome:
    whole = sum(days.values(), start=Tally())
    later = sum((tally for day, tally in days.items() if day >= 1), start=Tally())
    return Outcome(whole, later if later.ran_s else whole)


@dataclass(frozen=True, slots=True)
class Comparison:
    world: World
    cell: Cell
    default: Outcome
    ours: Outcome

    def worse(self) -> Iterator[str]:
        """Yield the criteria by which ours is worse than allowed."""
        for name in COUNTED_HARMS:
            if getattr(self.ours.total, name) > getattr(self.default.total, name):
                yield name.replace("_", " ")
        for i, resource in enumerate(RESOURCES):
            theirs, ours = (slack_of(self.slack_tally(outcome), i) for outcome in (self.default, self.ours))
            if (self.world.shape == "steady" and ours > theirs) or (self.world.shape == "phases" and ours >= theirs):
                yield f"{resource} slack"

    def slack_tally(self, outcome: Outcome) -> Tally:
        """Period in which slack is judged: after the first day for steady loads, else all."""
        return outcome.after_first_day if self.world.shape == "steady" else outcome.total

    def as_json(self) -> dict[str, Any]:
        both = {"default": self.default, "ours": self.ours}
        return {
            "world": self.world.name, **self.cell._asdict(),
            **{w: figures_of(o.total) | {"after_first_day": figures_of(o.after_first_day)} for w, o in both.items()},
            "worse": list(self.worse()),
        }  # fmt: skip


def compare(world: World, default: dict[Cell, Outcome], ours: dict[Cell, Outcome]) -> list[Comparison]:
    return [Comparison(world, cell, default[cell], ours[cell]) for cell in default]


def total(of: Sequence[Tally]) -> Tally:
    return sum(of, start=Tally())


def slack_of(tally: Tally, resource: int) -> float:
    """Requested but unused, as a share of use."""
    return tally.slack[resource] / tally.used[resource] if tally.used[resource] else 0.0


def figures_of(tally: Tally) -> dict[str, Any]:
    found = {name: count for name, count in asdict(tally).items() if isinstance(count, int)}
    ran_s = tally.ran_s or 1.0
    return found | {
        "container_hours": round(tally.ran_s / HOUR_S, 2),
        "down_hours": round(tally.down_s / HOUR_S, 3),
        "cpu_below_use": round(tally.below_cpu_s / ran_s, 5),
        "memory_below_use": round(tally.below_memory_s / ran_s, 5),
        "cpu_slack": round(slack_of(tally, CPU), 4),
        "memory_slack": round(slack_of(tally, MEMORY), 4),
    }
