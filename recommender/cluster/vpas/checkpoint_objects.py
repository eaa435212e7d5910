"""Upstream's checkpoint objects: whose history one holds, what it is called, and how its JSON is read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads

CHECKPOINTS = ("autoscaling.k8s.io/v1", "verticalpodautoscalercheckpoints")

LONGEST_NAME = 253
HASH_DIGITS = 10


class CheckpointKey(NamedTuple):
    """Whose history it is; of an object that names no container, nobody's."""

    vpa: ObjectKey
    container: str

    def __str__(self) -> str:
        return f"{self.vpa}, container {self.container}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint object.

    Attributes
    ----------
    name
        Of the object, in the VPA's namespace.
    updated_s
        Unix seconds of its last write; 0 when it does not say.
    status
        As the API server gave it; empty where only the rest was asked for.
    """

    key: CheckpointKey
    name: str
    uid: str
    updated_s: float
    status: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.key.vpa.namespace}/{self.name}"


@reads("VerticalPodAutoscalerCheckpoint")
def read_checkpoint(raw: Fields) -> Checkpoint:
    """A checkpoint from its JSON."""
    metadata, spec, status = raw.child("metadata"), raw.child("spec"), raw.child("status")
    here = read_key(metadata)
    return Checkpoint(
        key=CheckpointKey(ObjectKey(here.namespace, spec.required("vpaObjectName")), spec.text("containerName")),
        name=here.name,
        uid=metadata.text("uid"),
        updated_s=status.time_s("lastUpdateTime") or 0.0,
        status=status.raw,
    )


def names_for(key: CheckpointKey) -> list[str]:
    """What a checkpoint may be called: as upstream calls it, where that can be a name; then as nothing else is."""
    plain = f"{key.vpa.name}-{key.container}"
    digits = hashlib.sha256(f"{key.vpa.name}\0{key.container}".encode()).hexdigest()[:HASH_DIGITS]
    unique = f"{plain[: LONGEST_NAME - HASH_DIGITS - 1].rstrip('-.')}-{digits}"
    return [plain, unique] if len(plain) <= LONGEST_NAME else [unique]
