"""The transition graph: its counts, its foresight, and its conversion to JSON, DOT and GraphML."""

from __future__ import annotations

import json
import tracemalloc

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import BadArtifact
from recommender.base.records import FloatArray
from recommender.kernels.occupancy import chance_to_end, occupancy_by_context
from recommender.phases import graph_io
from recommender.phases.graph import (
    DWELL_BUCKETS,
    MAX_PHASE,
    MAX_REMAINING_STEPS,
    Context,
    PhaseGraph,
    Run,
    bucket_of,
    half_bucket_of,
    runs_of,
)
from recommender.sources.sequences import read_sequences
from tests.examples import at_most
from tests.fakes.phase_runs import EXAMPLES, SEQUENCES, containers, many
from tests.reference import graph as reference
from tests.reference.occupancy import NaiveChain


def alternating(repeats: int, *labels: int, each: int = 4) -> PhaseGraph:
    """A graph of `repeats` containers with these phases, `each` samples long."""
    graph = PhaseGraph(1 + max(labels))
    for _ in range(repeats):
        graph.learn([(label, each) for label in labels], ended=False)
    return graph


def test_counts_of_four_small_containers_match_those_by_hand() -> None:
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


def test_a_graph_of_a_thousand_phases_is_fitted_and_written_without_tables_of_gigabytes() -> None:
    tracemalloc.start()
    graph_io.to_json(PhaseGraph.fit([[(0, 5), (MAX_PHASE, 2), (7, 1)]]))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2**20


@settings(max_examples=25)
@given(many, st.booleans())
def test_the_tables_count_every_sample_once_as_the_reference_does(runs: list[list[Run]], ended: bool) -> None:
    graph = PhaseGraph(4)
    for one in runs:
        graph.learn(one, ended=ended)
    exposed, left, followed = graph.tables
    counted = reference.visits(runs)
    for context in np.ndindex(*exposed.shape):
        assert (exposed[context], left[context]) == counted.get(context, (0.0, 0.0)), context
    assert followed.sum() == left.sum()


@settings(max_examples=20)
@given(many)
def test_a_limit_of_contexts_drops_the_oldest_phases_and_keeps_the_tables(runs: list[list[Run]]) -> None:
    graph = PhaseGraph.fit(runs, 4)
    shortest = graph.within(0)
    assert all(len(context.phases) <= 2 and len(context.dwells) == 1 for context in shortest.contexts)
    assert (shortest.containers, shortest.starts()) == (graph.containers, graph.starts())
    for before, after in zip(graph.tables, shortest.tables, strict=True):
        np.testing.assert_array_equal(before, after)
    assert graph.within(len(graph.contexts)) is graph


def test_a_live_visit_counts_like_a_recorded_one() -> None:
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


# -- foresight ---------------------------------------------------------------------------------------------------------


def table(hazard: FloatArray, followers: FloatArray, lead: int, ahead: int) -> tuple[FloatArray, FloatArray]:
    """Occupancy, and the probability that the phase ends before a change takes effect."""
    occupancy, ends = np.empty((*hazard.shape, followers.shape[1])), np.empty(hazard.shape)
    occupancy_by_context(hazard, followers, lead, ahead, occupancy)
    chance_to_end(hazard, lead + 1, ends)
    return occupancy, ends


def two_phases(leaves_first: float, leaves_second: float) -> tuple[FloatArray, FloatArray]:
    hazard = np.empty((3, 2, DWELL_BUCKETS))
    hazard[:, 0], hazard[:, 1] = leaves_first, leaves_second
    return hazard, np.tile([[0.0, 1.0], [1.0, 0.0]], (3, 1, 1))


def test_occupancy_of_two_phases_matches_a_calculation_by_hand() -> None:
    # Phase 0 ends with probability 1/2, phase 1 never: 1/2, 1/4, 1/8 of it remain after one, two, three steps.
    occupancy, ends = table(*two_phases(0.5, 0.0), lead=1, ahead=2)
    assert occupancy[0, 0, 0] == pytest.approx([(1 / 4 + 1 / 8) / 2, 1 - (1 / 4 + 1 / 8) / 2])
    assert occupancy[1, 1, 3] == pytest.approx([0, 1])
    assert ends[0, 0, 0] == pytest.approx(3 / 4)
    assert ends[1, 1, 0] == 0


