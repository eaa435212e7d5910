"""How a VPA that we make may be acted upon: never so that a pod is lost for it whose work nobody else goes on with.

That is a job's, which would begin anew, and a DaemonSet's, which is the only one on its node.

The VPA's updater evicts what it cannot resize, except in mode `InPlace`, which few clusters have switched on. Elsewhere
a group of pods that is smaller than `minReplicas` is never evicted from; with `--in-place-skip-disruption-budget` the
updater resizes its pods in place all the same.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/updater/restriction`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from recommender.cluster.objects.resizability import GUARANTEED, Resizability, refusal_of
from recommender.cluster.objects.vpa import LIMITS_TOO
from recommender.cluster.vpas.made import Settings
from recommender.cluster.workloads.targets import JOBS

NEVER_EVICTED = JOBS | {"DaemonSet"}
"""Kinds whose pods nobody stands in for."""

IN_PLACE, OR_RECREATE, RECREATE, AT_CREATION = "InPlace", "InPlaceOrRecreate", "Recreate", "Initial"

MORE_THAN_ANY = 2**31 - 1
"""`minReplicas` that no group of pods reaches, the largest that fits: nothing of it is ever evicted."""

NO_IN_PLACE = (
    "this cluster's VPA refuses mode InPlace (its feature gate is off, or it is too old): the updater resizes these "
    "pods if it runs with --in-place-skip-disruption-budget, else it leaves them as they are; it never evicts them"
)
ONLY_NEW_PODS = "only pods that are made anew get what is recommended (mode Initial)"


def harmless(asked: Settings, kind: str, pods: Collection[Resizability], has_in_place: bool) -> tuple[Settings, str]:
    """What a VPA is to say, given what the annotations ask for; and what a person should know of that, in words.

    Parameters
    ----------
    kind
        Of the workload.
    pods
        What its templates and its live pods say of resizing. Both count: what admission made of one pod, it may not
        make of the next.
    has_in_place
        Whether the cluster has mode `InPlace`.
    """
    settings = replace(asked, values=LIMITS_TOO) if any(pod.qos == GUARANTEED for pod in pods) else asked
    if settings.mode == RECREATE and kind in JOBS:
        return replace(settings, mode=AT_CREATION), f"a {kind}'s pods are not evicted for a resize: {ONLY_NEW_PODS}"
    if settings.mode not in (IN_PLACE, OR_RECREATE):
        return settings, ""
    if refusal := refusal_of(pods):
        return replace(settings, mode=AT_CREATION), f"{refusal}; {ONLY_NEW_PODS}"
    if has_in_place:
        return replace(settings, mode=IN_PLACE, min_replicas=1), ""
    if kind in NEVER_EVICTED or settings.mode == IN_PLACE:
        return replace(settings, mode=OR_RECREATE, min_replicas=MORE_THAN_ANY), NO_IN_PLACE
    return settings, ""
