"""The store of Jobs and profiles finds entries without reading all of them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from extender.moves.job import read_job
from extender.moves.store import MoveStore, read_profile_facts
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.profiles import MOVE
from recommender.progress.growth import Category
from tests.extender.moves.fakes import FakeApi, FakeReflector
from tests.extender.moves.trainings import training


class OneProfile:
    """A watch of one profile; `put` replaces the profile."""

    def __init__(self, *uids: str) -> None:
        self.put("p", *uids)

    def put(self, name: str, *uids: str) -> None:
        pods = [{"uid": uid, "category": "Watching"} for uid in uids]
        self._facts = read_profile_facts({"metadata": {"name": name, "namespace": "team"}, "status": {"pods": pods}})

    def snapshot(self) -> dict[str, Any]:
        return {"team/p": self._facts}


def test_the_profile_of_a_pod_is_the_one_that_names_it_now() -> None:
    store, watch = MoveStore(cast(Api, FakeApi())), OneProfile("a", "b")
    store._profiles = cast(Any, watch)
    p, q = ObjectKey("team", "p"), ObjectKey("team", "q")
    assert [store.profile_of("team", uid) for uid in ("a", "b", "c")] == [p, p, None]
    watch.put("q", "c")
    assert [store.profile_of("team", uid) for uid in ("a", "c")] == [None, q]


def test_a_profile_says_nothing_about_the_pods_of_another_namespace() -> None:
    """Otherwise whoever writes one could have the jobs of others moved."""
    store = MoveStore(cast(Api, FakeApi()))
    store._profiles, store._jobs = cast(Any, OneProfile("uid-a")), cast(Any, FakeReflector(read_job))
    here, elsewhere = training("a", "n0"), replace(training("a", "n0"), key=ObjectKey("other", "a"))
    assert here.identity in store.known().categories
    assert elsewhere.identity not in store.known().categories


def test_the_text_on_a_move_is_not_written_to_a_profile_of_another_namespace() -> None:
    """The UID may be from the record on a Job, in which its owner can name any pod."""
    api = FakeApi()
    store = MoveStore(cast(Api, api))
    store._profiles = cast(Any, OneProfile("a"))
    store.annotate_move("other", "a", "x was not evicted")
    assert api.patched == []
    store.annotate_move("team", "a", "x was not evicted")
    assert api.patched == [("phaseprofiles/p", {"metadata": {"annotations": {MOVE: "x was not evicted"}}})]


@pytest.mark.parametrize("order", ["pq", "qp"])
def test_of_two_profiles_that_name_a_pod_the_first_by_name_counts(order: str) -> None:
    categories = {"p": "Converged", "q": "Watching"}
    profiles = [
        {
            "metadata": {"name": name, "namespace": "team"},
            "status": {"pods": [{"uid": "uid-a", "category": categories[name]}]},
        }
        for name in order
    ]
    store = MoveStore(cast(Api, FakeApi()))
    store._profiles = cast(Any, FakeReflector(read_profile_facts, *profiles))
    store._jobs = cast(Any, FakeReflector(read_job))
    assert store.known().categories == {("team", "uid-a"): Category.CONVERGED}
    assert store.profile_of("team", "uid-a") == ObjectKey("team", "p")
