"""What a pod is expected to use on its node: by its history or forecast, as the PhaseProfiles tell them, else by its
requests, else by what it was seen to use, else by its T-shirt size."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass

from extender.pods.curves import Curve, constant, total
from extender.pods.pod import SIZE_ANNOTATION, Container, Pair, Pod, Profile
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

DEFAULT_REQUESTS: Pair = (0.1, 200.0 * (1 << 20))
"""What kube-scheduler itself counts for a container without requests when it scores nodes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The table, by `<GPUs>-<kind>`: `checked_sizes` makes one of a table from outside."""

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


def checked_sizes(table: Mapping[str, Pair]) -> Sizes:
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

NO_USE: Use = {}


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
class DemandCurves:
    """What was learned of a pod: by container, and from where; or nothing."""

    curves: Mapping[str, Curve]
    source: str


def footprint_of(pod: Pod, known: DemandCurves, use: Use, sizes: Sizes, largest: Pair) -> Footprint:
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
        learned = total(parts)
        if not (learned.peak > largest).any():
            others = [c for c in pod.containers if c.name not in known.curves]
            if not others:
                return Footprint(learned, (0.0, 0.0), known.source)
            rest = _declared(others, pod, use, sizes, alone=False)
            return Footprint(total([learned, rest.curve]), rest.guessed, known.source)
    return _declared(pod.containers, pod, use, sizes, alone=True)


def _declared(containers: Sequence[Container], pod: Pod, use: Use, sizes: Sizes, *, alone: bool) -> Footprint:
    """By requests; what nothing is asked for is what was measured, and guessed where nothing was.

    `alone`: these are all containers of the pod, whose requests also hold its overhead and sidecars.
    """
    size = (sizes.of(pod.words.get(SIZE_ANNOTATION, "")) or sizes.for_gpus(pod.gpus, pod.gpu_type)) if alone else None
    told, guessed, measured = [0.0, 0.0], [0.0, 0.0], False
    for resource in range(2):
        lacks_demand = [container.name for container in containers if math.isnan(container.requests[resource])]
        asked = [c.requests[resource] for c in containers if not math.isnan(c.requests[resource])]
        told[resource] = pod.requests[resource] if alone else math.fsum(asked)
        seen = [use[name][resource] for name in lacks_demand if name in use and not math.isnan(use[name][resource])]
        if len(seen) < len(lacks_demand):
            stand_in = (
                size[resource] - told[resource]
                if size
                else DEFAULT_REQUESTS[resource] * (len(lacks_demand) - len(seen))
            )
            guessed[resource] = max(0.0, stand_in - math.fsum(seen) if size else stand_in)
        told[resource] += math.fsum(seen)
        measured = measured or bool(seen)
    source = MEASURED if measured else REQUESTS if not any(guessed) else SIZE if size else GUESS
    curve = constant(min(told[0] + guessed[0], MOST_CORES), min(told[1] + guessed[1], MOST_BYTES))
    return Footprint(curve, (guessed[0], guessed[1]), source)


NO_CURVES = DemandCurves({}, "")

ClassKey = tuple[str, str]
"""Namespace and workload class."""

PodName = tuple[str, str]
"""Namespace and name."""

PodKey = tuple[str, str]
"""Namespace and UID: a profile tells of pods of its own namespace alone."""

RELATIVE_USE_TOLERANCE = 0.1
"""Use that has changed by less than this share, or by less than `ABSOLUTE_USE_TOLERANCE` altogether, is what it was."""

ABSOLUTE_USE_TOLERANCE: Pair = (0.01, 2.0**20)

MAX_FOOTPRINTS = 4096
"""Pods of one job are alike: one footprint serves them all, which saves both time and memory."""


class ProfileIndex:
    """The profiles as last seen, and what pods are expected to use. Not safe for several threads by itself."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._footprints: dict[Hashable, tuple[DemandCurves, Use, Footprint]] = {}
        self._classes: dict[ClassKey, DemandCurves] = {}
        self._of_pod: dict[PodKey, Profile] = {}
        self._known_of: dict[tuple[str, str], tuple[DemandCurves, DemandCurves]] = {}
        self._named_by: dict[tuple[str, str], frozenset[str]] = {}
        self._use: dict[PodName, Use] = {}

    def put(self, profile: Profile) -> frozenset[str]:
        """A profile came or changed; the UIDs of the pods that it names now, or named before."""
        if profile.workload:
            self._classes[profile.namespace, profile.workload] = DemandCurves(profile.curves, HISTORY)
        named_before = self._forget(profile)
        self._of_pod.update({(profile.namespace, uid): profile for uid in profile.categories})
        name = (profile.namespace, profile.name)
        self._known_of[name] = DemandCurves(profile.curves, HISTORY), DemandCurves(profile.forecasts, FORECAST)
        self._named_by[name] = frozenset(profile.categories)
        return named_before.union(profile.categories)

    def drop(self, profile: Profile) -> frozenset[str]:
        """A profile is no more; the UIDs of the pods that it named."""
        if profile.workload:
            self._classes.pop((profile.namespace, profile.workload), None)
        return self._forget(profile)

    def _forget(self, profile: Profile) -> frozenset[str]:
        """Drop what a profile of this name said of single pods."""
        name = (profile.namespace, profile.name)
        self._known_of.pop(name, None)
        uids = self._named_by.pop(name, frozenset())
        for uid in uids:
            held = self._of_pod.get((profile.namespace, uid))
            if held is not None and held.name == profile.name:
                del self._of_pod[profile.namespace, uid]
        return uids

    def put_use(self, use: Mapping[PodName, Use]) -> Set[PodName]:
        """What pods were seen to use; of which ones it has changed. Those that are not named are not known any more."""
        changed = {name for name in self._use.keys() - use.keys() if self._use[name]}
        for name, containers in use.items():
            if not _nearly_equal(self._use.get(name, NO_USE), containers):
                changed.add(name)
        self._use = {name: use[name] if name in changed else self._use.get(name, NO_USE) for name in use}
        return changed

    def lacks_demand(self, pod: Pod) -> bool:
        """Whether one of its containers neither was learned nor asks for something."""
        known = self._known(pod).curves
        return any(math.isnan(request) for c in pod.containers if c.name not in known for request in c.requests)

    def knows(self, pod: Pod) -> bool:
        """Whether there is a history of the pod or its class."""
        return (pod.namespace, pod.workload) in self._classes or (pod.namespace, pod.uid) in self._of_pod

    def footprint(self, pod: Pod, largest: Pair) -> Footprint:
        """As `footprint_of`, by its own demand where it has one, else that of its class, else what it needs next."""
        known, size = self._known(pod), pod.words.get(SIZE_ANNOTATION, "")
        use = self._use.get((pod.namespace, pod.name), NO_USE) if pod.node else NO_USE
        key = (id(known), id(use), pod.containers, pod.requests, pod.gpus, pod.gpu_type, size, largest)
        held = self._footprints.get(key)
        if held is not None and held[0] is known and held[1] is use:
            return held[2]
        if len(self._footprints) >= MAX_FOOTPRINTS:
            self._footprints.clear()
        footprint = footprint_of(pod, known, use, self._sizes, largest)
        self._footprints[key] = (known, use, footprint)
        return footprint

    def _known(self, pod: Pod) -> DemandCurves:
        """What is learned of it; the same object until it changes."""
        own = self._of_pod.get((pod.namespace, pod.uid))
        demand, forecast = NO_CURVES, NO_CURVES
        if own is not None:
            demand, forecast = self._known_of[own.namespace, own.name]
        of_class = self._classes.get((pod.namespace, pod.workload), NO_CURVES)
        return next((known for known in (demand, of_class, forecast) if known.curves), NO_CURVES)

    def category(self, pod: Pod) -> int | None:
        """The number of its category; None while nothing is told of it."""
        profile = self._of_pod.get((pod.namespace, pod.uid))
        return profile.categories.get(pod.uid) if profile is not None else None


def _nearly_equal(one: Use, other: Use) -> bool:
    """Whether containers use so nearly the same that nothing need be judged anew."""
    return one.keys() == other.keys() and all(
        math.isnan(before) == math.isnan(now)
        and not abs(now - before) > max(ABSOLUTE_USE_TOLERANCE[each], RELATIVE_USE_TOLERANCE * before)
        for name, used in one.items()
        for each, (before, now) in enumerate(zip(used, other[name], strict=True))
    )
