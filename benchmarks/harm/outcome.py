"""Outcomes of the cells of a world: the default recommender's beside ours, where ours is worse, and their tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks import benches
from recommender.base.records import CPU, MEMORY, RESOURCES
from tests.worlds.playing import CONTENDERS, HOUR_S, START_S, TICK_S, Contender, Play
from tests.worlds.simulated.pods import Tally, UpdateMode, Workload
from tests.worlds.workloads import WORLDS, Cell, World, cells_of, workload_of

COUNTED_HARMS = ("evictions", "kills", "restarts", "failed_jobs")
"""Counts that may not exceed the default recommender's."""

MOST_TIMES = {"job_time": 1.02, "worst_job_time": 1.05}
"""Most that ours may be, divided by the default's, over the runs that the default's has ended."""

MOST_UPDATES, SAVED = 2, 0.01
"""Most resizes in place, divided by the default's, unless they gain something: fewer of `COUNTED_HARMS`, or this much
of `GAINS`; or, beside what the pods were created with, of their slack while they were resized, or of the time below
use."""

GAINS = "cpu_slack", "memory_slack", "job_time", "cpu_below_use", "memory_below_use"

MOST_REPLICAS = 1.02
"""Most container-hours under a HorizontalPodAutoscaler, divided by the default's."""


class Task(NamedTuple):
    """All cells of a world under one recommender."""

    world: str
    who: Contender
    modes: tuple[UpdateMode, ...]
    days: float
    seed: int


class Outcome(NamedTuple):
    """What happened to a workload: in total, and after the first day; and how many of its runs have not ended."""

    total: Tally
    after_first_day: Tally
    unfinished: int = 0


def play_task(task: Task) -> tuple[Task, dict[Cell, Outcome]]:
    """Play a task; returns the task as well, since tasks end in any order."""
    world = WORLDS[task.world]
    cells = list(cells_of(world, task.modes))
    workloads = [workload_of(world, cell, number, task.seed) for number, cell in enumerate(cells)]
    play = Play(task.who, workloads, distort=world.distort, scrape_s=world.scrape_s)
    every_s = world.restarts_every_h * HOUR_S

    def restart() -> None:
        if (play.cluster.now_s - START_S) % every_s < TICK_S:
            play.recommender.stop()
            play.recommender.start()

    play.until(24.0 * task.days, restart)
    outcomes = {}
    for cell, workload in zip(cells, workloads, strict=True):
        days = workload.tallies
        unfinished = overdue(workload, play.cluster.now_s)
        days[int(world.days)].slowdowns += unfinished
        whole, later = total(days.values()), total(tally for day, tally in days.items() if day >= 1)
        outcomes[cell] = Outcome(whole, later if later.ran_s else whole, len(unfinished))
    return task, outcomes


def overdue(workload: Workload, now_s: float) -> tuple[float, ...]:
    """Slowdown at least of a run that has not ended, but should have."""
    ran_s = now_s - workload.began_s if workload.kind == "Job" and workload.live else 0.0
    return (ran_s / workload.runs_for_s,) if ran_s > workload.runs_for_s else ()


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
        default, ours = map(figures_of, self.of_same_runs())
        for name, most in MOST_TIMES.items():
            if ours[name] > most * default[name]:
                yield name.replace("_", " ")
        gains = any(ours[name] < default[name] for name in COUNTED_HARMS)
        gains |= any(ours[name] < default[name] - SAVED for name in GAINS)
        if not (gains or saved_by_updates(self.ours.total)) and ours["updates"] > MOST_UPDATES * default["updates"]:
            yield "updates"
        if self.world.horizontal and ours["container_hours"] > MOST_REPLICAS * default["container_hours"]:
            yield "container hours"
        for i, resource in enumerate(RESOURCES):
            theirs, own = (slack_of(self.slack_tally(outcome), i) for outcome in (self.default, self.ours))
            if (self.world.shape == "steady" and own > theirs) or (self.world.shape == "phases" and own >= theirs):
                yield f"{resource} slack"

    def of_same_runs(self) -> Iterator[Tally]:
        """Both in total, with the runs that the default has ended, as far as ours got to them.

        One that gets further after a change has more of those that it slows.
        """
        tallies = self.default.total, self.ours.total
        runs = len(self.default.total.slowdowns) - self.default.unfinished
        return (replace(tally, slowdowns=tally.slowdowns[:runs]) for tally in tallies)

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


