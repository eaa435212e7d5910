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
from recommender.cli.common import (
    DURATION,
    FILE,
    SEED,
    STEP,
    FiniteRange,
    WholeRange,
    check_parquet_target,
    comma_list,
    map_option,
    progress_bar,
    refuse_overwriting,
    say,
    source_argument,
)
from recommender.cli.grouped import grouped, settings_from, settings_of
from recommender.cli.simulated_cluster import ClusterOptions, runs_ended_before, simulated_policies
from recommender.decisions import decisions_written
from recommender.errors import Misuse, NotEnoughData
from recommender.files import atomic_write_bytes, check_target, write_or_print
from recommender.judging import MAX_CYCLE_SAMPLES, ReplayOptions
from recommender.model import BUNDLED, PhaseModel
from recommender.phases import graph_io
from recommender.phases.features import USAGE_FEATURES, source_columns
from recommender.phases.graph import runs_of
from recommender.planning import Planner, mismatch_notes, model_facts, seen_in_training, seen_notes, usable_policies
from recommender.policies.registry import NEED_MODEL, POLICIES, check_names
from recommender.records import ReplayResult, UsageSeries
from recommender.replay import replay
from recommender.report.figures import to_json, write_csv
from recommender.report.summary import Prices, summarise
from recommender.report.terminal import render_table, report_console
from recommender.simulate.flowcon import LOSS
from recommender.simulate.rows import ALL_ROWS, ENGINE_ROWS, FLOWCON, PHASEWISE, ROWS, Cluster
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import ColumnMap
from recommender.sources.spill import available_memory_bytes
from recommender.training import CrossFit, TrainingOptions, cross_fit
from recommender.units import format_memory

DEFAULT_POLICIES = ", ".join(dict.fromkeys((*ROWS, *POLICIES)))
ALONE = [name for name in ENGINE_ROWS if name != PHASEWISE]
POLICIES_HELP = (
    f"Comma-separated; default: {DEFAULT_POLICIES}. Also: {', '.join(ALONE)} (what phasewise chooses from, alone), "
    f"{FLOWCON} (needs a column {LOSS})."
)

BYTES_PER_CELL = 300
"""Upper bound of memory per grid cell: all series are in memory, with the results of one policy after the other."""

_option = grouped()

PRICE_OPTIONS = (
    _option("--cpu-price cpu_core_hour", FiniteRange(0), "Price per core-hour reserved."),
    _option("--memory-price memory_gib_hour", FiniteRange(0), "Price per GiB-hour reserved."),
    _option(
        "--violation-price violation_hour",
        FiniteRange(0),
        "Price per container-hour in violation; deducted from savings.",
    ),
    _option("--oom-price oom_event", FiniteRange(0), "Price per OOM kill; replaces the price of memory violations."),
)

OUTPUT_OPTIONS = (
    _option("--json", str, "Write the results as JSON; `-` is stdout, without the table.", metavar="FILE|-"),
    _option("--csv", FILE, "Write CSV, one row per container and policy."),
    _option("--html", FILE, "Write a self-contained HTML page."),
    _option("--plots", FILE, "Write pictures (PNG) to this folder."),
    _option("--decisions", FILE, "Write all decisions as Parquet."),
)

Outputs = Mapping[str, str | Path]
"""Path of each output asked for."""


def make_outputs(
    decisions: Path | None, json: str | None, csv: Path | None, html: Path | None, plots: Path | None
) -> Outputs:
    given = {"decisions": decisions, "JSON": json, "CSV": csv, "page": html, "plots": plots}
    return {what: path for what, path in given.items() if path is not None}


