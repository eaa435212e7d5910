"""Has pods tried again that were refused every node: a scheduler tries them when the cluster changes, and does not know
that a forecast has.

Time goes on, a PhaseProfile is written, a reservation ends: none of it is an event for the scheduler, which by itself
comes back to such a pod after five minutes. A change of the pod's own annotations has it tried once more at once. Whom
that concerns stands in the pod's condition, since the extender's reasons are constant texts; so nothing is shared with
the extender but pods. Each is left alone for `retry_after_s` in between, and only so many are woken in a second: every try
costs the scheduler a cycle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from extender.gangs.member import Member
from extender.watches import PeriodicTask
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, NotFound
from recommender.cluster.paths import PODS, path_of

ANNOTATION = "retry.phasewise.dev/at"
"""When a pod was woken last, RFC 3339. Not below `phasewise.dev/`: a pod with a word of ours would be one of ours."""

PERIOD_S = 1.0
MAX_PER_PERIOD = 5
"""Pods woken in each pause, those that rest longest first."""


class Waker:
    """Acts while it leads.

    Parameters
    ----------
    leads
        Asked before every write.
    refused
        Tells the pods that wait because the extender refused nodes.
    rest_s
        A pod is left alone for so long after it was seen refused, and after each time it was woken.
    clock, monotonic
        Unix seconds for what is written, monotonic seconds for the rests.
    """

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        refused: Callable[[], Iterable[Member]],
        retry_after_s: float,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._leads, self._retry_after_s = api, leads, retry_after_s
        self._clock, self._monotonic = clock, monotonic
        self._loop = PeriodicTask("waking", lambda: self.wake_due(refused()), lambda: PERIOD_S)
        self._last_try_s: dict[str, float] = {}
        self.woken = 0
        """How often a pod was woken, since the start."""

    def start(self) -> None:
        """Begin to act; returns at once."""
        self._loop.start()

    def stop(self) -> None:
        """Wake no more."""
        self._loop.stop()

    def wake_due(self, waiting: Iterable[Member]) -> None:
        """Wake those that have rested; an `ApiError` for what could not be written, which is tried after a rest."""
        now_s = self._monotonic()
        pods = {pod.uid: pod for pod in waiting}
        self._last_try_s = {uid: self._last_try_s.get(uid, now_s) for uid in pods}
        due = [uid for uid, since_s in self._last_try_s.items() if now_s - since_s >= self._retry_after_s]
        for uid in sorted(due, key=self._last_try_s.__getitem__)[:MAX_PER_PERIOD]:
            if not self._leads():
                return
            self._last_try_s[uid] = now_s
            self._wake(pods[uid])

    def _wake(self, pod: Member) -> None:
        stamp = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        words = {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION: stamp}}}
        try:
            self._api.patch(path_of(PODS, pod.key.namespace, pod.key.name), words)
        except (NotFound, Conflict):
            return  # it is gone, or another has its name
        self.woken += 1