def test_the_next_phase_depends_on_the_previous_one() -> None:
    # 0 1 0 2 in each run: after the first 0 comes 1, after a 0 that followed 1 comes 2.
    followers = alternating(50, 0, 1, 0, 2).followers()
    assert followers[0, 0].argmax() == 1
    assert followers[1 + 1, 0].argmax() == 2
    assert followers[0, 0, 1] > 0.9
    assert followers[2, 0, 2] > 0.9


def test_a_phase_that_always_lasts_four_steps_is_expected_to_end_then() -> None:
    graph = alternating(200, *[0, 1] * 5)
    hazard, remaining = graph.hazard(), graph.remaining_steps()
    assert hazard[2, 0, 2] == pytest.approx(1, abs=0.05)
    assert hazard[2, 0, 0] < 0.03
    assert remaining[2, 0, 2] < 0.1
    assert remaining[2, 0, 0] == pytest.approx(3, abs=0.5)


def test_the_remaining_time_of_a_memoryless_phase_is_the_same_at_any_age() -> None:
    graph = PhaseGraph(2)
    for length in np.random.default_rng(4).geometric(0.2, 20_000):
        graph.learn([(0, int(length)), (1, 1)])
    assert graph.remaining_steps()[0, 0, :4] == pytest.approx(np.full(4, 4.0), rel=0.1)


def test_the_remaining_time_of_a_phase_never_seen_to_end_is_bounded() -> None:
    graph = PhaseGraph(6)
    for _ in range(20):
        graph.learn([(4, 3), (0, 2880)], ended=False)
    for _ in range(60):
        graph.learn([(1, 20), (0, 10), (2, 20)])
    assert graph.remaining_steps().max() <= MAX_REMAINING_STEPS


def test_a_class_with_few_runs_is_shrunk_towards_all_classes() -> None:
    all_classes, few, many = (
        alternating(100, 0, 1, each=8),
        alternating(1, 0, 1, each=2),
        alternating(100, 0, 1, each=2),
    )
    hazard_of_all = all_classes.hazard()[0, 0, 1]
    hazard_of_few = few.hazard(all_classes)[0, 0, 1]
    hazard_of_many = many.hazard(all_classes)[0, 0, 1]
    assert hazard_of_all < hazard_of_few < hazard_of_many
    assert hazard_of_many == pytest.approx(1, abs=0.06)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(0, 2), st.integers(1, 3))
def test_occupancy_agrees_with_the_reference(seed: int, lead: int, ahead: int) -> None:
    generator = np.random.default_rng(seed)
    hazard = generator.random((3, 2, 3))
    followers = generator.dirichlet(np.ones(2), (3, 2))
    (occupancy, ends), chain = table(hazard, followers, lead, ahead), NaiveChain(hazard, followers)
    for context in np.ndindex(3, 2, 3):
        expected = [chain.occupancy(context, lead, ahead, phase) for phase in range(2)]
        assert occupancy[context] == pytest.approx(expected)
        assert ends[context] == pytest.approx(chain.ends(context, lead + 1))


@given(st.lists(containers(), max_size=8))
def test_occupancy_and_followers_sum_to_one_in_every_context(runs: list[list[Run]]) -> None:
    graph = PhaseGraph.fit(runs, 4)
    foresight, (occupancy, _) = graph.foresight(2, 6), table(graph.hazard(), graph.followers(), 2, 6)
    assert occupancy.sum(axis=-1) == pytest.approx(1)
    assert ((foresight.ends > 0) & (foresight.ends < 1)).all()
    assert np.isfinite(foresight.remaining_steps).all() and (foresight.remaining_steps >= 0).all()
    assert foresight.followers.sum(axis=-1) == pytest.approx(1)
    assert np.diagonal(foresight.followers, axis1=1, axis2=2) == pytest.approx(0)


