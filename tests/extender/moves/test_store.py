"""What is known of Jobs and profiles, and found again without a look at all of them."""

from __future__ import annotations

from typing import Any, cast

from extender.moves.store import MoveStore, read_profile_facts
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from tests.extender.moves.played import PlayedApi


class Counted:
    """A watch of one profile that counts how often all of it was read; `put` shows another."""

    def __init__(self, *uids: str) -> None:
        self.version, self.reads = 0, 0
        self.put("p", *uids)

    def put(self, name: str, *uids: str) -> None:
        pods = [{"uid": uid, "category": "Watching"} for uid in uids]
        self._told = read_profile_facts({"metadata": {"name": name, "namespace": "team"}, "status": {"pods": pods}})
        self.version += 1

    def snapshot(self) -> dict[str, Any]:
        self.reads += 1
        return {"team/p": self._told}


def test_the_profile_of_a_pod_is_found_without_reading_all_profiles_until_one_has_changed() -> None:
    book, watch = MoveStore(cast(Api, PlayedApi())), Counted("a", "b")
    book._profiles = cast(Any, watch)
    assert [book.profile_of(uid) for uid in ("a", "b", "c")] == [ObjectKey("team", "p"), ObjectKey("team", "p"), None]
    assert watch.reads == 1

    watch.put("q", "c")
    assert [book.profile_of(uid) for uid in ("a", "c")] == [None, ObjectKey("team", "q")]
    assert watch.reads == 2
