"""Each option of `phasewise recommender` that decides, changed as for a replay: another value gives other targets.

An engine with the option and one with defaults run through the same 80 eventful minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import click
import pytest

from recommender.base.records import Amounts, Sample
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
from tests.recommender.engine.worked import GIB, MODEL, NOW_S, running

STEP_S, STEPS, RUN = 15.0, 320, 12
PLAIN, RECURRING, FULL, BRIEF = (Group("ns", name, "main") for name in ("plain", "recurring", "full", "brief"))

OTHER_VALUES = {
    "--step": "30s",
    "--cycle": "15s",
    "--lead-time": "5m",
    "--memory-margin": "0.5",
    "--shrink-after": "1m",
    "--shrink-step": "0.5",
    "--target-violation": "0.3",
    "--target-kills": "0.5",
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


def usage_at(step: int) -> tuple[float, float]:
    """Cores and GiB at a step: calm, then more of both, then unsteady CPU and slowly growing memory."""
    if step < 60:
        return 0.5, 1.0
    if step < 100:
        return 1.5 + 0.01 * (step % 7), 3.8
    return (0.4, 2.0, 0.9, 3.0)[step // 6 % 4], 1.0 + 0.004 * (step - 100)


def usage_in_run(step: int) -> tuple[float, float]:
    """Usage of the runs of a class: more in their second half, not the same amount in each."""
    return (0.3, 1.0) if step % RUN < RUN // 2 else (2.0, 2.0 + 0.2 * (step // RUN * 3 % 5))


def run_at(step: int, requests: Amounts, *, ended: bool = False) -> tuple[Instance, Running]:
    """The run of the class at a step."""
    began_s = NOW_S + step // RUN * RUN * STEP_S
    end = Ended(0, began_s, began_s + RUN * STEP_S) if ended else None
    instance = Instance("ns", f"uid-run-{step // RUN}", "main")
    return instance, running(
        group=RECURRING, workload="nightly", requests=requests, started_s=began_s, finished=ended, ended=end
    )


def brief_at(step: int) -> Instance:
    """One container after another, each gone before a forecast counts: the default recommender's estimate applies."""
    return Instance("ns", f"uid-brief-{step // 3}", "main")


def targets_by_step(start: Start) -> Iterator[Any]:
    """The targets of an engine with these options at each step; all but `FULL` have them from the next step on."""
    lead_time = LeadTime(start.lead_time_s, start.sample_s)
    engine = Engine(Fleet(MODEL, start.step_s, start.cycle_samples), start.options, lead_time)
    plain, full = (Instance("ns", name, "main") for name in ("uid-plain", "uid-full"))
    requests = dict.fromkeys((PLAIN, RECURRING, FULL, BRIEF), (2.0, 4 * GIB))
    for step in range(STEPS):
        now_s = NOW_S + step * STEP_S
        deferred_s = NOW_S + 100 * STEP_S if step >= 100 else math.inf
        containers = dict([run_at(step, requests[RECURRING])]) | {
            plain: running(group=PLAIN, requests=requests[PLAIN]),
            full: running(group=FULL, deferred_since_s=deferred_s),
        }
        usage = {plain: usage_at(step), full: usage_at(step), run_at(step, requests[RECURRING])[0]: usage_in_run(step)}
        brief = brief_at(step)
        containers |= {brief_at(step - 1): None} | {brief: running(group=BRIEF, requests=requests[BRIEF])}
        usage[brief] = usage_at(step)
        if step and step % RUN == 0:
            containers |= dict([run_at(step - 1, requests[RECURRING], ended=True)])
        if 150 <= step < 170:
            del usage[plain]  # no samples
        samples = Samples.of((key, Sample(now_s, cpu_cores, gib * GIB)) for key, (cpu_cores, gib) in usage.items())
        kills = [Kill(PLAIN, plain, now_s, 4 * GIB)] if step == 90 else []
        groups = dict.fromkeys((PLAIN, RECURRING, FULL, BRIEF), Rules()) if step == 0 else {}
        targets = engine.step(now_s, Seen(groups, containers, samples, kills), Report())
        for group, target in targets.items():
            cpu_cores, memory_bytes = target.estimate.target.tolist()
            engine.published(group, (cpu_cores, memory_bytes), (cpu_cores, memory_bytes), now_s)
            requests[group] = (cpu_cores, memory_bytes)
        yield [(group, encode_target(target)) for group, target in sorted(targets.items())]


@cache
def default_targets() -> list[Any]:
    return list(targets_by_step(START))


START = Start(Options(RailOptions(resizes_per_hour=200)), STEP_S, 40, None, STEP_S, "")


@pytest.mark.option("phasewise recommender", *OTHER_VALUES)
@pytest.mark.parametrize("option", DECIDING, ids=lambda option: keys_of(option)[0])
def test_another_value_of_a_deciding_option_changes_a_target(option: click.Option) -> None:
    name = option.opts[0]
    targets = targets_by_step(start_changes((f"{name.removeprefix('--')}={OTHER_VALUES[name]}",))(START))
    assert any(other != one for other, one in zip(targets, default_targets(), strict=True)), "no step differs"
