"""The simulated cluster of `phasewise dry-run`: its options, and running policies in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click

from recommender.base.records import MEMORY, OOM_EXIT_CODE, Progress, UsageSeries
from recommender.base.units import counted, format_duration
from recommender.cli.common import DURATION, FiniteRange, WholeRange
from recommender.cli.grouped import setting
from recommender.engine.lead_time import DEFAULT_DELAY_S
from recommender.engine.options import Options, RailOptions
from recommender.simulate.clock import Trace
from recommender.simulate.judging import ClusterRules, MemoryLimits, interval_s
from recommender.simulate.playing import has_no_limit
from recommender.simulate.rows import PHASEWISE, Cluster, PlayedRows, play_rows

DEFAULT_RAILS = RailOptions()

BUNDLED_DELAY_S, BUNDLED_RESIZES_PER_HOUR = 2.0, 120
"""The bundled runs last minutes instead of hours, so their updater is faster and may act more often."""


_option = setting()


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of the simulated cluster as given; None for a default that the bundled runs change."""

    apply_delay_s: float | None = _option(
        "--apply-delay",
        DURATION,
        f"Time from a recommendation until it is in force. Default: {format_duration(DEFAULT_DELAY_S)}, as in live "
        f"clusters; for the bundled data {BUNDLED_DELAY_S:g}s.",
    )
    apply: str = _option(
        "--apply",
        click.Choice(["in-place", "recreate"]),
        "How running containers are resized; `recreate` loses as much work as a kill.",
        default="in-place",
    )
    resizes_waiting: bool = _option(
        "--resize-waiting",
        bool,
        "As for `phasewise recommender`: each run is seen before it gets a node, and starts with less if recommended.",
    )
    checkpoint_every_s: float | None = _option(
        "--checkpoint-every",
        DURATION,
        "Interval of a run's checkpoints. Default: none, so that a kill loses the whole run.",
    )
    restart_s: float = _option("--restart-time", DURATION, "Time that a restart takes.", default="2m")
    limits: MemoryLimits = _option(
        "--limits",
        click.Choice(["follow", "stay", "none"]),
        "Memory limits: `follow` the requests, `stay` as declared, or `none`. Use above a limit is an OOM kill.",
        default="follow",
    )
    resizes_per_hour: int | None = _option(
        "--resizes-per-hour",
        WholeRange(1),
        f"Maximum changes per hour of a container's CPU, and of its memory, by `{PHASEWISE}`; raises count, but are "
        f"always allowed. Default: {DEFAULT_RAILS.resizes_per_hour}; for the bundled data {BUNDLED_RESIZES_PER_HOUR}.",
    )
    target_kills: float = _option(
        "--target-kills",
        FiniteRange(0.0, 0.5),
        f"Accepted share of OOM-killed runs under `{PHASEWISE}`; a tenth of it for runs with devices.",
        default=DEFAULT_RAILS.target_kills,
    )

    def engine_options(self, *, bundled: bool) -> Options:
        """Options of the recommender under test."""
        default = BUNDLED_RESIZES_PER_HOUR if bundled else DEFAULT_RAILS.resizes_per_hour
        return Options(RailOptions(resizes_per_hour=self.resizes_per_hour or default, target_kills=self.target_kills))

    def cluster_rules(self, *, bundled: bool) -> ClusterRules:
        """Rules by which the cluster applies recommendations and kills."""
        return ClusterRules(
            apply_delay_s=self.apply_delay_s or (BUNDLED_DELAY_S if bundled else DEFAULT_DELAY_S),
            restart_s=self.restart_s,
            checkpoint_every_s=self.checkpoint_every_s or math.inf,
            limits=self.limits,
            recreates=self.apply == "recreate",
            resizes_waiting=self.resizes_waiting,
        )


AS_INSTALLED = ClusterOptions(
    apply_delay_s=None,
    apply="in-place",
    resizes_waiting=False,
    checkpoint_every_s=None,
    restart_s=120.0,
    limits="follow",
    resizes_per_hour=None,
    target_kills=DEFAULT_RAILS.target_kills,
)
"""The defaults of these options."""


def runs_ended_before(
    series: Sequence[UsageSeries], history: Iterable[UsageSeries]
) -> tuple[list[UsageSeries], tuple[str, ...]]:
    """The runs of `history` that ended before the first sample of `series`, and a note on the others.

    Later runs were not known at that time, so nothing may be learned from them.
    """
    first_s = min(one.timestamps[0] for one in series)
    replayed = {one.container for one in series}
    ended, others = [], 0
    for one in history:
        if one.container in replayed or one.timestamps[-1] > first_s:
            others += 1
        else:
            ended.append(one)
    note = f"left out of --history: {counted(others, 'run')} in SOURCE, or ended after its first sample."
    return ended, (note,) if others else ()


def simulated_policies(
    names: Sequence[str], series: Sequence[UsageSeries], cluster: Callable[[float], Cluster], progress: Progress
) -> tuple[PlayedRows, tuple[str, ...]]:
    """Results in the simulated cluster that `cluster` makes for a step in seconds, and notes."""
    if not names:
        return PlayedRows(), ()
    steps = Counter(interval_s(one) for one in series)
    step_s = min(steps, key=lambda step: (-steps[step], step))
    simulated = cluster(step_s)
    found = play_rows(names, series, simulated, progress)
    notes = [_describe_rules(simulated.rules)]
    if killed := sum(one.facts.killed for one in series):
        notes.append(f"OOM-killed when recorded: {counted(killed, 'run')}; more memory was needed than was measured.")
    if ended := sum(one.facts.exit_code == OOM_EXIT_CODE and not one.facts.killed for one in series):
        notes.append(f"{counted(ended, 'run')} ended with exit code {OOM_EXIT_CODE}, most likely OOM-killed.")
    unlimited = sum(
        math.isnan(one.facts.limits[MEMORY]) and has_no_limit(Trace(one, 0), simulated.rules) for one in series
    )
    if unlimited and simulated.rules.limits != "none":
        notes.append(
            f"Without memory requests: {unlimited} of {counted(len(series), 'container')}, taken to have no limits, "
            "so that nothing kills them. If they have, name a column memory_request_bytes or memory_limit_bytes."
        )
    if earlier := len(simulated.history):
        many = f"{earlier} earlier runs were known to their classes; they are not judged."
        notes.append("1 earlier run was known to its class; it is not judged." if earlier == 1 else many)
    notes += [f"{PHASEWISE}: {about}: {text}" for about, text in found.problems.items()]
    return found, tuple(notes)


def _describe_rules(rules: ClusterRules) -> str:
    how = "by recreating the container" if rules.recreates else "in place"
    limits = {"follow": "follow the requests", "stay": "stay as declared", "none": "are not set"}[rules.limits]
    waiting = ", and before a run starts if they are less than it declares" if rules.resizes_waiting else ""
    every = "none" if math.isinf(rules.checkpoint_every_s) else f"one every {format_duration(rules.checkpoint_every_s)}"
    return (
        f"In the simulated cluster targets are applied {how} after {format_duration(rules.apply_delay_s)}{waiting}; "
        f"memory limits {limits}; a kill costs the work since the last checkpoint ({every}) and a restart of "
        f"{format_duration(rules.restart_s)}."
    )
