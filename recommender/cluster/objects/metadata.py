"""Object metadata: key and controlling owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from recommender.cluster.objects.reading import Fields


class ObjectKey(NamedTuple):
    """Namespace and name of an object; `namespace` is empty for a cluster-scoped one."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class OwnerRef:
    """The entry of `metadata.ownerReferences` with `controller: true`."""

    api_version: str
    kind: str
    name: str
    uid: str


def read_key(metadata: Fields) -> ObjectKey:
    return ObjectKey(metadata.text("namespace"), metadata.required("name"))


def read_controller(metadata: Fields) -> OwnerRef | None:
    """The owner that controls the object; the API server allows at most one."""
    for owner in metadata.children("ownerReferences"):
        if owner.flag("controller"):
            return OwnerRef(owner.text("apiVersion"), owner.required("kind"), owner.required("name"), owner.text("uid"))
    return None
