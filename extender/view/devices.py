"""Extended resources and GPUs of the nodes: what they have, and what the pods on them take.

Which GPU a share lies on is the device plugin's business, and only some say so. It is taken to be the fullest that
still has room for it, as whoever packs does it; whole GPUs are those that nobody shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.gpus import MILLI_PER_GPU, GpuOffer, GpuRequest
from extender.pods.pod import Pair

Floats = NDArray[np.floating]
GpuShares = tuple[tuple[int, float], ...]
"""(GPU, thousandths) of one pod on its node."""


class Amount(NamedTuple):
    """(n,) of one extended resource."""

    allocatable: Floats
    requested: Floats


@dataclass(frozen=True, slots=True)
class Devices:
    """Of n nodes.

    Attributes
    ----------
    extended
        Resource -> what there is of it.
    gpu_free
        (most GPUs of a node, n), thousandths: what is left of each; 0 where a node has none.
    gpu_part
        (n,), thousandths: what a node offers as one GPU; less than 1000 where it offers each several times.
    """

    extended: Mapping[str, Amount]
    gpu_free: Floats
    gpu_part: Floats

    def lacks(
        self, place: int, needs: Mapping[str, float], adjustment: Mapping[str, float] = MappingProxyType({})
    ) -> bool:
        """Whether a pod's extended resources do not fit on a node, of those that the node offers.

        `adjustment`: what is taken there besides what its pods request, or less than 0 for what will be free.
        """
        for name, need in needs.items():
            there = self.extended.get(name)
            if there is None or there.allocatable[place] <= 0.0:
                continue
            if there.requested[place] + adjustment.get(name, 0.0) + need > there.allocatable[place]:
                return True
        return False


class DeviceTable:
    """Kept up to date with every node and pod; places are the node table's. Not safe for several threads by itself.

    Only what some node once offered has a row: whoever may make pods can name any number of resources.
    """

    def __init__(self, places: int) -> None:
        self._parts = np.full(places, float(MILLI_PER_GPU))
        self._amounts: dict[str, NDArray[np.float64]] = {}
        self._gpus = np.zeros((0, places))
        self._used = np.zeros((0, places))
        self._of_pod: dict[str, GpuShares] = {}

    def grow(self, places: int) -> None:
        """Have so many places."""
        more = places - len(self._parts)
        self._parts = np.pad(self._parts, (0, more), constant_values=MILLI_PER_GPU)
        self._gpus, self._used = (np.pad(each, ((0, 0), (0, more))) for each in (self._gpus, self._used))
        self._amounts = {name: np.pad(each, ((0, 0), (0, more))) for name, each in self._amounts.items()}

    def clear_pods(self) -> None:
        """Nothing is on any node."""
        self._used[:] = 0.0
        self._of_pod.clear()
        for each in self._amounts.values():
            each[1] = 0.0

    def put_node(self, place: int, extended: Mapping[str, float], gpus: GpuOffer) -> bool:
        """A node came or changed; True when it offers what none did, which no pod was counted for yet."""
        new = extended.keys() - self._amounts.keys()
        self._amounts |= {name: np.zeros((2, len(self._parts))) for name in new}
        for name, each in self._amounts.items():
            each[0, place] = extended.get(name, 0.0)
        if (more := gpus.number - len(self._gpus)) > 0:
            self._gpus, self._used = (np.pad(each, ((0, more), (0, 0))) for each in (self._gpus, self._used))
        self._gpus[:, place] = np.where(np.arange(len(self._gpus)) < gpus.number, MILLI_PER_GPU, 0.0)
        self._parts[place] = MILLI_PER_GPU / gpus.parts
        return bool(new)

    def move(self, place: int, last: int) -> None:
        """The node at the last place takes another's; its own is empty then."""
        empty = ((self._gpus, 0.0), (self._used, 0.0), (self._parts, MILLI_PER_GPU))
        for numbers, nothing in (*empty, *((each, 0.0) for each in self._amounts.values())):
            numbers[..., place] = numbers[..., last]
            numbers[..., last] = nothing

    def count(self, place: int, uid: str, extended: Mapping[str, float], gpu: GpuRequest, sign: int) -> None:
        """Add a pod to its node (`sign` 1), or take it away (-1)."""
        for name in extended.keys() & self._amounts.keys():
            self._amounts[name][1, place] += sign * extended[name]
        if sign > 0 and gpu.number:
            self._of_pod[uid] = shares = self._choose(place, gpu)
        else:
            shares = self._of_pod.pop(uid, ())
        for number, milli in shares:
            self._used[number, place] += sign * milli

    def snapshot(self, nodes: int) -> Devices:
        """Everything as it is now."""
        extended = {name: Amount(*each[:, :nodes].copy()) for name, each in self._amounts.items()}
        free = np.maximum(self._gpus[:, :nodes] - self._used[:, :nodes], 0.0).astype(np.float32)
        return Devices(MappingProxyType(extended), free, self._parts[:nodes].astype(np.float32))

    def _choose(self, place: int, gpu: GpuRequest) -> GpuShares:
        """Each GPU once; where all are too full the emptiest, since the pod is there whatever we think."""
        free, found = self._gpus[:, place] - self._used[:, place], dict[int, float]()
        milli = gpu.milli * self._parts[place] / MILLI_PER_GPU
        for _ in range(min(gpu.number, int((self._gpus[:, place] > 0.0).sum()))):
            number = int(fullest_with_room(free[:, None], milli)[0])
            found[number], free[number] = milli, -np.inf
        return tuple(found.items())


