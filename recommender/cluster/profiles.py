"""PhaseProfiles: read by a watch, written on difference only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recommender.cluster.connection import Api
from recommender.cluster.errors import Conflict, NotFound
from recommender.cluster.objects import ObjectKey, Vpa, read_key
from recommender.cluster.paths import path_of
from recommender.cluster.reading import Fields, reads

PROFILES = ("phasewise.dev/v1alpha1", "phaseprofiles")


@dataclass(frozen=True, slots=True)
class Profile:
    """A PhaseProfile; `status` as the API server gave it."""

    key: ObjectKey
    owner_uid: str
    status: Mapping[str, Any]


@reads("PhaseProfile")
def read_profile(raw: Fields) -> Profile:
    """A PhaseProfile from its JSON.

    Raises
    ------
    BadObject
        A field has the wrong form; named.
    """
    metadata = raw.child("metadata")
    owners = [owner.text("uid") for owner in metadata.children("ownerReferences")]
    return Profile(read_key(metadata), owners[0] if owners else "", raw.child("status").raw)


class ProfileWriter:
    """Writes the profile of a VPA under the VPA's name, owned by it: it goes when the VPA goes."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def write(self, vpa: Vpa, status: Mapping[str, Any], present: Profile | None) -> bool:
        """Make the profile say this; False when it does already.

        Parameters
        ----------
        present
            As last seen; None when there is none. One of a VPA that had the name before is taken over.

        Raises
        ------
        ApiError
            It could not be written; nothing was, as far as can be known.
        """
        if present is not None and present.owner_uid == vpa.uid and dict(present.status) == dict(status):
            return False
        path = path_of(PROFILES, *vpa.key)
        if present is None:
            self._create(vpa)
        elif present.owner_uid != vpa.uid:
            self._api.patch(path, {"metadata": {"ownerReferences": [_owner(vpa)]}})
        try:
            self._api.patch(f"{path}/status", [{"op": "add", "path": "/status", "value": dict(status)}])
        except NotFound:  # deleted meanwhile; the next round sees that
            return False
        return True

    def _create(self, vpa: Vpa) -> None:
        metadata = {"name": vpa.key.name, "namespace": vpa.key.namespace, "ownerReferences": [_owner(vpa)]}
        body = {"apiVersion": PROFILES[0], "kind": "PhaseProfile", "metadata": metadata, "spec": {"class": False}}
        try:
            self._api.create(path_of(PROFILES, vpa.key.namespace), body)
        except Conflict:  # it is there, and our view of it late
            self._api.patch(path_of(PROFILES, *vpa.key), {"metadata": {"ownerReferences": [_owner(vpa)]}})


def _owner(vpa: Vpa) -> dict[str, Any]:
    kind = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
    return {**kind, "name": vpa.key.name, "uid": vpa.uid, "controller": True, "blockOwnerDeletion": False}
