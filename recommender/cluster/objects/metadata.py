"""What every object says of itself: where it lives, and to whom it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from recommender.cluster.objects.reading import Fields


class ObjectKey(NamedTuple):
    """Where an object lives; `namespace` is empty for what has none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The one entry of `metadata.ownerReferences` that says it controls the object."""

    api_version: str
    kind: str
    name: str
    uid: str


def read_key(metadata: Fields) -> ObjectKey:
    return ObjectKey(metadata.text("namespace"), metadata.required("name"))


def read_controller(metadata: Fields) -> OwnerRef | None:
    """The owner that controls the object; the API server allows one at most."""
    for owner in metadata.children("ownerReferences"):
        if owner.flag("controller"):
            return OwnerRef(owner.text("apiVersion"), owner.required("kind"), owner.required("name"), owner.text("uid"))
    return None
