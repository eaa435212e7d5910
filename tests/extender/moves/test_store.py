"""The store of Jobs and profiles finds entries without reading all of them again."""

from __future__ import annotations

from typing import Any, cast

from extender.moves.store import MoveStore, read_profile_facts
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from tests.extender.moves.fakes import FakeApi


class CountingReflector:
    """A watch of one profile that counts snapshots; `put` replaces the profile."""

    def __init__(self, *uids: str) -> None:
        self.version, self.reads = 0, 0
        self.put("p", *uids)

    def put(self, name: str, *uids: str) -> None:
        pods = [{"uid": uid, "category": "Watching"} for uid in uids]
        self._facts = read_profile_facts({"metadata": {"name": name, "namespace": "team"}, "status": {"pods": pods}})
        self.version += 1

    def snapshot(self) -> dict[str, Any]:
        self.reads += 1
        return {"team/p": self._facts}


def test_the_profile_of_a_pod_is_found_without_reading_all_profiles_unless_one_changed() -> None:
    store, watch = MoveStore(cast(Api, FakeApi())), CountingReflector("a", "b")
    store._profiles = cast(Any, watch)
    assert [store.profile_of(uid) for uid in ("a", "b", "c")] == [ObjectKey("team", "p"), ObjectKey("team", "p"), None]
    assert watch.reads == 1

    watch.put("q", "c")
    assert [store.profile_of(uid) for uid in ("a", "c")] == [None, ObjectKey("team", "q")]
    assert watch.reads == 2
