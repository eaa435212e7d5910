"""What the scheduler is told of a node that a pod must not go to, and writes into the pod's condition.

Constant: a reason that differed from attempt to attempt would have the scheduler try without a pause.
"""

from __future__ import annotations

from recommender.units import format_duration

MEMORY_REASON = "forecast memory would not suffice in the coming cycle"
CPU_REASON = "forecast CPU would fall too short of the pod's demand in the coming cycle"
RESERVED_ELSEWHERE = "another node is reserved for this member of a gang"
RESERVED_FOR_GANG = "what is free is reserved for a gang"


def with_time_limit(reason: str, patience_s: float) -> str:
    """The reason, and how long it is held against a pod.

    Examples
    --------
    >>> with_time_limit(RESERVED_FOR_GANG, 7200.0)
    'what is free is reserved for a gang; it waits 2h at most'
    """
    return f"{reason}; it waits {format_duration(patience_s)} at most"


TEMPORARY_REASONS = (MEMORY_REASON, CPU_REASON, RESERVED_FOR_GANG)
"""Those that will not hold for ever, though nothing in the cluster changes."""
