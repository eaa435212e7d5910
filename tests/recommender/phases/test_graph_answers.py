"""Answers of the transition graph: the next phase after a history, why, and how often it is right."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings

from recommender.base.errors import BadInput, NotEnoughData
from recommender.phases.graph import Context, PhaseGraph, Run, runs_of
from recommender.phases.graph_answers import UNSEEN_PHASE_PROBABILITY, GraphPredictor
from recommender.phases.graph_io import to_networkx
from recommender.sources.sequences import read_sequences
from tests.fakes.phase_runs import EXAMPLES, SEQUENCES, containers, many
from tests.reference import graph as reference


def fit(sequences: list[list[Run]]) -> GraphPredictor:
    return GraphPredictor(PhaseGraph.fit(sequences))


def test_the_next_phase_matches_counts_shrunk_by_hand() -> None:
    # Six steps from a prior of 1/3; in each, phase 1 has count 2 and phase 2 has count 1: (2 + 2 p) / (3 + 2).
    predictor = fit([[(0, 1), (1, 1)], [(0, 1), (1, 1)], [(0, 1), (2, 1)]])
    first, second = 1 / 3, 1 / 3
    for step in range(6):
        ends = 3 if step == 0 else 0  # the first step counts the ends of any phase: those of 1 and 2
        first, second = ((count + 2 * share) / (3 + ends + 2) for count, share in ((2, first), (1, second)))
    share = first / (first + second)
    assert predictor.next_phase([(0, 1)]) == pytest.approx({1: 0.99 * share + 0.005, 2: 0.99 * (1 - share) + 0.005})


@settings(max_examples=25, deadline=None)
@given(many, containers())
def test_every_answer_equals_that_of_the_reference(fitted: list[list[Run]], history: list[Run]) -> None:
    known = {phase for runs in fitted for phase, _ in runs}
    if history[-1][0] <= max(known) and known != {history[-1][0]}:
        assert fit(fitted).next_phase(history) == pytest.approx(reference.next_phase(fitted, history), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(many, containers())
def test_probabilities_sum_to_one(fitted: list[list[Run]], history: list[Run]) -> None:
    following = GraphPredictor(PhaseGraph.fit(fitted, 4)).next_phase(history)
    assert history[-1][0] not in following
    assert sum(following.values()) == pytest.approx(1.0)
    assert min(following.values()) > 0


def test_a_graph_of_one_phase_predicts_no_other() -> None:
    assert fit([[(0, 3)]]).next_phase([(0, 2)]) == {}


def test_an_unknown_present_phase_gets_the_followers_of_any_phase() -> None:
    following = fit(EXAMPLES).next_phase([(1, 4), (9, 2)])
    assert sum(following.values()) == pytest.approx(1.0)
    assert max(following, key=lambda phase: following[phase]) in (2, 3)


def test_a_longer_context_wins_if_it_is_frequent() -> None:
    predictor = fit([[(0, 5), (1, 2), (2, 1)]] * 30 + [[(3, 5), (1, 2), (4, 1)]] * 30)
    assert predictor.next_phase([(0, 5), (1, 2)])[2] > 0.9
    assert predictor.next_phase([(3, 5), (1, 2)])[4] > 0.9


def test_the_own_past_of_a_container_predicts_its_alternation() -> None:
    predictor = fit([[(0, 5), (1, 2), (2, 1)]] * 40 + [[(0, 5), (1, 2), (0, 5), (1, 9), (0, 5), (1, 2), (2, 1)]] * 4)
    once, often = [(0, 5), (1, 2)], [(0, 5), (1, 2)] * 12
    assert predictor.next_phase(once)[2] > 0.8
    assert predictor.next_phase(often)[0] > 0.5


def test_an_explanation_lists_the_matching_contexts_and_their_counts() -> None:
    predictor = fit(EXAMPLES * 3)
    explanation = predictor.explain([(1, 4), (3, 5)])
    assert json.loads(json.dumps(explanation)) == explanation
    assert [step["agrees"] for step in explanation["steps"]] == [
        "any phase",
        "phase 3",
        "phase 1 1 back",
        "4 to 5 samples of it",
        "nothing before",
        "4 to 5 samples of the one before",
        "this container before",
        "phase 1 1 back",
    ]
    assert [step["seen"] for step in explanation["steps"]][1:3] == [9, 6]
    assert explanation["steps"][2]["next"] == {"0": 6}
    assert explanation["next_phase"]["0"] > 0.9
    assert explanation["end_if_over"] < 0.05
    assert predictor.explain([(1, 4), (9, 1)])["expected_remaining_samples"] is None


def test_an_explanation_takes_memory_for_the_phases_that_occur_not_for_their_numbers() -> None:
    """Tables for a thousand phases would take 8 GB."""
    number = [2, 500, 700, 998, 999]
    history = [(1, 4), (3, 5)]
    far = fit([[(number[phase], steps) for phase, steps in runs] for runs in EXAMPLES])
    explanation = far.explain([(number[phase], steps) for phase, steps in history])
    assert far.graph._tables is None
    expected = fit(EXAMPLES).graph.remaining_steps()[Context.of(history).place]
    assert explanation["expected_remaining_samples"] == pytest.approx(expected)
    assert far.explain([(7, 3)])["expected_remaining_samples"] is not None, "a number that no run has"


def test_a_score_counts_every_change_of_phase_once() -> None:
    predictor = fit(EXAMPLES)
    result = predictor.score(EXAMPLES)
    likelihoods = [predictor.next_phase(runs[:at])[runs[at][0]] for runs in EXAMPLES for at in range(1, len(runs))]
    assert result.transitions == 12
    assert result.log_loss == pytest.approx(-np.log(likelihoods).mean())
    assert 0 <= result.top1 <= 1


def test_an_unknown_phase_is_scored_with_the_least_probability() -> None:
    result = fit(EXAMPLES).score([[(1, 4), (7, 1)], [(7, 1), (8, 1)]])
    assert (result.transitions, result.top1) == (2, 0)
    assert result.log_loss == pytest.approx(-np.log(UNSEEN_PHASE_PROBABILITY))


def test_recorded_containers_are_predicted_better_than_by_a_first_order_chain() -> None:
    dlaas = [runs_of(phases) for phases in read_sequences(SEQUENCES).values()]
    graph, held_out = PhaseGraph.fit(dlaas[::2] + dlaas[1::4]), dlaas[3::4]
    edges, first_order = to_networkx(graph), []
    for runs in held_out:
        for (phase, _), (following, _) in itertools.pairwise(runs):
            ends = edges.get_edge_data(str(phase), "end", {"share": 0.0})["share"]
            share = edges.get_edge_data(str(phase), str(following), {"share": 1e-3})["share"]
            first_order.append(share / (1 - ends))
    result = GraphPredictor(graph).score(held_out)
    assert result.transitions == len(first_order)
    assert result.log_loss < -np.log(first_order).mean() - 0.1
    assert result.top1 > 0.65


def test_an_empty_history_or_score_is_refused() -> None:
    with pytest.raises(BadInput, match="empty history"):
        fit(EXAMPLES).explain([])
    with pytest.raises(NotEnoughData, match="no transition"):
        fit(EXAMPLES).score([[(0, 3)]])


def test_a_graph_with_hundreds_of_phases_is_explained_at_once() -> None:
    """A forecast of all its contexts would take gigabytes, and minutes."""
    answers = GraphPredictor(PhaseGraph.fit([[(300, 4), (0, 2)]] * 2))
    assert answers.explain([(300, 2)])["expected_remaining_samples"] > 0.0
