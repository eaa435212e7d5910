"""State stored in the cluster: the histograms of containers in checkpoints, everything else in PhaseProfiles.

Both are read once, when a VPA becomes ours. Checkpoints are rewritten in turn, and deleted when they are orphaned.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
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
    read_profile,
)
from recommender.cluster.vpas.checkpoints import CONTAINER_UNUSED_S, CheckpointKey, Checkpoints, WriteReport
from recommender.cluster.vpas.status import is_fetching_history
from recommender.cluster.watching.reflector import Reflector
from recommender.errors import BadInput
from recommender.live.steady_clock import SteadyClock
from recommender.live.view.scope import Scope
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import session_of
from recommender.units import MonotonicClock, WallClock, parse_rfc3339_s

log = logging.getLogger(__name__)

MAX_SINGLE_READS = 20
"""Up to this many VPAs are read one by one, for more up to as many namespaces, and beyond that all profiles."""

Statuses = Mapping[ObjectKey, Callable[[], Mapping[str, Mapping[str, object]]]]
"""By VPA: a function that builds the statuses of its containers' checkpoints."""


class CheckpointStore:
    """The histograms of containers as of when their VPA became ours; raises `ApiError` where they cannot be listed."""

    def __init__(self, api: Api, scope: Scope, clock: WallClock, stopwatch: MonotonicClock = time.monotonic) -> None:
        self._scope, self._clock, self._steady_clock = scope, clock, SteadyClock(clock, stopwatch)
        self._checkpoints = Checkpoints(api, time.monotonic, scope.namespace)
        self._histories: dict[ObjectKey, dict[str, HistogramSession]] = {}

    def load(self, fresh: Mapping[ObjectKey, float], others: Collection[ObjectKey]) -> None:
        """Load those of new VPAs, created at these times, and keep those of others; broken ones are skipped."""
        self._histories = {vpa: past for vpa, past in self._histories.items() if vpa in others}
        asked = [vpa for vpa, created_s in fresh.items() if self._checkpoints.may_exist_for(vpa, created_s)]
        for checkpoint in self._checkpoints.load(asked) if asked else ():
            try:
                self.adopt({checkpoint.key: session_of(checkpoint.status, str(checkpoint))})
            except BadInput as error:
                log.warning("%s", error)

    def forget_all(self) -> None:
        """Forget which checkpoints exist: another process may write them from now on."""
        self._checkpoints.listed_s = math.inf

    def forget(self, vpa: ObjectKey) -> None:
        self._checkpoints.forget(vpa)

    def of(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        return self._histories.get(vpa, {}).get(container)

    def containers(self, vpa: ObjectKey) -> Collection[str]:
        """Container names whose history is recent enough to count."""
        oldest_s = self._clock() - CONTAINER_UNUSED_S
        return [container for container, past in self._histories.get(vpa, {}).items() if not past.last_s < oldest_s]

    def adopt(self, histories: Mapping[CheckpointKey, HistogramSession]) -> None:
        """Replace histories from checkpoints by those of another source."""
        for key, past in histories.items():
            self._histories.setdefault(key.vpa, {})[key.container] = past

    def write(
        self, statuses: Statuses, vpas: Mapping[ObjectKey, Vpa], within_s: float, every_s: float, at_most: float
    ) -> WriteReport:
        """Write checkpoints that have not been written for `every_s`, the longest waiting first.

        VPAs whose history is still being fetched by another recommender are skipped, because ours would overwrite it.
        """
        ready = {key: make for key, make in statuses.items() if key not in vpas or not is_fetching_history(vpas[key])}
        return self._checkpoints.write(ready, time.monotonic() + within_s, at_most, every_s)

    def collect(self, existing: Set[ObjectKey], ours: Set[ObjectKey]) -> list[str]:
        """Delete checkpoints whose VPA or container is gone; returns their names.

        That a container is gone shows only in the age of its checkpoint, so the clock must be right.
        """
        by_age = ours if self._steady_clock.is_steady() else frozenset[ObjectKey]()
        return self._checkpoints.collect(existing, by_age, self._clock(), self._scope.covers)


class ProfileStore:
    """State in PhaseProfiles: of each VPA of ours, and of each workload class.

    It is read once, when a VPA becomes ours: in memory for good it would be a tenth of all we use. The watched
    `profiles` show which exist, and their owners.
    """

    def __init__(self, api: Api, scope: Scope, profiles: Reflector[Profile]) -> None:
        self._api, self._scope = api, scope
        self._writer, self._profiles = ProfileWriter(api), profiles
        self._saved: dict[ObjectKey, Profile] = {}
        self._warned = False

    def load(self, vpas: Collection[ObjectKey]) -> None:
        """Read the state of these VPAs; drop what was read for earlier ones."""
        namespaces = sorted({vpa.namespace for vpa in vpas})
        if len(vpas) <= MAX_SINGLE_READS:
            found = [profile for vpa in vpas for profile in self._list(vpa.namespace, f"metadata.name={vpa.name}")]
        elif len(namespaces) <= MAX_SINGLE_READS:
            found = [profile for namespace in namespaces for profile in self._list(namespace)]
        else:
            found = list(self._list(self._scope.namespace))
        self._saved = {profile.key: profile for profile in found if profile.key in vpas and not profile.is_class}

    def saved_state(self, vpa: Vpa) -> str | None:
        """The state saved for a VPA, once; not that of an earlier VPA of the same name."""
        profile = self._saved.pop(vpa.key, None)
        return profile.state if profile is not None and profile.owner_uid == vpa.uid else None

    def saved_classes(self, now_s: float) -> dict[ObjectKey, tuple[str, float]]:
        """The state of each workload class by namespace and name, and when it was last used (unix seconds)."""
        found = {}
        for profile in self._list(self._scope.namespace):
            if profile.is_class and profile.state is not None and profile.key.name.startswith(CLASS_PREFIX):
                key = ObjectKey(profile.key.namespace, profile.key.name.removeprefix(CLASS_PREFIX))
                try:
                    used_s = parse_rfc3339_s(profile.updated)
                except ValueError:  # unknown
                    used_s = now_s
                found[key] = profile.state, used_s
        return found

    def write_profile(self, vpa: Vpa, status: Mapping[str, Any]) -> None:
        """Write the profile of a VPA; `Unreachable` until the profiles have been listed: the next round tries again."""
        if not self._profiles.synced:
            raise Unreachable(f"PhaseProfiles cannot be listed: {self._profiles.problem or 'not yet'}")
        self._writer.write(vpa, status, self._profiles.snapshot().get(vpa.key))

    def write_class_profile(self, key: ObjectKey, status: Mapping[str, Any]) -> None:
        self._writer.write_class(key, status)

    def delete_class_profile(self, key: ObjectKey) -> None:
        """Delete the profile of a workload class, unless a VPA owns it."""
        present = self._profiles.snapshot().get(class_profile_key(key))
        if present is None or not present.owner_uid:
            self._writer.delete_class(key)

    def _list(self, namespace: str | None, field_selector: str = "") -> Iterator[Profile]:
        """Profiles in a namespace, or in all; none where the CRD is not installed or may not be read.

        The latter is logged once: otherwise nobody would know why everything starts from nothing after a restart.
        """
        query = {"fieldSelector": field_selector} if field_selector else None
        try:
            for page in self._api.list_pages(path_of(PROFILES, namespace), query):
                for raw in page.get("items") or ():
                    try:
                        profile = read_profile(raw)
                    except BadObject as error:
                        log.warning("skipped: %s", error)
                        continue
                    if self._scope.covers(profile.key.namespace):
                        yield profile
        except NotFound:
            return
        except Forbidden as error:
            if not self._warned:
                self._warned = True
                log.warning("PhaseProfiles cannot be read, so learning starts from nothing: %s", error)
