"""The only door through which a VPA is written: its status, on difference, and never over somebody else's change."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa, json_of, read_vpa
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.vpas.status import Condition, same_status, status_of, status_without
from recommender.records import ContainerRecommendation

MAX_ATTEMPTS = 2
"""In one round, where somebody else writes at the same time."""


class VpaWriter:
    """Publishes recommendations. For many threads at once; one VPA at a time by one of them.

    The patch holds the uid and resourceVersion that the status was built from. When those are no longer true, the VPA
    is read again, the status built anew on it, and sent once more.
    """

    def __init__(self, api: Api, wall_clock: Callable[[], float]) -> None:
        self._api, self._wall_clock = api, wall_clock
        self._last_written: dict[ObjectKey, int] = {}

    def matches_last_write(self, vpa: Vpa) -> bool:
        """Whether its status is, to the letter, what was written there last."""
        return self._last_written.get(vpa.key) == hash(vpa.status_json)

    def remove_conditions(self, vpa: Vpa, conditions: Container[str]) -> None:
        """Take conditions out of the status of a VPA, and leave all else; nothing is sent where there are none.

        Raises
        ------
        ClusterError
            It could not be written. Where somebody else writes it meanwhile, theirs stands.
        """
        wanted = status_without(vpa, conditions)
        if not same_status(wanted, vpa.status):
            self._send(vpa, wanted)

    def forget(self, vpa: ObjectKey) -> None:
        """It is gone, or another recommender's."""
        self._last_written.pop(vpa, None)

    def publish(
        self,
        vpa: Vpa,
        recommendations: Iterable[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        """Make the status of a VPA say this; nothing is sent when it does already, or when the VPA is gone.

        One that keeps changing under our hands is left to the next round, which sees it as it is then.

        Parameters
        ----------
        vpa
            As last seen by the reflector.
        recommendations, conditions
            See `status_of`.

        Raises
        ------
        ClusterError
            Any other failure (`Forbidden`, `Unreachable`, ...); nothing was written then, as far as can be known.
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
                    raise  # nobody interfered: the server will not have this status
                vpa = current
            else:
                return

    def _current(self, vpa: Vpa) -> Vpa | None:
        """The VPA as it is now; None when it is gone or another one has taken its name."""
        try:
            current = read_vpa(self._api.get(path_of(VPAS, *vpa.key)))
        except NotFound:
            return None
        return current if current.uid == vpa.uid else None

    def _send(self, vpa: Vpa, status: Mapping[str, Any]) -> None:
        patch: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": vpa.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": vpa.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        self._last_written.pop(vpa.key, None)
        self._api.patch(path_of(VPAS, *vpa.key, "status"), patch, metadata_only=True)
        self._last_written[vpa.key] = hash(json_of(status))
