"""What comes out of a step: targets, and why they are what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from recommender.engine.keys import Group
from recommender.engine.member import Member
from recommender.policies.histogram import Estimate
from recommender.records import Amounts


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a group is to have. While nothing of it changes it is the very same object.

    Attributes
    ----------
    estimate
        Lower bound, target and upper bound before the user's own limits.
    doubt
        Why it is a guess, in words; empty when it is none.
    in_place_of
        Cores and bytes: the target in force that goes on once somebody watches again; None where this one is in force.
    """

    group: Group
    estimate: Estimate
    doubt: str = ""
    in_place_of: Amounts | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """Why a target is what it is.

    Attributes
    ----------
    policy
        Who decided: a policy's name.
    forecast
        Cores and bytes: the largest demand among the containers, NaN where none could be forecast.
    leading
        The running container whose demand that is; None where there is none.
    rule
        What the forecast was made by, in words; empty where nothing was foreseen, or it was not trusted.
    rails
        Name and words of each rail that acted, in order.
    default
        Cores and bytes: the target of the default recommender; NaN where it has none.
    """

    policy: str
    forecast: Amounts
    leading: Member | None
    rule: str
    rails: Sequence[tuple[str, str]]
    default: Amounts = (math.nan, math.nan)
