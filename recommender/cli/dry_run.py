"""`phasewise dry-run`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
from recommender.decisions import DecisionWriter, decisions_written
from recommender.engine.lead_time import DEFAULT_DELAY_S
from recommender.errors import Misuse, NotEnoughData
from recommender.files import check_target, write_bytes_aside
from recommender.judging import ReplayOptions
from recommender.model import BUNDLED, PhaseModel
from recommender.phases.contexts import runs_of
from recommender.phases.detector import DetectorOptions
from recommender.phases.features import USAGE_FEATURES, source_columns
from recommender.planning import (
    Planner,
    mismatch_notes,
    model_facts,
    seen_in_training,
    seen_notes,
    usable_policies,
)
from recommender.policies.registry import REGISTRY
from recommender.records import Played, ReplayResult, UsageSeries
from recommender.replay import replay
from recommender.report.csv_report import write_csv
from recommender.report.json_report import write_json
from recommender.report.money import Prices
from recommender.report.terminal import render_table, report_console
from recommender.simulate.flowcon import LOSS
from recommender.simulate.rows import ALL_ROWS, CLASS_RUNS, FLEETS, FLOWCON, ROWS, Cluster
from recommender.sources.files import ReadOptions, SeriesSource, open_source
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


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the results go besides the terminal."""

    json: str | None
    csv: Path | None
    html: Path | None
    plots: Path | None
    decisions: Path | None

    def check(self) -> None:
        """Refuse what could not be written, before anything is read."""
        for path in (self.json, self.csv, self.html, self.decisions):
            if path is not None and path != "-":
                check_target(path)
        if self.plots is not None:
            there = next(folder for folder in (self.plots, *self.plots.parents) if folder.exists())
            check_target(there / "plot.png")

    @property
    def pictured(self) -> bool:
        return self.html is not None or self.plots is not None


