"""Where the graph will be: worked by hand, against the slow twin, calibrated on containers kept out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.kernels.occupancy import chance_to_end, occupancy_by_context
from recommender.phases.sojourns import BUCKETS, Contexts, Foresight, Sojourns, bucket_of
from recommender.records import FloatArray, IntArray
from recommender.sources.sequences import read_sequences
from tests.reference.occupancy import NaiveChain

SEQUENCES = Path(__file__).parents[2] / "data" / "ai4dl" / "dlaas_phase_sequences.parquet"


def table(hazard: FloatArray, followers: FloatArray, lead: int, ahead: int) -> Foresight:
    phases = followers.shape[1]
    occupancy, ends = np.empty((*hazard.shape, phases)), np.empty(hazard.shape)
    occupancy_by_context(hazard, followers, lead, ahead, occupancy)
    chance_to_end(hazard, lead + 1, ends)
    return Foresight(occupancy, ends)


def two_phases(leaves_first: float, leaves_second: float) -> tuple[FloatArray, FloatArray]:
    hazard = np.empty((3, 2, BUCKETS))
    hazard[:, 0], hazard[:, 1] = leaves_first, leaves_second
    return hazard, np.tile([[0.0, 1.0], [1.0, 0.0]], (3, 1, 1))


def test_two_phases_by_hand() -> None:
    # Phase 0 ends with a chance of a half, phase 1 never: 1/2, 1/4, 1/8 are left of it after one, two, three steps.
    found = table(*two_phases(0.5, 0.0), lead=1, ahead=2)
    assert found.occupancy[0, 0, 0] == pytest.approx([(1 / 4 + 1 / 8) / 2, 1 - (1 / 4 + 1 / 8) / 2])
    assert found.occupancy[1, 1, 3] == pytest.approx([0, 1])
    assert found.ends[0, 0, 0] == pytest.approx(3 / 4)
    assert found.ends[1, 1, 0] == 0


def test_what_follows_depends_on_what_was_before() -> None:
    # 0 1 0 2 in each run: after the first 0 comes 1, after a 0 that followed 1 comes 2.
    sojourns = Sojourns.empty(3)
    for _ in range(50):
        sojourns.learn(np.repeat([0, 1, 0, 2], 4))
    followers = sojourns.followers()
    assert followers[0, 0].argmax() == 1
    assert followers[1 + 1, 0].argmax() == 2
    assert followers[0, 0, 1] > 0.9
    assert followers[2, 0, 2] > 0.9


def test_a_phase_that_always_lasts_four_steps_is_about_to_end_then() -> None:
    sojourns = Sojourns.empty(2)
    for _ in range(200):
        sojourns.learn(np.repeat([0, 1] * 5, 4))
    hazard = sojourns.hazard()
    assert hazard[2, 0, 2] == pytest.approx(1, abs=0.05)
    assert hazard[2, 0, 0] < 0.03


def test_contexts_of_a_run_by_hand() -> None:
    contexts = Contexts.of(np.array([2, 2, 0, 2, 2, 2]))
    assert contexts.before.tolist() == [0, 0, 3, 1, 1, 1]
    assert contexts.dwell_steps.tolist() == [1, 2, 1, 1, 2, 3]
    assert contexts.buckets.tolist() == [0, 1, 0, 0, 1, 1]


def test_a_class_leans_on_all_until_it_has_runs_of_its_own() -> None:
    everyone, few, many = Sojourns.empty(2), Sojourns.empty(2), Sojourns.empty(2)
    for _ in range(100):
        everyone.learn(np.repeat([0, 1], 8))
        many.learn(np.repeat([0, 1], 2))
    few.learn(np.repeat([0, 1], 2))
    of_all = everyone.hazard()[0, 0, 1]
    of_few = few.hazard(everyone.hazard())[0, 0, 1]
    of_many = many.hazard(everyone.hazard())[0, 0, 1]
    assert of_all < of_few < of_many
    assert of_many == pytest.approx(1, abs=0.06)


chances = st.floats(0.0, 1.0)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(0, 2), st.integers(1, 3))
def test_it_agrees_with_the_slow_twin(seed: int, lead: int, ahead: int) -> None:
    generator = np.random.default_rng(seed)
    hazard = generator.random((3, 2, 3))
    followers = generator.dirichlet(np.ones(2), (3, 2))
    found, slow = table(hazard, followers, lead, ahead), NaiveChain(hazard, followers)
    for context in np.ndindex(3, 2, 3):
        expected = [slow.occupancy(context, lead, ahead, phase) for phase in range(2)]
        assert found.occupancy[context] == pytest.approx(expected)
        assert found.ends[context] == pytest.approx(slow.ends(context, lead + 1))


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), max_size=8))
def test_every_context_shares_out_all_the_time(runs: list[list[int]]) -> None:
    sojourns = Sojourns.empty(4)
    for run in runs:
        sojourns.learn(np.array(run))
    found = sojourns.foresight(2, 6)
    assert found.occupancy.sum(axis=-1) == pytest.approx(1)
    assert ((found.ends > 0) & (found.ends < 1)).all()
    assert np.diagonal(sojourns.followers(), axis1=1, axis2=2)[:, sojourns.followed.sum(axis=(0, 2)) == 0].max(
        initial=0
    ) == pytest.approx(0)


def kept_out() -> tuple[Sojourns, list[IntArray]]:
    """Two of three containers counted; the others."""
    runs = [np.asarray(phases, np.int64) for phases in read_sequences(SEQUENCES).values()]
    sojourns = Sojourns.empty(int(max(run.max() for run in runs)) + 1)
    for number, run in enumerate(runs):
        if number % 3:
            sojourns.learn(run)
    return sojourns, [run for number, run in enumerate(runs) if number % 3 == 0]


def test_of_all_that_was_said_to_come_with_a_chance_that_share_came() -> None:
    sojourns, others = kept_out()
    lead, ahead = 2, 6
    foresight = sojourns.foresight(lead, ahead)
    said, came, ended_said, ended = [], [], [], []
    for run in others:
        contexts = Contexts.of(run)
        buckets = contexts.buckets
        for row in range(len(run) - lead - ahead):
            place = contexts.before[row], run[row], buckets[row]
            window = run[row + lead + 1 : row + lead + ahead + 1]
            said.append(foresight.occupancy[place])
            came.append(np.bincount(window, minlength=sojourns.n_phases) / ahead)
            ended_said.append(foresight.ends[place])
            ended.append((run[row + 1 : row + lead + 2] != run[row]).any())
    chance, share = np.concatenate(said), np.concatenate(came)
    for low, high in ((0.02, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1.0)):
        chosen = (chance >= low) & (chance < high)
        assert share[chosen].mean() == pytest.approx(chance[chosen].mean(), abs=0.08), (low, high)
    assert np.mean(ended) == pytest.approx(np.mean(ended_said), abs=0.03)


def test_a_plan_provides_for_the_present_phase_while_it_is_not_about_to_end() -> None:
    # Phase 0 lasts forty steps: after twenty of them it is there to stay, although nothing is left of it after a lead
    # of sixty.
    sojourns = Sojourns.empty(2)
    for _ in range(200):
        sojourns.learn(np.array([0] * 40 + [1] * 200))
    seen, provided = sojourns.foresight(60, 12).occupancy, sojourns.to_provide_for(60, 12).occupancy
    grown = 0, 0, int(bucket_of(np.array(20)))
    assert seen[grown][0] < 0.2 and provided[grown][0] > 0.8
    np.testing.assert_array_equal(provided[grown][1], seen[grown][1])
