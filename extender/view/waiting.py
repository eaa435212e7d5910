"""Pods that are not bound yet, as the watch shows them, and since when each has been refused every node."""

from __future__ import annotations

import math
from collections.abc import Callable

from extender.pods.pod import Pod


class Waiting:
    """Each method does one thing to one dictionary, so that threads need no lock.

    A restart loses nothing: what a pod's condition says of its refusal counts for those that were refused before.

    Parameters
    ----------
    clock, monotonic
        Unix seconds for what conditions say, monotonic seconds for what is seen here.
    """

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._pods: dict[str, Pod] = {}
        self._since_s: dict[str, float] = {}

    def put(self, pod: Pod) -> None:
        """A pod is there, and on no node."""
        self._pods[pod.uid] = pod
        if not math.isnan(pod.refused_s):
            self._since_s.setdefault(pod.uid, self._monotonic() - max(0.0, self._clock() - pod.refused_s))

    def drop(self, uid: str) -> None:
        """It is bound, has ended or is no more."""
        self._pods.pop(uid, None)
        self._since_s.pop(uid, None)

    def of(self, uid: str) -> Pod | None:
        """A pod as the watch last showed it, if it is not bound yet."""
        return self._pods.get(uid)

    def refused(self, uid: str) -> None:
        """It was refused every node it was asked about; one that the watch does not know would never be forgotten."""
        if uid in self._pods:
            self._since_s.setdefault(uid, self._monotonic())

    def waited_s(self, uid: str) -> float:
        """Seconds since it was first refused every node; 0 when it never was."""
        since_s = self._since_s.get(uid)
        return 0.0 if since_s is None else max(0.0, self._monotonic() - since_s)