@dataclass(frozen=True, slots=True)
class Selection:
    """Some containers of a source."""

    source: SeriesSource
    containers: tuple[str, ...]

    def __iter__(self) -> Iterator[UsageSeries]:
        if len(self.containers) == len(self.source.containers):
            yield from self.source
            return
        chosen = set(self.containers)
        yield from (series for series in self.source if series.container in chosen)


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
    outputs = Outputs(json_to, csv_to, html_to, plots_to, decisions_to)
    outputs.check()
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
            as_they_come=step_s == 0.0,
        )
        progress = stack.enter_context(progress_bar())
        opened = stack.enter_context(open_source(source, reading, progress=progress))
        chosen = Selection(opened, _sampled(opened.containers, sample))
        _warn_of_size(opened.cells * len(chosen.containers) // len(opened))
        options = ReplayOptions(
            cycle_s=cycle or DEFAULT_CYCLE_S,
            cycle_samples=cycle_samples,
            lag=3 if model is None else model.detector.lag,
        )
        jobs = jobs or os.cpu_count() or 1
        rows, planner, notes = _planned(asked, model, chosen, options, seed, progress, jobs)
        series, rules = list(chosen), ClusterOptions(**cluster)
        earlier: list[UsageSeries] = []
        if bundled or history:
            others = history or (data / "fit.parquet",)
            recorded = stack.enter_context(open_source(others, replace(reading, all_mapped=False), progress=progress))
            # The bundled ones were recorded side by side: what their model was trained on counts as earlier.
            earlier, left = ended_before(series, recorded) if history else (list(recorded), ())
            notes += left
        in_cluster = _in_cluster(planner, options, rules, earlier, quick=bundled)
        played, told = played_rows(rows, series, in_cluster, progress)
        notes += told
        seen = seen_in_training(model, series, lambda: opened.data_hash)
        result = _replayed(series, planner, options, outputs, progress, rows, played, seen)
        notes = (*seen_notes(seen, len(series)), *notes)
        notes += mismatch_notes(model, result.step_s, result.cycle_s)
        result = replace(result, notes=(*opened.notes, *notes, *result.notes))
        written: list[tuple[str, str]] = []
        try:
            _write(result, outputs, prices, planner, chosen, written)
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


def _in_cluster(
    planner: Planner, options: ReplayOptions, asked: ClusterOptions, history: Sequence[UsageSeries], *, quick: bool
) -> Callable[[float], Cluster]:
    """The simulated cluster, given the step of the data; the bundled recordings last minutes, and are quick."""
    return partial(
        Cluster,
        planner.model_for,
        options,
        asked.rules(QUICK_DELAY_S if quick else DEFAULT_DELAY_S),
        engine=asked.engine(QUICK_RESIZES_PER_HOUR if quick else RAILS.resizes_per_hour),
        history=history,
    )


def _sampled(containers: tuple[str, ...], count: int | None) -> tuple[str, ...]:
    """The first `count` names in the order of their hash: the same ones each time, and no one's favourites."""
    if count is None or count >= len(containers):
        return containers
    return tuple(sorted(sorted(containers, key=lambda name: hashlib.sha256(name.encode()).digest())[:count]))


def _planned(
    asked: tuple[str, ...],
    model: PhaseModel | None,
    chosen: Selection,
    options: ReplayOptions,
    seed: int,
    progress: Any,
    jobs: int,
) -> tuple[tuple[str, ...], Planner, tuple[str, ...]]:
    """Rows to be played, and the planner; its model is cross-fitted where none was given and something needs one."""
    usable, notes = usable_policies(asked, model, {name: name in FLEETS for name in (ALL_ROWS if asked else ROWS)})
    needs_model = {*FLEETS, *REGISTRY.needs_model}
    if model is not None or not set(usable) & needs_model:
        return _rows_and_planner(usable, model, notes)
    training = TrainingOptions(
        DetectorOptions(USAGE_FEATURES, lag=options.lag, seed=seed),
        cycle_s=options.cycle_s,
        cycle_samples=options.cycle_samples,
    )
    try:
        fitted: CrossFit = cross_fit(chosen, chosen.containers, training, progress, jobs)
    except NotEnoughData as error:
        if asked:
            raise
        left = tuple(name for name in usable if name not in needs_model)
        without = ", ".join(name for name in usable if name in needs_model)
        return _rows_and_planner(left, None, (*notes, f"{without}: left out: {error}"))
    return _rows_and_planner(usable, fitted, notes)


def _rows_and_planner(
    usable: tuple[str, ...], model: PhaseModel | CrossFit | None, notes: tuple[str, ...]
) -> tuple[tuple[str, ...], Planner, tuple[str, ...]]:
    rows = tuple(name for name in usable if name in ALL_ROWS)
    return rows, Planner(tuple(name for name in usable if name not in ALL_ROWS), model), notes


def _replayed(
    series: Sequence[UsageSeries],
    planner: Planner,
    options: ReplayOptions,
    outputs: Outputs,
    progress: Any,
    rows: Sequence[str],
    played: Mapping[str, Mapping[str, Played]],
    seen: int | None,
) -> ReplayResult:
    done = 0

    def advance(_samples: int) -> None:
        nonlocal done
        done += 1
        progress("policies", done, len(series))

    with ExitStack() as stack:
        writer: DecisionWriter | None = None
        if outputs.decisions is not None:
            writer = stack.enter_context(decisions_written(outputs.decisions))
        return replay(
            series,
            planner,
            options,
            decisions_to=writer,
            timelines=PICTURED if outputs.pictured else 0,
            progress=advance,
            model=model_facts(planner.model, seen),
            rows=rows,
            played=played,
        )


def _write(
    result: ReplayResult,
    outputs: Outputs,
    prices: Prices,
    planner: Planner,
    chosen: Selection,
    written: list[tuple[str, str]],
) -> None:
    """All files asked for; `written` is told what and where."""
    if outputs.decisions is not None:
        written.append(("decisions", str(outputs.decisions)))
    if outputs.json is not None:
        write_json(result, outputs.json)
        written.append(("JSON", outputs.json))
    if outputs.csv is not None:
        write_csv(result, outputs.csv)
        written.append(("CSV", str(outputs.csv)))
    if not outputs.pictured:
        return
    model = planner.any_model()
    runs = _runs(model, chosen) if model is not None else []
    graph = None if model is None else model.graph
    table = None if model is None else model.statistics
    if outputs.html is not None:
        from recommender.report.page import render_page  # noqa: PLC0415  jinja2 is needed here only

        page = render_page(
            result,
            result.timelines,
            generated_at=datetime.now(UTC),
            version=__version__,
            prices=prices,
            phase_graph=graph,
            sequences=runs,
            phase_table=table,
        )
        write_bytes_aside(outputs.html, page.encode())
        written.append(("page", str(outputs.html)))
    if outputs.plots is not None:
        from recommender.plots.folder import write_plots  # noqa: PLC0415  matplotlib takes a second to import

        write_plots(result, result.timelines, outputs.plots, phase_graph=graph, sequences=runs, phase_table=table)
        written.append(("plots", str(outputs.plots)))


def _runs(model: PhaseModel, chosen: Selection) -> list[list[tuple[int, int]]]:
    """The runs of phases of every container, for the prototypes."""
    found = (runs_of(model.detector.trace(series).labels[series.present]) for series in chosen)
    return [runs for runs in found if runs]
