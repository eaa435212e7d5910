"""Extended resources and GPUs of the nodes: allocatable, and requested by pods.

Most device plugins do not tell which GPU a share is on. It is assumed to be the fullest GPU that fits, as with any
packing allocator; whole GPUs are assumed to be unshared ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.gpus import MILLI_PER_GPU, GpuOffer, GpuRequest
from recommender.cluster.objects.quantities import Pair

Floats = NDArray[np.floating]
GpuShares = tuple[tuple[int, float], ...]  # (GPU index, thousandths) of one pod on its node


class Amount(NamedTuple):
    """Of one extended resource, (n,)."""

    allocatable: Floats
    requested: Floats


@dataclass(frozen=True, slots=True)
class Devices:
    """Of n nodes."""

    extended: Mapping[str, Amount]  # resource name -> amounts
    gpu_free: Floats  # (most GPUs of a node, n): free thousandths of each GPU; 0 where a node has fewer GPUs
    # (n,): thousandths of a GPU that a node offers as one; below 1000 if it offers each GPU several times
    gpu_part: Floats

    def lacks(self, place: int, needs: Mapping[str, float], adjustment: Mapping[str, float]) -> bool:
        """Whether a pod's needs of extended resources that a node offers do not fit there; `adjustment` is added to
        what is requested."""
        for name, need in needs.items():
            there = self.extended.get(name)
            if there is None or there.allocatable[place] <= 0.0:
                continue
            if there.requested[place] + adjustment[name] + need > there.allocatable[place]:
                return True
        return False


class DeviceTable:
    """Devices by node (index of the node table) and pod, updated incrementally. Not thread-safe. Only resources that a
    node once offered have a row, as pods can name any number of others."""

    def __init__(self, places: int) -> None:
        self._parts = np.full(places, float(MILLI_PER_GPU))
        self._amounts: dict[str, NDArray[np.float64]] = {}
        self._gpus = np.zeros((0, places))
        self._used = np.zeros((0, places))
        self._of_pod: dict[str, GpuShares] = {}
        self._snapshot: Devices | None = None  # until a node or a pod with devices changes

    def grow(self, places: int) -> None:
        more = places - len(self._parts)
        self._parts = np.pad(self._parts, (0, more), constant_values=MILLI_PER_GPU)
        self._gpus, self._used = (np.pad(each, ((0, 0), (0, more))) for each in (self._gpus, self._used))
        self._amounts = {name: np.pad(each, ((0, 0), (0, more))) for name, each in self._amounts.items()}

    def clear(self, place: int) -> None:
        """Remove all pods of a node, which are then counted again."""
        self._snapshot = None
        self._used[:, place] = 0.0
        for each in self._amounts.values():
            each[1, place] = 0.0

    def put_node(self, place: int, extended: Mapping[str, float], gpus: GpuOffer) -> bool:
        """Add or update a node; True if it offers a new resource, for which no pod has been counted yet."""
        new, self._snapshot = extended.keys() - self._amounts.keys(), None
        self._amounts |= {name: np.zeros((2, len(self._parts))) for name in new}
        for name, each in self._amounts.items():
            each[0, place] = extended.get(name, 0.0)
        if (more := gpus.number - len(self._gpus)) > 0:
            self._gpus, self._used = (np.pad(each, ((0, more), (0, 0))) for each in (self._gpus, self._used))
        self._gpus[:, place] = np.where(np.arange(len(self._gpus)) < gpus.number, MILLI_PER_GPU, 0.0)
        self._parts[place] = MILLI_PER_GPU / gpus.parts
        return bool(new)

    def move(self, place: int, last: int) -> None:
        """Move the last node to another index."""
        self._snapshot = None
        empty = ((self._gpus, 0.0), (self._used, 0.0), (self._parts, MILLI_PER_GPU))
        for numbers, nothing in (*empty, *((each, 0.0) for each in self._amounts.values())):
            numbers[..., place] = numbers[..., last]
            numbers[..., last] = nothing

    def count(self, place: int, uid: str, extended: Mapping[str, float], gpu: GpuRequest, sign: int) -> None:
        """Add a pod to its node (`sign` 1), or take it away (-1). A pod that is counted again keeps its GPUs."""
        if extended or gpu.number:
            self._snapshot = None
        for name in extended.keys() & self._amounts.keys():
            self._amounts[name][1, place] += sign * extended[name]
        if sign > 0 and gpu.number:
            self._of_pod[uid] = shares = self._of_pod.get(uid) or self._choose(place, gpu)
        else:
            shares = self._of_pod.pop(uid, ())
        for number, milli in shares:
            self._used[number, place] += sign * milli

    def snapshot(self, nodes: int) -> Devices:
        if self._snapshot is None:
            extended = {name: Amount(*each[:, :nodes].copy()) for name, each in self._amounts.items()}
            free = np.maximum(self._gpus[:, :nodes] - self._used[:, :nodes], 0.0).astype(np.float32)
            self._snapshot = Devices(extended, free, self._parts[:nodes].astype(np.float32))
        return self._snapshot

    def _choose(self, place: int, gpu: GpuRequest) -> GpuShares:
        """The GPUs that a pod is assumed to use, each once; if it fits on none, the emptiest."""
        free, found = self._gpus[:, place] - self._used[:, place], dict[int, float]()
        milli = gpu.milli * self._parts[place] / MILLI_PER_GPU
        for _ in range(min(gpu.number, int((self._gpus[:, place] > 0.0).sum()))):
            number = int(fullest_with_room(free[:, None], milli)[0])
            found[number], free[number] = milli, -np.inf
        return tuple(found.items())


def fullest_with_room(free: Floats, milli: Floats | float) -> NDArray[np.intp]:
    """(m,): the fullest of (GPUs, m) that fits, or the emptiest if none does."""
    fits = np.where(free >= milli, free, np.inf)
    chosen: NDArray[np.intp] = np.where(np.isfinite(fits.min(axis=0)), fits.argmin(axis=0), free.argmax(axis=0))
    return chosen


Kind = tuple[Pair, GpuRequest]
MAX_COUNTED_PODS = 10_000  # pods counted before all counts are halved
MAX_KINDS = 64  # most frequent kinds of pods in the mix; of 152 kinds in a real cluster (openb) they cover 97 % of pods


class Mix(NamedTuple):
    """k kinds of pods with GPUs."""

    # cpu_cores, memory_bytes, gpus: (k,): requests of each kind
    cpu_cores: Floats
    memory_bytes: Floats
    gpus: Floats
    # milli, milli_of: (shares,): distinct shares of a GPU, in thousandths; and (k,) index of the share that a kind
    # requests
    milli: Floats
    milli_of: NDArray[np.intp]
    frequency: Floats  # (k,): relative frequency; the sum is 1
    per_gpu: Pair  # mean CPU cores and memory bytes requested per GPU


class DemandMix:
    """Estimates the mix of requests of pods with GPUs: each counts once, when it is first seen, pending or bound."""

    def __init__(self) -> None:
        self._counts: Counter[Kind] = Counter()
        self._seen: set[str] = set()
        self._mix: Mix | None = None

    def see(self, uid: str, requests: Pair, gpu: GpuRequest) -> None:
        if not gpu.number or uid in self._seen:
            return
        self._seen.add(uid)
        self._mix = None
        self._counts[requests, gpu] += 1
        if self._counts.total() > MAX_COUNTED_PODS:
            self._counts = Counter({kind: count // 2 for kind, count in self._counts.items() if count > 1})

    def forget(self, uid: str) -> None:
        """Forget the UID of a deleted pod; its request still counts."""
        self._seen.discard(uid)

    def mix(self) -> Mix | None:
        """The most frequent kinds; None before a pod with GPUs was seen."""
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
