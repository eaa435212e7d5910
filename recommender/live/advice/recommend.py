"""One VPA: from what its containers are about to do to what is published of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recommender.live.advice.band import BandOptions, band, guessed, held
from recommender.live.advice.book import Book
from recommender.live.advice.rails import Draft, RailOptions, Situation, Spent, guarded
from recommender.live.fleet.fleet import Fleet
from recommender.live.fleet.member import Decision, Member
from recommender.live.view.present import Present
from recommender.live.view.view import Selection
from recommender.policies.constraints import in_whole_units
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, Amounts, amounts_of


@dataclass(slots=True)
class Advice:
    """What is to be published of one container name, and why. It is never changed, but for its making not frozen.

    Attributes
    ----------
    estimate
        Lower bound, target and upper bound before the user's own limits.
    draft
        What the rails did to the forecast.
    forecast
        Cores and bytes: the largest demand among its containers, NaN where none could be forecast.
    leading
        The running container whose demand that is; None where there is none.
    decision
        Where that demand comes from; None where nothing is foreseen.
    doubt
        Why the forecast was not used; None when it was.
    """

    estimate: Estimate
    draft: Draft
    forecast: Amounts
    leading: Member | None
    decision: Decision | None
    doubt: str | None


class Of(NamedTuple):
    """What an advice is made of, besides what is used and what is published.

    Attributes
    ----------
    seen
        Of each live container its decision, its phase, and whether it is pinned; `pinned`: one of them is.
    expected
        Decisions for those that are to come.
    oom_s
        When a container was killed for memory last.
    """

    selection: Selection
    seen: list[object]
    expected: Sequence[Decision] | None
    oom_s: float
    spent: Spent
    pinned: bool


class Standing(NamedTuple):
    """An advice, and as long as what it would come out the same.

    Attributes
    ----------
    of, published
        What it was made of: compared with what there is now, `published` as the very same pair.
    used
        With working sets between these two.
    until_s
        Up to this moment (unix seconds).
    requests
        What its containers had.
    """

    advice: Advice | None
    of: Of
    published: Amounts
    used: tuple[float, float]
    until_s: float
    requests: Amounts


@dataclass(frozen=True, slots=True)
class Options:
    """The rails' and the band's."""

    rails: RailOptions = field(default_factory=RailOptions)
    band: BandOptions = field(default_factory=BandOptions)


def advise(fleet: Fleet, present: Present, book: Book, spent: Spent, now_s: float, options: Options) -> Advice | None:
    """What to publish of one container name; None when nothing is known that could be said.

    Parameters
    ----------
    fleet
        Of the members; brings their history up to date where it is needed.
    book
        What is remembered of that name.
    spent
        By its violations.
    now_s
        Unix seconds.
    """
    history, confidence = None, math.inf
    if present.doubt is not None or any(spent[2:]):
        history, confidence = _history(fleet, present, book, now_s)
    book.want(_wanted_memory(present, history), now_s)
    situation = Situation(
        now_s=now_s,
        doubt=present.doubt,
        working_set_bytes=present.working_set_bytes,
        applied=book.published,
        less_memory_since_s=book.less_memory_since_s,
        violations=book.violation_ratio,
        spent=spent,
        histogram=history,
        confidence=confidence,
        requests=present.requests,
        oom_floor_bytes=book.oom_floor(now_s),
        recent_changes=book.recent_changes(now_s),
        deferred_s=present.deferred_s,
        pinned=present.pinned,
        run_s=present.run_s,
    )
    draft = guarded(present.forecast, situation, options.rails)
    if math.isnan(draft.target[CPU]) or math.isnan(draft.target[MEMORY]):
        return None
    if not draft.confident and history is not None:
        target = np.array(draft.target)
        # Nobody is disturbed for a guess: as wide as the default recommender's own bounds, which narrow with history.
        wide = Estimate(np.fmin(history.lower, target), target, np.fmax(history.upper, target))
        book.guess = published = guessed(wide, book.guess, options.band)
    else:
        book.let_go()
        published = _banded(in_whole_units(draft.target), book, options)
    return Advice(published, draft, present.forecast, present.leading, present.decision, present.doubt)


def _banded(target: Amounts, book: Book, options: Options) -> Estimate:
    """The target, unless its change is not worth it, with the band around it: the very same while nothing moves.

    It is in whole units, as it will be published: the band around what stands then is the one published with it.
    """
    target = held(target, book.published, options.band)
    if book.banded is None or amounts_of(book.banded.target) != target:
        book.banded = band(target, options.band)
    return book.banded


def _history(fleet: Fleet, present: Present, book: Book, now_s: float) -> tuple[Estimate | None, float]:
    """What the default recommender would say, and on how many days of history that rests.

    It does so once a minute, and there is no haste in histograms: what they said holds for a tenth of the time that it
    rests on, and for that minute at most.
    """
    if now_s >= book.known_until_s:
        for member in present.members:
            if fleet.counts.unremembered[member.slot]:
                fleet.remember(member)
        book.look_up(now_s)
    return book.known


def _wanted_memory(present: Present, history: Estimate | None) -> float:
    if present.doubt is None or history is None:
        return present.forecast[MEMORY]
    return float(history.target[MEMORY])
