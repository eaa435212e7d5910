"""`phasewise dry-run`."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import click

from recommender import __version__
from recommender import model as models
from recommender.cli.cluster_rows import (
    QUICK_DELAY_S,
    QUICK_RESIZES_PER_HOUR,
    RAILS,
    ClusterOptions,
    cluster_options,
    ended_before,
    played_rows,
)
from recommender.cli.common import DURATION, STEP, map_option, names, progress_bar, say, source_argument
from recommender.decisions import decisions_written
from recommender.engine.lead_time import DEFAULT_DELAY_S
from recommender.errors import Misuse, NotEnoughData
from recommender.files import atomic_write_bytes, check_target
from recommender.judging import ReplayOptions
from recommender.model import BUNDLED, PhaseModel
from recommender.phases import graph_io
from recommender.phases.detector import DetectorOptions
from recommender.phases.features import USAGE_FEATURES, source_columns
from recommender.phases.runs import Run, runs_of
from recommender.planning import (
    Planner,
    mismatch_notes,
    model_facts,
    seen_in_training,
    seen_notes,
    usable_policies,
)
from recommender.policies.registry import REGISTRY
from recommender.records import ReplayResult, UsageSeries
from recommender.replay import replay
from recommender.report.figures import write_csv, write_json
from recommender.report.money import Prices
from recommender.report.summary import summarise
from recommender.report.terminal import render_table, report_console
from recommender.simulate.flowcon import LOSS
from recommender.simulate.rows import ALL_ROWS, CLASS_RUNS, FLEETS, FLOWCON, ROWS, Cluster
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import ColumnMap
from recommender.sources.spill import available_memory_bytes
from recommender.training import CrossFit, TrainingOptions, cross_fit
from recommender.units import format_memory

DEFAULT_CYCLE_S = 600.0

BY_DEFAULT = ", ".join(dict.fromkeys((*ROWS, *REGISTRY.names())))
POLICIES_HELP = (
    f"Comma list; default: {BY_DEFAULT}. Besides: {CLASS_RUNS} (phasewise by classes alone), "
    f"{FLOWCON} (needs a column {LOSS})."
)

CELL_BYTES = 300
"""What a cell of the grid takes up at most: all series are held, and what one row after the other makes of them."""

PICTURED = 8
"""Containers whose timelines a page or a folder of plots shows."""


@click.command("dry-run")
@source_argument(required=False)
@click.option(
    "--model", "model_name", help="A model folder, or `bundled`. Without: cross-fitted on SOURCE by container."
)
@click.option("--cycle", type=DURATION, help="How long an allocation holds. Default: 10m; for the bundled data 30s.")
@click.option("--cycle-samples", type=click.IntRange(1), help="The cycle in samples, for data of any rate.")
@click.option(
    "--step", "step_s", type=STEP, help="Grid step; default: the median interval. `none`: samples as they come."
)
@click.option("--policies", help=POLICIES_HELP)
@map_option
@click.option("--sample", type=click.IntRange(1), help="Replay only N containers, drawn by a hash of their names.")
@click.option(
    "--json", "json_to", metavar="FILE|-", help="The figures for programs; - is stdout, and nothing else on it."
)
@click.option("--csv", "csv_to", type=click.Path(path_type=Path), help="One row per container and policy.")
@click.option("--html", "html_to", type=click.Path(path_type=Path), help="A page to look at, in one file.")
@click.option("--plots", "plots_to", type=click.Path(path_type=Path), help="A folder for pictures (PNG).")
@click.option("--decisions", "decisions_to", type=click.Path(path_type=Path), help="Every decision, as Parquet.")
@click.option("--cpu-price", type=float, help="Money per core-hour reserved.")
@click.option("--memory-price", type=float, help="Money per GiB-hour reserved.")
@click.option("--violation-price", type=float, help="Money per container-hour in violation; makes savings net of it.")
@click.option("--oom-price", type=float, help="Money per OOM kill; memory violations then cost by the kill alone.")
@click.option(
    "--history",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Earlier runs, as SOURCE; may be given several times. They teach their classes and are not judged; those that "
    "had not ended before SOURCE begins are left out. "
    "Default: none; for the bundled data those that its model was trained on.",
)
@cluster_options
@click.option(
    "--jobs",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="Processes that train where no model is given; 0 is one a core.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the cross-fitted models.")
def command(
    source: tuple[Path, ...],
    model_name: str | None,
    cycle: float | None,
    cycle_samples: int | None,
    step_s: float | None,
    policies: str | None,
    columns: tuple[ColumnMap, ...],
    sample: int | None,
    json_to: str | None,
    csv_to: Path | None,
    html_to: Path | None,
    plots_to: Path | None,
    decisions_to: Path | None,
    cpu_price: float | None,
    memory_price: float | None,
    violation_price: float | None,
    oom_price: float | None,
    history: tuple[Path, ...],
    jobs: int,
    seed: int,
    **cluster: Any,
) -> None:
    """Replay recorded metrics under every policy: what would each have saved, and what would it have broken?

    SOURCE is CSV (also .gz) or Parquet, a saved Prometheus query_range answer, a folder or a glob of them, with the
    columns timestamp, container, cpu_cores, memory_bytes. Without SOURCE: the bundled recordings and model.

    Without --model no container is judged by a model that has seen it, but by one of the other containers (5 folds).
    With --model the report tells how many of the containers it was trained on.

    \b
      phasewise dry-run --html report.html
      phasewise dry-run export/ --cycle 5m --cpu-price 0.03 --memory-price 0.004
      phasewise dry-run export.csv --map cpu_cores=cpu:millicores --map memory_bytes=rss:MiB --json - | jq .policies
    """
    if cycle is not None and cycle_samples is not None:
        raise Misuse("--cycle and --cycle-samples exclude each other. Give one of them.")
    asked = names(policies)
    REGISTRY.check(asked, ALL_ROWS)
    prices = Prices(cpu_price, memory_price, violation_price, oom_price)
    given = {"decisions": decisions_to, "JSON": json_to, "CSV": csv_to, "page": html_to, "plots": plots_to}
    outputs = {what: path for what, path in given.items() if path is not None}
    _check_targets(outputs)
    with ExitStack() as stack:
        if bundled := not source:
            data = stack.enter_context(resources.as_file(resources.files("recommender.data") / "recordings"))
            source = (data / "replay.parquet",)
            model_name = model_name or BUNDLED
        model = None if model_name is None else models.load(model_name)
        if bundled and model is not None and cycle is None and cycle_samples is None:
            cycle = model.facts.get("cycle_s")  # recorded each second for minutes: at its model's own cycle
        features = USAGE_FEATURES if model is None else model.detector.features
        reading = ReadOptions(
            columns=columns,
            features=(*source_columns(features), *((LOSS,) if FLOWCON in asked else ())),
            step_s=step_s or None,
            without_grid=step_s == 0.0,
        )
        progress = stack.enter_context(progress_bar())
        opened = stack.enter_context(open_source(source, reading, progress=progress))
        chosen = _sampled(opened.containers, sample)
        _warn_of_size(opened.cells * len(chosen) // len(opened))
        series = [one for one in opened if one.container in chosen]
        options = ReplayOptions(
            cycle_s=cycle or DEFAULT_CYCLE_S,
            cycle_samples=cycle_samples,
            lag=3 if model is None else model.detector.lag,
        )
        jobs = jobs or os.cpu_count() or 1
        rows, planner, notes = _planned(asked, model, series, options, seed, progress, jobs)
        rules = ClusterOptions(**cluster)
        others = history or ((data / "fit.parquet",) if bundled else ())
        # The bundled ones were recorded side by side: what their model was trained on counts as earlier.
        earlier, left = _earlier(series, others, reading, progress, all_of_them=not history)
        in_cluster = partial(  # the bundled recordings last minutes, and are quick
            Cluster,
            planner.model_for,
            options,
            rules.rules(QUICK_DELAY_S if bundled else DEFAULT_DELAY_S),
            engine=rules.engine(QUICK_RESIZES_PER_HOUR if bundled else RAILS.resizes_per_hour),
            history=earlier,
        )
        played, told = played_rows(rows, series, in_cluster, progress)
        seen = seen_in_training(model, series, lambda: opened.data_hash)
        done = itertools.count(1)
        with decisions_written(decisions_to) if decisions_to else nullcontext() as writer:
            result = replay(
                series,
                planner,
                options,
                decisions_to=writer,
                timelines=PICTURED if html_to or plots_to else 0,
                progress=lambda _samples: progress("policies", next(done), len(series)),
                model=model_facts(planner.model, seen),
                rows=rows,
                played=played,
            )
        notes = (*opened.notes, *seen_notes(seen, len(series)), *notes, *left, *told)
        notes += mismatch_notes(model, result.step_s, result.cycle_s)
        result = replace(result, notes=(*notes, *result.notes))
        written: list[tuple[str, str]] = []
        try:
            _write(result, outputs, prices, planner.any_model(), series, written)
        finally:  # whatever cannot be written, the table is there
            if json_to != "-":
                render_table(result, console=report_console(), prices=prices, written=written)


def _warn_of_size(cells: int) -> None:
    needed_bytes, free_bytes = cells * CELL_BYTES, available_memory_bytes()
    if needed_bytes > free_bytes:
        say(
            f"note: all is replayed at once: that takes about {format_memory(needed_bytes)} of memory, and "
            f"{format_memory(free_bytes)} are free. Take fewer containers (--sample), or a coarser --step."
        )


def _earlier(
    series: Sequence[UsageSeries], files: Sequence[Path], reading: ReadOptions, progress: Any, *, all_of_them: bool
) -> tuple[list[UsageSeries], tuple[str, ...]]:
    """The runs of these files that are known of classes, and a note of those that are not."""
    if not files:
        return [], ()
    with open_source(files, replace(reading, all_mapped=False), progress=progress) as recorded:
        return (list(recorded), ()) if all_of_them else ended_before(series, recorded)


def _sampled(containers: tuple[str, ...], count: int | None) -> frozenset[str]:
    """The first `count` names in the order of their hash: the same ones each time, and no one's favourites."""
    return frozenset(sorted(containers, key=lambda name: hashlib.sha256(name.encode()).digest())[:count])


