"""PhaseProfiles: whose they are by a watch, what they keep by a list at the start, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.paths import path_of

PROFILES = ("phasewise.dev/v1alpha1", "phaseprofiles")

CLASS_PREFIX = "class."
"""What the name of a workload class's profile begins with."""

MOVE = "phasewise.dev/move"
"""Annotation: what the controller said last of a move of one of its pods. For people."""

CLEARED_FIELDS = ("phase", "since", "next", "when", "confidence", "category", "cpu", "memory", "why", "conditions")
"""What a status may cease to say."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A PhaseProfile: whose it is, and what it keeps over a restart. Of the latter the watch knows nothing.

    Attributes
    ----------
    owner_uid
        Of the VPA; empty for a workload class.
    state
        None where it keeps nothing.
    updated
        When it was changed, as written; empty where it does not say.
    """

    key: ObjectKey
    owner_uid: str
    is_class: bool = False
    state: str | None = None
    updated: str = ""


@reads("PhaseProfile")
def read_profile(raw: Fields) -> Profile:
    """Whose a PhaseProfile is, from its JSON, or from its metadata alone."""
    metadata = raw.child("metadata")
    owners = [owner.text("uid") for owner in metadata.children("ownerReferences")]
    return Profile(read_key(metadata), owners[0] if owners else "")


@reads("PhaseProfile")
def read_stored_profile(raw: Fields) -> Profile:
    """Also what a PhaseProfile keeps, from its JSON."""
    status = raw.child("status").raw
    state, updated = status.get("state"), status.get("updated")
    return replace(
        read_profile(raw.raw),
        is_class=raw.child("spec").raw.get("class") is True,
        state=state if isinstance(state, str) else None,
        updated=updated if isinstance(updated, str) else "",
    )


def class_profile_key(key: ObjectKey) -> ObjectKey:
    """The profile of a workload class. The prefix keeps it apart from that of a VPA of the same name."""
    return ObjectKey(key.namespace, CLASS_PREFIX + key.name)


class ProfileWriter:
    """Writes the profile of a VPA under the VPA's name, owned by it: it goes when the VPA goes."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def write(self, vpa: Vpa, status: Mapping[str, Any], existing: Profile | None) -> bool:
        """Make the profile say this; False when it goes: with its VPA or its namespace.

        Parameters
        ----------
        status
            Of the headline what is not in it is taken away; anything else that is not in it (`state`) stays.
        existing
            As last seen; None when there is none. One of a VPA that had the name before is taken over.

        Raises
        ------
        ApiError
            It could not be written; nothing was, as far as can be known. `Invalid` where the name is a class's.
        """
        path = path_of(PROFILES, *vpa.key)
        try:
            if existing is None:
                self._create(vpa)
            elif existing.owner_uid != vpa.uid:
                self._take_over(vpa)
            content = {"status": {**dict.fromkeys(CLEARED_FIELDS), **status}}
            self._api.patch(f"{path}/status", content, metadata_only=True)
        except NotFound:  # deleted meanwhile; the next round sees that
            return False
        return True

    def write_class(self, key: ObjectKey, status: Mapping[str, Any]) -> None:
        """Make the profile of a workload class say this; it has no owner.

        Raises
        ------
        ApiError
            It could not be written.
        """
        name = class_profile_key(key)
        body = {
            "apiVersion": PROFILES[0],
            "kind": "PhaseProfile",
            "metadata": {"name": name.name, "namespace": name.namespace},
            "spec": {"class": True},
        }
        change: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/spec/class", "value": True},  # else it is that of a VPA
            {"op": "add", "path": "/status", "value": dict(status)},
        ]
        path = f"{path_of(PROFILES, *name)}/status"
        try:
            self._api.patch(path, change)
        except NotFound:
            try:
                self._api.create(path_of(PROFILES, name.namespace), body)
                self._api.patch(path, change)
            except NotFound:  # its namespace goes
                return

    def delete_class(self, key: ObjectKey) -> None:
        """Delete the profile of a workload class, if it is there."""
        with suppress(NotFound):
            self._api.delete(path_of(PROFILES, *class_profile_key(key)))

    def _create(self, vpa: Vpa) -> None:
        metadata = {"name": vpa.key.name, "namespace": vpa.key.namespace, "ownerReferences": [_owner(vpa)]}
        body = {"apiVersion": PROFILES[0], "kind": "PhaseProfile", "metadata": metadata, "spec": {"class": False}}
        try:
            self._api.create(path_of(PROFILES, vpa.key.namespace), body)
        except Conflict:  # it is there, and our view of it late
            self._take_over(vpa)

    def _take_over(self, vpa: Vpa) -> None:
        """That of a VPA which had the name before; not that of a workload class."""
        change: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/spec/class", "value": False},
            {"op": "add", "path": "/metadata/ownerReferences", "value": [_owner(vpa)]},
        ]
        try:
            self._api.patch(path_of(PROFILES, *vpa.key), change)
        except Invalid as error:
            message = f"the name is that of a workload class's profile: the VPA has none ({error})"
            raise Invalid(message, status=error.status) from error


def _owner(vpa: Vpa) -> dict[str, Any]:
    kind = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    return {**kind, "name": vpa.key.name, "uid": vpa.uid, "controller": True, "blockOwnerDeletion": False}
