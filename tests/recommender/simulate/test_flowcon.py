"""FlowCon in the dry run: the thesis' example as two recorded runs on one node of eight cores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recommender.base.records import CPU, RunFacts
from recommender.simulate.clock import Trace
from recommender.simulate.flowcon import FlowConShares, capacity_of
from recommender.simulate.playing import play
from tests.recommender.simulate.worked import GIB, START, STEP_S, rules, trace

CONVERGED = [1.0, 0.5, *(0.499 - 0.001 * number for number in range(28))]
PROGRESSING = [2.0 - 0.06 * number for number in range(20)]
EIGHT_CORES = RunFacts(allocatable=(8.0, 64 * GIB))


def job(name: str, losses: list[float] | None, *, start: int = START, node: str = "n0", cores: float = 4.0) -> Trace:
    base = trace([1.0] * (20 if losses is None else len(losses)), name=name, start=start, declared=(cores, 4.0))
    features = {} if losses is None else {"loss": np.array(losses)}
    return replace(base, series=replace(base.series, node=node, features=features, facts=EIGHT_CORES))


def allocated_cores(*traces: Trace) -> list[list[float]]:
    """CPU allocations of each trace in order, in cores."""
    outcomes = play(traces, FlowConShares(traces, STEP_S), rules(), STEP_S)
    return [[amounts[CPU] for amounts in one.amounts] for one in outcomes]


def test_a_converged_job_has_a_quarter_of_the_node_once_another_job_comes() -> None:
    """1 / (2 x 2) of eight cores; before that, and again once the other has ended, its declared cores."""
    first, second = allocated_cores(job("vae", CONVERGED), job("mnist", PROGRESSING[:10], start=START + 100))
    assert first[:2] == [4.0, 2.0]
    assert first[-1] == 4.0
    assert second[0] == 4.0


def test_jobs_on_different_nodes_and_jobs_without_a_loss_keep_their_declared_cores() -> None:
    apart, elsewhere, silent = allocated_cores(
        job("vae", CONVERGED),
        job("mnist", PROGRESSING, start=START + 100, node="n1"),
        job("web", None, start=START + 100),
    )
    assert (set(apart), set(elsewhere), set(silent)) == ({4.0}, {4.0}, {4.0})


def test_the_latest_loss_counts_at_samples_without_one() -> None:
    gaps = [loss if number % 3 == 0 else float("nan") for number, loss in enumerate(CONVERGED)]
    first, _ = allocated_cores(job("vae", gaps), job("mnist", PROGRESSING, start=START + 100))
    assert min(first) == 2.0


def test_a_job_that_rarely_reports_its_loss_does_not_count_as_converged() -> None:
    progressing = [10.0 - 0.1 * number for number in range(64)]
    rarely = [loss if number % 8 == 0 else float("nan") for number, loss in enumerate(progressing)]
    for amounts in allocated_cores(job("often", progressing), job("rarely", rarely)):
        assert amounts == pytest.approx([4.0] * len(amounts), rel=0.1)


@pytest.mark.parametrize(("starts", "cores"), [((0, 50), 7.0), ((0, 1000), 4.0)])
def test_the_capacity_of_an_unknown_node_is_the_most_declared_at_one_time(
    starts: tuple[int, int], cores: float
) -> None:
    traces = [job("a", PROGRESSING, start=START + starts[0]), job("b", PROGRESSING, start=START + starts[1], cores=3.0)]
    unknown = [replace(one, series=replace(one.series, facts=RunFacts())) for one in traces]
    assert capacity_of(unknown) == cores
    assert capacity_of(traces) == 8.0


def test_runs_that_overlap_by_one_second_on_an_unknown_node_count_together() -> None:
    last_sample_s = START + 10 * (len(PROGRESSING) - 1)
    traces = [job("a", PROGRESSING), job("b", PROGRESSING, start=last_sample_s, cores=3.0)]
    unknown = [replace(one, series=replace(one.series, facts=RunFacts())) for one in traces]
    assert capacity_of(unknown) == 7.0


def test_the_capacity_of_a_node_with_several_recorded_sizes_is_the_largest() -> None:
    one = job("a", PROGRESSING)
    larger = replace(one.series, facts=RunFacts(allocatable=(16.0, 64 * GIB)))
    assert capacity_of([one, replace(one, series=larger), one]) == 16.0


def test_the_capacity_of_a_node_without_declared_cpu_is_unknown() -> None:
    assert np.isnan(capacity_of([trace([1.0] * 3, declared=None)]))
    assert np.isnan(capacity_of([]))
