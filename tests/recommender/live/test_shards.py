"""The VPAs that a recommender owns: by its name, and by the shard of their namespace."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import Misuse
from recommender.cluster.objects.vpa import read_vpa
from recommender.live.view.scope import Scope, Shard, parse_shard, shard_of

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)


def test_a_vpa_that_names_no_recommender_belongs_to_the_default_one() -> None:
    unnamed, ours, theirs = (
        read_vpa(
            {"metadata": {"namespace": "ns", "name": "v"}, "spec": {**spec, "targetRef": {"kind": "Job", "name": "j"}}}
        )
        for spec in ({}, {"recommenders": [{"name": "phasewise"}]}, {"recommenders": [{"name": "default"}]})
    )
    named = Scope("phasewise")
    assert [named.claims(vpa) for vpa in (unnamed, ours, theirs)] == [False, True, False]
    default = Scope("default")
    assert [default.claims(vpa) for vpa in (unnamed, ours, theirs)] == [True, False, True]
    assert not Scope("default", ignored=frozenset({"ns"})).claims(unnamed)


def test_the_shard_of_a_namespace_never_changes() -> None:
    """Other processes and machines must agree: the hash is part of the contract."""
    assert [shard_of(name, 3) for name in ("default", "team-a", "team-b", "team-c")] == [1, 1, 1, 0]


@given(st.sets(NAMES, max_size=20), st.integers(1, 12))
def test_every_namespace_belongs_to_exactly_one_shard(namespaces: set[str], number: int) -> None:
    for namespace in namespaces:
        owners = [index for index in range(number) if Shard(index, number).owns(namespace)]
        assert len(owners) == 1


@given(NAMES, st.integers(1, 12))
def test_with_one_more_shard_a_namespace_stays_or_moves_to_the_new_one(namespace: str, number: int) -> None:
    assert shard_of(namespace, number + 1) in (shard_of(namespace, number), number)


def test_shards_are_of_similar_size() -> None:
    held = Counter(shard_of(f"team-{number}", 5) for number in range(2000))
    assert min(held.values()) > 320
    assert max(held.values()) < 480


def test_a_single_shard_owns_everything_and_uses_the_plain_lease_name() -> None:
    assert Shard().owns("anything")
    assert Shard().lease("phasewise-recommender") == "phasewise-recommender"
    assert Shard(1, 3).lease("phasewise-recommender") == "phasewise-recommender-1-of-3"


def test_objects_of_other_shards_and_of_ignored_namespaces_are_not_read() -> None:
    scope = Scope(shard=Shard(1, 3), ignored=frozenset({"team-b"}))
    read = scope.only(lambda raw: raw["metadata"]["namespace"])
    held = {name: read({"metadata": {"namespace": name, "name": "x"}}) for name in ("default", "team-b", "team-c")}
    assert held == {"default": "default", "team-b": None, "team-c": None}


@pytest.mark.parametrize("text", ["", "3", "3/3", "-1/3", "0/0", "a/b", "1/3/5", "1.0/3"])
def test_an_invalid_shard_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(Misuse, match="0/3, 1/3 and 2/3"):
        parse_shard(text)
