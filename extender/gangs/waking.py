"""Has pods tried again that were refused every node: a scheduler tries them when the cluster changes, and does not know
that a forecast has.

Time goes on, a PhaseProfile is written, a reservation ends: none of it is an event for the scheduler, which by itself
comes back to such a pod after five minutes. A change of the pod's own annotations has it tried once more at once. Whom
that concerns stands in the pod's condition, since the extender's reasons are constant texts; so nothing is shared with
the extender but pods. Each is left alone for `rest_s` in between, and only so many are woken in a second: every try
costs the scheduler a cycle.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from extender.reasons import THAT_PASS
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials, Conflict, NotFound
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.watching.reflector import Reflector

log = logging.getLogger(__name__)

ANNOTATION = "retry.phasewise.dev/at"
"""When a pod was woken last, RFC 3339. Not below `phasewise.dev/`: a pod with a word of ours would be one of ours."""

PAUSE_S = 1.0
MOST_AT_ONCE = 5
"""Pods woken in each pause, those that rest longest first."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that waits because the extender refused nodes."""

    key: ObjectKey
    uid: str


@reads("Pod")
def read_refused(raw: Fields) -> Refused | None:
    """A pod from its JSON, None when it does not wait for us; BadObject where a field has the wrong form."""
    metadata, spec = raw.child("metadata"), raw.child("spec")
    if spec.text("nodeName") or any(spec.children("schedulingGates")):
        return None
    for condition in raw.child("status").children("conditions"):
        said = condition.text("message")
        if condition.text("type") == "PodScheduled" and any(reason in said for reason in THAT_PASS):
            return Refused(read_key(metadata), metadata.required("uid"))
    return None


class Waker:
    """Acts while it leads.

    Parameters
    ----------
    leads
        Asked before every write.
    rest_s
        A pod is left alone for so long after it was seen refused, and after each time it was woken.
    clock, monotonic
        Unix seconds for what is written, monotonic seconds for the rests.
    """

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        rest_s: float,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._leads, self._rest_s = api, leads, rest_s
        self._clock, self._monotonic = clock, monotonic
        self._pods = Reflector(api, path_of(PODS), read_refused, field_selector="spec.nodeName=")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="waking", daemon=True)
        self._left_s: dict[str, float] = {}
        self.woken = 0
        """How often a pod was woken, since the start."""

    def start(self) -> Waker:
        """Begin to watch and to act; returns at once."""
        self._pods.start()
        self._thread.start()
        return self

    def stop(self) -> None:
        """Wake no more."""
        self._ended.set()
        self._thread.join(2.0)
        self._pods.stop()

    @property
    def failing(self) -> int:
        """1 while its watch has no contact."""
        return int(bool(self._pods.problem))

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_S):
            try:
                self.look(self._pods.snapshot().values())
            except (ApiError, BadCredentials) as error:
                log.warning("not woken: %s", error)
            except Exception:  # a fault of ours must show, and must not end the thread
                log.exception("unexpected failure")

    def look(self, waiting: Iterable[Refused]) -> None:
        """Wake those that have rested; an `ApiError` for what could not be written, which is tried after a rest."""
        now_s = self._monotonic()
        pods = {pod.uid: pod for pod in waiting}
        self._left_s = {uid: self._left_s.get(uid, now_s) for uid in pods}
        rested = [uid for uid, since_s in self._left_s.items() if now_s - since_s >= self._rest_s]
        for uid in sorted(rested, key=self._left_s.__getitem__)[:MOST_AT_ONCE]:
            if not self._leads():
                return
            self._left_s[uid] = now_s
            self._wake(pods[uid])

    def _wake(self, pod: Refused) -> None:
        stamp = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        words = {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION: stamp}}}
        try:
            self._api.patch(path_of(PODS, pod.key.namespace, pod.key.name), words)
        except (NotFound, Conflict):
            return  # it is gone, or another has its name
        self.woken += 1
