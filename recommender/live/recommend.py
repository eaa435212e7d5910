"""One VPA: from what its containers are about to do to what is published of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from recommender.live.band import BandOptions, band, guessed, held
from recommender.live.book import Book
from recommender.live.fleet import Fleet
from recommender.live.member import CLASS, Decision, Member
from recommender.live.rails import Draft, RailOptions, Situation, guarded, overspent
from recommender.policies.constraints import in_whole_units
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE, Amounts, FloatArray

NOTHING = np.full(2, np.nan)

PINNED_SAMPLES = 2
"""One sample near the request is chance."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What is to be published of one container name, and why.

    Attributes
    ----------
    estimate
        Lower bound, target and upper bound before the user's own limits.
    draft
        What the rails did to the forecast.
    forecast
        float64 (2,): the largest demand among its containers, NaN where none could be forecast.
    leading
        The running container whose demand that is; None where there is none.
    decision
        Where that demand comes from; None where nothing is foreseen.
    doubt
        Why the forecast was not used; None when it was.
    """

    estimate: Estimate
    draft: Draft
    forecast: FloatArray
    leading: Member | None
    decision: Decision | None
    doubt: str | None


class Standing(NamedTuple):
    """An advice, and as long as what it would come out the same.

    Attributes
    ----------
    of, published
        What it was made of: compared with what there is now, `published` as the very same array.
    used
        With working sets between these two.
    until_s
        Up to this moment (unix seconds).
    requests
        What its containers had.
    """

    advice: Advice | None
    of: tuple[object, ...]
    published: FloatArray
    used: tuple[float, float]
    until_s: float
    requests: Amounts


@dataclass(frozen=True, slots=True)
class Present:
    """What there is of one container name under one VPA.

    Attributes
    ----------
    members
        The live containers.
    expected
        What those that have not used anything yet are to have, as far as their class is known.
    requests
        Cores and bytes: the most that one of them has now, NaN where nothing is requested.
    deferred_s
        For how long a resize has waited for room on a node, the longest; 0 when none does.
    """

    members: Sequence[Member] = ()
    expected: Sequence[Decision] = ()
    requests: Amounts = (math.nan, math.nan)
    deferred_s: float = 0.0

    @property
    def working_set_bytes(self) -> float:
        """The largest present one; NaN where none is known."""
        return max([member.latest[MEMORY] for member in self.members], default=math.nan)

    @property
    def run_s(self) -> float:
        """How long a run takes, where enough earlier ones show what the rest of it needs; else infinite."""
        made = [member.decision for member in self.members if member.decision is not None]
        return max([decision.run_s for decision in (*made, *self.expected)], default=math.inf)

    @property
    def pinned(self) -> bool:
        """Whether a container has used just the CPU that it has for a while, as one does that gets no more."""
        return any(member.pinned >= PINNED_SAMPLES for member in self.members)


@dataclass(frozen=True, slots=True)
class Options:
    """The rails' and the band's."""

    rails: RailOptions = field(default_factory=RailOptions)
    band: BandOptions = field(default_factory=BandOptions)


def advise(fleet: Fleet, present: Present, book: Book, now_s: float, options: Options) -> Advice | None:
    """What to publish of one container name; None when nothing is known that could be said.

    Parameters
    ----------
    fleet
        Of the members; brings their history up to date where it is needed.
    book
        What is remembered of that name.
    now_s
        Unix seconds.
    """
    forecast, leading, decision = _largest_demand(present)
    doubt = _doubt(present, forecast)
    judged, violations = int(book.judged), book.violation_ratio
    doubtful = doubt is not None or overspent(violations, judged, options.rails)
    history, confidence = _history(fleet, present, book, now_s) if doubtful else (None, math.inf)
    book.want(_wanted_memory(forecast, doubt, history), now_s)
    situation = Situation(
        now_s=now_s,
        doubt=doubt,
        working_set_bytes=present.working_set_bytes,
        applied=book.published.tolist(),
        less_memory_since_s=book.less_memory_since_s,
        violations=violations,
        judged=judged,
        histogram=history,
        confidence=confidence,
        requests=present.requests,
        oom_floor_bytes=book.oom_floor(now_s),
        recent_changes=book.recent_changes(now_s),
        deferred_s=present.deferred_s,
        pinned=present.pinned,
        run_s=present.run_s,
    )
    draft = guarded(forecast, situation, options.rails)
    if math.isnan(draft.target[CPU]) or math.isnan(draft.target[MEMORY]):
        return None
    if not draft.confident and history is not None:
        target = np.array(draft.target)
        # Nobody is disturbed for a guess: as wide as the default recommender's own bounds, which narrow with history.
        wide = Estimate(np.fmin(history.lower, target), target, np.fmax(history.upper, target))
        book.guess = wide = guessed(wide, book.guess, options.band)
        return Advice(wide, draft, forecast, leading, decision, doubt)
    book.guess = None
    book.let_go()
    banded = _banded(np.array(in_whole_units(draft.target)), book, options)
    return Advice(banded, draft, forecast, leading, decision, doubt)


def _banded(target: FloatArray, book: Book, options: Options) -> Estimate:
    """The target, unless its change is not worth it, with the band around it: the very same while nothing moves.

    It is in whole units, as it will be published: the band around what stands then is the one published with it.
    """
    target = held(target, book.published, options.band)
    if book.banded is None or book.banded.target.tolist() != target.tolist():
        published = band(target, options.band)
        book.banded = Estimate(published.lower, published.target, published.upper)
    return book.banded


def _history(fleet: Fleet, present: Present, book: Book, now_s: float) -> tuple[Estimate | None, float]:
    """What the default recommender would say, and on how many days of history that rests.

    It does so once a minute, and there is no haste in histograms: what they said holds for a tenth of the time that it
    rests on, and for that minute at most.
    """
    if now_s >= book.known_until_s:
        for member in present.members:
            if member.unremembered:
                fleet.remember(member)
        book.look_up(now_s)
    return book.known


def _largest_demand(present: Present) -> tuple[FloatArray, Member | None, Decision | None]:
    """Pods of one VPA may be in different phases: what the most demanding one needs, per resource."""
    decisions = [(member, member.decision) for member in present.members if member.decision is not None]
    all_of_them: list[tuple[Member | None, Decision]] = [*decisions, *((None, made) for made in present.expected)]
    if not all_of_them:
        return NOTHING, None, None
    if len(all_of_them) == 1:
        member, decision = all_of_them[0]
        return decision.allocation, member, decision
    demand = np.maximum.reduce([made.allocation for _, made in all_of_them])
    _, decision = max(all_of_them, key=_cpu_cores)
    return demand, max(decisions, key=_cpu_cores)[0] if decisions else None, decision


def _cpu_cores(found: tuple[Member | None, Decision]) -> float:
    return float(found[1].allocation[CPU])


def _doubt(present: Present, forecast: FloatArray) -> str | None:
    """Why the forecast is not to be trusted; None when it is."""
    if not present.members and not present.expected:
        return "no running container"
    if math.isnan(forecast[CPU]) or math.isnan(forecast[MEMORY]):
        return "too little history"
    decided = [member for member in present.members if member.decision is not None]
    unknown = sum(member.phase == UNKNOWN_PHASE and _by_phase(member) for member in decided)
    if 2 * unknown > len(decided):
        return "phase unknown"
    return None


def _by_phase(member: Member) -> bool:
    return member.decision is not None and member.decision.policy != CLASS


def _wanted_memory(forecast: FloatArray, doubt: str | None, history: Estimate | None) -> float:
    if doubt is None or history is None:
        return float(forecast[MEMORY])
    return float(history.target[MEMORY])
