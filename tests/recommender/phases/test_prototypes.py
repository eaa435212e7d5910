"""Prototypes: collapsing of alternations, and the executions that each path covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.phases.graph import Run, runs_of
from recommender.phases.prototypes import collapse, prototypes
from tests.examples import at_most
from tests.reference.prototypes import covering

labels = st.lists(st.integers(0, 3), min_size=1, max_size=14)


def _runs(*texts: str) -> list[list[Run]]:
    return [[(int(letter), 2) for letter in text] for text in texts]


def test_alternations_of_any_length_become_one_element() -> None:
    assert collapse([0, 1, 0, 1]) == collapse([0, 1, 0, 1, 0]) == collapse([0, 1] * 50) == ("(0 1)*",)
    assert collapse([2, 2, 0, 1, 0, 1, 3]) == ("2", "(0 1)*", "3")
    assert collapse([0, 1, 0]) == ("0", "1", "0")
    assert collapse([0, 1, 0, 1, 2, 1, 2, 1]) == ("(0 1)*", "(2 1)*")
    assert collapse([]) == ()


def test_an_execution_that_stopped_early_counts_towards_its_path() -> None:
    first, second = prototypes(_runs("12", "12", "124", "13", "1"))
    assert (first.path, first.count, first.whole, first.share) == (("1", "2", "4"), 4, 1, 0.8)
    assert (second.path, second.count, second.cumulative_share) == (("1", "3"), 1, 1.0)


@at_most(40)
@given(st.lists(labels, min_size=1, max_size=12))
def test_prototypes_agree_with_brute_force(executions: list[list[int]]) -> None:
    found = prototypes([runs_of(phases) for phases in executions])
    expected = covering([collapse(phases) for phases in executions])
    assert [(one.path, one.count) for one in found] == expected
    assert found[-1].cumulative_share == pytest.approx(1.0)


@at_most(40)
@given(labels, st.lists(st.integers(1, 5), min_size=14, max_size=14))
def test_repeats_do_not_change_a_path(phases: list[int], times: list[int]) -> None:
    repeated = [phase for phase, n in zip(phases, times, strict=False) for _ in range(n)]
    assert collapse(repeated) == collapse(phases)


@at_most(40)
@given(labels)
def test_collapsing_again_changes_nothing(phases: list[int]) -> None:
    path = collapse(phases)
    unrolled = [
        int(phase) for element in path for phase in (element.strip("()*").split() * (2 if "*" in element else 1))
    ]
    assert collapse(unrolled) == path


def test_no_executions_give_no_prototypes() -> None:
    assert prototypes([]) == []
    assert prototypes([[]]) == []