@click.command("dry-run", context_settings={"show_default": True})
@source_argument(required=False)
@_option("--model model_name", str, "Model folder or `bundled`. Default: models cross-fitted on SOURCE by container.")
@_option("--cycle", DURATION, "Time between decisions. Default: 10m; for the bundled data 30s.")
@_option("--cycle-samples", click.IntRange(1, MAX_CYCLE_SAMPLES), "The cycle in samples, instead of --cycle.")
@_option("--step step_s", STEP, "Grid step. Default: the median interval. `none`: samples as they are.")
@_option("--policies", str, POLICIES_HELP)
@map_option
@_option("--sample", WholeRange(1), "Replay only N containers, chosen by a hash of their names.")
@settings_of("outputs", OUTPUT_OPTIONS, make_outputs)
@settings_of("prices", PRICE_OPTIONS, Prices)
@_option(
    "--history",
    FILE,
    "Earlier runs in the formats of SOURCE, from which workload classes learn; they are not judged. Runs that end "
    "after SOURCE begins are left out. Repeatable. Default: none; for the bundled data the model's training runs.",
    multiple=True,
)
@settings_from("cluster", ClusterOptions)
@_option("--jobs", WholeRange(0), "Processes for training if no --model is given; 0: one per core.", default=1)
@_option("--seed", SEED, "Seed of the cross-fitted models.", default=0)
def command(
    source: tuple[Path, ...],
    model_name: str | None,
    cycle: float | None,
    cycle_samples: int | None,
    step_s: float | None,
    policies: str | None,
    columns: tuple[ColumnMap, ...],
    sample: int | None,
    outputs: Outputs,
    prices: Prices,
    history: tuple[Path, ...],
    cluster: ClusterOptions,
    jobs: int,
    seed: int,
) -> None:
    """Replay recorded metrics and report the savings, violations and OOM kills of each policy.

    SOURCE is CSV (also .gz), Parquet or a saved Prometheus query_range response, or a folder or glob of them, with the
    columns timestamp, container, cpu_cores, memory_bytes. Default: the bundled recordings and model.

    Without --model each container is judged by a model trained on other containers (5-fold cross-fitting). With --model
    the report says how many of the containers it was trained on.

    \b
      phasewise dry-run --html report.html
      phasewise dry-run export/ --cycle 5m --cpu-price 0.03 --memory-price 0.004
      phasewise dry-run export.csv --map cpu_cores=cpu:millicores --map memory_bytes=rss:MiB --json - | jq .policies
    """
    if cycle is not None and cycle_samples is not None:
        raise Misuse("--cycle and --cycle-samples exclude each other. Give one of them.")
    asked = comma_list(policies)
    check_names(asked, ALL_ROWS)
    _check_targets(outputs)
    with ExitStack() as stack:
        if bundled := not source:
            data = stack.enter_context(resources.as_file(resources.files("recommender.data") / "recordings"))
            source = (data / "replay.parquet",)
            model_name = model_name or BUNDLED
        model = None if model_name is None else models.load(model_name)
        if bundled and model is not None and cycle is None and cycle_samples is None:
            cycle = model.facts.get("cycle_s")  # the recordings last minutes at one sample a second
        features = USAGE_FEATURES if model is None else model.detector.features
        reading = ReadOptions(
            columns=columns, features=(*source_columns(features), *((LOSS,) if FLOWCON in asked else ())), step_s=step_s
        )
        progress = stack.enter_context(progress_bar())
        opened = stack.enter_context(open_source(source, reading, progress=progress))
        refuse_overwriting(outputs.values(), (*opened.files, *history))
        # The first names in the order of their hashes are a random but reproducible choice.
        by_hash = sorted(opened.containers, key=lambda name: hashlib.sha256(name.encode()).digest())
        chosen = frozenset(by_hash[:sample])
        _warn_of_size(opened.cells * len(chosen) // len(opened))
        series = [one for one in opened if one.container in chosen]
        options = ReplayOptions(
            cycle_s=cycle or 600.0,
            cycle_samples=cycle_samples,
            lag=3 if model is None else model.detector.lag,
        )
        jobs = jobs or os.cpu_count() or 1
        simulated, planner, notes = _plan(asked, model, series, options, seed, progress, jobs)
        history_files = history or ((data / "fit.parquet",) if bundled else ())
        # The bundled training runs were recorded at the same time as SOURCE, and count as earlier nevertheless.
        earlier, history_notes = _earlier_runs(series, history_files, reading, progress, check_times=bool(history))
        make_cluster = partial(
            Cluster,
            planner.model_for,
            options,
            cluster.cluster_rules(bundled=bundled),
            engine=cluster.engine_options(bundled=bundled),
            history=earlier,
            explains="page" in outputs,
        )
        played, simulation_notes = simulated_policies(simulated, series, make_cluster, progress)
        seen = seen_in_training(model, series)
        done = itertools.count(1)
        with decisions_written(Path(outputs["decisions"])) if "decisions" in outputs else nullcontext() as writer:
            result = replay(
                series,
                planner,
                options,
                write_decisions=writer,
                timelines=8 if "page" in outputs or "plots" in outputs else 0,
                progress=lambda _samples: progress("policies", next(done), len(series)),
                model=model_facts(planner.model, seen),
                rows=simulated,
                played=played,
            )
        notes = (*opened.notes, *seen_notes(seen, len(series)), *notes, *history_notes, *simulation_notes)
        notes += mismatch_notes(model, result.step_s, result.cycle_s)
        _report(replace(result, notes=(*notes, *result.notes)), outputs, prices, planner.any_model(), series)


def _warn_of_size(cells: int) -> None:
    needed_bytes, free_bytes = cells * BYTES_PER_CELL, available_memory_bytes()
    if needed_bytes > free_bytes:
        say(
            f"note: the replay needs about {format_memory(needed_bytes)} of memory, and {format_memory(free_bytes)} "
            "are free. Use fewer containers (--sample) or a coarser --step."
        )


def _earlier_runs(
    series: Sequence[UsageSeries], files: Sequence[Path], reading: ReadOptions, progress: Any, *, check_times: bool
) -> tuple[list[UsageSeries], tuple[str, ...]]:
    """Runs that classes learn from, and a note on those left out by `runs_ended_before` if times are checked."""
    if not files:
        return [], ()
    with open_source(files, replace(reading, all_mapped=False), progress=progress) as recorded:
        return runs_ended_before(series, recorded) if check_times else (list(recorded), ())


def _plan(
    asked: tuple[str, ...],
    model: PhaseModel | None,
    series: Sequence[UsageSeries],
    options: ReplayOptions,
    seed: int,
    progress: Any,
    jobs: int,
) -> tuple[tuple[str, ...], Planner, tuple[str, ...]]:
    """The policies to simulate, the planner of the others, and notes; models are cross-fitted if needed."""
    usable, notes = usable_policies(asked, model, {name: name in ENGINE_ROWS for name in (ALL_ROWS if asked else ROWS)})
    needs_model = {*ENGINE_ROWS, *NEED_MODEL}
    fitted: PhaseModel | CrossFit | None = model
    if model is None and needs_model.intersection(usable):
        training = TrainingOptions(
            USAGE_FEATURES, options.lag, seed=seed, cycle_s=options.cycle_s, cycle_samples=options.cycle_samples
        )
        try:
            fitted = cross_fit(series, sorted(one.container for one in series), training, progress, jobs)
        except NotEnoughData as error:
            if asked:
                raise
            without = ", ".join(name for name in usable if name in needs_model)
            notes = (*notes, f"{without}: left out: {error}")
            usable = tuple(name for name in usable if name not in needs_model)
    simulated = tuple(name for name in usable if name in ALL_ROWS)
    return simulated, Planner(tuple(name for name in usable if name not in ALL_ROWS), fitted), notes


def _check_targets(outputs: Outputs) -> None:
    """Refuse paths that cannot be written, before anything is read."""
    for what, path in outputs.items():
        if what == "plots":
            existing = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
            check_target(existing / "plot.png")
        elif what == "decisions":
            check_parquet_target(path)
        elif path != "-":
            check_target(path)


def _report(
    result: ReplayResult, outputs: Outputs, prices: Prices, model: PhaseModel | None, series: Sequence[UsageSeries]
) -> None:
    """Write all requested files, and print the table, even if a file cannot be written."""
    written: list[tuple[str, str]] = []
    try:
        for what, path in outputs.items():
            if what == "JSON":
                write_or_print(path, to_json(result))
            elif what == "CSV":
                write_csv(result, path)
            elif what == "page":
                _write_page(result, path, prices, model, series)
            elif what == "plots":
                from recommender.plots.folder import write_plots  # noqa: PLC0415  matplotlib takes a second to import

                write_plots(result, result.timelines, path, phase_graph=_graph(model))
            written.append((what, str(path)))
    finally:
        if outputs.get("JSON") != "-":
            render_table(result, console=report_console(), prices=prices, written=written)


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
        sequences=[runs_of(model.detector.trace(one)[one.present]) for one in series] if model else [],
        phase_table=None if model is None else model.statistics,
        tradeoffs=tradeoffs_for_page(summarise(result)) if result.containers else [],
    )
    atomic_write_bytes(path, page.encode())


def _graph(model: PhaseModel | None) -> Any:
    """The model's phase graph for networkx; None if it is empty."""
    if model is None or model.graph is None or not model.graph.containers:
        return None
    return graph_io.to_networkx(model.graph, unknown=model.detector.n_phases)
