"""Makes the scheduler retry pods that the extender refused on every node.

A forecast that changes, a new PhaseProfile or an expired reservation is no event for kube-scheduler, which by itself
retries such a pod after five minutes. Changing the pod's annotations makes it retry at once. The pod's condition shows
whether the extender refused it, as its reasons are constant texts, so the two programs need no other channel. Each
attempt costs a scheduling cycle: pods are woken at most every `retry_after_s`, and only a few per second, of each
namespace in turn.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter

from extender.gangs.member import Member
from extender.watches import PeriodicTask
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, Invalid, NotFound
from recommender.cluster.paths import PODS, path_of

ANNOTATION = "retry.phasewise.dev/at"
"""Last wake-up, RFC 3339. Not below `phasewise.dev/`, which would make the pod one of ours."""

PERIOD_S = 1.0
MAX_PER_PERIOD = 5  # pods woken per period: of each namespace in turn, the longest waiting first


class Waker:
    """Annotates the `refused` pods on a thread of its own, while it leads: `retry_after_s` after the first refusal, and
    then again and again."""

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        refused: Callable[[], Iterable[Member]],
        retry_after_s: float,
        *,
        clock: WallClock = time.time,
        monotonic: MonotonicClock = time.monotonic,
    ) -> None:
        self._api, self._leads, self._retry_after_s = api, leads, retry_after_s
        self._clock, self._monotonic = clock, monotonic
        self.loop = PeriodicTask("waking", lambda: self.wake_due(refused()), lambda: PERIOD_S)
        self._last_try_s: dict[str, float] = {}
        self._last_of_namespace_s: dict[str, float] = {}
        self.woken = 0  # wake-ups since the start

    def wake_due(self, waiting: Iterable[Member]) -> None:
        """Wake the pods that are due; `ApiError` if a write fails, which is retried after `retry_after_s`."""
        now_s = self._monotonic()
        pods = {pod.uid: pod for pod in waiting}
        self._last_try_s = {uid: self._last_try_s.get(uid, now_s) for uid in pods}
        due = [uid for uid, since_s in self._last_try_s.items() if now_s - since_s >= self._retry_after_s]
        for pod in self._in_turn([pods[uid] for uid in sorted(due, key=self._last_try_s.__getitem__)])[:MAX_PER_PERIOD]:
            if not self._leads():
                return
            self._last_try_s[pod.uid] = self._last_of_namespace_s[pod.key.namespace] = now_s
            self._wake(pod)

    def _in_turn(self, due: Sequence[Member]) -> list[Member]:
        """One pod of each namespace, then another of each, and so on; the namespaces by when one of theirs was last
        woken. One namespace with thousands of refused pods does not keep those of others waiting."""
        known, earlier = self._last_of_namespace_s, Counter[str]()
        last_s = self._last_of_namespace_s = {(of := pod.key.namespace): known.get(of, -math.inf) for pod in due}
        placed = list[tuple[int, float, Member]]()
        for pod in due:
            placed.append((earlier[pod.key.namespace], last_s[pod.key.namespace], pod))
            earlier[pod.key.namespace] += 1
        return [pod for *_, pod in sorted(placed, key=itemgetter(0, 1))]

    def _wake(self, pod: Member) -> None:
        stamp = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        patch = {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION: stamp}}}
        try:
            self._api.patch(path_of(PODS, pod.key.namespace, pod.key.name), patch)
        except (NotFound, Conflict, Invalid):
            return  # deleted, or another pod has its name, or its annotations are full
        self.woken += 1
