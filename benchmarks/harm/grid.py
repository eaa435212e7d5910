"""Jobs of fixed work that are light at first and heavy later, on a grid of levels, light time and noise of the meter.

They show whether a Job is held to what it used while it was light.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks import benches
from recommender.base.records import CPU
from tests.worlds.playing import CONTENDERS, HOUR_S, Contender, Play
from tests.worlds.simulated.cluster import meter_noise
from tests.worlds.simulated.pods import NONE, Autoscaler, ContainerSpec, Node, Resources, Use, Workload
from tests.worlds.workloads import GIB, MINUTE_S, phases

LEVELS = ((0.2, 0.5), (0.2, 1.8), (0.25, 2.0), (0.2, 4.0), (0.5, 1.0), (1.0, 4.0), (2.0, 3.0))
"""Cores of the light and of the heavy part."""

LIGHT_MINUTES = (5, 10, 20, 40)
NOISES = (0.0, 0.005, 0.03)
HEAVY_S = 500.0
PARTS, RUNS, COPIES = 4, 3, 2
"""Light and heavy parts of a run, runs of each class, and classes in each cell with noise."""

DECLARED_SHARE = 1.1
"""Cores declared, as a multiple of the heavy part's."""

STUCK = 1.5
"""A run that takes this many times as long as declared is stuck."""

SITUATIONS = ("limits follow", "node full")


class Cell(NamedTuple):
    situation: str
    light_cores: float
    heavy_cores: float
    light_minutes: int
    noise: float

    def __str__(self) -> str:
        levels = f"{self.light_cores} -> {self.heavy_cores} cores"
        return f"{self.situation}: {levels} after {self.light_minutes} min, noise {self.noise:.1%}"

    def use(self) -> Use:
        memory_bytes = 1.0 * GIB
        parts = (
            (self.light_minutes * MINUTE_S, (self.light_cores, memory_bytes)),
            (HEAVY_S, (self.heavy_cores, memory_bytes)),
        )
        return phases(PARTS * parts)


class Task(NamedTuple):
    """The cells with this light time and noise, under one recommender."""

    who: Contender
    light_minutes: int
    noise: float
    seed: int


class Run(NamedTuple):
    """A run of a Job, `number` 0 for the first of its class, and its time divided by that of its work as declared."""

    cell: Cell
    number: int
    slowdown: float


def tasks(seed: int) -> list[Task]:
    """All of them, the longest first."""
    sizes = product(LIGHT_MINUTES[::-1], NOISES)
    return [Task(who, light_minutes, noise, seed) for light_minutes, noise in sizes for who in CONTENDERS]


def play_task(task: Task) -> tuple[Contender, list[Run]]:
    places = product(SITUATIONS, LEVELS)
    cells = [Cell(situation, *levels, task.light_minutes, task.noise) for situation, levels in places]
    cells *= COPIES if task.noise else 1
    workloads = [_workload(cell, number) for number, cell in enumerate(cells)]
    play = Play(task.who, workloads, distort=meter_noise(task.noise, zlib.crc32(f"{task[1:]}".encode())))
    play.until(RUNS * (workloads[0].runs_for_s + 2 * MINUTE_S) / HOUR_S + 0.25)
    now_s = play.cluster.now_s
    return task.who, [
        run for cell, workload in zip(cells, workloads, strict=True) for run in _runs(cell, workload, now_s)
    ]


def _workload(cell: Cell, number: int) -> Workload:
    """A class of Jobs that runs again and again."""
    declared = DECLARED_SHARE * cell.heavy_cores, 2.0 * GIB
    follow = cell.situation == "limits follow"
    allocatable = Node().allocatable
    node = Node(allocatable, busy_cores=0.0 if follow else allocatable[CPU] - declared[CPU])
    return Workload(
        namespace=f"n{number}",
        name="job",
        kind="Job",
        replicas=1,
        containers=[ContainerSpec("main", Resources(declared, declared if follow else NONE), cell.use())],
        vpa=Autoscaler("InPlaceOrRecreate", min_replicas=1),
        node=node,
        runs_for_s=PARTS * (cell.light_minutes * MINUTE_S + HEAVY_S),
        next_run_after_s=MINUTE_S,
        backoff_limit=6,
    )


def _runs(cell: Cell, workload: Workload, now_s: float) -> list[Run]:
    """The runs of a class; one that has not ended counts as if what is left of its work took as long as declared."""
    slowdowns = [one for tally in workload.tallies.values() for one in tally.slowdowns]
    live = [container for pod in workload.live for container in pod.containers if container.declared_s]
    slowdowns += [1.0 + (now_s - one.started_s - one.declared_s) / workload.runs_for_s for one in live]
    return [Run(cell, number, one) for number, one in enumerate(slowdowns)]


def figures_of(runs: Iterable[Run]) -> dict[str, Any]:
    slowdowns = [run.slowdown for run in runs]
    stuck = sum(slowdown > STUCK for slowdown in slowdowns)
    return {"runs": len(slowdowns), "mean": fmean(slowdowns), "worst": max(slowdowns), "stuck": stuck}


FORMS = {"runs": "d", "mean": ".3f", "worst": ".3f", "stuck": "d"}


def table(runs: Mapping[Contender, Sequence[Run]], facts: Mapping[str, Any]) -> Table:
    """A row per situation, for the first run of a class and for later ones: default / ours."""
    title = f"Light, then heavy: job time against declared; default / ours; {facts['date']}, {facts['machine']}"
    rows = benches.table(title, "CPU", "run of its class", "runs", "mean", "worst", "stuck", text_columns=2)
    for situation, first in product(SITUATIONS, (True, False)):
        both = [
            figures_of(run for run in runs[who] if (run.cell.situation, run.number == 0) == (situation, first))
            for who in CONTENDERS
        ]
        pairs = [" / ".join(f"{one[name]:{form}}" for one in both) for name, form in FORMS.items()]
        rows.add_row(situation, "first" if first else "later", *pairs)
    return rows


def as_json(runs: Mapping[Contender, Sequence[Run]]) -> dict[str, Any]:
    return {
        who: [run.cell._asdict() | {"number": run.number, "slowdown": run.slowdown} for run in found]
        for who, found in runs.items()
    }


def slowest(runs: Iterable[Run], number: int = 10) -> list[str]:
    """A line for each of the cells with our slowest runs."""
    by_cell = defaultdict[Cell, list[float]](list)
    for run in runs:
        by_cell[run.cell].append(run.slowdown)
    ordered = sorted(by_cell.items(), key=lambda item: max(item[1]), reverse=True)[:number]
    return [f"{cell}: {', '.join(f'{slowdown:.2f}' for slowdown in found)}" for cell, found in ordered]
