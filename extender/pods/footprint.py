"""What a pod is expected to use on its node: by its history or forecast, else by its requests, else by what it was seen
to use, else by its T-shirt size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.pods.curves import Curve, added, flat
from extender.pods.pod import SIZE_ANNOTATION, Container, Pair, Pod
from extender.pods.sizes import UNTOLD, Sizes
from recommender.cluster.objects.requests import MOST_BYTES, MOST_CORES

HISTORY, FORECAST, REQUESTS, MEASURED, SIZE, GUESS = (
    "history",
    "forecast",
    "requests",
    "measured use",
    "T-shirt size",
    "guess",
)

LEARNED = (HISTORY, FORECAST)

Use = Mapping[str, Pair]
"""Container name -> what it was last seen to use."""

UNSEEN: Use = {}


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


@dataclass(frozen=True, slots=True)
class Known:
    """What was learned of a pod: by container, and from where; or nothing."""

    curves: Mapping[str, Curve]
    source: str


def footprint_of(pod: Pod, known: Known, use: Use, sizes: Sizes, largest: Pair) -> Footprint:
    """The footprint of a pod.

    Parameters
    ----------
    use
        Stands in where a container neither was learned nor asks for anything.
    largest
        Allocatable of the largest node. A history beyond it is nonsense: the pod could run nowhere, and is believed its
        requests instead.
    """
    parts = [known.curves[c.name].capped(*c.limits) for c in pod.containers if c.name in known.curves]
    if parts:
        learned = added(parts)
        if not (learned.peak > largest).any():
            others = [c for c in pod.containers if c.name not in known.curves]
            if not others:
                return Footprint(learned, (0.0, 0.0), known.source)
            rest = _declared(others, pod, use, sizes, alone=False)
            return Footprint(added([learned, rest.curve]), rest.guessed, known.source)
    return _declared(pod.containers, pod, use, sizes, alone=True)


def _declared(containers: Sequence[Container], pod: Pod, use: Use, sizes: Sizes, *, alone: bool) -> Footprint:
    """By requests; what nothing is asked for is what was measured, and guessed where nothing was.

    `alone`: these are all containers of the pod, whose requests also hold its overhead and sidecars.
    """
    size = (sizes.of(pod.words.get(SIZE_ANNOTATION, "")) or sizes.for_gpus(pod.gpus, pod.gpu_type)) if alone else None
    told, guessed, measured = [0.0, 0.0], [0.0, 0.0], False
    for resource in range(2):
        silent = [container.name for container in containers if math.isnan(container.requests[resource])]
        asked = [c.requests[resource] for c in containers if not math.isnan(c.requests[resource])]
        told[resource] = pod.requests[resource] if alone else math.fsum(asked)
        seen = [use[name][resource] for name in silent if name in use and not math.isnan(use[name][resource])]
        if len(seen) < len(silent):
            stand_in = size[resource] - told[resource] if size else UNTOLD[resource] * (len(silent) - len(seen))
            guessed[resource] = max(0.0, stand_in - math.fsum(seen) if size else stand_in)
        told[resource] += math.fsum(seen)
        measured = measured or bool(seen)
    source = MEASURED if measured else REQUESTS if not any(guessed) else SIZE if size else GUESS
    curve = flat(min(told[0] + guessed[0], MOST_CORES), min(told[1] + guessed[1], MOST_BYTES))
    return Footprint(curve, (guessed[0], guessed[1]), source)
