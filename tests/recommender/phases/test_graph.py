"""The transition graph: counts, forecasts and JSON."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.errors import BadArtifact, BadInput, NotEnoughData
from recommender.phases import graph_explain, graph_io
from recommender.phases.contexts import DWELL_STARTS, Context, Run, dwell_bucket, runs_of
from recommender.phases.graph import PhaseGraph
from recommender.phases.graph_score import UNSEEN_PHASE, score
from recommender.phases.shrinkage import BANDWIDTHS, STRENGTHS, Learned
from recommender.sources.sequences import read_sequences
from tests.examples import at_most
from tests.reference import graph as slow

DLAAS = Path(__file__).parents[2] / "data" / "ai4dl" / "dlaas_phase_sequences.parquet"

LITTLE = [
    [(1, 4), (3, 5), (0, 9), (2, 1)],
    [(1, 4), (3, 6), (0, 7), (3, 2)],
    [(1, 4), (2, 30)],
    [(1, 4), (2, 3), (4, 1), (2, 2), (4, 1), (2, 8)],
]


@st.composite
def containers(draw: st.DrawFn, phases: int = 4) -> list[Run]:
    length = draw(st.integers(1, 7))
    runs: list[Run] = []
    for _ in range(length):
        phase = draw(st.integers(0, phases - 1).filter(lambda p: not runs or runs[-1][0] != p))
        runs.append((phase, draw(st.integers(1, 40))))
    return runs


many = st.lists(containers(), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def dlaas() -> list[list[Run]]:
    return [runs_of(phases) for phases in read_sequences(DLAAS).values()]


def test_four_small_containers_are_counted_as_by_hand() -> None:
    graph = PhaseGraph.fit(LITTLE)
    edges = graph.digraph.edges
    assert isinstance(graph.digraph, nx.DiGraph)
    assert graph.containers == 4
    assert edges["start", "1"]["count"] == 4
    assert (edges["1", "3"]["count"], edges["1", "2"]["count"]) == (2, 2)
    assert (edges["3 0", "2"]["count"], edges["3 0", "3"]["count"]) == (1, 1)
    assert edges["1 3 0", "2"]["count"] == 1
    assert edges["1:4 3:5 0:9", "2"]["count"] == 1
    assert edges["1 2:3 4:1 2:2 ~4", "4"]["count"] == 1
    assert (edges["2", "end"]["count"], edges["3", "end"]["count"]) == (3, 1)
    assert graph.samples_in_phase() == {0: 16, 1: 16, 2: 44, 3: 13, 4: 2}
    assert graph.first_order()[2] == {"4": 0.4, "end": 0.6}


def test_with_one_chain_level_seen_the_next_phase_is_the_shrunk_count_by_hand() -> None:
    graph = PhaseGraph.fit([[(0, 1), (1, 1)], [(0, 1), (1, 1)], [(0, 1), (2, 1)]])
    graph.learned = Learned(strength=2.0, bandwidth=0.2, weights=(1.0, 0.0))
    # Every context of the chain has counts 2 and 1: eight times p = (2 + 2 p) / (3 + 2), starting at one half.
    p = 0.5
    for _ in range(8):
        p = (2 + 2 * p) / 5
    assert graph.next_phase([(0, 1)]) == pytest.approx({1: 0.99 * p + 0.005, 2: 0.99 * (1 - p) + 0.005})


def test_a_forecast_equals_the_walk_through_all_containers() -> None:
    graph = PhaseGraph.fit(LITTLE)
    questions = [runs[:at] for runs in LITTLE for at in range(1, len(runs) + 1)]
    questions += [[(1, 4), (3, 5), (0, 2)], [(4, 2)], [(2, 9), (0, 1), (2, 4)], [(3, 1), (4, 1), (3, 100)]]
    for learned in (Learned(2.0, 0.2, (0.3, 0.7)), Learned(8.0, 0.8, (1.0, 0.0))):
        graph.learned = learned
        for history in questions:
            expected = slow.next_phase(LITTLE, history, learned.strength, learned.bandwidth, learned.weights)
            assert graph.next_phase(history) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=6, deadline=None)
@given(many, containers())
def test_any_forecast_equals_the_walk_through_all_containers(fitted: list[list[Run]], history: list[Run]) -> None:
    graph = PhaseGraph.fit(fitted)
    known = {phase for runs in fitted for phase, _ in runs}
    if known == {history[-1][0]}:
        assert graph.next_phase(history) == {}
        return
    how = graph.learned
    expected = slow.next_phase(fitted, history, how.strength, how.bandwidth, how.weights)
    assert graph.next_phase(history) == pytest.approx(expected, abs=1e-9)


def test_what_is_learned_is_as_likely_as_any_candidate_on_transitions_left_out() -> None:
    graph = PhaseGraph.fit(LITTLE)
    how = graph.learned
    best = slow.left_out_log_likelihood(LITTLE, how.strength, how.bandwidth, how.weights)
    for strength, bandwidth in itertools.product(STRENGTHS[::2], BANDWIDTHS[::2]):
        for first in (0.0, 0.5, 1.0):
            other = slow.left_out_log_likelihood(LITTLE, strength, bandwidth, (first, 1 - first))
            # Fifty rounds of expectation maximisation come this close to the best weights.
            assert other <= best + 0.02


def test_the_expected_rest_of_a_phase_seen_often_follows_kaplan_and_meier() -> None:
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 10, size=2000)
    cut = rng.random(2000) < 0.3
    graph = PhaseGraph(2)
    for length, was_cut in zip(lengths, cut, strict=True):
        graph.update([(0, int(length))], ended=not was_cut)
    survival = slow.kaplan_meier([(int(n), not c) for n, c in zip(lengths, cut, strict=True)], 8)
    assert graph.expected_remaining([(0, 1)]) == pytest.approx(sum(survival), abs=0.05)


def test_the_expected_rest_is_the_sum_of_the_chances_to_go_on() -> None:
    graph = PhaseGraph.fit(LITTLE * 5)
    hazard = graph._dwell_table().hazard
    for previous, phase, length in ((5, 1, 1), (1, 3, 2), (1, 2, 27)):
        history = [(phase, length)] if previous == 5 else [(previous, 4), (phase, length)]
        going_on = [1.0 - hazard[previous, phase, dwell_bucket(length + h)] for h in range(20_000)]
        assert graph.expected_remaining(history) == pytest.approx(np.cumprod(going_on).sum(), rel=1e-4)


def test_the_compiled_tables_say_what_the_graph_says_of_a_first_run() -> None:
    graph = PhaseGraph.fit(LITTLE)
    outlook = graph.compile()
    assert outlook.expected_remaining[outlook.index(-1, 1, 2)] == pytest.approx(graph.expected_remaining([(1, 2)]))
    previous, phase, length = np.array([-1, 3, 0]), np.array([1, 0, 3]), np.array([2, 7, 500])
    assert outlook.next_phase[outlook.index(previous, phase, length)].sum(axis=1) == pytest.approx(1.0)


@settings(max_examples=6, deadline=None)
@given(many, containers())
def test_probabilities_sum_to_one(fitted: list[list[Run]], history: list[Run]) -> None:
    graph = PhaseGraph.fit(fitted, n_phases=4)
    following = graph.next_phase(history)
    assert history[-1][0] not in following
    if following:
        assert sum(following.values()) == pytest.approx(1.0)
        assert min(following.values()) > 0
    assert graph.expected_remaining(history) >= 0


@settings(max_examples=6, deadline=None)
@given(many, st.booleans())
def test_a_graph_comes_back_from_json_exactly(fitted: list[list[Run]], ended: bool) -> None:
    graph = PhaseGraph(6)
    for runs in fitted:
        graph.update(runs, ended=ended)
    text = graph_io.to_json(graph)
    again = graph_io.from_document(json.loads(text))
    assert again.learned == graph.learned
    assert graph_io.to_json(again) == text


@at_most(40)
@given(containers(phases=12))
def test_a_context_is_parsed_from_its_name(history: list[Run]) -> None:
    context = Context.of(history)
    assert Context.parse(context.name) == context


@at_most(40)
@given(st.integers(1, 100_000))
def test_every_length_has_one_bucket(length: int) -> None:
    bucket = dwell_bucket(length)
    assert DWELL_STARTS[bucket] <= length
    assert bucket == len(DWELL_STARTS) - 1 or length < DWELL_STARTS[bucket + 1]


def test_unknown_labels_carry_the_last_phase_on() -> None:
    assert runs_of([-1, -1, 2, 2, -1, 3]) == [(2, 3), (3, 1)]
    assert runs_of([-1, -1]) == []
    assert runs_of([]) == []


def test_an_empty_history_gives_the_first_phase() -> None:
    assert PhaseGraph.fit([[(1, 2)], [(1, 2), (0, 1)], [(3, 1)]]).next_phase([]) == pytest.approx({1: 2 / 3, 3: 1 / 3})


def test_a_present_phase_never_seen_gets_what_follows_any_phase() -> None:
    following = PhaseGraph.fit(LITTLE).next_phase([(1, 4), (9, 2)])
    assert sum(following.values()) == pytest.approx(1.0)
    assert max(following, key=lambda phase: following[phase]) in (2, 3)


def test_an_explanation_names_contexts_counts_and_weights_that_give_the_answer() -> None:
    graph = PhaseGraph.fit(LITTLE * 3)
    told = graph_explain.explain(graph, [(1, 4), (3, 5)])
    recent = told["chains"][0]
    assert json.loads(json.dumps(told)) == told
    assert [context["agrees"] for context in recent["contexts"]][:4] == [
        "any phase",
        "phase 3",
        "phase 1 1 back",
        "about 5 samples of phase 3",
    ]
    assert recent["contexts"][1]["seen"] == 6
    assert recent["contexts"][1]["next"] == {"0": 6}
    assert recent["answered_by"] >= 2
    assert sum(chain["weight"] for chain in told["chains"]) == pytest.approx(1.0)
    assert told["next_phase"]["0"] > 0.9
    assert graph_explain.explain(graph, [(1, 4), (9, 1)])["expected_remaining_samples"] is None


def test_a_longer_context_wins_where_it_was_seen_often() -> None:
    sequences = [[(0, 5), (1, 2), (2, 1)]] * 30 + [[(3, 5), (1, 2), (4, 1)]] * 30
    graph = PhaseGraph.fit(sequences)
    assert graph.next_phase([(0, 5), (1, 2)])[2] > 0.9
    assert graph.next_phase([(3, 5), (1, 2)])[4] > 0.9


def test_the_containers_own_past_foretells_its_alternation() -> None:
    ordinary = [[(0, 5), (1, 2), (2, 1)]] * 40
    alternating = [[(0, 5), (1, 2)] * 4] * 4
    graph = PhaseGraph.fit(ordinary + alternating)
    assert graph.next_phase([(0, 5), (1, 2)])[2] > 0.8
    assert graph.next_phase([(0, 5), (1, 2), (0, 5), (1, 2)])[0] > 0.8


def test_dot_and_graphml_hold_the_graph() -> None:
    graph = PhaseGraph.fit(LITTLE)
    dot = graph_io.to_dot(graph).decode()
    assert '"1" -> "3" [label="0.50"' in dot
    assert '"2" -> "end" [label="0.60"' in dot
    again = nx.parse_graphml(graph_io.to_graphml(graph).decode())
    assert again.edges["3 0", "2"]["count"] == 1
    assert set(again.nodes) == set(graph.digraph.nodes)


def test_a_score_counts_every_change_of_phase_once() -> None:
    graph = PhaseGraph.fit(LITTLE)
    result = score(graph, LITTLE)
    likelihoods = [graph.next_phase(runs[:at])[runs[at][0]] for runs in LITTLE for at in range(1, len(runs))]
    assert result.transitions == 12
    assert result.log_loss == pytest.approx(-np.log(likelihoods).mean())
    assert 0 <= result.top1 <= 1


def test_a_phase_the_graph_never_met_counts_with_its_floor() -> None:
    result = score(PhaseGraph.fit(LITTLE), [[(1, 4), (7, 1)], [(7, 1), (8, 1)]])
    assert result.transitions == 2
    assert result.top1 == 0
    assert result.log_loss == pytest.approx(-np.log(UNSEEN_PHASE))
    alone = score(PhaseGraph.fit([[(0, 3)]]), [[(0, 3), (1, 1)]])
    assert alone.log_loss == pytest.approx(-np.log(UNSEEN_PHASE))


def test_real_containers_not_fitted_are_foretold_better_than_by_first_order(dlaas: list[list[Run]]) -> None:
    fitted, judged = dlaas[::2] + dlaas[1::4], dlaas[3::4]
    began = time.perf_counter()
    graph = PhaseGraph.fit(fitted)
    result = score(graph, judged)
    assert time.perf_counter() - began < 10, "fit and score take well under a second on an idle machine"
    first_order = []
    for runs in judged:
        for (phase, _), (following, _) in itertools.pairwise(runs):
            shares = graph.first_order()[phase]
            first_order.append(shares.get(str(following), 1e-3) / (1 - shares.get("end", 0.0)))
    assert result.transitions == len(first_order)
    assert result.log_loss < -np.log(first_order).mean() - 0.1


@pytest.mark.parametrize(
    ("runs", "problem"),
    [([(-1, 3)], "phase -1"), ([(0, 0)], "length 0"), ([(0, 2), (0, 3)], "neighbouring"), ([(1000, 1)], "0..999")],
)
def test_what_is_no_run_is_refused_and_nothing_is_counted(runs: list[Run], problem: str) -> None:
    graph = PhaseGraph.fit(LITTLE)
    with pytest.raises(BadInput, match=problem):
        graph.update(runs)
    assert graph_io.to_json(graph) == graph_io.to_json(PhaseGraph.fit(LITTLE))


def test_a_question_without_a_present_phase_is_refused() -> None:
    graph = PhaseGraph.fit(LITTLE)
    with pytest.raises(BadInput, match="empty history"):
        graph.expected_remaining([])
    with pytest.raises(BadInput, match="phase 9"):
        graph.expected_remaining([(9, 1)])
    with pytest.raises(BadInput, match="no container"):
        PhaseGraph().next_phase([(0, 1)])
    with pytest.raises(NotEnoughData, match="no transition"):
        score(graph, [[(0, 3)]])


def _broken(change: str) -> object:
    document = json.loads(graph_io.to_json(PhaseGraph.fit(LITTLE)))
    exec(change, {"d": document})  # noqa: S102  one line a case
    return document


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("d.pop('start')", "lacks start"),
        ("d['more'] = 1", "unknown field more"),
        ("d['schema'] = 2", "newer"),
        ("d['schema'] = '1'", "schema"),
        ("d['schema'] = True", "schema"),
        ("d['kind'] = 'other'", "kind"),
        ("d['n_phases'] = 3", "3 phases"),
        ("d['n_phases'] = 10**9", "n_phases"),
        ("d['containers'] = 5", "sums to 4"),
        ("d['start']['1'] = 0", "start.1"),
        ("d['start']['01'] = 1", "'01'"),
        ("d['start'] = []", "no JSON object"),
        ("d['contexts']['1:4']['next']['1'] = 1", "to itself"),
        ("d['contexts']['1:4']['next']['3'] = 1.5", "1.5"),
        ("d['contexts']['1:4']['next']['end'] = 1", "5 ends"),
        ("d['contexts']['1:4']['next'] = {}", "empty"),
        ("d['contexts']['1:4']['samples'] = 1", "samples"),
        ("d['contexts']['1:0'] = d['contexts'].pop('1:4')", "no context"),
        ("d['contexts']['1:4 1:4'] = d['contexts']['1:4']", "no context"),
        ("d['contexts']['x'] = d['contexts']['1:4']", "no context"),
        ("d['learned']['strength'] = 0", "learned"),
        ("d['learned']['bandwidth'] = None", "learned"),
        ("d['learned']['weights']['recent'] = 2", "learned"),
        ("d['learned']['weights'].pop('recent')", "lacks recent"),
    ],
)
def test_a_damaged_document_is_refused_with_the_field_named(change: str, says: str) -> None:
    with pytest.raises(BadArtifact, match=says):
        graph_io.from_document(_broken(change))


def test_what_is_no_document_at_all_is_refused() -> None:
    documents: list[object] = [None, [], "text", 3, {}]
    for document in documents:
        with pytest.raises(BadArtifact):
            graph_io.from_document(document)
