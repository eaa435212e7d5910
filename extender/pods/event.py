"""Kubernetes Events on pods."""

from __future__ import annotations

import logging
import textwrap

from recommender.base.units import WallClock, format_time
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import EVENTS, path_of

log = logging.getLogger(__name__)

MAX_NOTE = 160  # characters: two lines of a terminal


class Events:
    """Writes events of one component; `clock` returns unix seconds."""

    def __init__(self, api: Api, component: str, clock: WallClock) -> None:
        self._api, self._component, self._clock = api, component, clock

    def write(self, pod: ObjectKey, uid: str, reason: str, text: str, *, warning: bool = False) -> bool:
        now = format_time(self._clock())
        on = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": uid}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
            "involvedObject": on,
            "reason": reason,
            "message": textwrap.shorten(text, MAX_NOTE, placeholder=" …"),
            "type": "Warning" if warning else "Normal",
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._api.create(path_of(EVENTS, pod.namespace), event)
        except (ApiError, BadCredentials) as error:
            log.warning("no event on %s: %s", pod, error)
            return False
        return True
