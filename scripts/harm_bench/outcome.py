"""Outcomes of the cells of a world: the default recommender's beside ours, where ours is worse, and their tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rich.table import Table

import benches
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
    outcomes = {}
    for cell, workload in zip(cells, workloads, strict=True):
        days = workload.tallies
        whole, later = total(days.values()), total(tally for day, tally in days.items() if day >= 1)
        outcomes[cell] = Outcome(whole, later if later.ran_s else whole)
    return task, outcomes


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


def total(of: Iterable[Tally]) -> Tally:
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


COUNTS = {"evictions": "evicted", "kills": "killed", "restarts": "restarted", "failed_jobs": "jobs failed"}
SHARES = {
    "cpu_below_use": "CPU below use",
    "memory_below_use": "memory below use",
    "cpu_slack": "CPU slack",
    "memory_slack": "memory slack",
}


def table(compared: Sequence[Comparison], facts: dict[str, Any]) -> Table:
    """A row per world and mode: default / ours; red if ours is worse in a cell."""
    headers = ("world", "mode", *COUNTS.values(), "resized in place", *SHARES.values(), "cells worse")
    rows = benches.table(f"default / ours; {facts['date']}, {facts['machine']}", *headers, text_columns=2)
    last = None
    for world, mode in dict.fromkeys((one.world.name, one.cell.mode) for one in compared):
        cells = [one for one in compared if (one.world.name, one.cell.mode) == (world, mode)]
        if last not in (None, world):
            rows.add_section()
        default, ours = _both(cells)
        worse = {words for one in cells for words in one.worse()}
        row = [pair(str(default[name]), str(ours[name]), name.replace("_", " ") in worse) for name in COUNTS]
        row.append(f"{default['updates']} / {ours['updates']}")
        row += [pair(f"{default[name]:.1%}", f"{ours[name]:.1%}", name.replace("_", " ") in worse) for name in SHARES]
        rows.add_row(
            "" if world == last else world, mode, *row, f"{sum(any(one.worse()) for one in cells)} of {len(cells)}"
        )
        last = world
    return rows


def markdown(compared: Sequence[Comparison]) -> str:
    """A row per world, all its cells together, for the documents."""
    headers = ["world", *COUNTS.values(), *SHARES.values(), "cells worse"]
    lines = [headers, ["---", *["---:"] * (len(headers) - 1)]]
    for world in dict.fromkeys(one.world.name for one in compared):
        cells = [one for one in compared if one.world.name == world]
        default, ours = _both(cells)
        counts = [f"{default[name]} / {ours[name]}" for name in COUNTS]
        shares = [f"{default[name]:.1%} / {ours[name]:.1%}" for name in SHARES]
        lines.append([world, *counts, *shares, f"{sum(any(one.worse()) for one in cells)} of {len(cells)}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def worse_cells(compared: Sequence[Comparison]) -> list[str]:
    """A line per cell in which ours is worse."""
    return [
        f"{one.world.name}: {one.cell}: " + ", ".join(_words(one, name) for name in worse)
        for one in compared
        if (worse := list(one.worse()))
    ]


def _both(cells: Sequence[Comparison]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of all cells together: the default's, ours."""
    return figures_of(total(one.default.total for one in cells)), figures_of(total(one.ours.total for one in cells))


def _words(one: Comparison, name: str) -> str:
    key, slack = name.replace(" ", "_"), name.endswith("slack")
    both = (one.default, one.ours)
    default, ours = (figures_of(one.slack_tally(outcome) if slack else outcome.total)[key] for outcome in both)
    return f"{name} {default:.0%} / {ours:.0%}" if slack else f"{name} {default} / {ours}"


def pair(default: str, ours: str, worse: bool) -> str:
    """A cell of a table; red if ours is worse."""
    return f"{default} / [red]{ours}[/red]" if worse else f"{default} / {ours}"
