"""The transition graph: what is counted, what it foresees, and its form as JSON."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.errors import BadArtifact, BadInput
from recommender.kernels.occupancy import chance_to_end, occupancy_by_context
from recommender.phases import graph_io
from recommender.phases.graph import DWELL_BUCKETS, MAX_REMAINING_STEPS, Context, PhaseGraph, bucket_of, half_bucket_of
from recommender.phases.runs import Run, runs_of
from recommender.records import FloatArray
from recommender.sources.sequences import read_sequences
from tests.examples import at_most
from tests.fakes.phase_runs import EXAMPLES, SEQUENCES, containers, many
from tests.reference import graph as slow
from tests.reference.occupancy import NaiveChain


def alternating(repeats: int, *labels: int, each: int = 4) -> PhaseGraph:
    """So many containers, each with these phases of the same length."""
    graph = PhaseGraph(1 + max(labels))
    for _ in range(repeats):
        graph.learn([(label, each) for label in labels], ended=False)
    return graph


def test_four_small_containers_are_counted_as_by_hand() -> None:
    graph = PhaseGraph.fit(EXAMPLES)
    edges = graph_io.to_networkx(graph).edges
    assert graph.containers == 4
    assert edges["start", "1"] == {"count": 4, "share": 1.0}
    assert (edges["1", "3"]["count"], edges["1", "2"]["count"]) == (2, 2)
    assert (edges["3 0", "2"]["count"], edges["3 0", "3"]["count"]) == (1, 1)
    assert edges["1 3:4 0:8", "2"]["count"] == 1
    assert edges["2 4:1 2:2", "4"]["count"] == 1
    assert (edges["2", "end"]["share"], edges["2", "4"]["share"]) == (0.6, 0.4)
    assert graph_io.to_networkx(graph).nodes["2"]["samples"] == 44


@settings(max_examples=25)
@given(many, st.booleans())
def test_the_tables_hold_every_sample_once_as_the_slow_twin_counts_them(runs: list[list[Run]], ended: bool) -> None:
    graph = PhaseGraph(4)
    for one in runs:
        graph.learn(one, ended=ended)
    exposed, left, followed = graph.tables
    counted = slow.visits(runs)
    for context in np.ndindex(*exposed.shape):
        assert (exposed[context], left[context]) == counted.get(context, (0.0, 0.0)), context
    assert followed.sum() == left.sum()


@settings(max_examples=20)
@given(many)
def test_what_is_furthest_back_is_forgotten_first_and_the_tables_stay(runs: list[list[Run]]) -> None:
    graph = PhaseGraph.fit(runs, 4)
    shortest = graph.within(0)
    assert all(len(context.phases) <= 2 and len(context.dwells) == 1 for context in shortest.contexts)
    assert (shortest.containers, shortest.starts()) == (graph.containers, graph.starts())
    for before, after in zip(graph.tables, shortest.tables, strict=True):
        np.testing.assert_array_equal(before, after)
    assert graph.within(len(graph.contexts)) is graph


def test_a_visit_seen_live_is_counted_as_one_of_a_recording() -> None:
    live, recorded = PhaseGraph(3), PhaseGraph(3)
    recorded.learn([(0, 9), (2, 4), (1, 1)])
    live.learn_visit(0, 0, 9, 2)
    live.learn_visit(1, 2, 4, 1)
    np.testing.assert_array_equal(live.tables.ended, recorded.tables.ended)
    np.testing.assert_array_equal(live.tables.transitions, recorded.tables.transitions)


@at_most(40)
@given(st.integers(1, 100_000))
def test_two_half_buckets_are_a_bucket(length: int) -> None:
    assert half_bucket_of(length) // 2 == int(bucket_of(np.array(length)))


# -- what it foresees --------------------------------------------------------------------------------------------------


def table(hazard: FloatArray, followers: FloatArray, lead: int, ahead: int) -> tuple[FloatArray, FloatArray]:
    """Occupancy, and the chance that the phase ends before a change is in force."""
    occupancy, ends = np.empty((*hazard.shape, followers.shape[1])), np.empty(hazard.shape)
    occupancy_by_context(hazard, followers, lead, ahead, occupancy)
    chance_to_end(hazard, lead + 1, ends)
    return occupancy, ends


def two_phases(leaves_first: float, leaves_second: float) -> tuple[FloatArray, FloatArray]:
    hazard = np.empty((3, 2, DWELL_BUCKETS))
    hazard[:, 0], hazard[:, 1] = leaves_first, leaves_second
    return hazard, np.tile([[0.0, 1.0], [1.0, 0.0]], (3, 1, 1))


def test_two_phases_by_hand() -> None:
    # Phase 0 ends with a chance of a half, phase 1 never: 1/2, 1/4, 1/8 are left of it after one, two, three steps.
    occupancy, ends = table(*two_phases(0.5, 0.0), lead=1, ahead=2)
    assert occupancy[0, 0, 0] == pytest.approx([(1 / 4 + 1 / 8) / 2, 1 - (1 / 4 + 1 / 8) / 2])
    assert occupancy[1, 1, 3] == pytest.approx([0, 1])
    assert ends[0, 0, 0] == pytest.approx(3 / 4)
    assert ends[1, 1, 0] == 0


def test_what_follows_depends_on_what_was_before() -> None:
    # 0 1 0 2 in each run: after the first 0 comes 1, after a 0 that followed 1 comes 2.
    followers = alternating(50, 0, 1, 0, 2).followers()
    assert followers[0, 0].argmax() == 1
    assert followers[1 + 1, 0].argmax() == 2
    assert followers[0, 0, 1] > 0.9
    assert followers[2, 0, 2] > 0.9


def test_a_phase_that_always_lasts_four_steps_is_about_to_end_then() -> None:
    graph = alternating(200, *[0, 1] * 5)
    hazard, remaining = graph.hazard(), graph.foresight(1, 1).remaining_steps
    assert hazard[2, 0, 2] == pytest.approx(1, abs=0.05)
    assert hazard[2, 0, 0] < 0.03
    assert remaining[2, 0, 2] < 0.1
    assert remaining[2, 0, 0] == pytest.approx(3, abs=0.5)


def test_the_rest_of_a_phase_that_ends_by_chance_is_the_same_at_any_age() -> None:
    graph = PhaseGraph(2)
    for length in np.random.default_rng(4).geometric(0.2, 20_000):
        graph.learn([(0, int(length)), (1, 1)])
    assert graph.foresight(1, 1).remaining_steps[0, 0, :4] == pytest.approx(np.full(4, 4.0), rel=0.1)


def test_a_phase_that_nobody_saw_end_is_not_foretold_to_last_for_thousands_of_years() -> None:
    graph = PhaseGraph(6)
    for _ in range(20):
        graph.learn([(4, 3), (0, 2880)], ended=False)
    for _ in range(60):
        graph.learn([(1, 20), (0, 10), (2, 20)])
    assert graph.foresight(1, 1).remaining_steps.max() <= MAX_REMAINING_STEPS


def test_a_class_leans_on_all_until_it_has_runs_of_its_own() -> None:
    all_classes, few, many = (
        alternating(100, 0, 1, each=8),
        alternating(1, 0, 1, each=2),
        alternating(100, 0, 1, each=2),
    )
    of_all = all_classes.hazard()[0, 0, 1]
    of_few = few.hazard(all_classes)[0, 0, 1]
    of_many = many.hazard(all_classes)[0, 0, 1]
    assert of_all < of_few < of_many
    assert of_many == pytest.approx(1, abs=0.06)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(0, 2), st.integers(1, 3))
def test_occupancy_agrees_with_the_slow_twin(seed: int, lead: int, ahead: int) -> None:
    generator = np.random.default_rng(seed)
    hazard = generator.random((3, 2, 3))
    followers = generator.dirichlet(np.ones(2), (3, 2))
    (occupancy, ends), chain = table(hazard, followers, lead, ahead), NaiveChain(hazard, followers)
    for context in np.ndindex(3, 2, 3):
        expected = [chain.occupancy(context, lead, ahead, phase) for phase in range(2)]
        assert occupancy[context] == pytest.approx(expected)
        assert ends[context] == pytest.approx(chain.ends(context, lead + 1))


@given(st.lists(containers(), max_size=8))
def test_every_context_shares_out_all_the_time(runs: list[list[Run]]) -> None:
    found = PhaseGraph.fit(runs, 4).foresight(2, 6)
    assert found.occupancy.sum(axis=-1) == pytest.approx(1)
    assert ((found.ends > 0) & (found.ends < 1)).all()
    assert np.isfinite(found.remaining_steps).all() and (found.remaining_steps >= 0).all()
    assert found.followers.sum(axis=-1) == pytest.approx(1)
    assert np.diagonal(found.followers, axis1=1, axis2=2) == pytest.approx(0)


def test_of_all_that_was_said_to_come_with_a_chance_that_share_came() -> None:
    runs = [runs_of(phases) for phases in read_sequences(SEQUENCES).values()]
    graph, lead, ahead = PhaseGraph(1 + max(phase for one in runs for phase, _ in one)), 2, 6
    for number, one in enumerate(runs):
        if number % 3:
            graph.learn(one, ended=False)
    foresight = graph.foresight(lead, ahead)
    said, came, ended_said, ended = [], [], [], []
    for one in runs[::3]:
        labels = np.repeat(*np.array(one).T)
        steps = [
            (Context.of([*one[:at], (phase, step)])) for at, (phase, n) in enumerate(one) for step in range(1, n + 1)
        ]
        for row, context in enumerate(steps[: len(labels) - lead - ahead]):
            window = labels[row + lead + 1 : row + lead + ahead + 1]
            said.append(foresight.occupancy[context.place])
            came.append(np.bincount(window, minlength=graph.n_phases) / ahead)
            ended_said.append(foresight.ends[context.place])
            ended.append((labels[row + 1 : row + lead + 2] != labels[row]).any())
    chance, share = np.concatenate(said), np.concatenate(came)
    for low, high in ((0.02, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1.0)):
        chosen = (chance >= low) & (chance < high)
        assert share[chosen].mean() == pytest.approx(chance[chosen].mean(), abs=0.08), (low, high)
    assert np.mean(ended) == pytest.approx(np.mean(ended_said), abs=0.03)


def test_a_plan_provides_for_the_present_phase_while_it_is_not_about_to_end() -> None:
    # Phase 0 lasts forty steps: after twenty of them it is there to stay, although nothing is left of it after a lead
    # of sixty.
    graph = PhaseGraph(2)
    for _ in range(200):
        graph.learn([(0, 40), (1, 200)], ended=False)
    seen, provided = graph.foresight(60, 12).occupancy, graph.foresight_for_plan(60, 12).occupancy
    grown = 0, 0, int(bucket_of(np.array(20)))
    assert seen[grown][0] < 0.2 and provided[grown][0] > 0.8
    np.testing.assert_array_equal(provided[grown][1], seen[grown][1])


# -- its form ----------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(many, st.booleans())
def test_a_graph_comes_back_from_json_exactly(runs: list[list[Run]], ended: bool) -> None:
    graph = PhaseGraph(6)
    for one in runs:
        graph.learn(one, ended=ended)
    text = graph_io.to_json(graph)
    again = graph_io.from_document(json.loads(text))
    assert again.contexts == graph.contexts
    assert graph_io.to_json(again) == text


def test_dot_and_graphml_hold_the_graph() -> None:
    graph = PhaseGraph.fit(EXAMPLES)
    dot = graph_io.to_dot(graph).decode()
    assert '"1" -> "3" [label="0.50"' in dot
    assert '"2" -> "end" [label="0.60"' in dot
    again = nx.parse_graphml(graph_io.to_graphml(graph).decode())
    assert again.edges["3 0", "2"]["count"] == 1
    assert set(again.nodes) == set(graph_io.to_networkx(graph).nodes)


def test_the_unknown_phase_of_a_model_is_named_so() -> None:
    drawn = graph_io.to_networkx(PhaseGraph.fit([[(0, 2), (2, 1), (1, 2)]]), unknown=2)
    assert drawn.edges["0", "unknown"]["count"] == drawn.edges["unknown", "1"]["count"] == 1
    assert "2" not in drawn


def test_unknown_labels_carry_the_last_phase_on() -> None:
    assert runs_of([-1, -1, 2, 2, -1, 3]) == [(2, 3), (3, 1)]
    assert runs_of([-1, -1]) == []
    assert runs_of([]) == []


@pytest.mark.parametrize(
    ("runs", "problem"),
    [([(-1, 3)], "phase -1"), ([(0, 0)], "length 0"), ([(0, 2), (0, 3)], "consecutive"), ([(5, 1)], r"0\.\.4")],
)
def test_what_is_no_run_is_refused_and_nothing_is_counted(runs: list[Run], problem: str) -> None:
    graph = PhaseGraph.fit(EXAMPLES)
    with pytest.raises(BadInput, match=problem):
        graph.learn(runs)
    assert graph_io.to_json(graph) == graph_io.to_json(PhaseGraph.fit(EXAMPLES))


def _broken(change: str) -> object:
    document = json.loads(graph_io.to_json(PhaseGraph.fit(EXAMPLES)))
    exec(change, {"d": document})  # noqa: S102  one line a case
    return document


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("d.pop('n_phases')", "lacks n_phases"),
        ("d['more'] = 1", "unknown field more"),
        ("d['schema'] = 1", "schema is 1"),
        ("d['schema'] = '2'", "schema"),
        ("d['schema'] = True", "schema"),
        ("d['kind'] = 'other'", "kind"),
        ("d['n_phases'] = 3", "3 phases"),
        ("d['n_phases'] = 10**9", "n_phases"),
        ("d['contexts'] = []", "not a JSON object"),
        ("d['contexts']['1:4']['next']['1'] = 1", "to itself"),
        ("d['contexts']['1:4']['next']['3'] = 1.5", "1.5"),
        ("d['contexts']['1:4']['next']['03'] = 1", "'03'"),
        ("d['contexts']['1:4']['next'] = {}", "empty"),
        ("d['contexts']['1:4']['samples'] = 15", "samples"),
        ("d['contexts']['1:0'] = d['contexts'].pop('1:4')", "not a context"),
        ("d['contexts']['1:5'] = d['contexts'].pop('1:4')", "not a context"),
        ("d['contexts']['1:4 1:4'] = d['contexts']['1:4']", "not a context"),
        ("d['contexts']['1 2 3 4:4'] = d['contexts']['1:4']", "not a context"),
        ("d['contexts']['x'] = d['contexts']['1:4']", "not a context"),
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
