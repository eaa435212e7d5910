"""What is kept in the cluster: the histograms of containers in checkpoints, all else in PhaseProfiles.

Of a VPA both are read when it comes to us. Checkpoints are written in turn, and cleared away at last.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from datetime import datetime
from typing import Any

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, Forbidden, NotFound, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.paths import path_of
from recommender.cluster.profiles import (
    CLASS_PREFIX,
    PROFILES,
    Profile,
    ProfileWriter,
    class_profile_key,
    read_stored_profile,
)
from recommender.cluster.vpas.checkpoints import CONTAINER_UNUSED_S, CheckpointKey, Checkpoints, WriteReport
from recommender.cluster.vpas.status import is_fetching_history
from recommender.cluster.watching.reflector import Reflector
from recommender.errors import BadInput
from recommender.live.view.scope import Scope
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import session_of

log = logging.getLogger(__name__)

ASKED_APART = 20
"""Up to so many VPAs are asked for one by one; for more all profiles are listed."""

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
        asked = [vpa for vpa, created_s in fresh.items() if self._checkpoints.may_exist_for(vpa, created_s)]
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
        ready = {key: told for key, told in statuses.items() if key not in vpas or not is_fetching_history(vpas[key])}
        return self._checkpoints.write(ready, time.monotonic() + within_s, at_most, every_s)

    def clear_away(self, existing: Set[ObjectKey], ours: Set[ObjectKey]) -> list[str]:
        """Delete checkpoints whose VPA or container is gone; returns the names of those that went."""
        return self._checkpoints.collect(existing, ours, self._clock(), self._scope.covers)


class ProfileStore:
    """What is kept in PhaseProfiles: of each VPA of ours, and of each workload class.

    It is read once, when a VPA comes to us: held in mind for ever it would be a tenth of our memory.

    Parameters
    ----------
    profiles
        Watches whose they are.
    """

    def __init__(self, api: Api, scope: Scope, profiles: Reflector[Profile]) -> None:
        self._api, self._scope = api, scope
        self._writer, self._profiles = ProfileWriter(api), profiles
        self._kept: dict[ObjectKey, Profile] = {}
        self._told = False

    def load(self, vpas: Collection[ObjectKey]) -> None:
        """Read what is kept of these; of those that were asked for before it is forgotten.

        Raises
        ------
        ApiError
            It cannot be read.
        """
        if len(vpas) <= ASKED_APART:
            found = [kept for vpa in vpas for kept in self._listed(vpa.namespace, f"metadata.name={vpa.name}")]
        else:
            found = list(self._listed(self._scope.namespace))
        self._kept = {kept.key: kept for kept in found if kept.key in vpas and not kept.is_class}

    def kept(self, vpa: Vpa) -> str | None:
        """The state kept for a VPA, once; that of another VPA which had the name before is not its."""
        kept = self._kept.pop(vpa.key, None)
        return kept.state if kept is not None and kept.owner_uid == vpa.uid else None

    def classes(self, now_s: float) -> dict[ObjectKey, tuple[str, float]]:
        """The state of each workload class by namespace and name, and when it was used last (unix seconds)."""
        found = {}
        for kept in self._listed(self._scope.namespace):
            if kept.is_class and kept.state is not None and kept.key.name.startswith(CLASS_PREFIX):
                key = ObjectKey(kept.key.namespace, kept.key.name.removeprefix(CLASS_PREFIX))
                found[key] = kept.state, _moment_of(kept.updated, now_s)
        return found

    def show(self, vpa: Vpa, status: Mapping[str, Any]) -> None:
        """Make the profile of a VPA say this.

        Raises
        ------
        Unreachable
            The profiles have not been listed: the next round tries again.
        """
        if not self._profiles.synced:
            raise Unreachable(f"PhaseProfiles cannot be listed: {self._profiles.problem or 'not yet'}")
        self._writer.write(vpa, status, self._profiles.snapshot().get(vpa.key))

    def show_class(self, key: ObjectKey, status: Mapping[str, Any]) -> None:
        """Make the profile of a workload class say this."""
        self._writer.write_class(key, status)

    def drop_class(self, key: ObjectKey) -> None:
        """Delete the profile of a workload class; one that a VPA owns is that VPA's."""
        present = self._profiles.snapshot().get(class_profile_key(key))
        if present is None or not present.owner_uid:
            self._writer.delete_class(key)

    def _listed(self, namespace: str | None, field_selector: str = "") -> Iterator[Profile]:
        """What is kept in a namespace, or in all; nothing where profiles are not installed, or not ours to read.

        The latter is said, once: after a restart everything would start anew, and nobody would know why.
        """
        query = {"fieldSelector": field_selector} if field_selector else None
        try:
            for page in self._api.list_pages(path_of(PROFILES, namespace), query):
                for raw in page.get("items") or ():
                    try:
                        kept = read_stored_profile(raw)
                    except BadObject as error:
                        log.warning("passed over: %s", error)
                        continue
                    if self._scope.covers(kept.key.namespace):
                        yield kept
        except NotFound:
            return
        except Forbidden as error:
            if not self._told:
                self._told = True
                log.warning("what PhaseProfiles keep cannot be read, so all starts anew: %s", error)


def _moment_of(words: str, default_s: float) -> float:
    try:
        return datetime.fromisoformat(words).timestamp()
    except ValueError:
        return default_s
