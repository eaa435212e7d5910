"""The only writer of VPA statuses: writes only differences, and never overwrites somebody else's change."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from recommender.base.records import ContainerRecommendation
from recommender.base.units import WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa, json_of, read_vpa
from recommender.cluster.paths import VPAS, json_patch, path_of
from recommender.cluster.vpas.status import Condition, same_status, status_of, status_without

MAX_ATTEMPTS = 2
"""Per round, when somebody else writes at the same time."""


class VpaWriter:
    """Publishes recommendations. Thread-safe, but only one thread may write the same VPA.

    The patch tests the uid and resourceVersion that the status was built from. On a conflict the VPA is read again, and
    the status rebuilt and sent once more.
    """

    def __init__(self, api: Api, wall_clock: WallClock) -> None:
        self._api, self._wall_clock = api, wall_clock
        self._last_written: dict[ObjectKey, int] = {}

    def matches_last_write(self, vpa: Vpa) -> bool:
        """Whether its status is exactly what we last wrote."""
        return self._last_written.get(vpa.key) == hash(vpa.status_json)

    def remove_conditions(self, vpa: Vpa, conditions: Container[str]) -> None:
        """Remove conditions from the status of a VPA, if there are any; a ClusterError if it has changed meanwhile."""
        wanted = status_without(vpa, conditions)
        if not same_status(wanted, vpa.status):
            self._send(vpa, wanted)

    def forget(self, vpa: ObjectKey) -> None:
        """Forget a VPA that is gone, or now belongs to another recommender."""
        self._last_written.pop(vpa, None)

    def publish(
        self,
        vpa: Vpa,
        recommendations: Iterable[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        """Write the status of a VPA, see `status_of`; nothing is sent if it is up to date, or if the VPA is gone.

        After repeated conflicts it is left to the next round; any other failure raises a ClusterError.
        """
        wanted = tuple(recommendations)
        for _ in range(MAX_ATTEMPTS):
            status = status_of(vpa, wanted, conditions, self._wall_clock())
            if same_status(status, vpa.status):
                return
            try:
                self._send(vpa, status)
            except (Conflict, Invalid, NotFound):
                if (current := self._current(vpa)) is None:
                    return
                if current.resource_version == vpa.resource_version:
                    raise  # no conflict: the server rejects this status
                vpa = current
            else:
                return

    def _current(self, vpa: Vpa) -> Vpa | None:
        """The current VPA; None if it is gone, or replaced by another one of its name."""
        try:
            current = read_vpa(self._api.get(path_of(VPAS, *vpa.key)))
        except NotFound:
            return None
        return current if current.uid == vpa.uid else None

    def _send(self, vpa: Vpa, status: Mapping[str, Any]) -> None:
        unchanged = {"/metadata/uid": vpa.uid, "/metadata/resourceVersion": vpa.resource_version}
        patch = json_patch(unchanged, {"/status": status})
        self._last_written.pop(vpa.key, None)
        self._api.patch(path_of(VPAS, *vpa.key, "status"), patch, metadata_only=True)
        self._last_written[vpa.key] = hash(json_of(status))
