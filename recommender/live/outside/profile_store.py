"""State stored in PhaseProfiles: everything but the histograms of containers, which are in checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
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
from recommender.cluster.watching.reflector import Reflector
from recommender.live.view.scope import Scope
from recommender.units import parse_rfc3339_s

log = logging.getLogger(__name__)

MAX_SINGLE_READS = 20
"""Up to this many VPAs are read one by one, for more up to as many namespaces, and beyond that all profiles."""


class ProfileStore:
    """State in PhaseProfiles of VPAs and workload classes; the watched `profiles` show which exist, and their owners.

    It is read once, when a VPA becomes ours: in memory for good it would be a tenth of all we use.
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

    def write_class_profile(self, key: ObjectKey, status: Mapping[str, Any] | None) -> None:
        """Write the profile of a workload class; None deletes it, unless a VPA owns it."""
        if status is not None:
            self._writer.write_class(key, status)
            return
        present = self._profiles.snapshot().get(class_profile_key(key))
        if present is None or not present.owner_uid:
            self._writer.delete_class(key)

    def _list(self, namespace: str | None, field_selector: str = "") -> Iterator[Profile]:
        """Profiles in a namespace, or in all; none without the CRD, or the right to read them, which is logged once."""
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
