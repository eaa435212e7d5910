"""Which part of the cluster is the business of one recommender."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.watching.reflector import Parse, key_of
from recommender.live.view.shards import Shard

T = TypeVar("T")

DEFAULT = "default"
"""The recommender whose VPAs need not name it."""


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
