"""What a pod is expected to use on its node: by its history, else by its requests, else by its T-shirt size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.pods.curves import Curve, added, flat
from extender.pods.pod import SIZE_ANNOTATION, Container, Pair, Pod
from extender.pods.sizes import UNTOLD, Sizes

HISTORY, REQUESTS, SIZE, GUESS = "history", "requests", "T-shirt size", "guess"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Expected use.

    Attributes
    ----------
    curve
        Since the start of the pod.
    guessed
        What of it (cpu_cores, memory_bytes) was neither learned nor asked for; never a ground for a refusal.
    source
        Where most of it comes from, for people.
    """

    curve: Curve
    guessed: Pair
    source: str


def footprint_of(pod: Pod, known: Mapping[str, Curve], sizes: Sizes, largest: Pair) -> Footprint:
    """The footprint of a pod.

    Parameters
    ----------
    known
        Container name -> demand learned from its own or its class's runs.
    largest
        Allocatable of the largest node. A history beyond it is nonsense: the pod could run nowhere, and is believed its
        requests instead.
    """
    parts = [known[c.name].capped(*c.limits) for c in pod.containers if c.name in known]
    if parts:
        learned = added(parts)
        if not (learned.peak > largest).any():
            others = [c for c in pod.containers if c.name not in known]
            if not others:
                return Footprint(learned, (0.0, 0.0), HISTORY)
            rest = _declared(others, pod, sizes, alone=False)
            return Footprint(added([learned, rest.curve]), rest.guessed, HISTORY)
    return _declared(pod.containers, pod, sizes, alone=True)


def _declared(containers: Sequence[Container], pod: Pod, sizes: Sizes, *, alone: bool) -> Footprint:
    """By requests; what nothing is asked for is guessed.

    `alone`: these are all containers of the pod, whose requests also hold its overhead and sidecars.
    """
    size = (sizes.of(pod.words.get(SIZE_ANNOTATION, "")) or sizes.for_gpus(pod.gpus, pod.gpu_type)) if alone else None
    told, guessed = [0.0, 0.0], [0.0, 0.0]
    for resource in range(2):
        asked = [container.requests[resource] for container in containers]
        silent = sum(1 for request in asked if math.isnan(request))
        told[resource] = pod.requests[resource] if alone else math.fsum(r for r in asked if not math.isnan(r))
        if silent:
            stand_in = size[resource] - told[resource] if size else UNTOLD[resource] * silent
            guessed[resource] = max(0.0, stand_in)
    source = REQUESTS if not any(guessed) else SIZE if size else GUESS
    return Footprint(flat(told[0] + guessed[0], told[1] + guessed[1]), (guessed[0], guessed[1]), source)
