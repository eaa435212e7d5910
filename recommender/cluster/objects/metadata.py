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
    """One entry of `metadata.ownerReferences`."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool


def read_key(metadata: Fields) -> ObjectKey:
    return ObjectKey(metadata.text("namespace"), metadata.required("name"))


def read_owners(metadata: Fields) -> tuple[OwnerRef, ...]:
    """All owner references."""
    return tuple(
        OwnerRef(
            owner.text("apiVersion"), owner.required("kind"), owner.required("name"), owner.text("uid"),
            owner.flag("controller"),
        )
        for owner in metadata.children("ownerReferences")
    )  # fmt: skip


def read_controller(metadata: Fields) -> OwnerRef | None:
    """The owner that controls the object; the API server allows one at most."""
    return next((owner for owner in read_owners(metadata) if owner.controller), None)
