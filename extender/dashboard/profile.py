"""Reads PhaseProfiles and pods as the pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from extender.pods.reading import refusal_in
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.profiles import CLASS_PREFIX, MOVE
from recommender.records import or_nan

MAX_MESSAGE = 400
GATED = "SchedulingGated"  # reason of a pod that the scheduler has not considered yet, as a gang that waits
STATE = "state"  # the recommender's private state in a profile: most of its bytes, and not needed here


@dataclass(frozen=True, slots=True)
class Profile:
    """A PhaseProfile; `status` is without `STATE`, `move` the controller's last text on a move."""

    key: ObjectKey
    of_class: bool
    status: Mapping[str, Any]
    move: str

    @property
    def containers(self) -> Mapping[str, Mapping[str, Any]]:
        """The entries of containers, by name."""
        return {str(one.get("name")): one for one in self.status.get("containers") or ()}


NO_PROFILE = Profile(ObjectKey("", ""), False, {}, "")  # stands for a profile that does not exist yet


@reads("PhaseProfile")
def read_profile(raw: Fields) -> Profile:
    metadata, status = raw.child("metadata"), raw.child("status")
    for part in ("containers", "pods", "conditions"):
        list(status.children(part))  # fail here, not on a page, if one is not an object
    key = read_key(metadata)
    return Profile(
        key,
        raw.child("spec").flag("class") and key.name.startswith(CLASS_PREFIX),
        {name: value for name, value in status.raw.items() if name != STATE},
        metadata.string_map("annotations").get(MOVE, "")[:MAX_MESSAGE],
    )


@dataclass(frozen=True, slots=True)
class RefusedPod(Pod):
    """An unschedulable pod with the scheduler's message, and since when (unix seconds, NaN if unknown)."""

    refusal: str
    refused_since_s: float


def read_shown_pod(raw: Mapping[str, Any]) -> Pod:
    pod = read_pod(raw)
    condition = Fields({}) if pod.node or pod.finished else refusal_in(Fields(raw).child("status"))
    if not condition.raw or condition.text("reason") == GATED:
        return pod
    since_s = condition.time_s("lastTransitionTime")
    known = {field.name: getattr(pod, field.name) for field in fields(Pod)}
    return RefusedPod(**known, refusal=condition.text("message")[:MAX_MESSAGE], refused_since_s=or_nan(since_s))
