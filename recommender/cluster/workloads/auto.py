"""Namespaces, whose labels and annotations decide on VPAs for their workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recommender.cluster.objects.reading import Fields, reads, short_annotations
from recommender.cluster.workloads.ownership import phasewise_entries

NAMESPACES = ("v1", "namespaces")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, with only those labels and annotations that have the prefix `phasewise.dev/`."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    deleting: bool = False


@reads("Namespace")
def read_namespace(raw: Fields) -> Namespace:
    metadata = raw.child("metadata")
    return Namespace(
        name=metadata.required("name"),
        labels=phasewise_entries(metadata.string_map("labels")),
        annotations=phasewise_entries(short_annotations(metadata)),
        deleting="deletionTimestamp" in metadata,
    )
