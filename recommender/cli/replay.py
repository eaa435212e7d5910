"""`phasewise replay`: rerun what the recommender recorded."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import orjson
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from recommender.base.cycle import cycle_samples_on
from recommender.base.errors import BadInput, Misuse
from recommender.base.records import Amounts, amounts_of
from recommender.base.units import counted, format_cpu, format_memory, format_time
from recommender.cli.common import FILE, MOMENT, say
from recommender.cli.recommender import command as recommender
from recommender.engine.entries import RecordedTarget, Start
from recommender.engine.keys import Group
from recommender.engine.options import Options
from recommender.engine.replaying import Replay, Step

SHOWN = 20
"""Differences shown in the table; JSON has a hundred times as many."""

START_FIELDS = {"rounds.step_s": "step_s", "rounds.cycle_s": "cycle_samples", "rounds.lead_time_s": "lead_time_s"}
"""Fields of `Start` set by options of `phasewise recommender` other than guard rails and band."""


@click.command("replay")
@click.argument("file", type=FILE)
@click.option("--from", "from_s", type=MOMENT, help="Compare only from this time on; earlier steps are still run.")
@click.option("--until", "until_s", type=MOMENT, help="Stop at this time.")
@click.option(
    "--with",
    "given",
    multiple=True,
    metavar="OPTION=VALUE",
    help="Run with another value of an option of `phasewise recommender`: --with memory-margin=0.3. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.pass_context
def command(
    ctx: click.Context, file: Path, from_s: float | None, until_s: float | None, given: tuple[str, ...], as_json: bool
) -> None:
    """Rerun what `phasewise recommender --record FILE` wrote, and compare its targets with the recorded ones.

    With the recorded options all targets must be equal, bit for bit: exit code 0, otherwise 1. With other options
    (--with) it shows the targets that each workload would have had. Usage and the resources in force stay as recorded.

    Example: phasewise replay hour.rec --with target-violation=0.02
    """
    run = Replay(file, start_changes(given) if given else None)
    comparison = Comparison()
    try:
        for step in run.steps(math.inf if until_s is None else until_s):
            if from_s is None or step.now_s >= from_s:
                comparison.see(step)
    except BadInput:
        if comparison.steps:
            say(f"the steps before it can be replayed: --until {format_time(comparison.last_s)}")
        raise
    if run.reader.cut_off:
        say(f"{file}: the last block is incomplete; its {run.reader.cut_off} bytes are left out")
    if not comparison.steps:
        raise BadInput("it has no step in that period", remedy="Check --from and --until.", file=file)
    if as_json:
        click.echo(orjson.dumps(_document(comparison), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(comparison, courses=bool(given))
    ctx.exit(int(bool(comparison.differences) and not given))


def start_changes(given: tuple[str, ...]) -> Callable[[Start], Start]:
    """Parse options into a function that replaces the recorded ones; `Misuse` if no target depends on one."""
    arguments = [f"--{text}" for text in given]
    parsed = recommender.make_context("phasewise recommender", arguments)
    named = {
        name: value
        for name, value in parsed.params.items()
        if parsed.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    parts = {field.name for field in fields(Options)}
    for option in recommender.params:
        name = str(option.name)
        if name in named and name not in START_FIELDS and name.partition(".")[0] not in parts:
            flag = option.opts[0].removeprefix("--")
            raise Misuse(f"--with {flag}: no target depends on it. Name an option of a rail, the band or forecasts.")
    return lambda start: _changed(start, named)


def _changed(start: Start, named: Mapping[str, Any]) -> Start:
    step_s = named.get("rounds.step_s", start.step_s)
    cycle_s = named.get("rounds.cycle_s", start.cycle_samples * start.step_s)
    for name, value in named.items():
        part, _, field = name.partition(".")
        if name in START_FIELDS:
            start = start._replace(**{START_FIELDS[name]: value})
        else:
            both = (value, value) if field == "target_violation" else value
            options = replace(start.options, **{part: replace(getattr(start.options, part), **{field: both})})
            start = start._replace(options=options)
    # A cycle is counted in steps, so another step changes the count.
    return start._replace(cycle_samples=cycle_samples_on(step_s, cycle_s))


# -- comparing ---------------------------------------------------------------------------------------------------------


class Course:
    """The target of one group over time, in cores and bytes; NaN while there is none."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._amounts: list[Amounts] = []

    def move(self, now_s: float, target: RecordedTarget) -> None:
        self._times_s.append(now_s)
        self._amounts.append((math.nan, math.nan) if target is None else target[0][1])

    def as_json(self, until_s: float) -> dict[str, Any]:
        """Mean over the time with a target, or the last one if only for a moment; and how often it changed."""
        amounts, spans_s = np.array(self._amounts), np.diff([*self._times_s, until_s])
        known = ~np.isnan(amounts[:, 0])
        changes = (amounts[1:] != amounts[:-1]).any(axis=1)[known[1:] & known[:-1]]
        weighed = spans_s[known].sum() > 0.0
        mean = np.average(amounts[known], axis=0, weights=spans_s[known]) if weighed else amounts[-1]
        cpu_cores, memory_bytes = amounts_of(mean)
        return {"cpu_cores": cpu_cores, "memory_bytes": memory_bytes, "changes": int(changes.sum())}


