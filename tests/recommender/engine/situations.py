"""Situations whose groups need no guard rail, except for what a test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from recommender.engine.group_arrays import GroupArrays
from recommender.engine.shares import SharedNode
from recommender.engine.situation import NO_DOUBT, Situation
from tests.recommender.engine.worked import GIB, NOTHING

NOW_S = 10_000.0
HISTORY = ((0.2, 1 * GIB), (0.6, 2 * GIB), (2.0, 8 * GIB))
CALM: Mapping[str, Any] = {
    "wanted": (0.5, 1.5 * GIB),
    "leading": 0,
    "doubt": NO_DOUBT,
    "silent": False,
    "working_set_bytes": 1 * GIB,
    "cpu_needs_experience": False,
    "probe_cpu_cores": np.nan,
    "headroom_cpu_cores": np.nan,
    "recent_cpu_cores": 0.5,
    "promised": False,
    "from_experience": False,
    "keeps_published_cpu": False,
    "deferred_s": 0.0,
    "evicts": False,
    "keeps_peak": False,
    "kill_floor_bytes": 0.0,
    "youngest_s": 3600.0,
    "resizes_exhausted": (False, False),
}
GROUP: Mapping[str, Any] = {
    "published": NOTHING,
    "established": False,
    "default_estimate": HISTORY,
    "history_days": 1.0,
    "requests": NOTHING,
    "repeats": False,
    "limits_follow": False,
    "cpu_limit_follows": False,
    "applied": True,
    "less_memory_since_s": np.nan,
    "peak_bytes": 1 * GIB,
    "declared_cores": np.nan,
    "shares": False,
}
"""State of a group between steps."""
Row = Mapping[str, Any]


def situation(rows: Sequence[Row], shared: Sequence[SharedNode] = ()) -> Situation:
    """One group per row, each of a VPA of its own unless it says `vpa`; what a row leaves out is calm."""
    assert {field.name for field in fields(Situation)} == {"groups", "now_s", "shared", *CALM}
    assert {name for row in rows for name in row} <= {*CALM, *GROUP, "vpa"}
    arrays = {name: np.array([row.get(name, calm) for row in rows]) for name, calm in CALM.items()}
    groups = GroupArrays()
    groups.grow(len(rows))
    for slot, row in enumerate(rows):
        groups.vpa[slot] = row.get("vpa", -1 - slot)
        for name, calm in GROUP.items():
            getattr(groups, name)[slot] = row.get(name, calm)
    return Situation(groups, NOW_S, shared=shared, **arrays)
