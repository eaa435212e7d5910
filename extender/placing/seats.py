"""Nodes reserved for members of gangs: a member goes to its own, and what others need must be left beside it.

`phasewise controller` decides for all members at once and writes each one's node into an annotation before it opens any
gate. The watch brings it here, after a restart as well, so the two processes share nothing but the pods. The extender
holds the seat until the pod is bound, asks again, or `SEAT_S` is over; the member itself is let to its seat alone as
long as the scheduler has it among the nodes that are left, and is judged like any pod when it has not. No forecast
keeps a member from its seat: a tight node is better than half a gang.

Held against pods that pass through this extender; what others bind is not known before the watch shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.pods.pod import SEAT_ANNOTATION, Pod
from extender.reasons import ELSEWHERE, HELD
from extender.view.state import ClusterState

ROUNDING = 1e-9


def elsewhere(pod: Pod, names: Sequence[str]) -> dict[str, str] | None:
    """Node -> why not, for all but the pod's own seat; None when it has none among them."""
    seat = pod.words.get(SEAT_ANNOTATION, "")
    return {name: ELSEWHERE for name in names if name != seat} if seat and seat in names else None


def held_for_others(pod: Pod, names: Sequence[str], state: ClusterState) -> dict[str, str]:
    """Node -> why not, where the pod's requests do not fit beside the seats that are held."""
    seated = state.seated
    if not seated:
        return {}
    snapshot, asked = state.snapshot(), seated.intersection(names)
    found = {}
    for name in sorted(asked & snapshot.index.keys()):
        place = snapshot.index[name]
        if any(
            need > 0.0 and snapshot.requested[each, place] + need > snapshot.allocatable[each, place] * (1 + ROUNDING)
            for each, need in enumerate(pod.requests)
        ):
            found[name] = HELD
    return found
