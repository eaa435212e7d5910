"""Pods that wait since no node was found for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from extender.pods.reading import refusal_in
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.reading import Fields

Json = dict[str, Any]

MOST_PODS, LONGEST_WORDS = 50, 400


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
        **known, refusal=condition.text("message")[:LONGEST_WORDS], refused_s=math.nan if since_s is None else since_s
    )


def refused(pods: Iterable[Pod]) -> list[Json]:
    """Those that have waited longest first."""
    waiting = [pod for pod in pods if isinstance(pod, RefusedPod)]
    waiting.sort(key=lambda pod: (math.isnan(pod.refused_s), pod.refused_s, pod.key))
    return [
        {"namespace": pod.key.namespace, "pod": pod.key.name, "since": pod.refused_s, "words": pod.refusal}
        for pod in waiting[:MOST_PODS]
    ]
