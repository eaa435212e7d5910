"""What a pod is expected to use on its node: by its history or forecast, else by its requests, else by what it was seen
to use, else by its T-shirt size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.pods.curves import Curve, added, flat
from extender.pods.pod import SIZE_ANNOTATION, Container, Pair, Pod
from recommender.cluster.objects.requests import MOST_BYTES, MOST_CORES
from recommender.errors import Misuse
from recommender.units import BYTES_PER_GIB

FFDL: Mapping[str, Pair] = {
    "1-K80": (4.0, 24 * BYTES_PER_GIB),
    "2-K80": (8.0, 48 * BYTES_PER_GIB),
    "4-K80": (16.0, 96 * BYTES_PER_GIB),
    "1-P100": (8.0, 24 * BYTES_PER_GIB),
    "2-P100": (16.0, 48 * BYTES_PER_GIB),
    "1-V100": (26.0, 24 * BYTES_PER_GIB),
    "2-V100": (42.0, 48 * BYTES_PER_GIB),
}
"""T-shirt sizes, for pods that tell neither by history nor requests: the CPU threads that keep so many GPUs of a kind
busy, and memory (FfDL, table 5 of its recommendation of sizes)."""

UNTOLD: Pair = (0.1, 200.0 * (1 << 20))
"""What kube-scheduler itself counts for a container without requests when it scores nodes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The table, by `<GPUs>-<kind>`: `checked` makes one of a table from outside."""

    table: Mapping[str, Pair]

    def of(self, name: str) -> Pair | None:
        """The size of this very name."""
        return self.table.get(name)

    def for_gpus(self, gpus: float, gpu_type: str) -> Pair | None:
        """The size for so many GPUs of a kind, `gpu_type` being any text that holds its name (`Tesla-V100-SXM2-16GB`).

        Of a known kind the nearest size is scaled by the number; of an unknown one the smallest of all kinds counts,
        since too much would keep a node empty for a guess.

        Examples
        --------
        >>> Sizes(FFDL).for_gpus(4, "V100")
        (84.0, 103079215104.0)
        """
        if gpus <= 0 or not self.table:
            return None
        told = gpu_type.lower()
        named = [(name.partition("-"), need) for name, need in self.table.items()]
        alike = [(number, need) for (number, _, kind), need in named if told and kind.lower() in told]
        if alike:
            number, need = min(alike, key=lambda size: abs(float(size[0]) - gpus))
        else:
            number, need = min(((number, need) for (number, _, _), need in named), key=_per_gpu)
        return need[0] / float(number) * gpus, need[1] / float(number) * gpus


def _per_gpu(size: tuple[str, Pair]) -> tuple[float, float]:
    number, need = size
    return need[0] / float(number), need[1] / float(number)


def checked(table: Mapping[str, Pair]) -> Sizes:
    """A table whose names can be read.

    Raises
    ------
    Misuse
        A name is not `<GPUs>-<kind>`, or a need is not positive.
    """
    for name, need in table.items():
        number, dash, kind = name.partition("-")
        if not (number.isdigit() and int(number) and dash and kind) or not all(
            0 < part < float("inf") for part in need
        ):
            raise Misuse(f"T-shirt size {name!r}: name it <GPUs>-<kind>, as in 2-V100, and give it cpu and memory.")
    return Sizes(dict(table))


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
