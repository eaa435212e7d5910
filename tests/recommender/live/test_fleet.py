"""The live containers decide as a replay of the same samples would."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.live.fleet.counts import Counts
from recommender.live.fleet.fleet import Fleet
from recommender.live.fleet.member import Instance, Member, Newcomer, Sample
from recommender.policies.histogram import HistogramSession
from recommender.policies.proactive import ProactivePolicy
from recommender.records import Block, ContainerFacts, UsageSeries
from tests.recommender.live.test_round import MODEL

CYCLE = 30
A, B = Instance("ns", "uid-a", "main"), Instance("ns", "uid-b", "main")


def welcome(_: Instance) -> Newcomer:
    return Newcomer(None, HistogramSession())


def walk(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.random(n) < 0.05)
    levels = np.column_stack([rng.lognormal(-1, 1, n + 1)[steps], rng.lognormal(19, 0.5, n + 1)[steps]])
    return levels * rng.lognormal(0, 0.02, (n, 2))


def feed(fleet: Fleet, instance: Instance, usage: np.ndarray, start_s: float = 0.0, step_s: float = 1.0) -> None:
    for t, (cpu, memory) in enumerate(usage):
        if not np.isnan(cpu):
            fleet.observe([(instance, Sample(start_s + t * step_s, cpu, memory))])


def test_decisions_are_those_of_the_policy_on_the_whole_series_cut_at_the_same_places() -> None:
    usage = walk(1, 100)
    fleet = Fleet(MODEL, 1.0, CYCLE, welcome)
    at, said = [], []
    for t, (cpu, memory) in enumerate(usage):
        fleet.observe([(A, Sample(t, cpu, memory))])
        for member in fleet.due(t):
            at.append(t + 1)
            said.append(fleet.decide(member, t).allocation)
    series = UsageSeries("main", np.arange(100), 1.0, usage)
    session = ProactivePolicy(MODEL).start(ContainerFacts("main", 1.0, CYCLE))
    block = Block(usage, series.timestamps, np.array(at), MODEL.detector.trace(series))
    np.testing.assert_allclose(said, session.advance(block))
    assert at[0] == MODEL.detector.lag + 1
    assert max(np.diff(at)) <= CYCLE


def test_two_containers_do_not_disturb_each_other() -> None:
    alone, together = Fleet(MODEL, 1.0, CYCLE, welcome), Fleet(MODEL, 1.0, CYCLE, welcome)
    first, second = walk(2, 60), walk(3, 60)
    feed(alone, A, first)
    for t in range(60):
        together.observe([(B, Sample(t, *second[t])), (A, Sample(t, *first[t]))])
    assert [m.phase for m in together if m.instance == A] == [m.phase for m in alone]
    np.testing.assert_array_equal(together.recent(together.members[A]), alone.recent(alone.members[A]))


def test_a_missed_sample_is_a_gap_and_a_late_one_is_dropped() -> None:
    fleet = Fleet(MODEL, 15.0, CYCLE, welcome)
    for t in (0, 15, 45):
        assert fleet.observe([(A, Sample(t, 1.0, 1e9))]) == [fleet.members[A]]
    assert fleet.observe([(A, Sample(30, 1.0, 1e9))]) == []
    rows = fleet.recent(fleet.members[A])
    assert np.isnan(rows[:, 0]).tolist() == [False, False, True, False]


def test_two_samples_of_one_cell_count_as_the_larger() -> None:
    fleet = Fleet(MODEL, 15.0, CYCLE, welcome)
    assert len(fleet.observe([(A, Sample(1, 1.0, 3e9)), (A, Sample(9, 2.0, 1e9))])) == 1
    fleet.observe([(A, Sample(14, 0.5, 4e9))])
    assert fleet.recent(fleet.members[A]).tolist() == [[2.0, 4e9]]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 3), st.floats(0.01, 4.0)), min_size=1, max_size=60))
def test_what_comes_at_once_counts_as_what_comes_one_by_one(told: list[tuple[int, int, float]]) -> None:
    """Of several containers and cells, with gaps; of each cell one sample."""
    known = {(cell, who): cores for cell, who, cores in told}
    placed = [
        (Instance("ns", f"uid-{who}", "main"), Sample(cell * 15.0, cores, cores * 1e9))
        for (cell, who), cores in sorted(known.items())
    ]
    together, apart = Fleet(MODEL, 15.0, 2, welcome), Fleet(MODEL, 15.0, 2, welcome)
    fresh = together.observe(placed)
    assert [member.instance for member in fresh] == [instance for instance, _ in placed]
    for one in placed:
        apart.observe([one])
    assert [_known(together, member) for member in together] == [_known(apart, member) for member in apart]


def _known(fleet: Fleet, member: Member) -> list[object]:
    counted = [getattr(fleet.counts, name)[member.slot].item() for name in Counts.__annotations__]
    usage, labels = fleet.rows.latest(member.slot, fleet.rows.width)
    rows = np.nan_to_num(usage, nan=-1.0).tolist(), labels.tolist()
    return [member.instance, member.phase, member.previous_phase, member.since_cell, counted, rows]


def test_what_is_not_a_number_is_no_sample() -> None:
    fleet = Fleet(MODEL, 15.0, CYCLE, welcome)
    assert fleet.observe([(A, Sample(0, float("nan"), 1e9))]) == []
    assert not fleet.members


def test_a_container_silent_for_long_starts_anew() -> None:
    fleet = Fleet(MODEL, 1.0, CYCLE, welcome)
    feed(fleet, A, walk(4, 50))
    fleet.observe([(A, Sample(50 + 10 * CYCLE, 1.0, 1e9))])
    assert fleet.counts.samples[fleet.members[A].slot] == 1


def test_a_place_left_free_is_used_again_without_memory_of_who_was_there() -> None:
    fleet = Fleet(MODEL, 1.0, CYCLE, welcome)
    for number in range(200):
        instance = Instance("ns", f"uid-{number}", "main")
        feed(fleet, instance, walk(number, 8), start_s=8.0 * number)
        fleet.remove([instance])
    feed(fleet, A, walk(7, 8))
    fresh = Fleet(MODEL, 1.0, CYCLE, welcome)
    feed(fresh, A, walk(7, 8))
    assert fleet.members[A].phase == fresh.members[A].phase
    np.testing.assert_array_equal(fleet.recent(fleet.members[A]), fresh.recent(fresh.members[A]))
    assert len(fleet.rows) == 16


def test_a_decision_asked_for_late_is_made_from_all_rows_although_few_are_kept() -> None:
    usage = walk(8, 95)
    short = Fleet(MODEL, 1.0, 5, welcome)
    feed(short, A, usage)
    late = short.decide(short.members[A], 95.0).allocation
    series = UsageSeries("main", np.arange(95), 1.0, usage)
    session = ProactivePolicy(MODEL).start(ContainerFacts("main", 1.0, 5))
    whole = Block(usage, series.timestamps, np.array([95]), MODEL.detector.trace(series))
    np.testing.assert_allclose(late, session.advance(whole)[0])


def test_a_container_that_goes_leaves_its_whole_history() -> None:
    history = HistogramSession()
    fleet = Fleet(MODEL, 1.0, 5, lambda _: Newcomer(None, history))
    feed(fleet, A, walk(8, 43))
    fleet.remove([A])
    alone = HistogramSession()
    alone.advance(Block(walk(8, 43), np.arange(43), np.empty(0, np.int64)))
    np.testing.assert_array_equal(history.estimate().target, alone.estimate().target)
    assert history.confidence() == alone.confidence()
