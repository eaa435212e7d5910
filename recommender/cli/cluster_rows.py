"""What `phasewise dry-run` takes for its simulated cluster, and the playing of its rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from recommender.cli.common import DURATION, Command
from recommender.engine.lead_time import DEFAULT_DELAY_S
from recommender.engine.options import Options, RailOptions
from recommender.judging import ClusterRules, KillRules, Limits, interval_s
from recommender.records import OOM_EXIT_CODE, Played, UsageSeries
from recommender.simulate.rows import PHASEWISE, Cluster, Progress, play_rows
from recommender.units import format_duration

RAILS = RailOptions()

QUICK_DELAY_S, QUICK_RESIZES_PER_HOUR = 2.0, 120
"""The bundled runs do in minutes what others do in hours: their updater is as much quicker, and acts oftener."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What was asked for on the command line.

    Attributes
    ----------
    apply_delay_s
        None for the default.
    apply
        Whether a running container is given something else in place, or made anew.
    resizes_per_hour
        None for the default.
    """

    apply_delay_s: float | None
    apply: str
    checkpoint_every_s: float | None
    restart_s: float
    limits: Limits
    resizes_per_hour: int | None
    target_kills: float
    resizes_waiting: bool

    def engine(self, default_resizes_per_hour: int) -> Options:
        """What the recommender is started with."""
        resizes_per_hour = default_resizes_per_hour if self.resizes_per_hour is None else self.resizes_per_hour
        return Options(rails=RailOptions(resizes_per_hour=resizes_per_hour, target_kills=self.target_kills))

    def rules(self, default_delay_s: float) -> ClusterRules:
        """How the cluster treats what is recommended."""
        kills = KillRules(
            restart_s=self.restart_s,
            checkpoint_every_s=math.inf if self.checkpoint_every_s is None else self.checkpoint_every_s,
            limits=self.limits,
            recreates=self.apply == "recreate",
        )
        delay_s = default_delay_s if self.apply_delay_s is None else self.apply_delay_s
        return ClusterRules(delay_s, kills, self.resizes_waiting)


def cluster_options(command: Command) -> Command:
    """The options of the simulated cluster, gathered in `cluster`."""
    delays = f"{format_duration(DEFAULT_DELAY_S)}, as live clusters take; for the bundled data {QUICK_DELAY_S:g}s"
    limits = "Whether memory limits, above which use kills, follow the requests, stay as declared, or are none."
    apply = "How running containers are given something else; made anew they lose what a kill loses."
    options = (
        click.option(
            "--apply-delay", "apply_delay_s", type=DURATION, help=f"From asking to having. Default: {delays}."
        ),
        click.option(
            "--apply", type=click.Choice(["in-place", "recreate"]), default="in-place", show_default=True, help=apply
        ),
        click.option(
            "--resize-waiting",
            "resizes_waiting",
            is_flag=True,
            help=f"As of `phasewise recommender`: each run waits for its node until `{PHASEWISE}` has seen it.",
        ),
        click.option(
            "--checkpoint-every",
            "checkpoint_every_s",
            type=DURATION,
            help="Age of a run between its checkpoints. Default: none, so that a kill loses all of the run.",
        ),
        click.option(
            "--restart-time",
            "restart_s",
            type=DURATION,
            default="2m",
            show_default=True,
            help="What a restart takes.",
        ),
        click.option(
            "--limits", type=click.Choice(["follow", "stay", "none"]), default="follow", show_default=True, help=limits
        ),
        click.option(
            "--resizes-per-hour",
            type=click.IntRange(1),
            help=f"How often `{PHASEWISE}` may change a container's CPU, and its memory; what must rise always may. "
            f"Default: {RAILS.resizes_per_hour}; for the bundled data {QUICK_RESIZES_PER_HOUR}.",
        ),
        click.option(
            "--target-kills",
            type=click.FloatRange(0.0, 0.5),
            default=RAILS.target_kills,
            show_default=True,
            help=f"Share of runs that `{PHASEWISE}` may let be killed for memory; of those with devices a tenth of it.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def ended_before(
    series: Sequence[UsageSeries], history: Iterable[UsageSeries]
) -> tuple[list[UsageSeries], tuple[str, ...]]:
    """The runs of `history` that had ended before the first of `series` began, and a note of those that had not: what
    nobody could have known then must teach nothing."""
    first_s = min(one.timestamps[0] for one in series)
    replayed = {one.container for one in series}
    ended, others = [], 0
    for one in history:
        if one.container in replayed or one.timestamps[-1] > first_s:
            others += 1
        else:
            ended.append(one)
    told = f"Of --history {others} runs are left out: they are replayed, or ended after the first sample that is."
    return ended, (told,) if others else ()


def played_rows(
    names: Sequence[str],
    series: Sequence[UsageSeries],
    cluster: Callable[[float], Cluster],
    progress: Progress,
) -> tuple[Mapping[str, Mapping[str, Played]], tuple[str, ...]]:
    """What came of each container under these rows, and what a reader must know; `cluster` is made with a step."""
    if not names:
        return {}, ()
    steps = Counter(interval_s(one) for one in series)
    step_s = min(steps, key=lambda step: (-steps[step], step))
    played_in = cluster(step_s)
    found, problems = play_rows(names, series, played_in, progress)
    told = [f"{PHASEWISE}: {about}: {words}" for about, words in problems.items()]
    if played_in.history:
        told.insert(0, f"Of classes {len(played_in.history)} earlier runs were known, which are not judged.")
    ended = sum(one.facts.exit_code == OOM_EXIT_CODE and not one.facts.killed for one in series)
    if ended:
        told.insert(
            0, f"Of the recorded runs {ended} ended with exit code {OOM_EXIT_CODE}: killed, most often for memory."
        )
    if killed := sum(one.facts.killed for one in series):
        told.insert(0, f"Of the recorded runs {killed} were killed for memory: they needed more than was measured.")
    return found, (_in_words(played_in.rules), *told)


def _in_words(rules: ClusterRules) -> str:
    """What was taken for granted."""
    kills = rules.kills
    how = "by making the container anew" if kills.recreates else "in place"
    limits = {"follow": "follow the requests", "stay": "stay as declared", "none": "are none"}[kills.limits]
    waits = ", and before a run begins where they are less than it declares" if rules.resizes_waiting else ""
    saved = "none" if math.isinf(kills.checkpoint_every_s) else f"one every {format_duration(kills.checkpoint_every_s)}"
    return (
        f"In the simulated cluster targets are applied {how}, {format_duration(rules.apply_delay_s)} after they are "
        f"asked for{waits}; memory limits {limits}; a kill costs the work since the last checkpoint ({saved}) and a "
        f"restart of {format_duration(kills.restart_s)}."
    )