def fullest_with_room(free: Floats, milli: Floats | float) -> NDArray[np.intp]:
    """(m,): of (GPUs, m) the fullest that has so much left, and where none has the emptiest."""
    fits = np.where(free >= milli, free, np.inf)
    chosen: NDArray[np.intp] = np.where(np.isfinite(fits.min(axis=0)), fits.argmin(axis=0), free.argmax(axis=0))
    return chosen


Kind = tuple[Pair, GpuRequest]

MAX_COUNTED_PODS = 10_000
"""Pods: once more were seen, those before count half."""

MAX_KINDS = 64
"""Kinds of pods that are looked at: of a real cluster's (openb) 152 they are 97 of 100 pods."""


class Mix(NamedTuple):
    """Of k kinds of pods.

    Attributes
    ----------
    cpu_cores, memory_bytes, gpus
        (k,): what a pod of each kind asks for.
    milli, milli_of
        (shares,): how much of each GPU, in thousandths, each once; and (k,) which of these a kind asks for.
    chance
        (k,): how often; 1 in all.
    a_gpu
        CPU cores and bytes of memory that they ask for with each GPU, in the mean.
    """

    cpu_cores: Floats
    memory_bytes: Floats
    gpus: Floats
    milli: Floats
    milli_of: NDArray[np.intp]
    frequency: Floats
    per_gpu: Pair


class DemandMix:
    """What the pods of this cluster ask for together with GPUs, and how often: whose room must not be spoilt.

    Counts each pod with GPUs once, when it is first seen, waiting or bound.
    """

    def __init__(self) -> None:
        self._counts: Counter[Kind] = Counter()
        self._seen: set[str] = set()
        self._mix: Mix | None = None

    def see(self, uid: str, requests: Pair, gpu: GpuRequest) -> None:
        """A pod is there."""
        if not gpu.number or uid in self._seen:
            return
        self._seen.add(uid)
        self._mix = None
        self._counts[requests, gpu] += 1
        if self._counts.total() > MAX_COUNTED_PODS:
            self._counts = Counter({kind: count // 2 for kind, count in self._counts.items() if count > 1})

    def forget(self, uid: str) -> None:
        """A pod is no more; that it was asked for counts on."""
        self._seen.discard(uid)

    def mix(self) -> Mix | None:
        """The most frequent; None while no pod with GPUs was seen."""
        if self._mix is None and self._counts:
            kinds = nlargest(MAX_KINDS, self._counts.items(), key=lambda item: item[1])
            rows = np.array(
                [(*requests, gpu.number, gpu.milli, count) for (requests, gpu), count in kinds], dtype=float
            )
            milli, milli_of = np.unique(rows[:, 3], return_inverse=True)
            milli, frequency = milli.astype(np.float32), (rows[:, 4] / rows[:, 4].sum()).astype(np.float32)
            gpus = rows[:, 2] * rows[:, 3] / MILLI_PER_GPU
            cpu_cores, memory_bytes = (rows[:, 4] @ rows[:, :2] / (rows[:, 4] @ gpus)).tolist()
            asked = rows[:, 2].astype(np.float32)
            self._mix = Mix(rows[:, 0], rows[:, 1], asked, milli, milli_of, frequency, (cpu_cores, memory_bytes))
        return self._mix
