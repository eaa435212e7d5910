"""Reasons for refusing a node, which the scheduler writes into the pod's condition.

Constant texts: if the reason changed between attempts, the scheduler would retry without a pause.
"""

from __future__ import annotations

from recommender.units import format_duration

MEMORY_REASON = "forecast memory exceeds the limit in the coming cycle"
CPU_REASON = "forecast CPU shortage exceeds the limit in the coming cycle"
RESERVED_ELSEWHERE = "another node is reserved for this gang member"
RESERVED_FOR_GANG = "free capacity is reserved for a gang"


def with_time_limit(reason: str, patience_s: float) -> str:
    """The reason, and how long a pod waits for it at most.

    >>> with_time_limit(RESERVED_FOR_GANG, 7200.0)
    'free capacity is reserved for a gang; the pod waits at most 2h'
    """
    return f"{reason}; the pod waits at most {format_duration(patience_s)}"


TEMPORARY_REASONS = (MEMORY_REASON, CPU_REASON, RESERVED_FOR_GANG)
"""Reasons that expire even if nothing in the cluster changes."""
