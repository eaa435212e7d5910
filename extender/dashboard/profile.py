"""A PhaseProfile as the pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.profiles import CLASS_PREFIX, MOVE

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
