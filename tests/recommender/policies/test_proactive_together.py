"""Many containers in one state decide as each would on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recommender.errors import BadArtifact
from recommender.policies.proactive import ProactivePolicy, ProactiveSession
from recommender.policies.proactive_state import ProactiveState
from recommender.policies.proactive_together import decide_together
from recommender.records import Block, ContainerFacts, FloatArray, PhaseTrace
from tests.recommender.live.test_round import MODEL

CYCLE = 40
FACTS = ContainerFacts("main", 15.0, CYCLE)


@pytest.fixture(scope="module")
def policy() -> ProactivePolicy:
    return ProactivePolicy(MODEL)


def samples(seed: int, n: int) -> tuple[FloatArray, Any]:
    """Use, and phases that last a few samples; some samples are missing."""
    chance = np.random.default_rng(seed)
    usage = chance.lognormal(0.0, 1.0, (n, 2)) * (1.0, 1e9)
    usage[chance.random(n) < 0.1] = np.nan
    return usage, np.repeat(chance.integers(-1, 4, n), 5)[:n]


def block(usage: FloatArray, labels: Any) -> Block:
    n = len(usage)
    return Block(usage, np.arange(n), np.array([n]), PhaseTrace(labels, 4))


def test_decisions_of_many_are_those_of_each_also_when_there_must_be_more_room(policy: ProactivePolicy) -> None:
    state = ProactiveState(policy.demand.cycle_samples, slots=2)
    together = [ProactiveSession(policy, FACTS, state, slot) for slot in (1, 0)]
    apart = [policy.start(FACTS) for _ in range(4)]
    for turn, lengths in enumerate([(7, 3), (1, 60), (5, 5, 9, 2), (4, 4, 1, 30)]):
        if len(lengths) > len(together):
            state.grow(5)
            together += [ProactiveSession(policy, FACTS, state, slot) for slot in (4, 2)]
        given = [samples(10 * turn + number, length) for number, length in enumerate(lengths)]
        usage, labels = (np.concatenate(parts) for parts in zip(*given, strict=True))
        decided = decide_together(together, np.array(lengths), usage, labels)
        alone = [session.advance(block(*own))[0] for session, own in zip(apart, given, strict=False)]
        np.testing.assert_allclose(decided, alone, rtol=1e-12)
        for session, other in zip(together, apart, strict=False):
            assert session.explain() == other.explain()
            for name, part in session.remembered().items():
                np.testing.assert_array_equal(part, other.remembered()[name])


def test_a_place_that_is_free_again_knows_nothing_of_who_was_there(policy: ProactivePolicy) -> None:
    state = ProactiveState(policy.demand.cycle_samples, slots=1)
    ProactiveSession(policy, FACTS, state, 0).advance(block(*samples(1, 50)))
    state.reset(0)
    session, fresh = ProactiveSession(policy, FACTS, state, 0), policy.start(FACTS)
    assert session.rule() == fresh.rule() == "no decision yet"
    np.testing.assert_array_equal(session.advance(block(*samples(2, 9))), fresh.advance(block(*samples(2, 9))))


def test_what_does_not_fit_is_refused_and_changes_nothing(policy: ProactivePolicy) -> None:
    session = policy.start(FACTS)
    session.advance(block(*samples(3, 9)))
    kept = {name: part.copy() for name, part in session.remembered().items()}
    for name, broken in {"ring": np.zeros((3, 2)), "levels": None, "counts": "x", "ledgers": []}.items():
        with pytest.raises(BadArtifact):
            session.restore({**{part: np.zeros_like(whole) for part, whole in kept.items()}, name: broken})
        for part, whole in session.remembered().items():
            np.testing.assert_array_equal(whole, kept[part])
