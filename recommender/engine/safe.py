"""What may stand while nobody watches: at the end of a process, in place of a passing phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recommender.engine.band import held, in_whole_units
from recommender.engine.group_arrays import LOWER, UPPER
from recommender.engine.groups import Groups
from recommender.engine.keys import Running
from recommender.engine.options import Options
from recommender.kernels.histogram import ESTIMATION
from recommender.policies.histogram import Estimate
from recommender.records import MEMORY

OLD_S = 10 * 3600.0
"""Pods that are older than twelve hours are updated whatever the bounds say: a tenth of difference is enough."""


def safe_value(
    groups: Groups, slot: int, running: Sequence[Running], now_s: float, options: Options
) -> Estimate | None:
    """The default recommender's upper bound as target, up to what was ever used and its margin.

    A passing phase must not be what pods are made with while nobody watches. Those that run go on with what they have:
    the bounds hold it, or the next process would have to take back what this one has made of them.

    Parameters
    ----------
    running
        The containers that are there.

    Returns
    -------
    None where no less than that stands published, or so little less that an update would not be worth it; and where a
    container is so old that it would be updated all the same.
    """
    arrays = groups.arrays
    before, live = arrays.published[slot], [one for one in running if not one.finished]
    old = any(one.started_s is not None and now_s - one.started_s >= OLD_S for one in live)
    groups.ask_histograms(np.array([slot]), now_s)
    known = arrays.known[slot]
    if old or np.isnan(before).any() or np.isnan(known).any():
        return None
    used = groups.most_used(slot) * (1.0 + ESTIMATION.margin)
    most = np.fmin(known[UPPER], np.fmax(used, np.nan_to_num(arrays.had[slot])))
    most[MEMORY] = max(most[MEMORY], float(arrays.kill_floor(now_s)[slot]))
    target = in_whole_units(np.fmax(most, before)[np.newaxis])
    if (held(target, before[np.newaxis], options.band) == before).all():
        return None
    has = np.array([one.requests for one in live]).reshape(-1, 2)
    lower = np.fmin.reduce(np.concatenate([has, known[[LOWER]], before[np.newaxis], target]), axis=0)
    upper = np.fmax.reduce(np.concatenate([has, known[[UPPER]], target]), axis=0)
    return Estimate(lower, target[0], upper)
