"""What came out of the cells of a world: the default recommender's and ours side by side, and where ours is worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from harm_bench.playing import HOUR_S, START_S, TICK_S, Play, Who
from harm_bench.simulated.pods import Tally, UpdateMode
from harm_bench.worlds import WORLDS, Cell, World, cells_of, workload_of
from recommender.records import CPU, MEMORY, RESOURCES

ROUND_S = 60.0
"""Between two rounds of either recommender; ours would do four by default."""

COUNTED = ("evictions", "kills", "restarts", "failed_jobs")
"""Of these ours may have no more than the default."""


class Task(NamedTuple):
    """All cells of a world under one recommender."""

    world: str
    who: Who
    modes: tuple[UpdateMode, ...]
    days: float
    seed: int


class Lived(NamedTuple):
    """What happened to a workload: in all, and after the first day."""

    all: Tally
    later: Tally


def live(task: Task) -> tuple[Task, dict[Cell, Lived]]:
    """Play a task; returned with it, since tasks end in any order."""
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
    return task, {cell: _lived(workload.tallies) for cell, workload in zip(cells, workloads, strict=True)}


def _lived(days: dict[int, Tally]) -> Lived:
    whole = sum(days.values(), start=Tally())
    later = sum((tally for day, tally in days.items() if day >= 1), start=Tally())
    return Lived(whole, later if later.ran_s else whole)


@dataclass(frozen=True, slots=True)
class Compared:
    """One cell of one world."""

    world: World
    cell: Cell
    default: Lived
    ours: Lived

    def worse(self) -> Iterator[str]:
        """In what ours is worse than may be."""
        for name in COUNTED:
            if getattr(self.ours.all, name) > getattr(self.default.all, name):
                yield name.replace("_", " ")
        for i, resource in enumerate(RESOURCES):
            theirs, ours = (slack_of(self.looked_at(lived), i) for lived in (self.default, self.ours))
            if (self.world.shape == "steady" and ours > theirs) or (self.world.shape == "phases" and ours >= theirs):
                yield f"{resource} slack"

    def looked_at(self, lived: Lived) -> Tally:
        """Where slack counts: a steady load's after the first day, a run's of phases from its start."""
        return lived.later if self.world.shape == "steady" else lived.all

    def as_json(self) -> dict[str, Any]:
        both = {"default": self.default, "ours": self.ours}
        return {
            "world": self.world.name, **self.cell._asdict(),
            **{who: figures_of(lived.all) | {"later": figures_of(lived.later)} for who, lived in both.items()},
            "worse": list(self.worse()),
        }  # fmt: skip


def compare(world: World, default: dict[Cell, Lived], ours: dict[Cell, Lived]) -> list[Compared]:
    return [Compared(world, cell, default[cell], ours[cell]) for cell in default]


def total(of: Sequence[Tally]) -> Tally:
    return sum(of, start=Tally())


def slack_of(tally: Tally, resource: int) -> float:
    """What was reserved and not used, as a share of what was used."""
    return tally.slack[resource] / tally.used[resource] if tally.used[resource] else 0.0


def figures_of(tally: Tally) -> dict[str, Any]:
    """Counts, hours, and shares."""
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
