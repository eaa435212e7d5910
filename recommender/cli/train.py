"""`phasewise train`."""

from __future__ import annotations

from pathlib import Path

import click

from recommender.base.cycle import MAX_CYCLE_SAMPLES
from recommender.base.errors import Misuse
from recommender.base.units import counted, format_duration
from recommender.cli.common import (
    DURATION,
    FILE,
    SEED,
    FiniteRange,
    comma_list,
    map_option,
    progress_bar,
    say,
    source_argument,
)
from recommender.cli.grouped import grouped
from recommender.cli.model import losses_words
from recommender.learning import artifacts
from recommender.learning.forecasting import is_compared
from recommender.learning.training import TRAINING_SAMPLES, TrainingOptions, gather, train
from recommender.phases.features import USAGE_FEATURES, source_columns
from recommender.phases.kmeans import MAX_PHASES
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import ColumnMap

option = grouped()


@click.command("train", context_settings={"show_default": True})
@source_argument(required=True)
@option("-o --output folder", FILE, "Model folder to write.", required=True)
@option("--features", str, "Comma-separated columns to learn from. Default: made from CPU and memory.")
@option("--lag", click.IntRange(1, 64), "Past samples in a window.", default=3)
@option("--hidden", click.IntRange(1, 256), "Hidden units of the CRBM.", default=10)
@option("--phases", str, f"Number of phases, {MAX_PHASES} at most.", default="auto", metavar="auto|K")
@option("--cycle", DURATION, "Time between decisions.", default="10m")
@option("--cycle-samples", click.IntRange(1, MAX_CYCLE_SAMPLES), "The cycle in samples, instead of --cycle.")
@option(
    "--target-violation",
    FiniteRange(0, 0.5, min_open=True),
    "Accepted share of samples with use above allocation x 1.05, for CPU and for memory.",
    default=0.05,
)
@option("--seed", SEED, "The same data and seed give the same model on one kind of machine.", default=0)
@option("--step step_s", DURATION, "Grid step. Default: the median interval of the data.")
@map_option
def command(
    source: tuple[Path, ...],
    folder: Path,
    features: str | None,
    lag: int,
    hidden: int,
    phases: str,
    cycle: float,
    cycle_samples: int | None,
    target_violation: float,
    seed: int,
    step_s: float | None,
    columns: tuple[ColumnMap, ...],
) -> None:
    """Train a model of phases, their transitions and their demand on SOURCE, and write it to a folder.

    SOURCE is CSV (also .gz), Parquet or a saved Prometheus query_range response, or a folder or glob of them, with the
    columns timestamp, container, cpu_cores, memory_bytes. An optional column workload names the class of a run, whose
    next runs are predicted from earlier ones.

    \b
      phasewise train runs.parquet -o model
      phasewise train export/*.csv.gz -o model --map cpu_cores=usage:millicores --cycle 5m
      phasewise train runs.parquet -o model --features cpu_cores,memory_bytes,gpu_util --phases 6
    """
    chosen = comma_list(features) or USAGE_FEATURES
    options = TrainingOptions(
        chosen,
        lag,
        hidden,
        phases=phase_count(phases),
        seed=seed,
        cycle_s=cycle,
        cycle_samples=cycle_samples,
        target_violation=(target_violation, target_violation),
    )
    artifacts.check_target(folder)
    reading = ReadOptions(columns=columns, features=source_columns(chosen), step_s=step_s)
    with progress_bar() as progress, open_source(source, reading, progress=progress) as opened:
        series = gather(opened, opened.containers, lag + 2)
        model = train(series, options, data_hash=opened.data_hash, progress=progress)
        for note in opened.notes:
            say(f"note: {note}")
        model.save(folder)
        left_out = len(opened.containers) - len(series)
    facts = model.facts
    say(
        f"{folder}: {model.detector.n_phases} phases from {counted(facts['samples'], 'sample')} of "
        f"{counted(facts['containers'], 'container')}, step {format_duration(facts['step_s'])}, "
        f"cycle {format_duration(facts['cycle_s'])}, {counted(facts['epochs'], 'epoch')}"
    )
    if model.demand is not None and not is_compared(model.demand):
        say(f"note: the losses of experts are {losses_words(model.demand)}")
    if left_out:
        reason = f"too short, or beyond the limit of {TRAINING_SAMPLES:,} samples"
        say(f"left out: {counted(left_out, 'container')}, {reason}")


def phase_count(text: str) -> int | None:
    """Parse --phases; None for auto."""
    if text == "auto":
        return None
    if not text.isdecimal() or not 2 <= int(text) <= MAX_PHASES:
        raise Misuse(f"--phases {text}: give `auto` or a whole number from 2 to {MAX_PHASES}.")
    return int(text)
