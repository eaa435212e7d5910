"""PhaseProfiles and pods as the pages show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from extender.pods.reading import refusal_in
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.profiles import CLASS_PREFIX, MOVE

MAX_MESSAGE = 400

STATE = "state"
"""What the recommender keeps in a profile for itself: most of its bytes, and of no use here."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A PhaseProfile; `status` without what the recommender keeps for itself, `move` as the controller said last."""

    key: ObjectKey
    of_class: bool
    status: Mapping[str, Any]
    move: str

    @property
    def containers(self) -> Mapping[str, Mapping[str, Any]]:
        """What is said of each container, by its name."""
        return {str(one.get("name")): one for one in self.status.get("containers") or ()}


NO_PROFILE = Profile(ObjectKey("", ""), False, {}, "")
"""In place of one that the recommender has not written yet."""


@reads("PhaseProfile")
def read_profile(raw: Fields) -> Profile:
    """From its JSON.

    Raises
    ------
    BadObject
        A field has the wrong form; named.
    """
    metadata, status = raw.child("metadata"), raw.child("status")
    for part in ("containers", "pods", "conditions"):
        for _ in status.children(part):  # each is an object, else the profile is broken, here and not on a page
            pass
    key = read_key(metadata)
    return Profile(
        key,
        raw.child("spec").flag("class") and key.name.startswith(CLASS_PREFIX),
        {name: told for name, told in status.raw.items() if name != STATE},
        metadata.words("annotations").get(MOVE, ""),
    )


@dataclass(frozen=True, slots=True)
class RefusedPod(Pod):
    """A pod, what the scheduler said of it, and since when (unix seconds, NaN where that is not told)."""

    refusal: str
    refused_s: float


def read_shown_pod(raw: Mapping[str, Any]) -> Pod:
    """From the JSON of a pod; BadObject where a field has the wrong form."""
    pod = read_pod(raw)
    condition = Fields({}) if pod.node or pod.finished else refusal_in(Fields(raw).child("status"))
    if not condition.raw:
        return pod
    since_s = condition.time_s("lastTransitionTime")
    known = {field.name: getattr(pod, field.name) for field in fields(Pod)}
    return RefusedPod(
        **known, refusal=condition.text("message")[:MAX_MESSAGE], refused_s=math.nan if since_s is None else since_s
    )