class Difference(NamedTuple):
    """A group whose target differs, and both targets."""

    at_s: float
    group: Group
    recorded: RecordedTarget
    replayed: RecordedTarget


class Comparison:
    """What was recorded beside what was replayed.

    `starts` counts engine starts; in `differing_steps` a target changed, in the record or now, and the two differ.
    """

    def __init__(self) -> None:
        self.steps = self.starts = self.differing_steps = 0
        self.first_s = self.last_s = math.nan
        self.differences: list[Difference] = []
        self._courses = defaultdict[Group, tuple[Course, Course]](lambda: (Course(), Course()))

    def see(self, step: Step) -> None:
        self.steps, self.starts = self.steps + 1, self.starts + step.begins
        self.first_s = step.now_s if self.steps == 1 else self.first_s
        self.last_s = step.now_s
        about = {**step.recorded, **step.replayed} if self.steps == 1 else step.changed
        for group in about:
            for course, target in zip(self._courses[group], step.both(group), strict=True):
                course.move(step.now_s, target)
        differing = [Difference(step.now_s, group, *step.both(group)) for group in about if step.differs(group)]
        self.differing_steps += bool(differing)
        self.differences += differing[: 100 * SHOWN - len(self.differences)]

    def workloads(self) -> list[dict[str, Any]]:
        """The course of each group, as recorded and as replayed."""
        return [
            {**group._asdict(), "recorded": recorded.as_json(self.last_s), "replayed": replayed.as_json(self.last_s)}
            for group, (recorded, replayed) in sorted(self._courses.items())
        ]


# -- output ------------------------------------------------------------------------------------------------------------


def _print(comparison: Comparison, *, courses: bool) -> None:
    console = Console()
    span = f"{format_time(comparison.first_s)} to {format_time(comparison.last_s)}"
    console.print(f"{counted(comparison.steps, 'step')}, {span}; starts: {comparison.starts}")
    if not comparison.differences:
        console.print("all targets are equal, bit for bit")
        return
    console.print(f"targets differ in {counted(comparison.differing_steps, 'step')}")
    console.print(_course_table(comparison) if courses else _difference_table(comparison))


def _difference_table(comparison: Comparison) -> Table:
    table = Table("at", "container", "recorded", "replayed", title="first differences", title_justify="left")
    for one in comparison.differences[:SHOWN]:
        recorded, replayed = _target(one.recorded), _target(one.replayed)
        if recorded == replayed:
            replayed = "the same target; bounds or doubts differ (--json)"
        table.add_row(format_time(one.at_s), str(one.group), recorded, replayed)
    return table


def _course_table(comparison: Comparison) -> Table:
    table = Table("container", "recorded", "replayed", "target changes", title="mean target", title_justify="left")
    for one in comparison.workloads():
        group, both = Group(one["namespace"], one["vpa"], one["container"]), (one["recorded"], one["replayed"])
        table.add_row(str(group), *map(_mean, both), " -> ".join(str(course["changes"]) for course in both))
    return table


def _target(target: RecordedTarget) -> str:
    if target is None:
        return "none"
    (_, (cpu_cores, memory_bytes), _), doubt = target
    return f"{cpu_cores!r} cores, {memory_bytes!r} bytes{' (low confidence)' if doubt else ''}"


def _mean(course: Mapping[str, Any]) -> str:
    cpu_cores, memory_bytes = course["cpu_cores"], course["memory_bytes"]
    return "none" if math.isnan(cpu_cores) else f"{format_cpu(cpu_cores)}, {format_memory(memory_bytes)}"


def _document(comparison: Comparison) -> dict[str, Any]:
    return {
        "schema": 1,
        "steps": comparison.steps,
        "starts": comparison.starts,
        "from_s": comparison.first_s,
        "until_s": comparison.last_s,
        "differing_steps": comparison.differing_steps,
        "differences": [
            {"at_s": one.at_s, **one.group._asdict(), "recorded": one.recorded, "replayed": one.replayed}
            for one in comparison.differences
        ],
        "workloads": comparison.workloads(),
    }
