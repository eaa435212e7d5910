"""What the scheduler is told of a node that a pod must not go to, and writes into the pod's condition.

Constant: a reason with a number or a name in it would differ at every attempt, and have the scheduler try without a
pause.
"""

from __future__ import annotations

MEMORY_REASON = "forecast memory would not suffice in the coming cycle"
CPU_REASON = "forecast CPU would fall too short of the pod's demand in the coming cycle"
ELSEWHERE = "another node is reserved for this member of a gang"
HELD = "what is free is reserved for a gang"

THAT_PASS = (MEMORY_REASON, CPU_REASON, HELD)
"""Those that will not hold for ever, though nothing in the cluster changes."""
