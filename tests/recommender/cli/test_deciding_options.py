"""Each option of `phasewise recommender` that decides: another value of it, another target.

An engine is made of the option as the command line has it, and lives through the same eventful hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import click
import pytest

from recommender.cli.grouped import keys_of
from recommender.cli.recommender import command
from recommender.cli.replay import START_FIELDS, start_changes
from recommender.engine.engine import Engine
from recommender.engine.entries import Start, encode_target
from recommender.engine.fleet import Fleet
from recommender.engine.keys import Ended, Group, Instance, Kill, Rules, Running
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options, RailOptions
from recommender.engine.seen import Samples, Seen
from recommender.engine.tally import Report
from recommender.records import Amounts, Sample
from tests.recommender.engine.worked import GIB, MODEL, NOW_S, running

STEP_S, STEPS, RUN = 15.0, 320, 12
PLAIN, RECURRING, FULL, BRIEF = (Group("ns", name, "main") for name in ("plain", "recurring", "full", "brief"))

OTHER = {
    "--step": "30s",
    "--cycle": "15s",
    "--lead-time": "5m",
    "--memory-margin": "0.5",
    "--shrink-after": "1m",
    "--shrink-step": "0.5",
    "--target-violation": "0.3",
    "--target-kills": "0.5",
    "--widen": "2",
    "--resizes-per-hour": "1",
    "--wait-for-room": "15m",
    "--hold-cpu": "0.6",
    "--hold-memory": "0.6",
    "--rise-cpu": "0.5",
    "--rise-memory": "0.3",
    "--band": "0.1",
    "--hold-guess": "0.9",
}
"""By an option's first name: a value that is not its default."""

DECIDING = [
    option
    for option in command.params
    if isinstance(option, click.Option)
    and (str(option.name) in START_FIELDS or str(option.name).startswith(("rails.", "band.")))
]


def used(number: int) -> tuple[float, float]:
    """Cores and GiB at a step: calm, then more of both, then unsteady CPU beside memory that creeps up."""
    if number < 60:
        return 0.5, 1.0
    if number < 100:
        return 1.5 + 0.01 * (number % 7), 3.8
    return (0.4, 2.0, 0.9, 3.0)[number // 6 % 4], 1.0 + 0.004 * (number - 100)


def used_in_a_run(number: int) -> tuple[float, float]:
    """The same of runs of a class: their second half takes more, not the same in each."""
    return (0.3, 1.0) if number % RUN < RUN // 2 else (2.0, 2.0 + 0.2 * (number // RUN * 3 % 5))


def run_of(number: int, has: Amounts, *, ended: bool = False) -> tuple[Instance, Running]:
    """The run that is there at a step."""
    began_s = NOW_S + number // RUN * RUN * STEP_S
    end = Ended(0, began_s, began_s + RUN * STEP_S) if ended else None
    instance = Instance("ns", f"uid-run-{number // RUN}", "main")
    return instance, running(
        group=RECURRING, workload="nightly", requests=has, started_s=began_s, finished=ended, ended=end
    )


def brief_of(number: int) -> Instance:
    """One after the other, each gone before a forecast has a say: the default recommender's word stands."""
    return Instance("ns", f"uid-brief-{number // 3}", "main")


def an_hour(start: Start) -> Iterator[Any]:
    """What an engine of these options says at each step; what it says is had at the next one, but by `FULL`."""
    lead_time = LeadTime(start.lead_time_s, start.sample_s)
    engine = Engine(partial(Fleet, MODEL, start.step_s, start.cycle_samples), start.options, lead_time)
    plain, full = (Instance("ns", name, "main") for name in ("uid-plain", "uid-full"))
    has = dict.fromkeys((PLAIN, RECURRING, FULL, BRIEF), (2.0, 4 * GIB))
    for number in range(STEPS):
        now_s = NOW_S + number * STEP_S
        deferred_s = NOW_S + 100 * STEP_S if number >= 100 else math.inf
        containers = dict([run_of(number, has[RECURRING])]) | {
            plain: running(group=PLAIN, requests=has[PLAIN]),
            full: running(group=FULL, deferred_since_s=deferred_s),
        }
        uses = {plain: used(number), full: used(number), run_of(number, has[RECURRING])[0]: used_in_a_run(number)}
        brief = brief_of(number)
        containers |= {brief_of(number - 1): None} | {brief: running(group=BRIEF, requests=has[BRIEF])}
        uses[brief] = used(number)
        if number and number % RUN == 0:
            containers |= dict([run_of(number - 1, has[RECURRING], ended=True)])
        if 150 <= number < 170:
            del uses[plain]  # it is not heard of
        samples = Samples.of((who, Sample(now_s, cpu_cores, gib * GIB)) for who, (cpu_cores, gib) in uses.items())
        kills = [Kill(PLAIN, plain, now_s, 4 * GIB)] if number == 90 else []
        groups = dict.fromkeys((PLAIN, RECURRING, FULL, BRIEF), Rules()) if number == 0 else {}
        targets = engine.step(now_s, Seen(groups, containers, samples, kills), Report())
        for group, target in targets.items():
            cpu_cores, memory_bytes = target.estimate.target.tolist()
            engine.published(group, (cpu_cores, memory_bytes), (cpu_cores, memory_bytes), now_s)
            has[group] = (cpu_cores, memory_bytes)
        yield [(group, encode_target(target)) for group, target in sorted(targets.items())]


@cache
def by_default() -> list[Any]:
    return list(an_hour(START))


START = Start(Options(RailOptions(resizes_per_hour=200)), STEP_S, 40, None, STEP_S, "")


@pytest.mark.option("phasewise recommender", *OTHER)
@pytest.mark.parametrize("option", DECIDING, ids=lambda option: keys_of(option)[0])
def test_another_value_of_an_option_that_decides_is_another_target(option: click.Option) -> None:
    name = option.opts[0]
    said = an_hour(start_changes((f"{name.removeprefix('--')}={OTHER[name]}",))(START))
    assert any(other != one for other, one in zip(said, by_default(), strict=True)), "no step is another"
