"""One VPA with what belongs to it: the record that the steps of a round hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from recommender.cluster.objects import Vpa
from recommender.live.book import Book
from recommender.live.fleet import Member
from recommender.live.recommend import Advice
from recommender.live.view import Selection


@dataclass(slots=True)
class Workload:
    """One VPA.

    Attributes
    ----------
    books
        By container name; they outlive rounds.
    advice
        What this round wants to publish, by container name.
    members
        The live containers, by container name.
    shown
        What its PhaseProfile was last made from.
    """

    vpa: Vpa
    selection: Selection = field(default_factory=lambda: Selection((), {}))
    books: dict[str, Book] = field(default_factory=dict)
    advice: dict[str, Advice] = field(default_factory=dict)
    members: dict[str, list[Member]] = field(default_factory=dict)
    shown: object = None