def saved_by_updates(tally: Tally) -> bool:
    """Whether resizes saved something, beside what the pods were created with."""
    below_s = tally.below_cpu_s + tally.below_memory_s
    parts = zip(tally.created_slack, tally.slack, tally.resized_used, strict=True)
    saved = any(created - slack > SAVED * used for created, slack, used in parts)
    return saved or tally.created_below_s - below_s > SAVED * tally.ran_s


def figures_of(tally: Tally) -> dict[str, Any]:
    found = {name: count for name, count in asdict(tally).items() if isinstance(count, int)}
    ran_s, slowdowns = tally.ran_s or 1.0, tally.slowdowns or (math.nan,)
    return found | {
        "job_time": round(fmean(slowdowns), 4),
        "worst_job_time": round(max(slowdowns), 4),
        "container_hours": round(tally.ran_s / HOUR_S, 2),
        "down_hours": round(tally.down_s / HOUR_S, 3),
        "cpu_below_use": round(tally.below_cpu_s / ran_s, 5),
        "memory_below_use": round(tally.below_memory_s / ran_s, 5),
        "cpu_slack": round(slack_of(tally, CPU), 4),
        "memory_slack": round(slack_of(tally, MEMORY), 4),
    }


COLUMNS = {
    "evictions": ("evicted", "d"),
    "kills": ("killed", "d"),
    "restarts": ("restarted", "d"),
    "failed_jobs": ("jobs failed", "d"),
    "updates": ("resized in place", "d"),
    "job_time": ("job time", ".2f"),
    "worst_job_time": ("worst", ".2f"),
    "cpu_below_use": ("CPU below use", ".1%"),
    "memory_below_use": ("memory below use", ".1%"),
    "cpu_slack": ("CPU slack", ".1%"),
    "memory_slack": ("memory slack", ".1%"),
}
"""Figures in the tables: header, and format of the default's and ours. Job time is relative to that as declared."""


def table(compared: Sequence[Comparison], facts: dict[str, Any]) -> Table:
    """A row per world and mode: default / ours; red if ours is worse in a cell."""
    headers = ("world", "mode", *(header for header, _ in COLUMNS.values()), "cells worse")
    rows = benches.table(f"default / ours; {facts['date']}, {facts['machine']}", *headers, text_columns=2)
    last = None
    for world, mode in dict.fromkeys((one.world.name, one.cell.mode) for one in compared):
        if last not in (None, world):
            rows.add_section()
        cells = [one for one in compared if (one.world.name, one.cell.mode) == (world, mode)]
        rows.add_row("" if world == last else world, mode, *_texts(cells, pair))
        last = world
    return rows


def markdown(compared: Sequence[Comparison]) -> str:
    """A row per world, all its cells together, for the documents."""
    headers = ["world", *(header for header, _ in COLUMNS.values()), "cells worse"]
    lines = [headers, ["---", *["---:"] * (len(headers) - 1)]]
    for world in dict.fromkeys(one.world.name for one in compared):
        cells = [one for one in compared if one.world.name == world]
        lines.append([world, *_texts(cells, lambda default, ours, _: pair(default, ours, worse=False))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _texts(cells: Sequence[Comparison], join: Callable[[str, str, bool], str]) -> Iterator[str]:
    """Yield the texts of a row: each figure of these cells together, and how many of them are worse."""
    default, ours = (figures_of(total(getattr(one, who).total for one in cells)) for who in CONTENDERS)
    worse = [list(one.worse()) for one in cells]
    for name, (_, form) in COLUMNS.items():
        texts = ["–" if math.isnan(one[name]) else f"{one[name]:{form}}" for one in (default, ours)]
        yield join(texts[0], texts[1], any(name.replace("_", " ") in words for words in worse))
    yield f"{sum(map(bool, worse))} of {len(cells)}"


def worse_cells(compared: Sequence[Comparison]) -> list[str]:
    """A line per cell in which ours is worse."""
    return [
        f"{one.world.name}: {one.cell}: " + ", ".join(_words(one, name) for name in worse)
        for one in compared
        if (worse := list(one.worse()))
    ]


def _words(one: Comparison, name: str) -> str:
    key, slack = name.replace(" ", "_"), name.endswith("slack")
    both = (one.default, one.ours)
    default, ours = (figures_of(one.slack_tally(outcome) if slack else outcome.total)[key] for outcome in both)
    return f"{name} {default:.0%} / {ours:.0%}" if slack else f"{name} {default} / {ours}"


def pair(default: str, ours: str, worse: bool) -> str:
    """A cell of a table; red if ours is worse."""
    return f"{default} / [red]{ours}[/red]" if worse else f"{default} / {ours}"