def _planned(
    asked: tuple[str, ...],
    model: PhaseModel | None,
    series: Sequence[UsageSeries],
    options: ReplayOptions,
    seed: int,
    progress: Any,
    jobs: int,
) -> tuple[tuple[str, ...], Planner, tuple[str, ...]]:
    """Rows to be played, and the planner; its model is cross-fitted where none was given and something needs one."""
    usable, notes = usable_policies(asked, model, {name: name in FLEETS for name in (ALL_ROWS if asked else ROWS)})
    needs_model = {*FLEETS, *REGISTRY.needs_model}
    fitted: PhaseModel | CrossFit | None = model
    if model is None and needs_model.intersection(usable):
        training = TrainingOptions(
            DetectorOptions(USAGE_FEATURES, lag=options.lag, seed=seed),
            cycle_s=options.cycle_s,
            cycle_samples=options.cycle_samples,
        )
        try:
            fitted = cross_fit(series, sorted(one.container for one in series), training, progress, jobs)
        except NotEnoughData as error:
            if asked:
                raise
            without = ", ".join(name for name in usable if name in needs_model)
            notes = (*notes, f"{without}: left out: {error}")
            usable = tuple(name for name in usable if name not in needs_model)
    rows = tuple(name for name in usable if name in ALL_ROWS)
    return rows, Planner(tuple(name for name in usable if name not in ALL_ROWS), fitted), notes


