"""Which part of the cluster is the business of one recommender.

Several may share a cluster by shards: each namespace is the business of exactly one of them. By namespace, not by VPA:
what is learned of a workload class is kept in its namespace, and has one writer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.watching.reflector import Parse, key_of
from recommender.errors import Misuse

T = TypeVar("T")

DEFAULT = "default"
"""The recommender whose VPAs need not name it."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The `index`-th of `number` shards, counted from 0."""

    index: int = 0
    number: int = 1

    def owns(self, namespace: str) -> bool:
        """Whether a namespace is ours: of every number of shards exactly one says yes."""
        return self.number == 1 or shard_of(namespace, self.number) == self.index

    def lease(self, name: str) -> str:
        """The name of the Lease: each shard elects a leader of its own."""
        return name if self.number == 1 else f"{name}-{self.index}-of-{self.number}"

    def __str__(self) -> str:
        return f"{self.index}/{self.number}"


@lru_cache(maxsize=65536)
def shard_of(namespace: str, number: int) -> int:
    """The shard of a namespace, whatever the other namespaces are, and whoever asks.

    By the highest of one hash for each shard (rendezvous hashing): where shards are added, a namespace stays or goes
    to a new one; it never moves between two old ones.
    """
    return max(range(number), key=lambda shard: hashlib.sha256(f"{shard}/{namespace}".encode()).digest())


def parse_shard(text: str) -> Shard:
    """`I/N`, counted from 0.

    Examples
    --------
    >>> parse_shard("1/3")
    Shard(index=1, number=3)

    Raises
    ------
    Misuse
        It says something else.
    """
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise Misuse(f"{text!r} is no shard. Write I/N, counted from 0: 0/3, 1/3 and 2/3 are the three shards.")
    return Shard(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Scope:
    """Which part of the cluster is ours.

    Attributes
    ----------
    recommender
        The name by which VPAs call us.
    namespace
        The only one to look at; None for all.
    ignored
        Namespaces whose VPAs are left alone.
    shard
        Of the namespaces that are left, those that are ours and not another shard's.
    """

    recommender: str = "phasewise"
    namespace: str | None = None
    ignored: frozenset[str] = frozenset()
    shard: Shard = field(default_factory=Shard)

    def claims(self, vpa: Vpa) -> bool:
        """Whether a VPA is ours: it says our name; one that says none is for the recommender that is called default."""
        named = self.recommender in (vpa.recommenders or (DEFAULT,))
        return named and self.covers(vpa.key.namespace)

    def covers(self, namespace: str) -> bool:
        """Whether what lies in a namespace is our business."""
        return namespace not in self.ignored and self.shard.owns(namespace)

    def only(self, parse: Parse[T]) -> Parse[T]:
        """Reads the objects that are our business; others take no memory."""

        def ours(raw: Mapping[str, Any]) -> T | None:
            return parse(raw) if self.covers(key_of(raw).namespace) else None

        return ours
