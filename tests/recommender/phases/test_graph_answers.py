"""What the transition graph answers: the next phase of a history, why, and how often it is right."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings

from recommender.errors import BadInput, NotEnoughData
from recommender.phases.graph import PhaseGraph
from recommender.phases.graph_answers import UNSEEN_PHASE_PROBABILITY, GraphPredictor
from recommender.phases.graph_io import to_networkx
from recommender.phases.runs import Run, runs_of
from recommender.sources.sequences import read_sequences
from tests.fakes.phase_runs import EXAMPLES, SEQUENCES, containers, many
from tests.reference import graph as slow


def of(sequences: list[list[Run]]) -> GraphPredictor:
    return GraphPredictor(PhaseGraph.fit(sequences))


def test_the_next_phase_is_the_shrunk_count_by_hand() -> None:
    # Every context has counts 2 and 1 of phases 1 and 2, none of the end: six times (2 + 2 p) / (3 + 2), from a third.
    answers = of([[(0, 1), (1, 1)], [(0, 1), (1, 1)], [(0, 1), (2, 1)]])
    first, second = 1 / 3, 1 / 3
    for step in range(6):
        ends = 3 if step == 0 else 0  # counted of any phase: those of 1 and 2
        first, second = ((count + 2 * share) / (3 + ends + 2) for count, share in ((2, first), (1, second)))
    share = first / (first + second)
    assert answers.next_phase([(0, 1)]) == pytest.approx({1: 0.99 * share + 0.005, 2: 0.99 * (1 - share) + 0.005})


@settings(max_examples=25, deadline=None)
@given(many, containers())
def test_any_answer_equals_the_walk_through_all_containers(fitted: list[list[Run]], history: list[Run]) -> None:
    known = {phase for runs in fitted for phase, _ in runs}
    if history[-1][0] <= max(known) and known != {history[-1][0]}:
        assert of(fitted).next_phase(history) == pytest.approx(slow.next_phase(fitted, history), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(many, containers())
def test_probabilities_sum_to_one(fitted: list[list[Run]], history: list[Run]) -> None:
    following = GraphPredictor(PhaseGraph.fit(fitted, 4)).next_phase(history)
    assert history[-1][0] not in following
    assert sum(following.values()) == pytest.approx(1.0)
    assert min(following.values()) > 0


def test_an_empty_history_gives_the_first_phase() -> None:
    assert of([[(1, 2)], [(1, 2), (0, 1)], [(3, 1)]]).next_phase([]) == pytest.approx({1: 2 / 3, 3: 1 / 3})


def test_where_there_is_one_phase_no_other_follows() -> None:
    assert of([[(0, 3)]]).next_phase([(0, 2)]) == {}


def test_a_present_phase_never_seen_gets_what_follows_any_phase() -> None:
    following = of(EXAMPLES).next_phase([(1, 4), (9, 2)])
    assert sum(following.values()) == pytest.approx(1.0)
    assert max(following, key=lambda phase: following[phase]) in (2, 3)


def test_a_longer_context_wins_where_it_was_seen_often() -> None:
    answers = of([[(0, 5), (1, 2), (2, 1)]] * 30 + [[(3, 5), (1, 2), (4, 1)]] * 30)
    assert answers.next_phase([(0, 5), (1, 2)])[2] > 0.9
    assert answers.next_phase([(3, 5), (1, 2)])[4] > 0.9


def test_the_containers_own_past_foretells_its_alternation() -> None:
    answers = of([[(0, 5), (1, 2), (2, 1)]] * 40 + [[(0, 5), (1, 2), (0, 5), (1, 9), (0, 5), (1, 2), (2, 1)]] * 4)
    once, often = [(0, 5), (1, 2)], [(0, 5), (1, 2)] * 12
    assert answers.next_phase(once)[2] > 0.8
    assert answers.next_phase(often)[0] > 0.5


def test_an_explanation_names_what_agrees_and_the_counts_that_give_the_answer() -> None:
    answers = of(EXAMPLES * 3)
    told = answers.explain([(1, 4), (3, 5)])
    assert json.loads(json.dumps(told)) == told
    assert [step["agrees"] for step in told["steps"]] == [
        "any phase",
        "phase 3",
        "phase 1 1 back",
        "4 to 5 samples of it",
        "nothing before",
        "4 to 5 samples of the one before",
        "this container before",
        "phase 1 1 back",
    ]
    assert [step["seen"] for step in told["steps"]][1:3] == [9, 6]
    assert told["steps"][2]["next"] == {"0": 6}
    assert told["next_phase"]["0"] > 0.9
    assert told["end_if_over"] < 0.05
    assert answers.explain([(1, 4), (9, 1)])["expected_remaining_samples"] is None


def test_a_score_counts_every_change_of_phase_once() -> None:
    answers = of(EXAMPLES)
    result = answers.score(EXAMPLES)
    likelihoods = [answers.next_phase(runs[:at])[runs[at][0]] for runs in EXAMPLES for at in range(1, len(runs))]
    assert result.transitions == 12
    assert result.log_loss == pytest.approx(-np.log(likelihoods).mean())
    assert 0 <= result.top1 <= 1


def test_a_phase_the_graph_never_met_counts_with_its_floor() -> None:
    result = of(EXAMPLES).score([[(1, 4), (7, 1)], [(7, 1), (8, 1)]])
    assert (result.transitions, result.top1) == (2, 0)
    assert result.log_loss == pytest.approx(-np.log(UNSEEN_PHASE_PROBABILITY))


def test_real_containers_not_fitted_are_foretold_better_than_by_first_order() -> None:
    dlaas = [runs_of(phases) for phases in read_sequences(SEQUENCES).values()]
    graph, judged = PhaseGraph.fit(dlaas[::2] + dlaas[1::4]), dlaas[3::4]
    edges, first_order = to_networkx(graph), []
    for runs in judged:
        for (phase, _), (following, _) in itertools.pairwise(runs):
            ends = edges.get_edge_data(str(phase), "end", {"share": 0.0})["share"]
            came = edges.get_edge_data(str(phase), str(following), {"share": 1e-3})["share"]
            first_order.append(came / (1 - ends))
    result = GraphPredictor(graph).score(judged)
    assert result.transitions == len(first_order)
    assert result.log_loss < -np.log(first_order).mean() - 0.1
    assert result.top1 > 0.65


def test_a_question_without_a_present_phase_or_a_graph_is_refused() -> None:
    with pytest.raises(BadInput, match="empty history"):
        of(EXAMPLES).explain([])
    with pytest.raises(BadInput, match="no container"):
        GraphPredictor(PhaseGraph(3))
    with pytest.raises(NotEnoughData, match="no transition"):
        of(EXAMPLES).score([[(0, 3)]])
