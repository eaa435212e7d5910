"""What the pods of this cluster ask for together with GPUs, and how often: whose room must not be spoilt."""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.gpus import WHOLE, GpuRequest
from extender.pods.pod import Pair

Floats = NDArray[np.floating]
Kind = tuple[Pair, GpuRequest]

REMEMBERED = 10_000
"""Pods: once more were seen, those before count half."""

MOST_FREQUENT = 64
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
    chance: Floats
    a_gpu: Pair


class DemandMix:
    """Counts each pod with GPUs once, when it is first seen, waiting or bound."""

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
        if self._counts.total() > REMEMBERED:
            self._counts = Counter({kind: count // 2 for kind, count in self._counts.items() if count > 1})

    def forget(self, uid: str) -> None:
        """A pod is no more; that it was asked for counts on."""
        self._seen.discard(uid)

    def mix(self) -> Mix | None:
        """The most frequent; None while no pod with GPUs was seen."""
        if self._mix is None and self._counts:
            kinds = nlargest(MOST_FREQUENT, self._counts.items(), key=lambda item: item[1])
            rows = np.array(
                [(*requests, gpu.number, gpu.milli, count) for (requests, gpu), count in kinds], dtype=float
            )
            milli, milli_of = np.unique(rows[:, 3], return_inverse=True)
            milli, chance = milli.astype(np.float32), (rows[:, 4] / rows[:, 4].sum()).astype(np.float32)
            gpus = rows[:, 2] * rows[:, 3] / WHOLE
            cpu_cores, memory_bytes = (rows[:, 4] @ rows[:, :2] / (rows[:, 4] @ gpus)).tolist()
            asked = rows[:, 2].astype(np.float32)
            self._mix = Mix(rows[:, 0], rows[:, 1], asked, milli, milli_of, chance, (cpu_cores, memory_bytes))
        return self._mix
