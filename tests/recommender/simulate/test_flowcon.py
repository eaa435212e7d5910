"""FlowCon in the dry run: the thesis' example as two recorded runs on one node of eight cores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recommender.records import CPU, RunFacts
from recommender.simulate.clock import Trace
from recommender.simulate.flowcon import FlowConShares, capacity_of
from recommender.simulate.playing import play
from tests.recommender.simulate.worked import GIB, START, STEP_S, rules, trace

CONVERGED = [1.0, 0.5, *(0.499 - 0.001 * number for number in range(28))]
LEARNS = [2.0 - 0.06 * number for number in range(20)]
EIGHT_CORES = RunFacts(allocatable=(8.0, 64 * GIB))


def job(name: str, losses: list[float] | None, *, start: int = START, node: str = "n0", cores: float = 4.0) -> Trace:
    made = trace([1.0] * (20 if losses is None else len(losses)), name=name, start=start, declared=(cores, 4.0))
    told = {} if losses is None else {"loss": np.array(losses)}
    return replace(made, series=replace(made.series, node=node, features=told, facts=EIGHT_CORES))


def given(*traces: Trace) -> list[list[float]]:
    """The CPU that each had in the end of each stretch, in cores."""
    kept = play(traces, FlowConShares(traces, STEP_S), rules(), STEP_S)
    return [[amounts[CPU] for amounts in one.amounts] for one in kept]


def test_a_job_that_no_longer_learns_has_a_quarter_of_the_node_once_another_comes() -> None:
    """1 / (2 x 2) of eight cores; until then, alone, what it declared; and again once the other has ended."""
    first, second = given(job("vae", CONVERGED), job("mnist", LEARNS[:10], start=START + 100))
    assert first[:2] == [4.0, 2.0]
    assert first[-1] == 4.0
    assert second[0] == 4.0


def test_jobs_on_another_node_and_jobs_that_tell_no_loss_are_left_alone() -> None:
    apart, elsewhere, silent = given(
        job("vae", CONVERGED),
        job("mnist", LEARNS, start=START + 100, node="n1"),
        job("web", None, start=START + 100),
    )
    assert (set(apart), set(elsewhere), set(silent)) == ({4.0}, {4.0}, {4.0})


def test_a_loss_that_is_not_told_at_each_sample_counts_as_it_was() -> None:
    gaps = [loss if number % 3 == 0 else float("nan") for number, loss in enumerate(CONVERGED)]
    first, _ = given(job("vae", gaps), job("mnist", LEARNS, start=START + 100))
    assert min(first) == 2.0


def test_a_job_that_tells_its_loss_seldom_is_not_taken_to_stand_still() -> None:
    learns = [10.0 - 0.1 * number for number in range(64)]
    seldom = [loss if number % 8 == 0 else float("nan") for number, loss in enumerate(learns)]
    for amounts in given(job("often", learns), job("seldom", seldom)):
        assert amounts == pytest.approx([4.0] * len(amounts), rel=0.1)


@pytest.mark.parametrize(("starts", "cores"), [((0, 50), 7.0), ((0, 1000), 4.0)])
def test_a_node_that_nobody_tells_of_has_the_most_that_was_declared_at_a_time(
    starts: tuple[int, int], cores: float
) -> None:
    traces = [job("a", LEARNS, start=START + starts[0]), job("b", LEARNS, start=START + starts[1], cores=3.0)]
    unknown = [replace(one, series=replace(one.series, facts=RunFacts())) for one in traces]
    assert capacity_of(unknown) == cores
    assert capacity_of(traces) == 8.0


def test_a_node_of_which_different_sizes_are_told_has_the_largest_and_two_at_its_last_second_count_both() -> None:
    first, second = job("a", LEARNS), job("b", LEARNS, start=START + 10 * (len(LEARNS) - 1), cores=3.0)
    larger = replace(second.series, facts=RunFacts(allocatable=(16.0, 64 * GIB)))
    assert capacity_of([first, replace(second, series=larger), first]) == 16.0
    unknown = [replace(one, series=replace(one.series, facts=RunFacts())) for one in (first, second)]
    assert capacity_of(unknown) == 7.0


def test_of_a_node_on_which_nothing_is_declared_nothing_is_known() -> None:
    assert np.isnan(capacity_of([trace([1.0] * 3, declared=None)]))
    assert np.isnan(capacity_of([]))