def test_predicted_occupancy_and_ends_are_calibrated() -> None:
    runs = [runs_of(phases) for phases in read_sequences(SEQUENCES).values()]
    graph, lead, ahead = PhaseGraph(1 + max(phase for one in runs for phase, _ in one)), 2, 6
    for number, one in enumerate(runs):
        if number % 3:
            graph.learn(one, ended=False)
    occupancy, ends = table(graph.hazard(), graph.followers(), lead, ahead)
    predicted, observed, predicted_ends, observed_ends = [], [], [], []
    for one in runs[::3]:
        labels = np.repeat(*np.array(one).T)
        steps = [
            (Context.of([*one[:at], (phase, step)])) for at, (phase, n) in enumerate(one) for step in range(1, n + 1)
        ]
        for row, context in enumerate(steps[: len(labels) - lead - ahead]):
            window = labels[row + lead + 1 : row + lead + ahead + 1]
            predicted.append(occupancy[context.place])
            observed.append(np.bincount(window, minlength=graph.n_phases) / ahead)
            predicted_ends.append(ends[context.place])
            observed_ends.append((labels[row + 1 : row + lead + 2] != labels[row]).any())
    probability, share = np.concatenate(predicted), np.concatenate(observed)
    for low, high in ((0.02, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1.0)):
        chosen = (probability >= low) & (probability < high)
        assert share[chosen].mean() == pytest.approx(probability[chosen].mean(), abs=0.08), (low, high)
    assert np.mean(observed_ends) == pytest.approx(np.mean(predicted_ends), abs=0.03)


def test_a_plan_provides_for_the_present_phase_until_it_is_about_to_end() -> None:
    # Phase 0 lasts 40 steps: after 20 of them a plan still provides for it, although it is over after a lead of 60.
    graph = PhaseGraph(2)
    for _ in range(200):
        graph.learn([(0, 40), (1, 200)], ended=False)
    plain, provided = table(graph.hazard(), graph.followers(), 60, 12)[0], graph.foresight(60, 12).occupancy
    context = 0, 0, int(bucket_of(np.array(20)))
    assert plain[context][0] < 0.2 and provided[context][0] > 0.8
    np.testing.assert_array_equal(provided[context][1], plain[context][1])


# -- conversion --------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(many, st.booleans())
def test_a_graph_is_restored_from_json_exactly(runs: list[list[Run]], ended: bool) -> None:
    graph = PhaseGraph(6)
    for one in runs:
        graph.learn(one, ended=ended)
    text = graph_io.to_json(graph)
    restored = graph_io.from_document(json.loads(text))
    assert restored.contexts == graph.contexts
    assert graph_io.to_json(restored) == text


def test_dot_and_graphml_hold_the_graph() -> None:
    graph = PhaseGraph.fit(EXAMPLES)
    dot = graph_io.to_dot(graph).decode()
    assert '"1" -> "3" [label="0.50"' in dot
    assert '"2" -> "end" [label="0.60"' in dot
    restored = nx.parse_graphml(graph_io.to_graphml(graph).decode())
    assert restored.edges["3 0", "2"]["count"] == 1
    assert set(restored.nodes) == set(graph_io.to_networkx(graph).nodes)


def test_the_unknown_phase_of_a_model_is_drawn_as_unknown() -> None:
    drawn = graph_io.to_networkx(PhaseGraph.fit([[(0, 2), (2, 1), (1, 2)]]), unknown=2)
    assert drawn.edges["0", "unknown"]["count"] == drawn.edges["unknown", "1"]["count"] == 1
    assert "2" not in drawn


def test_unknown_labels_continue_the_last_phase() -> None:
    assert runs_of([-1, -1, 2, 2, -1, 3]) == [(2, 3), (3, 1)]
    assert runs_of([-1, -1]) == []
    assert runs_of([]) == []


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_a_damaged_document_is_refused_with_the_field_named(change: str, message: str) -> None:
    document = json.loads(graph_io.to_json(PhaseGraph.fit(EXAMPLES)))
    exec(change, {"d": document})  # noqa: S102  one line a case
    with pytest.raises(BadArtifact, match=message):
        graph_io.from_document(document)


@pytest.mark.parametrize("document", [None, [], "text", 3, {}], ids=str)
def test_json_that_is_not_a_graph_is_refused(document: object) -> None:
    with pytest.raises(BadArtifact):
        graph_io.from_document(document)
