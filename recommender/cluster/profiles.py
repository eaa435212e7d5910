"""PhaseProfiles: owners (watched), stored state (listed at the start), and writing them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recommender.base.units import parse_rfc3339_s
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, Conflict, Forbidden, Invalid, NotFound, Unreachable
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.paths import json_patch, new_object, path_of
from recommender.cluster.watching.reflector import Reflector

log = logging.getLogger(__name__)

PROFILES = ("phasewise.dev/v1alpha1", "phaseprofiles")

CLASS_PREFIX = "class."

MOVE = "phasewise.dev/move"
"""Annotation: the controller's last message on moving one of its pods. For people."""

CLEARED_FIELDS = ("phase", "since", "next", "when", "confidence", "category", "cpu", "memory", "why", "conditions")
"""Status fields that are removed when a new status lacks them."""

MAX_SINGLE_READS = 20
"""Up to this many VPAs are read one by one, for more up to as many namespaces, and beyond that all profiles."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A PhaseProfile: its owner, and the state it stores across restarts (unknown to a watch of metadata).

    `owner_uid` is the UID of the VPA, empty for a workload class; `updated` when it was last written, as text.
    """

    key: ObjectKey
    owner_uid: str
    is_class: bool = False
    state: str | None = None
    updated: str = ""


@reads("PhaseProfile")
def read_profile(raw: Fields) -> Profile:
    metadata, status = raw.child("metadata"), raw.child("status")
    owner_uid = next((owner.text("uid") for owner in metadata.children("ownerReferences")), "")
    is_class, state = raw.child("spec").flag("class"), status.text("state") if "state" in status else None
    return Profile(read_key(metadata), owner_uid, is_class, state, status.text("updated"))


def class_profile_key(key: ObjectKey) -> ObjectKey:
    """The key of a workload class's profile; the prefix separates it from that of a VPA of the same name."""
    return ObjectKey(key.namespace, CLASS_PREFIX + key.name)


class ProfileStore:
    """PhaseProfiles of VPAs and workload classes, in one namespace or all; `watched` shows which exist, and for whom.

    They hold everything that is kept but the histograms of containers, which are in checkpoints. Those of namespaces
    that it `covers` are read once, when a VPA becomes ours: in memory for good they would be a tenth of all we use.
    """

    def __init__(
        self, api: Api, watched: Reflector[Profile], namespace: str | None, covers: Callable[[str], bool]
    ) -> None:
        self._api, self._watched, self._namespace, self._covers = api, watched, namespace, covers
        self._saved: dict[ObjectKey, Profile] = {}
        self._warned = False

    # -- reading ---------------------------------------------------------------------------------------------------

    def load(self, vpas: Collection[ObjectKey]) -> None:
        """Read the state of these VPAs; drop what was read for earlier ones."""
        namespaces = sorted({vpa.namespace for vpa in vpas})
        if len(vpas) <= MAX_SINGLE_READS:
            found = [profile for vpa in vpas for profile in self._list(vpa.namespace, f"metadata.name={vpa.name}")]
        elif len(namespaces) <= MAX_SINGLE_READS:
            found = [profile for namespace in namespaces for profile in self._list(namespace)]
        else:
            found = list(self._list(self._namespace))
        self._saved = {profile.key: profile for profile in found if profile.key in vpas and not profile.is_class}

    def saved_state(self, vpa: Vpa) -> str | None:
        """The state saved for a VPA, once; not that of an earlier VPA of the same name."""
        profile = self._saved.pop(vpa.key, None)
        return profile.state if profile is not None and profile.owner_uid == vpa.uid else None

    def saved_classes(self, now_s: float) -> dict[ObjectKey, tuple[str, float]]:
        """The state of each workload class by namespace and name, and when it was last used (unix seconds)."""
        found = {}
        for profile in self._list(self._namespace):
            if profile.is_class and profile.state is not None and profile.key.name.startswith(CLASS_PREFIX):
                key = ObjectKey(profile.key.namespace, profile.key.name.removeprefix(CLASS_PREFIX))
                try:
                    used_s = parse_rfc3339_s(profile.updated)
                except ValueError:  # unknown
                    used_s = now_s
                found[key] = profile.state, used_s
        return found

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
                    if self._covers(profile.key.namespace):
                        yield profile
        except NotFound:
            return
        except Forbidden as error:
            if not self._warned:
                self._warned = True
                log.warning("PhaseProfiles cannot be read, so learning starts from nothing: %s", error)

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, vpa: Vpa, status: Mapping[str, Any]) -> bool:
        """Write the profile of a VPA, under its name and owned by it; False when one of them is being deleted.

        Fields of `CLEARED_FIELDS` that the status lacks are removed; other missing ones (`state`) stay. The profile of
        a former VPA is adopted, and `Invalid` raised if the name belongs to a workload class. `Unreachable` until the
        profiles have been listed: the next round tries again.
        """
        if not self._watched.synced:
            raise Unreachable(f"PhaseProfiles cannot be listed: {self._watched.problem or 'not yet'}")
        existing = self._watched.snapshot().get(vpa.key)
        try:
            if existing is None:
                try:
                    self._create(vpa.key, of_class=False, ownerReferences=[_owner(vpa)])
                except Conflict:  # it exists, but the watch has not delivered it yet
                    self._adopt(vpa)
            elif existing.owner_uid != vpa.uid:
                self._adopt(vpa)
            content = {"status": {**dict.fromkeys(CLEARED_FIELDS), **status}}
            self._api.patch(path_of(PROFILES, *vpa.key, "status"), content, metadata_only=True)
        except NotFound:  # deleted in the meantime; the next round sees that
            return False
        return True

    def write_class(self, key: ObjectKey, status: Mapping[str, Any] | None) -> None:
        """Write the profile of a workload class, which has no owner; None deletes it, unless a VPA owns it."""
        name = class_profile_key(key)
        if status is None:
            present = self._watched.snapshot().get(name)
            if present is None or not present.owner_uid:
                with suppress(NotFound):
                    self._api.delete(path_of(PROFILES, *name))
            return
        path = path_of(PROFILES, *name, "status")
        change = json_patch({"/spec/class": True}, {"/status": dict(status)})  # otherwise it belongs to a VPA
        try:
            self._api.patch(path, change)
        except NotFound:
            with suppress(NotFound):  # its namespace is being deleted
                self._create(name, of_class=True)
                self._api.patch(path, change)

    def _create(self, key: ObjectKey, *, of_class: bool, **metadata: Any) -> None:
        metadata = {"name": key.name, "namespace": key.namespace, **metadata}
        body = new_object(PROFILES, "PhaseProfile", metadata, spec={"class": of_class})
        self._api.create(path_of(PROFILES, key.namespace), body)

    def _adopt(self, vpa: Vpa) -> None:
        """Adopt the profile of a former VPA of this name, but not that of a workload class."""
        change = json_patch({"/spec/class": False}, {"/metadata/ownerReferences": [_owner(vpa)]})
        try:
            self._api.patch(path_of(PROFILES, *vpa.key), change)
        except Invalid as error:
            message = f"the name is that of a workload class's profile: the VPA has none ({error})"
            raise Invalid(message, status=error.status) from error


def _owner(vpa: Vpa) -> dict[str, Any]:
    kind = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    return {**kind, "name": vpa.key.name, "uid": vpa.uid, "controller": True, "blockOwnerDeletion": False}
