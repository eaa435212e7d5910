"""The only door through which a VPA is written: its status, on difference, and never over somebody else's change."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from enum import StrEnum
from typing import Any

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ClusterError, Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa, json_of, read_vpa
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.vpas.status import Condition, same_status, status_of, status_without
from recommender.records import ContainerRecommendation


class Outcome(StrEnum):
    """What came of publishing."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    GONE = "gone"
    """The VPA was deleted, or another one has its name."""
    CONFLICT = "conflict"
    """It kept changing under our hands; the next round sees it as it is then."""


class VpaWriter:
    """Publishes recommendations. For many threads at once; one VPA at a time by one of them.

    The patch holds the uid and resourceVersion that the status was built from. When those are no longer true, the VPA
    is read again, the status built anew on it, and sent once more.

    Attributes
    ----------
    outcomes
        How often each outcome came; `failed` counts the errors that were raised.
    subresource
        Whether the resource has a status subresource. Upstream's always has; where ours is told that it has none, the
        main resource is patched (which needs the right to), until a write to it turns out to be ignored.
    """

    def __init__(self, api: Api, wall_clock: Callable[[], float]) -> None:
        self._api, self._wall_clock = api, wall_clock
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.subresource = True
        self._written: dict[ObjectKey, int] = {}

    def stands(self, vpa: Vpa) -> bool:
        """Whether its status is, to the letter, what was written there last."""
        return self._written.get(vpa.key) == hash(vpa.status_json)

    def withdraw(self, vpa: Vpa, conditions: Container[str]) -> None:
        """Take conditions out of the status of a VPA, and leave all else; nothing is sent where there are none.

        Raises
        ------
        ClusterError
            It could not be written. Where somebody else writes it meanwhile, theirs stands.
        """
        wanted = status_without(vpa, conditions)
        if not same_status(wanted, vpa.status):
            self._send(vpa, wanted, self.subresource)

    def forget(self, vpa: ObjectKey) -> None:
        """It is gone, or another recommender's."""
        self._written.pop(vpa, None)

    def publish(
        self,
        vpa: Vpa,
        recommendations: Iterable[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> Outcome:
        """Make the status of a VPA say this; nothing is sent when it does already.

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
        try:
            outcome = self._publish(vpa, wanted, conditions)
        except ClusterError:
            self._count("failed")
            raise
        self._count(outcome)
        return outcome

    def _publish(
        self,
        vpa: Vpa,
        wanted: tuple[ContainerRecommendation, ...],
        conditions: Mapping[str, Condition | None],
        again: bool = False,
    ) -> Outcome:
        subresource = self.subresource
        status = status_of(vpa, wanted, conditions, self._wall_clock())
        if same_status(status, vpa.status):
            return Outcome.UNCHANGED
        try:
            return self._send(vpa, status, subresource)
        except (Conflict, Invalid, NotFound) as error:
            if (present := self._present(vpa)) is None:
                return Outcome.GONE
            if isinstance(error, NotFound) and subresource:
                self.subresource = False  # the object is there, so it is its status that is not
            elif isinstance(error, NotFound) or present.resource_version == vpa.resource_version:
                raise  # nobody interfered: the server will not have this status
        return Outcome.CONFLICT if again else self._publish(present, wanted, conditions, again=True)

    def _present(self, vpa: Vpa) -> Vpa | None:
        """The VPA as it is now; None when it is gone or another one has taken its name."""
        try:
            present = read_vpa(self._api.get(path_of(VPAS, *vpa.key)))
        except NotFound:
            return None
        return present if present.uid == vpa.uid else None

    def _send(self, vpa: Vpa, status: Mapping[str, Any], subresource: bool) -> Outcome:
        patch: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": vpa.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": vpa.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        self._written.pop(vpa.key, None)
        path = path_of(VPAS, *vpa.key, "status" if subresource else None)
        answer = self._api.patch(path, patch, metadata_only=subresource)
        if not subresource and not same_status(answer.get("status") or {}, status):
            self.subresource = True  # dropped without a word: the resource has one by now
            return Outcome.CONFLICT
        self._written[vpa.key] = hash(json_of(status))
        return Outcome.WRITTEN

    def _count(self, outcome: str) -> None:
        with self._lock:
            self.outcomes[outcome] += 1
