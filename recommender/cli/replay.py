"""`phasewise replay`: what a recorder wrote is run again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import orjson
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from recommender.cli.common import MOMENT, say
from recommender.cli.recommender import command as recommender
from recommender.engine.entries import Json, Start
from recommender.engine.keys import Group
from recommender.engine.options import Options
from recommender.engine.replaying import Comparison, Difference, Replay, TargetHistory
from recommender.errors import BadInput, Misuse
from recommender.units import format_cpu, format_memory, moment

SHOWN = 20
"""So many differences are told one by one; with --json a hundred times as many."""

OF_THE_ENGINE = {
    "rounds.step_s": "step_s",
    "rounds.cycle_s": "cycle_samples",
    "rounds.lead_time_s": "lead_time_s",
}
"""Options of `phasewise recommender` that are no rail's and no band's, and where a `Start` has them."""


@click.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "from_s", type=MOMENT, help="Tell of what comes after this moment; all before it is run, too.")
@click.option("--until", "until_s", type=MOMENT, help="Run no farther than to this moment.")
@click.option(
    "--with",
    "given",
    multiple=True,
    metavar="OPTION=VALUE",
    help="What if an option of `phasewise recommender` had been this: --with memory-margin=0.3. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def command(
    ctx: click.Context, file: Path, from_s: float | None, until_s: float | None, given: tuple[str, ...], as_json: bool
) -> None:
    """Run again what `phasewise recommender --record FILE` wrote, and tell where another target comes out.

    With the options of the record that is nowhere, bit for bit: exit code 0, else 1. With others (--with) it is told
    what each workload would have been given. Use, and what containers had, stay as they were recorded.

    Example: phasewise replay hour.rec --with target-violation=0.02
    """
    run = Replay(file, changed_by(given) if given else None)
    comparison, told = Comparison(), list[Difference]()
    try:
        for step in run.steps(math.inf if until_s is None else until_s):
            if from_s is None or step.now_s >= from_s:
                told += comparison.see(step)
                del told[100 * SHOWN :]
    except BadInput:
        if comparison.steps:
            say(f"what comes before it is sound: --until {moment(comparison.last_s)}")
        raise
    if run.reader.cut_off:
        say(f"{file}: its last block was being written when the process ended; {run.reader.cut_off} bytes are left out")
    if not comparison.steps:
        raise BadInput("it holds no step of that time", remedy="Look at --from and --until.", file=file)
    if as_json:
        click.echo(orjson.dumps(_document(comparison, told), option=orjson.OPT_INDENT_2).decode())
    else:
        _tell(comparison, told, courses=bool(given))
    ctx.exit(int(bool(told) and not given))


def changed_by(given: tuple[str, ...]) -> Callable[[Start], Start]:
    """What puts options, as the command line of the recommender has them, in the place of recorded ones.

    Raises
    ------
    Misuse
        It is none, or none of those that decide.
    """
    arguments = [f"--{text}" for text in given]
    parsed = recommender.make_context("recommender", arguments)
    named = {
        name: value
        for name, value in parsed.params.items()
        if parsed.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    parts = {field.name for field in fields(Options)}
    for name in named:
        if name not in OF_THE_ENGINE and name.partition(".")[0] not in parts:
            option = name.rpartition(".")[2]
            raise Misuse(f"--with {option}: no target depends on it. Name an option of a rail, the band or forecasts.")
    return lambda start: _changed(start, named)


def _changed(start: Start, named: Mapping[str, Any]) -> Start:
    step_s = named.get("rounds.step_s", start.step_s)
    cycle_s = named.get("rounds.cycle_s", start.cycle_samples * start.step_s)
    for name, value in named.items():
        part, _, field = name.partition(".")
        if name in OF_THE_ENGINE:
            start = start._replace(**{OF_THE_ENGINE[name]: value})
        else:
            of_both = (value, value) if field == "target_violation" else value
            options = replace(start.options, **{part: replace(getattr(start.options, part), **{field: of_both})})
            start = start._replace(options=options)
    # A cycle is counted in steps, of whichever length they are.
    return start._replace(cycle_samples=max(1, round(cycle_s / step_s)))


# -- what is told ------------------------------------------------------------------------------------------------------


def _tell(comparison: Comparison, told: list[Difference], *, courses: bool) -> None:
    console = Console()
    span = f"{moment(comparison.first_s)} to {moment(comparison.last_s)}"
    console.print(f"{comparison.steps} steps, {span}; starts: {comparison.starts}")
    if not told:
        console.print("every target is the same, bit for bit")
        return
    console.print(f"in {comparison.differing_steps} of them another target is said than then")
    console.print(_of_courses(comparison) if courses else _of_differences(told))


def _of_differences(told: list[Difference]) -> Table:
    table = Table("at", "container", "recorded", "replayed", title="the first that differ", title_justify="left")
    for one in told[:SHOWN]:
        table.add_row(moment(one.now_s), str(one.group), _words(one.recorded), _words(one.replayed))
    return table


def _of_courses(comparison: Comparison) -> Table:
    table = Table("container", "recorded", "replayed", "targets changed", title="wanted (mean)", title_justify="left")
    for group, recorded, replayed in comparison.histories():
        changes = f"{recorded.changes} -> {replayed.changes}"
        table.add_row(str(group), _amounts(recorded), _amounts(replayed), changes)
    return table


def _words(wanted: Json) -> str:
    if wanted is None:
        return "nothing"
    (_, (cpu_cores, memory_bytes), _), doubt = wanted
    return f"{cpu_cores:g} cores, {memory_bytes:g} bytes{' (a guess)' if doubt else ''}"


def _amounts(course: TargetHistory) -> str:
    cpu_cores, memory_bytes = course.mean()
    return "nothing" if math.isnan(cpu_cores) else f"{format_cpu(cpu_cores)}, {format_memory(memory_bytes)}"


def _document(comparison: Comparison, told: list[Difference]) -> dict[str, Any]:
    return {
        "schema": 1,
        "steps": comparison.steps,
        "starts": comparison.starts,
        "from_s": comparison.first_s,
        "until_s": comparison.last_s,
        "differing_steps": comparison.differing_steps,
        "differences": [
            {"at_s": one.now_s, **_name(one.group), "recorded": one.recorded, "replayed": one.replayed} for one in told
        ],
        "workloads": [
            {**_name(group), "recorded": _course(recorded), "replayed": _course(replayed)}
            for group, recorded, replayed in comparison.histories()
        ],
    }


def _name(group: Group) -> dict[str, str]:
    return {"namespace": group.namespace, "vpa": group.vpa, "container": group.container}


def _course(course: TargetHistory) -> dict[str, Any]:
    cpu_cores, memory_bytes = course.mean()
    return {"cpu_cores": cpu_cores, "memory_bytes": memory_bytes, "changes": course.changes}
