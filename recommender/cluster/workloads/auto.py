"""What decides on VPAs for workloads besides these: their namespace, and HorizontalPodAutoscalers by utilization.

The latter scale by use as a share of requests. A VPA for the same pods would drive them: lower requests mean a higher
utilization, so more pods, each with less use, so still lower requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads, short_annotations
from recommender.cluster.objects.vpa import read_target
from recommender.cluster.workloads.ownership import Ref, phasewise_entries
from recommender.records import RESOURCES

NAMESPACES, HPAS = ("v1", "namespaces"), ("autoscaling/v2", "horizontalpodautoscalers")


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


@dataclass(frozen=True, slots=True)
class Scaler:
    """An autoscaler by utilization, and what it scales."""

    key: ObjectKey
    target: Ref


@reads("HorizontalPodAutoscaler")
def read_scaler(raw: Fields) -> Scaler | None:
    """Read a HorizontalPodAutoscaler; None if none of its metrics is the utilization of CPU or memory."""
    spec = raw.child("spec")
    target, metrics = spec.child("scaleTargetRef"), list(spec.children("metrics"))
    measured = [metric.child(source) for metric in metrics for source in ("resource", "containerResource")]
    if not any(one.text("name") in RESOURCES and "averageUtilization" in one.child("target") for one in measured):
        return None
    return Scaler(read_key(raw.child("metadata")), Ref.of(read_target(target)))
