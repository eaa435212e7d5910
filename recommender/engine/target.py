"""The output of a step: targets and the reasons for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recommender.base.records import Amounts
from recommender.engine.containers import Member
from recommender.engine.keys import Group
from recommender.policies.histogram import Estimate


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Target of a group, before the user's limits; the identical object until something of it changes.

    `doubt` says why the forecast is not trusted, if it is not. Of a safe value, `in_place_of` is the target that it
    replaces until a recommender runs again, in cores and bytes.
    """

    group: Group
    estimate: Estimate
    doubt: str = ""
    in_place_of: Amounts | None = None


@dataclass(frozen=True, slots=True)
class Why:
    policy: str
    forecast: Amounts
    """Cores and bytes: largest demand among the containers, NaN without a forecast."""
    leading: Member | None
    """The running container with that demand; None if there is none."""
    rule: str
    """How the forecast was made; empty without a trusted forecast."""
    rails: Sequence[tuple[str, str]]
    """Name and explanation of each rail that acted, in order."""
    default: Amounts = (math.nan, math.nan)
    """Cores and bytes: the default recommender's target; NaN if it has none."""

    def words(self) -> Iterator[tuple[str, str]]:
        """Labels and sentences for a reader: who decided and how, and each rail."""
        yield "policy", self.policy
        if self.rule:
            yield "rule", self.rule
        for rail, text in self.rails:
            yield "guard rail", f"{rail}: {text}"
