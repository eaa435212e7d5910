"""What checkpoints know of the containers of our VPAs: read when a VPA comes, written in turn, cleared away at last."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Set

from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.vpas.checkpoints import CONTAINER_UNUSED_S, CheckpointKey, Checkpoints, WriteReport
from recommender.cluster.vpas.status import fetches_history
from recommender.errors import BadInput
from recommender.live.view.scope import Scope
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import session_of

log = logging.getLogger(__name__)

Statuses = Mapping[ObjectKey, Callable[[], Mapping[str, Mapping[str, object]]]]
"""By VPA, what gives the statuses of its containers' checkpoints."""


class Histories:
    """The histograms of containers, as they were when their VPA came to us; an `ApiError` where they cannot be listed.

    Parameters
    ----------
    clock
        Unix seconds.
    """

    def __init__(self, api: Api, scope: Scope, clock: Callable[[], float]) -> None:
        self._scope, self._clock = scope, clock
        self._checkpoints = Checkpoints(api, time.monotonic, scope.namespace)
        self._known: dict[ObjectKey, dict[str, HistogramSession]] = {}

    def load(self, fresh: Mapping[ObjectKey, float], others: Collection[ObjectKey]) -> None:
        """Read those of VPAs that have come, and keep those of others; broken ones are left out.

        Parameters
        ----------
        fresh
            When each was made, unix seconds.
        """
        self._known = {vpa: past for vpa, past in self._known.items() if vpa in others}
        asked = [vpa for vpa, created_s in fresh.items() if self._checkpoints.may_have(vpa, created_s)]
        for checkpoint in self._checkpoints.load(asked) if asked else ():
            try:
                self.adopt({checkpoint.key: session_of(checkpoint.status, str(checkpoint))})
            except BadInput as error:
                log.warning("%s", error)

    def forget_all(self) -> None:
        """Somebody else may write checkpoints from now on."""
        self._checkpoints.listed_s = math.inf

    def forget(self, vpa: ObjectKey) -> None:
        """It is gone, or another recommender's."""
        self._checkpoints.forget(vpa)

    def of(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        return self._known.get(vpa, {}).get(container)

    def containers(self, vpa: ObjectKey) -> Collection[str]:
        """Those of which something is known that is not too old to count."""
        oldest_s = self._clock() - CONTAINER_UNUSED_S
        return [container for container, past in self._known.get(vpa, {}).items() if not past.last_s < oldest_s]

    def adopt(self, histories: Mapping[CheckpointKey, HistogramSession]) -> None:
        """What another source knows of the time before, in the place of checkpoints."""
        for key, past in histories.items():
            self._known.setdefault(key.vpa, {})[key.container] = past

    def keep(
        self, statuses: Statuses, vpas: Mapping[ObjectKey, Vpa], within_s: float, every_s: float, at_most: float
    ) -> WriteReport:
        """Write checkpoints of those that have not been written for `every_s`, the longest waiting first.

        Not of those whose history somebody is still fetching: ours would be written over it.
        """
        ready = {key: told for key, told in statuses.items() if key not in vpas or not fetches_history(vpas[key])}
        return self._checkpoints.write(ready, time.monotonic() + within_s, at_most, every_s)

    def clear_away(self, existing: Set[ObjectKey], ours: Set[ObjectKey]) -> list[str]:
        """Delete checkpoints whose VPA or container is gone; returns the names of those that went."""
        return self._checkpoints.collect(existing, ours, self._clock(), self._scope.covers)