def _check_targets(outputs: Mapping[str, str | Path]) -> None:
    """Refuse what could not be written, before anything is read."""
    for what, path in outputs.items():
        if what == "plots":
            there = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
            check_target(there / "plot.png")
        elif path != "-":
            check_target(path)


def _write(
    result: ReplayResult,
    outputs: Mapping[str, str | Path],
    prices: Prices,
    model: PhaseModel | None,
    series: Sequence[UsageSeries],
    written: list[tuple[str, str]],
) -> None:
    """All files asked for; `written` is told what and where."""
    for what, path in outputs.items():
        if what == "JSON":
            write_json(result, path)
        elif what == "CSV":
            write_csv(result, path)
        elif what == "page":
            _write_page(result, path, prices, model, series)
        elif what == "plots":
            from recommender.plots.folder import write_plots  # noqa: PLC0415  matplotlib takes a second to import

            write_plots(result, result.timelines, path, phase_graph=_graph(model))
        written.append((what, str(path)))


def _write_page(
    result: ReplayResult, path: str | Path, prices: Prices, model: PhaseModel | None, series: Sequence[UsageSeries]
) -> None:
    from recommender.plots.policies import tradeoffs_for_page  # noqa: PLC0415
    from recommender.report.page import render_page  # noqa: PLC0415

    page = render_page(
        result,
        result.timelines,
        generated_at=datetime.now(UTC),
        version=__version__,
        prices=prices,
        phase_graph=_graph(model),
        sequences=_runs(model, series),
        phase_table=None if model is None else model.statistics,
        tradeoffs=tradeoffs_for_page(summarise(result)) if result.containers else [],
    )
    atomic_write_bytes(path, page.encode())


def _graph(model: PhaseModel | None) -> Any:
    """What page and picture draw of a model's graph, for networkx; None where nothing was counted."""
    if model is None or model.graph is None or not model.graph.containers:
        return None
    return graph_io.to_networkx(model.graph, unknown=model.detector.n_phases)


def _runs(model: PhaseModel | None, series: Sequence[UsageSeries]) -> list[list[Run]]:
    """The runs of phases of every container, for the prototypes."""
    return [] if model is None else [runs_of(model.detector.trace(one).labels[one.present]) for one in series]
