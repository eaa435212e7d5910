"""The rows of the simulated cluster, by name."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from recommender.base.records import BoolArray, Played, Progress, UsageSeries, no_progress
from recommender.engine.classes import Classes
from recommender.engine.container_arrays import BY_CLASS, BY_GRAPH, BY_PAST, BY_USE, POLICIES
from recommender.engine.fleet import DECIDED_BY
from recommender.engine.keys import WorkloadKey
from recommender.engine.options import Options
from recommender.learning.model import PhaseModel
from recommender.policies.experts import ALL_EXPERTS
from recommender.simulate.clock import Trace
from recommender.simulate.default import Default
from recommender.simulate.flowcon import FlowConShares
from recommender.simulate.in_force import SimulatedRun
from recommender.simulate.judging import ClusterRules, ReplayOptions
from recommender.simulate.krr import krr
from recommender.simulate.phasewise import Phasewise
from recommender.simulate.playing import as_declared, class_peaks, evaluate, judgeable_traces, play, with_kills

STATIC, VPA, CLASS_PEAK, PHASEWISE = "static", "vpa", "class.peak", "phasewise"
ROWS = (STATIC, VPA, CLASS_PEAK, PHASEWISE)
FLOWCON, KRR = "flowcon", "krr"
ADVISED = "new"  # nodes only: the request that each workload is advised
ENGINE_ROWS: Mapping[str, BoolArray] = {
    PHASEWISE: ALL_EXPERTS,
    **{POLICIES[by]: np.isin(DECIDED_BY, by) for by in (BY_CLASS, BY_GRAPH, BY_PAST, BY_USE)},
}
"""Rows of the engine, and the experts that may decide in each. They need a model."""

ALL_ROWS = (*ROWS, *POLICIES[BY_USE:], KRR, FLOWCON)
"""With those that are played only on request: each expert alone, another recommender, and one that needs losses."""

GC_THRESHOLD = 1_000_000
"""Allocations between garbage collections: most objects live to the end, and by default scanning takes a quarter of the
time."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the rows are played, in rounds of `step_s`.

    `model_for` returns the model of a container by name, required for `ENGINE_ROWS`. Classes learn from `history`:
    earlier runs, not judged; unless `learned` has what these taught, as `Classes.states`. With `explains` those rows
    give reasons, which takes a tenth longer.
    """

    model_for: Callable[[str], PhaseModel | None]
    options: ReplayOptions
    rules: ClusterRules
    step_s: float
    engine: Options
    history: Sequence[UsageSeries] = ()
    learned: Mapping[str, str] = field(default_factory=dict)
    explains: bool = False


@dataclass(frozen=True, slots=True)
class PlayedRows:
    """What `play_rows` found.

    `containers`: the evaluations by container and row, where possible. `problems`: of the engine, by object.
    `next_bytes`: memory that `phasewise` would give the next run like each container at its start, where it is known.
    """

    containers: dict[str, dict[str, Played]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    next_bytes: dict[str, float] = field(default_factory=dict)


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_rare_garbage_collection()
def play_rows(
    names: Sequence[str], series: Sequence[UsageSeries], cluster: Cluster, progress: Progress = no_progress
) -> PlayedRows:
    """Play every container under each of these rows."""
    traces = judgeable_traces(series, cluster.options)
    found = PlayedRows({trace.series.container: {} for trace in traces})
    for name in names if traces else ():
        rules = cluster.rules
        if name in (STATIC, CLASS_PEAK, KRR):  # nothing resizes there: a change that was declared happened as recorded
            rules = replace(rules, recreates=False)
        for trace, outcome in zip(traces, _outcomes(name, traces, cluster, found, progress), strict=True):
            if (one := evaluate(trace, outcome, rules)) is not None:
                found.containers[trace.series.container][name] = one
    return found


def _outcomes(
    name: str, traces: Sequence[Trace], cluster: Cluster, found: PlayedRows, progress: Progress
) -> list[SimulatedRun]:
    if name == STATIC:
        return [with_kills(trace, as_declared(trace), cluster.rules) for trace in traces]
    if name == CLASS_PEAK:
        peaks = class_peaks(traces, cluster.step_s, cluster.history)
        return [with_kills(trace, peak, cluster.rules) for trace, peak in zip(traces, peaks, strict=True)]
    if name == KRR:
        said = krr(traces, cluster.history)
        return [with_kills(trace, one, cluster.rules) for trace, one in zip(traces, said, strict=True)]
    done, total = 0, sum(int(trace.series.present.sum()) for trace in traces)

    def advance(samples: int) -> None:
        nonlocal done
        done += samples
        progress(name, done, total)

    if name == VPA:
        return play(traces, Default(traces), cluster.rules, cluster.step_s, advance)
    if name == FLOWCON:
        return play(traces, FlowConShares(traces, cluster.step_s), cluster.rules, cluster.step_s, advance)
    models = [model for trace in traces if (model := cluster.model_for(trace.series.container)) is not None]
    classes = learn_classes(cluster, models[0], ENGINE_ROWS[name], found.problems)
    row = _engine(traces, models, cluster, classes, ENGINE_ROWS[name], explains=cluster.explains)
    outcomes = play(traces, row, cluster.rules, cluster.step_s, advance)
    if name == PHASEWISE:
        found.next_bytes.update(row.next_memory())
    found.problems.update(row.problems)
    return [replace(outcome, reasons=why) for outcome, why in zip(outcomes, row.reasons, strict=True)]


def learn_classes(
    cluster: Cluster, model: PhaseModel, experts: BoolArray = ALL_EXPERTS, problems: dict[str, str] | None = None
) -> Classes:
    """What the earlier runs of a cluster teach, under one model; failures are added to `problems`, by object."""
    classes = Classes()
    if cluster.learned:
        for workload, state in cluster.learned.items():
            classes.load(WorkloadKey("", workload), state, 0.0)
    elif earlier := judgeable_traces(cluster.history, cluster.options):
        learning = _engine(earlier, [model] * len(earlier), cluster, classes, experts)
        play(earlier, learning, cluster.rules, cluster.step_s)
        if problems is not None:
            problems.update(learning.problems)
    return classes


def _engine(
    traces: Sequence[Trace],
    models: Sequence[PhaseModel],
    cluster: Cluster,
    classes: Classes,
    experts: BoolArray,
    *,
    explains: bool = False,
) -> Phasewise:
    rules, step_s, options = cluster.rules, cluster.step_s, cluster.engine
    cycle_samples = cluster.options.samples_per_cycle(step_s)
    return Phasewise(traces, models, rules, step_s, cycle_samples, options, classes, experts, explains=explains)
