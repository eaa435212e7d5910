"""The rows of the simulated cluster, by name."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from recommender.engine.classes import Classes
from recommender.engine.fleet import ClassesAlone, Fleet
from recommender.engine.options import Options
from recommender.judging import ClusterRules, ReplayOptions, decision_positions, interval_s
from recommender.model import PhaseModel
from recommender.records import Played, UsageSeries
from recommender.simulate.clock import Trace
from recommender.simulate.default import Default
from recommender.simulate.flowcon import FlowConShares
from recommender.simulate.in_force import Outcome
from recommender.simulate.phasewise import Phasewise
from recommender.simulate.playing import as_declared, class_peaks, play, played

STATIC, VPA, CLASS_PEAK, PHASEWISE = "static", "vpa", "class.peak", "phasewise"
ROWS = (STATIC, VPA, CLASS_PEAK, PHASEWISE)
CLASS_RUNS, FLOWCON = "class.runs", "flowcon"
ALL_ROWS = (*ROWS, CLASS_RUNS, FLOWCON)
"""With those that are played where they are asked for by name: a part alone, and what few recordings can tell of."""

FLEETS = {PHASEWISE: Fleet, CLASS_RUNS: ClassesAlone}
"""The rows that the engine speaks for, and who decides in it. They need a model."""

MADE_BETWEEN_LOOKS = 1_000_000
"""Objects made until the garbage collector looks through them: what a play makes stays to its end, and by default it
would look through all of it again and again, for a quarter of the time."""

ModelFor = Callable[[str], PhaseModel | None]
Progress = Callable[[str, int, int], None]
"""Called with the row being played, and of how many samples how many are done."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How the rows are played.

    Attributes
    ----------
    model_for
        The model of a container by its name; it must have one where a row of `FLEETS` is asked for.
    step_s
        Between two rounds.
    engine
        What an operator may turn.
    history
        Earlier runs: they teach their classes, and are not judged.
    """

    model_for: ModelFor
    options: ReplayOptions
    rules: ClusterRules
    step_s: float
    engine: Options
    history: Sequence[UsageSeries] = ()


@contextmanager
def _hardly_ever_collected() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(MADE_BETWEEN_LOOKS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_hardly_ever_collected()
def play_rows(
    names: Sequence[str], series: Sequence[UsageSeries], cluster: Cluster, progress: Progress | None = None
) -> tuple[dict[str, dict[str, Played]], dict[str, str]]:
    """Every container under each of these rows.

    Returns
    -------
    What came of them, by container and row, where that could be judged; and what went wrong, by what it is about.
    """
    traces = _judgeable(series, cluster.options)
    found: dict[str, dict[str, Played]] = {trace.series.container: {} for trace in traces}
    problems: dict[str, str] = {}
    for name in names if traces else ():
        for trace, kept in zip(traces, _kept(name, traces, cluster, problems, progress), strict=True):
            if (one := played(trace, kept, cluster.options, cluster.rules.kills)) is not None:
                found[trace.series.container][name] = one
    return found, problems


def _kept(
    name: str, traces: Sequence[Trace], cluster: Cluster, problems: dict[str, str], progress: Progress | None
) -> list[Outcome]:
    if name == STATIC:
        return [as_declared(trace) for trace in traces]
    if name == CLASS_PEAK:
        return class_peaks(traces, cluster.step_s, cluster.history)
    done, of = 0, sum(int(trace.series.present.sum()) for trace in traces)

    def advance(samples: int) -> None:
        nonlocal done
        done += samples
        if progress is not None:
            progress(name, done, of)

    if name == VPA:
        return play(traces, Default(traces), cluster.rules, cluster.step_s, advance)
    if name == FLOWCON:
        return play(traces, FlowConShares(traces, cluster.step_s), cluster.rules, cluster.step_s, advance)
    models = [model for trace in traces if (model := cluster.model_for(trace.series.container)) is not None]
    if name == CLASS_RUNS:  # which asks no model
        models = models[:1] * len(models)
    cycle_samples = cluster.options.samples_per_cycle(cluster.step_s)

    def phasewise(of: Sequence[Trace], models: Sequence[PhaseModel], classes: Classes) -> Phasewise:
        return Phasewise(
            of, models, cluster.rules, cluster.step_s, cycle_samples, cluster.engine, classes, FLEETS[name]
        )

    classes = Classes()
    if earlier := _judgeable(cluster.history, cluster.options):
        teaches = phasewise(earlier, models[:1] * len(earlier), classes)
        play(earlier, teaches, cluster.rules, cluster.step_s)
        problems |= teaches.problems
    row = phasewise(traces, models, classes)
    kept = play(traces, row, cluster.rules, cluster.step_s, advance)
    problems |= row.problems
    return kept


def _judgeable(series: Sequence[UsageSeries], options: ReplayOptions) -> list[Trace]:
    traces = []
    for one in series:
        positions = decision_positions(one.present, options.samples_per_cycle(interval_s(one)), options.lag)
        if len(positions):
            traces.append(Trace(one, int(positions[0])))
    return traces
