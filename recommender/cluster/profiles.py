"""PhaseProfiles: owners (watched), stored state (listed at the start), and writing them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.paths import json_patch, new_object, path_of

PROFILES = ("phasewise.dev/v1alpha1", "phaseprofiles")

CLASS_PREFIX = "class."

MOVE = "phasewise.dev/move"
"""Annotation: the controller's last message on moving one of its pods. For people."""

CLEARED_FIELDS = ("phase", "since", "next", "when", "confidence", "category", "cpu", "memory", "why", "conditions")
"""Status fields that are removed when a new status lacks them."""


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


class ProfileWriter:
    """Writes the profile of a VPA under the VPA's name, owned by it: garbage-collected with the VPA."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def write(self, vpa: Vpa, status: Mapping[str, Any], existing: Profile | None) -> bool:
        """Write the status of a profile; False when profile, VPA or namespace is being deleted.

        Fields of `CLEARED_FIELDS` that the status lacks are removed; other missing ones (`state`) stay. `existing` is
        the profile as last seen; that of a former VPA is adopted, and `Invalid` raised if the name belongs to a
        workload class.
        """
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

    def write_class(self, key: ObjectKey, status: Mapping[str, Any]) -> None:
        """Write the status of a workload class's profile, which has no owner."""
        name = class_profile_key(key)
        path = path_of(PROFILES, *name, "status")
        change = json_patch({"/spec/class": True}, {"/status": dict(status)})  # otherwise it belongs to a VPA
        try:
            self._api.patch(path, change)
        except NotFound:
            with suppress(NotFound):  # its namespace is being deleted
                self._create(name, of_class=True)
                self._api.patch(path, change)

    def delete_class(self, key: ObjectKey) -> None:
        with suppress(NotFound):
            self._api.delete(path_of(PROFILES, *class_profile_key(key)))

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
