"""The requests that containers would have by now under the default recommender.

Its updater acts on a pod once any of its requests is outside the recommended bounds, or after half a day, and then sets
all of them. So where CPU is declared much too high, it lowers memory within minutes, however wide the bounds of memory.
"""

from __future__ import annotations

import numpy as np

from recommender.engine.group_arrays import LOWER, TARGET, UPPER, GroupArrays
from recommender.engine.judging import matches_given
from recommender.records import CPU, FloatArray, in_either

POD_LIFETIME_THRESHOLD_S = 12 * 3600.0
"""From this age on the updater may act within the bounds as well (upstream:
`--in-recommendation-bounds-eviction-lifetime-threshold`)."""


def follow_default(groups: GroupArrays, youngest_s: FloatArray) -> None:
    """Bring `GroupArrays.default_requests` up to the latest estimates.

    `youngest_s`, float64 (n,): age of the youngest container of each group; infinite without one. A new container has
    what it declares, or memory as we gave it and the default's CPU.
    """
    estimate, has = groups.default_estimate, groups.default_requests
    starts = in_either(np.isnan(has)) | (youngest_s < groups.youngest_s)
    first = groups.requests.copy()
    first[:, CPU] = np.where(matches_given(first, groups.given), estimate[:, TARGET, CPU], first[:, CPU])
    has[starts] = np.fmax(has, first)[starts]
    outside = in_either((has < estimate[:, LOWER]) | (has > estimate[:, UPPER]))
    acts = outside | ((youngest_s >= POD_LIFETIME_THRESHOLD_S) & ~in_either(np.isnan(estimate[:, TARGET])))
    has[acts] = estimate[acts, TARGET]
    groups.youngest_s[:] = youngest_s
