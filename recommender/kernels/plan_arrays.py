"""What the kernels of the plan share: what was learned, what is weighed, and where each container stands.

Amounts are in floors (the least that is ever allocated), and levels are the natural logarithm of an amount plus one: a
container ten times as large as any seen differs from it by an offset, and an idle one by nothing.

Kernels read what they need of these tuples before they branch, and divide by NumPy's rules, which have no branch that
raises: Numba counts a reference to every array of a tuple that lives on behind a branch, which takes longer than the
arithmetic.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EXPERTS = 3
PLAN, LATEST, LONGER = range(EXPERTS)
"""Who may decide for a container: the plan by phases, and two rules that follow its own use, of its latest samples and
of more of them."""

BLOCKS = 4
"""Of samples, as long as `PlanArrays.recent`: the largest of each is kept."""

LATE = 2
"""Samples from a decision until it is in force, where experts are compared."""


class Expected(NamedTuple):
    """What phases are expected, and what each needs of the two resources.

    Attributes
    ----------
    occupancy
        float64 (tables, 1 + phases, phases, buckets, phases), see `occupancy_by_context`; one table for each class.
    staying
        float64 (2, phases, STEPS): share of uses later in the same visit that are above the level now by a difference.
    visiting
        float64 (2, phases, STEPS): share of uses in the phase that are above a level.
    returning
        float64 (2, phases, STEPS): share of uses in the phase above the container's own mean level of it by so much.
    largest
        float64 (2, 3, phases): the largest of each, in this order.
    mean
        float64 (2,): mean use of all that was learned from, in floors.
    credit
        float64 (tables,): the plan has the say until a rule would have saved so many samples of what the plan
        asks for.
    """

    occupancy: NDArray[np.float64]
    staying: NDArray[np.float64]
    visiting: NDArray[np.float64]
    returning: NDArray[np.float64]
    largest: NDArray[np.float64]
    mean: NDArray[np.float64]
    credit: NDArray[np.float64]


class Weights(NamedTuple):
    """What the plan weighs.

    Attributes
    ----------
    price
        float64 (2,): of all the time in violation, in multiples of the container's mean use.
    target
        float64 (2,): share of samples that may violate.
    resize
        Price of a resize, as a share of the new allocation.
    changes_per_sample
        Budget of resizes.
    tolerance
        Use above allocation x this is a violation.
    """

    price: NDArray[np.float64]
    target: NDArray[np.float64]
    resize: float
    changes_per_sample: float
    tolerance: float


class PlanArrays(NamedTuple):
    """Where each container stands, by slot, with the resources that are decided for it: two, or CPU alone.

    Attributes
    ----------
    phase, before, dwell
        int64 (n,): phase now, the one before (0: none, else phase + 1), and samples in it; 0 before the first.
    samples
        int64 (n,): how many there were.
    total
        float64 (n, resources): their sum, in floors.
    recent
        float64 (n, r, resources): the latest, whose mean is the level now.
    peaks
        float64 (n, BLOCKS, resources): the largest of the last r or fewer samples, of the r before, and so on: a ring.
    own_sum, own_samples
        float64 (n, resources, phases) and (n, phases): sum of its levels in each phase, and how many.
    asked
        float64 (n, EXPERTS, resources): what each expert decided last; NaN before that.
    correction, gain, streak
        float64 (n, EXPERTS, resources): see `guarantee.held`.
    budget
        float64 (n, EXPERTS, resources): resizes that are left to it.
    lately
        float64 (n, LATE, EXPERTS, resources): what it had decided before the latest samples.
    record
        float64 (n, EXPERTS, resources): what each would have cost it lately, in floors.
    chosen
        int64 (n, resources): whose decision stands.
    """

    phase: NDArray[np.int64]
    before: NDArray[np.int64]
    dwell: NDArray[np.int64]
    samples: NDArray[np.int64]
    total: NDArray[np.float64]
    recent: NDArray[np.float64]
    peaks: NDArray[np.float64]
    own_sum: NDArray[np.float64]
    own_samples: NDArray[np.float64]
    asked: NDArray[np.float64]
    correction: NDArray[np.float64]
    gain: NDArray[np.float64]
    streak: NDArray[np.float64]
    budget: NDArray[np.float64]
    lately: NDArray[np.float64]
    record: NDArray[np.float64]
    chosen: NDArray[np.int64]
