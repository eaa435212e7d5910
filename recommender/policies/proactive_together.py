"""`phase.proactive` for many containers at once: for one the arithmetic is nothing, and the calls are everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recommender.kernels import correction
from recommender.kernels import past as facts_of
from recommender.policies.proactive import Foreseen, ProactivePolicy, ProactiveSession
from recommender.records import FloatArray, IntArray


def decide_together(
    sessions: Sequence[ProactiveSession], numbers: IntArray, usage: FloatArray, labels: IntArray
) -> FloatArray:
    """One decision of each of many containers of one policy: what `advance` would return, in a few calls for all.

    All of it or nothing: a session has taken in its samples only when this returns.

    Parameters
    ----------
    sessions
        That share their state.
    numbers
        int64 (m,): how many samples each has that its session has not seen.
    usage, labels
        float64 (n, 2) and int64 (n,): use and phase of these samples, those of one container side by side.

    Returns
    -------
    float64 (m, 2)
        Cores and bytes.
    """
    number, borders, policy, state = len(sessions), _borders(numbers), sessions[0].policy, sessions[0].state
    slots = np.array([session.slot for session in sessions])
    past, pasts, ledgers = (
        np.empty((number, facts_of.N_PAST)),
        [part[slots] for part in state.past],
        state.ledgers[slots],
    )
    facts_of.read_each(usage, labels, borders, facts_of.Past(*pasts), past)
    moments, bounds, outcomes = np.empty(number), np.empty((number, 2, 2)), np.empty((number, 2, 3))
    for workload, found in _by_class(sessions).items():
        rows = np.array(found)
        begins, lengths = borders[:-1][rows], np.diff(borders)[rows]
        foreseen = policy.foresee(past[rows], workload)
        own = _borders(lengths)
        used = usage[np.repeat(begins - own[:-1], lengths) + np.arange(own[-1])]
        outcomes[rows], ledgers[rows] = _decided(policy, used, own, foreseen, ledgers[rows])
        moments[rows] = policy.demand.leaf_moments[foreseen.leaves].mean(axis=1)
        bounds[rows] = foreseen.bounds.transpose(1, 0, 2)
    for mine, given in zip(state.past, pasts, strict=True):
        mine[slots] = given
    state.ledgers[slots], state.facts[slots], state.moments[slots] = ledgers, past, moments
    state.bounds[slots], state.outcomes[slots] = bounds, outcomes
    allocations: FloatArray = outcomes[:, :, 0].copy()
    return allocations


def _decided(
    policy: ProactivePolicy, usage: FloatArray, borders: IntArray, foreseen: Foreseen, ledgers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """One decision of each: float64 (m, 2, 3), the outcomes (see `Reasons`), and float64 (m, 2, N_LEDGER), ledgers."""
    outcomes, after = np.empty((2, len(ledgers), 3)), np.ascontiguousarray(ledgers.transpose(1, 0, 2))
    for resource in range(2):
        correction.decide_each(
            np.ascontiguousarray(usage[:, resource]),
            borders,
            foreseen.pooled[resource],
            foreseen.references[resource],
            foreseen.bounds[resource],
            policy.grids[resource],
            (policy.prices[resource], policy.demand.fairness),
            policy.pace,
            after[resource],
            outcomes[resource],
        )
    return outcomes.transpose(1, 0, 2), after.transpose(1, 0, 2)


def _borders(numbers: IntArray) -> IntArray:
    """int64 (m + 1,): where the samples of each begin, and the end of all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers)])


def _by_class(sessions: Sequence[ProactiveSession]) -> dict[str | None, list[int]]:
    """Which are of each class that the model knows; None for all others."""
    rows: dict[str | None, list[int]] = {}
    for row, session in enumerate(sessions):
        workload = session.container.workload
        rows.setdefault(workload if session.policy.demand.runs.knows(workload) else None, []).append(row)
    return rows
