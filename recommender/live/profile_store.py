"""The PhaseProfiles of the cluster, as a round reads and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recommender.cluster.connection import Api
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects import ObjectKey, Vpa
from recommender.cluster.profiles import CLASS_PREFIX, Profile, ProfileWriter
from recommender.cluster.reflector import Reflector


class ProfileStore:
    """What is kept in PhaseProfiles: of each VPA of ours, and of each workload class.

    Parameters
    ----------
    profiles
        Watches them.
    """

    def __init__(self, api: Api, profiles: Reflector[Profile]) -> None:
        self._writer, self._profiles = ProfileWriter(api), profiles

    def kept(self, vpa: Vpa) -> str | None:
        """The state kept for a VPA; that of another VPA which had the name before is not its."""
        profile = self._profiles.snapshot().get(vpa.key)
        return _state_of(profile) if profile is not None and profile.owner_uid == vpa.uid else None

    def classes(self, now_s: float) -> dict[ObjectKey, tuple[str, float]]:
        """The state of each workload class by namespace and name, and when it was used last (unix seconds).

        Raises
        ------
        Unreachable
            The profiles have not been listed.
        """
        self._must_be_known()
        found = {}
        for profile in self._profiles.snapshot().values():
            name = profile.key.name
            if not (profile.is_class and name.startswith(CLASS_PREFIX)):
                continue
            if (state := _state_of(profile)) is not None:
                key = ObjectKey(profile.key.namespace, name.removeprefix(CLASS_PREFIX))
                found[key] = state, _moment_of(profile.status.get("updated"), now_s)
        return found

    def show(self, vpa: Vpa, status: Mapping[str, Any]) -> None:
        """Make the profile of a VPA say this.

        Raises
        ------
        Unreachable
            The profiles have not been listed: the next round tries again.
        """
        self._must_be_known()
        self._writer.write(vpa, status, self._profiles.snapshot().get(vpa.key))

    def show_class(self, key: ObjectKey, status: Mapping[str, Any]) -> None:
        """Make the profile of a workload class say this."""
        self._writer.write_class(key, status)

    def drop_class(self, key: ObjectKey) -> None:
        """Delete the profile of a workload class."""
        self._writer.delete_class(key)

    def _must_be_known(self) -> None:
        if not self._profiles.synced:
            raise Unreachable(f"PhaseProfiles cannot be listed: {self._profiles.problem or 'not yet'}")


def _state_of(profile: Profile) -> str | None:
    state = profile.status.get("state")
    return state if isinstance(state, str) else None


def _moment_of(words: object, default_s: float) -> float:
    try:
        return datetime.fromisoformat(str(words)).timestamp()
    except ValueError:
        return default_s
