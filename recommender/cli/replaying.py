"""What `dry-run` and `recommend` share: their data and models, and the replay."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path

import click
import orjson

from recommender.base.cycle import MAX_CYCLE_SAMPLES
from recommender.base.errors import Misuse, NotEnoughData
from recommender.base.nodes import NodeType, NodeUse
from recommender.base.records import Played, Progress, ReplayResult, UsageSeries, WorkloadAdvice
from recommender.base.units import format_memory
from recommender.cli.common import (
    DURATION,
    FILE,
    SEED,
    STEP,
    WholeRange,
    map_option,
    progress_bar,
    refuse_overwriting,
    say,
)
from recommender.cli.grouped import grouped
from recommender.cli.simulated_cluster import AS_INSTALLED, ClusterOptions, runs_ended_before, simulated_policies
from recommender.learning import model as models
from recommender.learning.model import BUNDLED, PhaseModel
from recommender.learning.training import CrossFit, TrainingOptions, cross_fit
from recommender.phases.features import USAGE_FEATURES, source_columns
from recommender.policies.registry import NEED_MODEL
from recommender.replaying.decisions import decisions_written
from recommender.replaying.planning import (
    Planner,
    mismatch_notes,
    model_facts,
    seen_in_training,
    seen_notes,
    usable_policies,
)
from recommender.replaying.replay import replay
from recommender.simulate.flowcon import LOSS
from recommender.simulate.judging import ClusterRules, ReplayOptions, interval_s
from recommender.simulate.nodes import nodes_needed
from recommender.simulate.rows import ADVISED, ALL_ROWS, ENGINE_ROWS, FLOWCON, PHASEWISE, ROWS, Cluster, learn_classes
from recommender.simulate.workloads import played_as_advised, workload_advice
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import ColumnMap
from recommender.sources.spill import available_memory_bytes

BYTES_PER_CELL = 300
"""Upper bound of memory per grid cell: all series are in memory, with the results of one policy after the other."""

_option = grouped()

MODEL_OPTION = _option(
    "--model model_name", str, "Model folder or `bundled`. Default: models cross-fitted on SOURCE by container."
)
HISTORY_OPTION = _option(
    "--history",
    FILE,
    "Earlier runs in the formats of SOURCE, from which workload classes learn; they are not judged. Runs that end "
    "after SOURCE begins are left out. Repeatable. Default: none; for the bundled data the model's training runs.",
    multiple=True,
)

DATA_OPTIONS = (
    MODEL_OPTION,
    _option("--cycle cycle_s", DURATION, "Time between decisions. Default: 10m; for the bundled data 30s."),
    _option("--cycle-samples", click.IntRange(1, MAX_CYCLE_SAMPLES), "The cycle in samples, instead of --cycle."),
    _option("--step step_s", STEP, "Grid step. Default: the median interval. `none`: samples as they are."),
    map_option,
    _option("--sample", WholeRange(1), "Replay only N containers, chosen by a hash of their names."),
    HISTORY_OPTION,
    _option("--jobs", WholeRange(0), "Processes for training if no --model is given; 0: one per core.", default=1),
    _option("--seed", SEED, "Seed of the cross-fitted models.", default=0),
)


@dataclass(frozen=True, slots=True)
class DataOptions:
    """How the data are read, and the model that they are replayed with: the values of `DATA_OPTIONS`."""

    model_name: str | None = None
    cycle_s: float | None = None
    cycle_samples: int | None = None
    step_s: float | None = None
    columns: tuple[ColumnMap, ...] = ()
    sample: int | None = None
    history: tuple[Path, ...] = ()
    jobs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.cycle_s is not None and self.cycle_samples is not None:
            raise Misuse("--cycle and --cycle-samples exclude each other. Give one of them.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a replay is wanted: policies by name (none: all), and what only pictures and files need."""

    policies: tuple[str, ...] = ()
    timelines: int = 0
    explains: bool = False
    decisions: Path | None = None
    node_types: tuple[NodeType, ...] = ()
    outputs: tuple[str | Path, ...] = ()  # files to write, none of which may be among those read


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result, the model to describe phases by, and what was replayed."""

    result: ReplayResult
    model: PhaseModel | None
    series: Sequence[UsageSeries]


def replay_source(source: Sequence[Path], data: DataOptions, cluster: ClusterOptions, wanted: Wanted) -> Replayed:
    """Replay files, the bundled recordings without any."""
    with ExitStack() as stack:
        history_files, model_name, cycle_s = data.history, data.model_name, data.cycle_s
        learned: Mapping[str, str] = {}
        if bundled := not source:
            folder = stack.enter_context(resources.as_file(resources.files("recommender.data") / "recordings"))
            # These training runs were recorded at the same time as SOURCE, and count as earlier nevertheless.
            source, history_files = (folder / "replay.parquet",), data.history or (folder / "fit.parquet",)
            model_name = model_name or BUNDLED
            if model_name == BUNDLED and not data.history:
                learned = orjson.loads((folder / "classes.json").read_bytes())
        model = None if model_name is None else models.load(model_name)
        if bundled and model is not None and cycle_s is None and data.cycle_samples is None:
            cycle_s = model.facts.get("cycle_s")  # the recordings last minutes at one sample a second
        features = USAGE_FEATURES if model is None else model.detector.features
        losses = (LOSS,) if FLOWCON in wanted.policies else ()
        reading = ReadOptions(data.columns, features=(*source_columns(features), *losses), step_s=data.step_s)
        progress = stack.enter_context(progress_bar())
        opened = stack.enter_context(open_source(source, reading, progress=progress))
        refuse_overwriting(wanted.outputs, (*opened.files, *history_files))
        # The first names in the order of their hashes are a random but reproducible choice.
        by_hash = sorted(opened.containers, key=lambda name: hashlib.sha256(name.encode()).digest())
        chosen = frozenset(by_hash[: data.sample])
        _warn_of_size(opened.cells * len(chosen) // len(opened))
        series = [one for one in opened if one.container in chosen]
        lag = 3 if model is None else model.detector.lag
        options = ReplayOptions(cycle_s=cycle_s or 600.0, cycle_samples=data.cycle_samples, lag=lag)
        simulated, planner, notes = _plan(wanted.policies, model, series, options, data, progress)
        check_times = bool(data.history)
        earlier, history_notes = _earlier_runs(series, history_files, reading, progress, check_times=check_times)
        rules, engine = cluster.cluster_rules(bundled=bundled), cluster.engine_options(bundled=bundled)
        make_cluster = partial(
            Cluster, planner.model_for, options, rules,
            engine=engine, history=earlier, learned=learned, explains=wanted.explains,
        )  # fmt: skip
        played, simulation_notes = simulated_policies(simulated, series, make_cluster, progress)
        model = planner.model if isinstance(planner.model, PhaseModel) else None
        seen = seen_in_training(model, series)
        done = itertools.count(1)
        with decisions_written(wanted.decisions) if wanted.decisions is not None else nullcontext() as writer:
            result = replay(
                series,
                planner,
                options,
                write_decisions=writer,
                timelines=wanted.timelines,
                progress=lambda _samples: progress("policies", next(done), len(series)),
                model=model_facts(planner.model, seen),
                rows=simulated,
                played=played.containers,
            )
        of_ours = {name: rows[PHASEWISE] for name, rows in played.containers.items() if PHASEWISE in rows}
        workloads = workload_advice(series, of_ours, earlier, options, rules, played.next_bytes)
        nodes = _nodes(series, played.containers, workloads, options, rules, wanted.node_types)
        notes = (*opened.notes, *seen_notes(seen, len(series)), *notes, *history_notes, *simulation_notes)
        notes += (*mismatch_notes(model, result.step_s, result.cycle_s), *result.notes)
        return Replayed(replace(result, notes=notes, workloads=workloads, nodes=nodes), planner.any_model(), series)


def _nodes(
    series: Sequence[UsageSeries],
    played: Mapping[str, Mapping[str, Played]],
    workloads: Sequence[WorkloadAdvice],
    options: ReplayOptions,
    rules: ClusterRules,
    types: Sequence[NodeType],
) -> dict[str, NodeUse]:
    """Nodes needed under each row of the simulated cluster, and with the requests advised; none without types."""
    if not types:
        return {}
    advised = played_as_advised(series, workloads, options, rules)
    rows = {name: {**of, **({ADVISED: advised[name]} if name in advised else {})} for name, of in played.items()}
    names = dict.fromkeys(name for of in rows.values() for name in of)
    return nodes_needed(series, rows, tuple(names), types)


def learn_bundled_classes() -> dict[str, str]:
    """What the bundled `fit` runs teach of their classes, by name: the content of classes.json."""
    model = models.load(BUNDLED)
    features, lag, cycle_s = model.detector.features, model.detector.lag, float(model.facts["cycle_s"])
    fit = resources.files("recommender.data") / "recordings" / "fit.parquet"
    with resources.as_file(fit) as file, open_source((file,), ReadOptions(features=source_columns(features))) as opened:
        history = list(opened)
    rules, engine = AS_INSTALLED.cluster_rules(bundled=True), AS_INSTALLED.engine_options(bundled=True)
    options, step_s = ReplayOptions(cycle_s=cycle_s, lag=lag), interval_s(history[0])
    cluster = Cluster(lambda _: model, options, rules, step_s, engine, history)
    return {key.name: state for key, state in sorted(learn_classes(cluster, model).states().items())}


def _warn_of_size(cells: int) -> None:
    needed_bytes, free_bytes = cells * BYTES_PER_CELL, available_memory_bytes()
    if needed_bytes > free_bytes:
        say(
            f"note: the replay needs about {format_memory(needed_bytes)} of memory, and {format_memory(free_bytes)} "
            "are free. Use fewer containers (--sample) or a coarser --step."
        )


def _earlier_runs(
    series: Sequence[UsageSeries], files: Sequence[Path], reading: ReadOptions, progress: Progress, *, check_times: bool
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
    data: DataOptions,
    progress: Progress,
) -> tuple[tuple[str, ...], Planner, tuple[str, ...]]:
    """The policies to simulate, the planner of the others, and notes.

    Models are cross-fitted if needed; where the data are too few for that, the bundled model is used.
    """
    rows = {name: name in ENGINE_ROWS for name in (ALL_ROWS if asked else ROWS)}
    usable, notes = usable_policies(asked, model, rows)
    fitted: PhaseModel | CrossFit | None = model
    if model is None and {*ENGINE_ROWS, *NEED_MODEL}.intersection(usable):
        training = TrainingOptions(
            USAGE_FEATURES, options.lag, seed=data.seed, cycle_s=options.cycle_s, cycle_samples=options.cycle_samples
        )
        jobs = data.jobs or os.cpu_count() or 1
        try:
            fitted = cross_fit(series, sorted(one.container for one in series), training, progress, jobs)
        except NotEnoughData as error:
            fitted = models.load(BUNDLED)
            notes = (*notes, f"the bundled model is used: {error}")
    simulated = tuple(name for name in usable if name in ALL_ROWS)
    return simulated, Planner(tuple(name for name in usable if name not in ALL_ROWS), fitted), notes
