"""What pods are seen to use, asked of metrics.k8s.io every minute, for those of which nothing else is known."""

from __future__ import annotations

import logging
from collections import defaultdict

from extender.pods.learned import PodName
from extender.pods.pod import Pair
from extender.repeating import Repeating
from extender.view.state import ClusterState
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials, NotFound
from recommender.cluster.usage.metrics_api import read_usage

log = logging.getLogger(__name__)

EVERY_S = 60.0
"""As often as metrics-server looks by default."""

SOON_S = 5.0
"""At the start, and after a failure."""


class Measuring:
    """Asks on a thread of its own, and only while there are pods with neither profile nor requests.

    Attributes
    ----------
    failing
        1 while the metrics API is there and does not answer as it should, or we may not ask it.
    """

    def __init__(self, api: Api, state: ClusterState) -> None:
        self._api, self._state = api, state
        self._pause_s = SOON_S
        self.looking = Repeating("measuring", self.look, lambda: self._pause_s)
        self.failing = 0

    def look(self) -> None:
        """Ask once. Without the metrics API these pods are guessed, as they are before it has seen them."""
        self._pause_s = EVERY_S
        silent = self._state.silent
        if not silent:
            return
        try:
            report = read_usage(self._api)
        except NotFound:
            self.failing = 0
            return
        except (ApiError, BadCredentials) as error:
            if not self.failing:
                log.warning("what pods use is not known: %s", error)
            self._pause_s, self.failing = SOON_S, 1
            return
        self.failing = 0
        for problem in report.broken.values():
            log.warning("not measured: %s", problem)
        use: defaultdict[PodName, dict[str, Pair]] = defaultdict(dict)
        for key, seen in report.samples.items():
            if (name := (key.namespace, key.pod)) in silent:
                use[name][key.container] = (seen.cpu_cores, seen.memory_bytes)
        self._state.put_use(use)
