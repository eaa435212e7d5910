"""Which part of the cluster belongs to a recommender.

Several can share a cluster by shards: each namespace belongs to exactly one of them. Shards are namespaces, not VPAs:
what is learned of a workload class is stored in its namespace, and must have one writer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from recommender.base.errors import Misuse
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.watching.reflector import Parse, key_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `index`, counted from 0, of `number` shards."""

    index: int = 0
    number: int = 1

    def owns(self, namespace: str) -> bool:
        """Whether a namespace is ours; exactly one of the shards owns it."""
        return self.number == 1 or shard_of(namespace, self.number) == self.index

    def lease(self, name: str) -> str:
        """The name of the Lease: each shard elects its own leader."""
        return name if self.number == 1 else f"{name}-{self.index}-of-{self.number}"

    def __str__(self) -> str:
        return f"{self.index}/{self.number}"


@lru_cache(maxsize=65536)
def shard_of(namespace: str, number: int) -> int:
    """The shard of a namespace: that with the highest hash (rendezvous hashing).

    When shards are added, a namespace stays or moves to a new shard, never from one old shard to another.
    """
    return max(range(number), key=lambda shard: hashlib.sha256(f"{shard}/{namespace}".encode()).digest())


def parse_shard(text: str) -> Shard:
    """Parse `I/N`, counted from 0; `Misuse` for anything else."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise Misuse(f"{text!r} is not a shard. Write I/N, counted from 0: 0/3, 1/3 and 2/3 are the three shards.")
    return Shard(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the cluster that is ours, without namespaces that are `ignored` or another shard's."""

    recommender: str = "phasewise"  # the name by which VPAs select us
    namespace: str | None = None  # the only one that is looked at; None for all
    ignored: frozenset[str] = frozenset()
    shard: Shard = field(default_factory=Shard)

    def claims(self, vpa: Vpa) -> bool:
        """Whether a VPA is ours: it names us; one that names no recommender belongs to the one called default."""
        named = self.recommender in (vpa.recommenders or ("default",))
        return named and self.covers(vpa.key.namespace)

    def covers(self, namespace: str) -> bool:
        """Whether objects in a namespace are ours."""
        return namespace not in self.ignored and self.shard.owns(namespace)

    def only(self, parse: Parse[T]) -> Parse[T]:
        """Wrap a parser to return None for objects that are not ours, so that these take no memory."""

        def ours(raw: Mapping[str, Any]) -> T | None:
            return parse(raw) if self.covers(key_of(raw).namespace) else None

        return ours
