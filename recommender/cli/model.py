"""`phasewise model show`, `split`, `import` and `publish`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import orjson
from rich.table import Column, Table
from rich.text import Text

from recommender import __version__
from recommender.base.errors import Misuse
from recommender.base.units import counted, format_duration
from recommender.cli.common import DURATION, FILE, SEED, comma_list, map_option, progress_bar, say
from recommender.cli.connection import connection_options
from recommender.cluster.access.connection import Api
from recommender.cluster.model_map import parse_key, publish_model_map
from recommender.engine.warm_up import check_live
from recommender.learning import artifacts
from recommender.learning import model as models
from recommender.learning.forecasting import FOLDS, is_compared
from recommender.learning.model import PhaseModel, name_hashes
from recommender.learning.training import TrainingOptions, gather, training_facts, with_forecasts
from recommender.phases.features import source_columns
from recommender.phases.statistics import PhaseStatistics
from recommender.policies.phase_demand import DemandModel
from recommender.report.page_words import feature_rows
from recommender.report.terminal import report_console
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import ColumnMap


@click.group("model")
def command() -> None:
    """Show, split, import or publish a model."""


@command.command()
@click.argument("model_name", metavar="MODEL")
@click.option("--json", "as_json", is_flag=True, help="Print all facts as JSON.")
def show(model_name: str, as_json: bool) -> None:
    """Show the phases of MODEL, a folder or `bundled`, in words and numbers."""
    model = models.load(model_name)
    if as_json:
        click.echo(orjson.dumps(_facts(model), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())
        return
    facts, stdout = model.facts, report_console()
    features = ", ".join(model.detector.features)
    detector = f": {model.detector.n_phases} phases, lag {model.detector.lag}, features {features}"
    stdout.print(Text.assemble((model.origin, "bold"), detector))
    if "samples" in facts:
        stdout.print(
            f"trained on {counted(facts['samples'], 'sample')} of {counted(facts['containers'], 'container')}, "
            f"step {format_duration(facts['step_s'])}, cycle {format_duration(facts['cycle_s'])}, "
            f"target violation {model.target_violation[0]:.1%} CPU and {model.target_violation[1]:.1%} memory",
            highlight=False,
        )
    if "phases_chosen" in facts:
        chosen = facts["phases_chosen"]
        stdout.print(f"number of phases by {chosen['by']}; elbow of inertia at {chosen['elbow']}", highlight=False)
    if model.statistics is None:
        stdout.print("imported: it detects phases, but has no demand of phases; see `phasewise train`")
        return
    if model.demand is not None:
        stdout.print(f"losses of experts: {losses_words(model.demand)}", highlight=False)
    stdout.print(_phase_table(model, model.statistics))


def losses_words(demand: DemandModel) -> str:
    """Say where the losses of experts come from."""
    if is_compared(demand):
        return "learned in held-out runs"
    return f"taken to be equal, for lack of {FOLDS} runs long enough to learn them"


def _phase_table(model: PhaseModel, statistics: PhaseStatistics) -> Table:
    numbers = [Column(title, justify="right") for title in ("phase", "share", "CPU", "memory")]
    words = Column("in words", overflow="fold")
    table = Table(*numbers, "next", words, box=None, header_style="bold", pad_edge=False)
    for row in feature_rows(statistics):
        following = _next_phases(model, row["phase"])
        table.add_row(str(row["phase"]), f"{row['share']:.1%}", row["cpu"], row["memory"], following, row["words"])
    return table


def _next_phases(model: PhaseModel, phase: int) -> str:
    """The two phases that follow most often, with their share."""
    if model.graph is None:
        return ""
    followed = model.graph.tables.transitions.sum(axis=0)[phase, : model.detector.n_phases]
    likeliest = [int(number) for number in np.argsort(-followed, kind="stable")[:2] if followed[number]]
    return ", ".join(f"{number} ({followed[number] / followed.sum():.0%})" for number in likeliest)


def _facts(model: PhaseModel) -> dict[str, Any]:
    statistics = model.statistics
    return {
        "model": model.origin,
        "features": list(model.detector.features),
        "lag": model.detector.lag,
        "n_phases": model.detector.n_phases,
        "training": dict(model.facts),
        "phases": [] if statistics is None else [_phase_facts(statistics, at) for at in range(statistics.n_phases)],
    }


def _phase_facts(statistics: PhaseStatistics, phase: int) -> dict[str, Any]:
    columns = zip(statistics.features, statistics.feature_mean[phase], statistics.feature_sd[phase], strict=True)
    return {
        "phase": phase,
        "words": statistics.describe(phase),
        "share": statistics.share(phase),
        "samples": int(statistics.samples[phase]),
        "containers": int(statistics.containers[phase]),
        "cpu_cores": {"mean": statistics.usage_mean[phase, 0], "sd": statistics.usage_sd[phase, 0]},
        "memory_bytes": {"mean": statistics.usage_mean[phase, 1], "sd": statistics.usage_sd[phase, 1]},
        "features": {name: {"mean": mean, "sd": sd} for name, mean, sd in columns},
    }


@command.command()
@click.argument("model_name", metavar="MODEL")
@click.argument("source", nargs=-1, required=True, type=FILE)
@click.option("--phase", required=True, type=int, help="Phase to split.")
@click.option("--into", required=True, type=int, help="Number of parts.")
@click.option("-o", "--output", "folder", required=True, type=FILE, help="Model folder to write.")
@click.option("--step", "step_s", type=DURATION, help="Grid step. Default: the median interval of the data.")
@click.option("--seed", default=0, show_default=True, type=SEED, help="Seed of the clustering.")
@map_option
def split(
    model_name: str,
    source: tuple[Path, ...],
    phase: int,
    into: int,
    folder: Path,
    step_s: float | None,
    seed: int,
    columns: tuple[ColumnMap, ...],
) -> None:
    """Split one phase of MODEL by clustering its windows in SOURCE.

    The numbers and windows of other phases stay; new numbers are appended. Phase statistics, graph and demand are
    learned again from SOURCE with the new phases.
    """
    model = models.load(model_name)
    detector = model.detector
    reading = ReadOptions(columns=columns, features=source_columns(detector.features), step_s=step_s)
    with progress_bar() as progress, open_source(source, reading, progress=progress) as opened:
        series = gather(opened, opened.containers, detector.lag + 2)
        if not series:
            raise Misuse(f"no container of SOURCE has {detector.lag + 2} samples.")
        new_detector = detector.split(phase, into, series, seed)
        options = TrainingOptions(
            detector.features,
            detector.lag,
            cycle_s=model.facts.get("cycle_s", 600.0),
            target_violation=model.target_violation,
        )
        facts = {
            **model.facts,
            **training_facts(series, options, opened.data_hash),
            "split": [*model.facts.get("split", []), {"phase": phase, "into": into, "seed": seed}],
        }
        facts.pop("phases_chosen", None)  # how the number before the split was chosen
        new = with_forecasts(new_detector, series, options, facts, progress)
        before = model.trained_on  # None: unknown, and then unknown for the new model too
        new = replace(new, trained_on=None if before is None else np.union1d(before, name_hashes(series)))
        new.save(folder)
    appended = ", ".join(str(n) for n in range(detector.n_phases, new.detector.n_phases))
    say(f"{folder}: phase {phase} is now {phase}, {appended}")


@command.command("import")
@click.argument("parameters", metavar="PARAMS.npz", type=FILE)
@click.option("-o", "--output", "folder", required=True, type=FILE, help="Model folder to write.")
@click.option("--features", required=True, help="Comma-separated columns of the arrays, in order.")
def import_(parameters: Path, folder: Path, features: str) -> None:
    """Make a model folder from the arrays of a CRBM, k-means and scaler trained elsewhere.

    \b
    W (hidden, visible)   A (visible, visible x lag)   B (hidden, visible x lag)
    v_bias (visible)      h_bias (hidden)              centers (phases, hidden)
    scaler_mean, scaler_scale (visible)

    The columns of A and B are ordered by feature, then by time from the oldest sample. Other arrays in the file are
    ignored. The model detects phases (`phasewise research phases`) but has no demand and graph.
    """
    model = models.import_parameters(parameters, comma_list(features))
    model.save(folder)
    detector = model.detector
    say(f"{folder}: {detector.n_phases} phases, lag {detector.lag}, {len(detector.features)} features")


@command.command()
@click.argument("folder", metavar="FOLDER", type=FILE)
@click.option("--configmap", "target", required=True, metavar="NAMESPACE/NAME", help="ConfigMap to create or replace.")
@connection_options
def publish(folder: Path, target: str, connect: Callable[..., Api]) -> None:
    """Write a model to a ConfigMap, from which running recommenders load it.

    \b
      phasewise model publish model --configmap kube-system/phasewise-model
      phasewise recommender --model configmap:kube-system/phasewise-model

    A model that the recommender would refuse is not published.
    """
    key = parse_key(target)
    model = models.load(folder)
    check_live(model)
    files = {name: (folder / name).read_bytes() for name in (artifacts.MANIFEST, artifacts.ARRAYS)}
    publish_model_map(connect(user_agent=f"phasewise/{__version__}"), key, files, time.time())
    say(f"{key}: {model.detector.n_phases} phases, {sum(map(len, files.values())):,} bytes, from {folder}")
