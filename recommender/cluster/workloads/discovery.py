"""API discovery: the resource of a kind, and whether it has a scale subresource."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from recommender.base.units import MonotonicClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ClusterError, NotFound
from recommender.cluster.objects.reading import Fields, reads

CACHE_TTL_S = 300.0
"""As upstream's REST mapper."""

ABSENT_TTL_S = 30.0
"""For "no such kind": a CRD is often applied just after the objects that refer to it."""

_API_VERSION = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[a-z0-9]([-a-z0-9]*[a-z0-9])?)?")


class Resource(NamedTuple):
    """The resource of a kind: apiVersion, plural, and whether it has a scale subresource."""

    api_version: str
    plural: str
    scalable: bool


class Discovery:
    """Looks up kinds, cached for five minutes. Raises a `ClusterError` without a readable answer."""

    def __init__(self, api: Api, clock: MonotonicClock) -> None:
        self._api, self._clock = api, clock
        self._cache: dict[str, tuple[Mapping[str, Resource], float]] = {}
        """The kinds of a version or group, and when the entry expires."""

    def find(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind in this version, else in the preferred one of the group; None without either."""
        if not _API_VERSION.fullmatch(api_version):
            return None  # whoever writes a targetRef or an owner chooses it: it must not request anything else
        found = self._kinds(api_version).get(kind)
        if found is not None or "/" not in api_version:
            return found
        return self._kinds(api_version.partition("/")[0]).get(kind)

    def _kinds(self, group_version: str) -> Mapping[str, Resource]:
        """The kinds of a version, or of the preferred version of a group (no `/`, except `v1`)."""
        cached = self._cache.get(group_version)
        if cached is not None and self._clock() < cached[1]:
            return cached[0]
        try:
            kinds = self._fetch(group_version)
        except ClusterError:
            if cached is None:
                raise
            kinds = cached[0]  # served kinds rarely change: prefer a stale entry to none
        now_s = self._clock()
        self._cache = {name: entry for name, entry in self._cache.items() if entry[0] or now_s < entry[1]}
        self._cache[group_version] = kinds, now_s + (CACHE_TTL_S if kinds else ABSENT_TTL_S)
        return kinds

    def _fetch(self, group_version: str) -> Mapping[str, Resource]:
        try:
            if group_version == "v1":
                return _read_resources(self._api.get("/api/v1"))
            answer = self._api.get(f"/apis/{group_version}")
        except NotFound:
            return {}
        return _read_resources(answer) if "/" in group_version else self._kinds(_read_group(answer))


def served_resources(api: Api, kinds: Collection[tuple[str, str]]) -> dict[tuple[str, str], Resource]:
    """The resources of (group, kind) that the server has now, in the preferred version of the group if it has them."""
    groups = {group for group, _ in kinds}
    found: dict[tuple[str, str], Resource] = {}
    for group, versions in _read_groups(api.get("/apis")).items():
        for version in versions if group in groups else ():
            for kind, resource in _read_resources(api.get(f"/apis/{version}")).items():
                if (group, kind) in kinds:
                    found.setdefault((group, kind), resource)
    return found


@reads("APIGroupList")
def _read_groups(raw: Fields) -> Mapping[str, tuple[str, ...]]:
    """Versions by group, the preferred one first."""
    found = {}
    for group in raw.children("groups"):
        preferred = group.child("preferredVersion").text("groupVersion")
        versions = [version.required("groupVersion") for version in group.children("versions")]
        found[group.required("name")] = tuple(sorted(versions, key=lambda version: version != preferred))
    return found


@reads("APIGroup")
def _read_group(raw: Fields) -> str:
    return raw.child("preferredVersion").required("groupVersion")


@reads("APIResourceList")
def _read_resources(raw: Fields) -> Mapping[str, Resource]:
    listed = [(entry.required("name"), entry.text("kind")) for entry in raw.children("resources")]
    scalable = {name.removesuffix("/scale") for name, _ in listed if name.endswith("/scale")}
    version = raw.text("groupVersion")
    return {kind: Resource(version, name, name in scalable) for name, kind in listed if "/" not in name}
