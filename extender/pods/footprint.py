"""The expected use of a pod on its node: from the history or forecast in PhaseProfiles, else from its requests, else
from measured use, else from its T-shirt size."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from extender.pods.curves import Curve, constant, total
from extender.pods.pod import FORECAST, HISTORY, NO_CURVES, SIZE_ANNOTATION, Container, DemandCurves, Pod, Profile
from recommender.base.errors import Misuse
from recommender.base.records import MEMORY
from recommender.base.units import BYTES_PER_GIB
from recommender.cluster.objects.quantities import Pair
from recommender.cluster.objects.requests import MAX_BYTES, MAX_CORES

Sizes = Mapping[str, Pair]  # T-shirt sizes by `<GPUs>-<kind>`

FFDL: Sizes = {
    "1-K80": (4.0, 24 * BYTES_PER_GIB),
    "2-K80": (8.0, 48 * BYTES_PER_GIB),
    "4-K80": (16.0, 96 * BYTES_PER_GIB),
    "1-P100": (8.0, 24 * BYTES_PER_GIB),
    "2-P100": (16.0, 48 * BYTES_PER_GIB),
    "1-V100": (26.0, 24 * BYTES_PER_GIB),
    "2-V100": (42.0, 48 * BYTES_PER_GIB),
}
"""T-shirt sizes, for pods with neither history nor requests: CPU threads that keep the GPUs busy, and memory (FfDL,
table 5 of its size recommendation)."""

DEFAULT_REQUESTS: Pair = (0.1, 200.0 * (1 << 20))
"""What kube-scheduler assumes for a container without requests when it scores nodes."""


def size_for_gpus(sizes: Sizes, gpus: float, gpu_type: str) -> Pair | None:
    """The size for a number of GPUs; `gpu_type` is any text that contains the kind (`Tesla-V100-SXM2-16GB`).

    For a known kind the nearest size is scaled; for an unknown one the smallest per GPU, as overestimating would keep
    nodes empty because of a guess.

    >>> size_for_gpus(FFDL, 4, "V100")
    (84.0, 103079215104.0)
    """
    if gpus <= 0 or not sizes:
        return None
    matching, per_gpu = [], []
    for name, need in sizes.items():
        number, _, kind = name.partition("-")
        of_one = need[0] / float(number), need[1] / float(number)
        per_gpu.append(of_one)
        if gpu_type and kind.lower() in gpu_type.lower():
            matching.append((abs(float(number) - gpus), of_one))
    cpu_cores, memory_bytes = min(matching, key=lambda size: size[0])[1] if matching else min(per_gpu)
    return cpu_cores * gpus, memory_bytes * gpus


def checked_sizes(table: Sizes) -> Sizes:
    """The table; Misuse if a name is not `<GPUs>-<kind>`, or an amount is not positive."""
    for name, need in table.items():
        number, _, kind = name.partition("-")
        if not (number.isdecimal() and int(number) and kind and all(0 < part < math.inf for part in need)):
            raise Misuse(f"T-shirt size {name!r}: name it <GPUs>-<kind>, as in 2-V100, and give it cpu and memory.")
    return table


REQUESTS, MEASURED, SIZE, GUESS = "requests", "measured use", "T-shirt size", "guess"

LEARNED = (HISTORY, FORECAST)

Use = Mapping[str, Pair]  # container name -> last measured use

NO_USE: Use = {}


@dataclass(frozen=True, slots=True)
class Footprint:
    """The expected use of a pod."""

    curve: Curve  # since the start of the pod
    # the part (cpu_cores, memory_bytes) that is neither learned, requested nor measured; never a reason to refuse
    guessed: Pair
    source: str  # where most of it comes from, for people


def footprint_of(pod: Pod, known: DemandCurves, use: Use, sizes: Sizes, largest: Pair) -> Footprint:
    """The footprint of a pod. Learned demand beyond the `largest` node is implausible: requests are used instead, and
    where they are missing, measured use."""
    parts = [known.curves[c.name].capped(*c.limits) for c in pod.containers if c.name in known.curves]
    if not parts or ((learned := total(parts)).peak > largest).any():
        return _declared(pod.containers, pod, use, sizes, alone=True)
    others = [c for c in pod.containers if c.name not in known.curves]
    if not others:
        return Footprint(learned, (0.0, 0.0), known.source)
    rest = _declared(others, pod, use, sizes, alone=False)
    return Footprint(total([learned, rest.curve]), rest.guessed, known.source)


def _declared(containers: Sequence[Container], pod: Pod, use: Use, sizes: Sizes, *, alone: bool) -> Footprint:
    """The footprint by requests, else by measured use, else by a guess. `alone`: these are all containers of the pod,
    so its total requests (with overhead and sidecars) count."""
    named = sizes.get(pod.annotations.get(SIZE_ANNOTATION, ""))
    size = (named or size_for_gpus(sizes, pod.gpus, pod.gpu_type)) if alone else None
    declared, guessed, measured = [0.0, 0.0], [0.0, 0.0], False
    for resource in range(2):
        unrequested = [container.name for container in containers if math.isnan(container.requests[resource])]
        asked = [c.requests[resource] for c in containers if not math.isnan(c.requests[resource])]
        of_pod = pod.requests[resource]  # a sum that is too large for the scheduler counts as nothing here
        declared[resource] = of_pod if alone else min(of_pod, math.fsum(asked))
        seen = [use[name][resource] for name in unrequested if name in use and not math.isnan(use[name][resource])]
        if len(seen) < len(unrequested):
            default = DEFAULT_REQUESTS[resource] * (len(unrequested) - len(seen))
            guessed[resource] = max(0.0, size[resource] - declared[resource] - math.fsum(seen) if size else default)
        declared[resource] += math.fsum(seen)
        measured = measured or bool(seen)
    source = MEASURED if measured else REQUESTS if not any(guessed) else SIZE if size else GUESS
    guess = min(guessed[0], MAX_CORES), min(guessed[1], MAX_BYTES)
    curve = constant(min(declared[0] + guess[0], MAX_CORES), min(declared[1] + guess[1], MAX_BYTES))
    return Footprint(curve, guess, source)


ClassKey = tuple[str, str]  # namespace and workload class
PodName = tuple[str, str]  # namespace and name
PodKey = tuple[str, str]  # namespace and UID: a profile only describes pods of its own namespace

RELATIVE_USE_TOLERANCE = 0.1
ABSOLUTE_USE_TOLERANCE: Pair = (0.01, 2.0**20)
"""Changes of use by less than this share, or less than these amounts, are ignored."""

MAX_FOOTPRINTS = 4096  # size of the cache: pods of one job share a footprint, which saves time and memory


class ProfileIndex:
    """The PhaseProfiles as last seen, and the footprints of pods. Not thread-safe."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._footprints: dict[Hashable, tuple[DemandCurves, Use, Footprint]] = {}
        self._profiles: dict[tuple[str, str], Profile] = {}
        self._classes: dict[ClassKey, DemandCurves] = {}
        self._of_pod: dict[PodKey, list[Profile]] = {}  # in order of their names: the first one counts
        self._use: dict[PodName, Use] = {}

    def put(self, profile: Profile) -> Set[str]:
        """Add or replace a profile; returns the UIDs of the pods that it names or named before."""
        named_before = self.drop(profile)
        self._profiles[profile.namespace, profile.name] = profile
        if profile.workload:
            self._classes[profile.namespace, profile.workload] = profile.demand
        for uid in profile.categories:
            naming = [*self._of_pod.get((profile.namespace, uid), ()), profile]
            self._of_pod[profile.namespace, uid] = sorted(naming, key=lambda each: each.name)
        return named_before | profile.categories.keys()

    def drop(self, profile: Profile) -> Set[str]:
        """Remove the profile of this name; returns the UIDs of the pods that it named."""
        former = self._profiles.pop((profile.namespace, profile.name), None)
        if former is None:
            return frozenset()
        self._classes.pop((former.namespace, former.workload), None)
        for uid in former.categories:
            naming = self._of_pod.pop((former.namespace, uid))
            if others := [each for each in naming if each is not former]:
                self._of_pod[former.namespace, uid] = others
        return former.categories.keys()

    def put_use(self, use: Mapping[PodName, Use]) -> Set[PodName]:
        """Replace the measured use of all pods; returns those whose use has changed."""
        changed = {name for name in self._use.keys() - use.keys() if self._use[name]}
        for name, containers in use.items():
            if not _nearly_equal(self._use.get(name, NO_USE), containers):
                changed.add(name)
        self._use = {name: use[name] if name in changed else self._use.get(name, NO_USE) for name in use}
        return changed

    def lacks_demand(self, pod: Pod, footprint: Footprint) -> bool:
        """Whether a container has neither learned demand that counts nor full requests."""
        known = self._known(pod).curves if footprint.source in LEARNED else NO_CURVES.curves
        return any(math.isnan(request) for c in pod.containers if c.name not in known for request in c.requests)

    def knows(self, pod: Pod) -> bool:
        """Whether there is a history of the pod or its class."""
        return (pod.namespace, pod.workload) in self._classes or (pod.namespace, pod.uid) in self._of_pod

    def footprint(self, pod: Pod, largest: Pair) -> Footprint:
        """The footprint by the pod's own demand curve, else that of its class, else its forecast; cached."""
        known, size = self._known(pod), pod.annotations.get(SIZE_ANNOTATION, "")
        use = self._use.get((pod.namespace, pod.name), NO_USE) if pod.node else NO_USE
        key = (id(known), id(use), pod.containers, pod.requests, pod.gpus, pod.gpu_type, size, largest)
        cached = self._footprints.get(key)
        if cached is not None and cached[0] is known and cached[1] is use:
            return cached[2]
        if len(self._footprints) >= MAX_FOOTPRINTS:
            self._footprints.clear()
        footprint = footprint_of(pod, known, use, self._sizes, largest)
        self._footprints[key] = (known, use, footprint)
        return footprint

    def granted_bytes(self, pod: Pod) -> float:
        """Memory that a pod requests, or that its owner declared if that is more, as of a pod shrunk in place."""
        profile = self._profile(pod)
        declared = profile.declared_bytes if profile is not None else {}
        shrunk_by = (max(0.0, declared.get(c.name, 0.0) - np.nan_to_num(c.requests[MEMORY])) for c in pod.containers)
        return pod.requests[MEMORY] + math.fsum(shrunk_by)

    def _known(self, pod: Pod) -> DemandCurves:
        """The learned demand of a pod; the same object until it changes."""
        of_class = self._classes.get((pod.namespace, pod.workload), NO_CURVES)
        own = self._profile(pod)
        known = (of_class,) if own is None else (own.demand, of_class, own.forecast)
        return next((each for each in known if each.curves), NO_CURVES)

    def category(self, pod: Pod) -> int | None:
        profile = self._profile(pod)
        return profile.categories.get(pod.uid) if profile is not None else None

    def _profile(self, pod: Pod) -> Profile | None:
        return next(iter(self._of_pod.get((pod.namespace, pod.uid), ())), None)


def _nearly_equal(one: Use, other: Use) -> bool:
    """Whether the use of containers has changed so little that nothing needs updating."""
    return one.keys() == other.keys() and all(
        math.isnan(before) == math.isnan(now)
        and not abs(now - before) > max(ABSOLUTE_USE_TOLERANCE[each], RELATIVE_USE_TOLERANCE * before)
        for name, used in one.items()
        for each, (before, now) in enumerate(zip(used, other[name], strict=True))
    )
