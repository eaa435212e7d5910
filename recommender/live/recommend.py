"""One VPA: from what its containers are about to do to what is published of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recommender.live.band import BandOptions, band, guessed, held
from recommender.live.book import Book
from recommender.live.fleet import Fleet
from recommender.live.member import CLASS, Decision, Member
from recommender.live.rails import Draft, RailOptions, Situation, guarded, overspent
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE, FloatArray

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
        float64 (2,): the most that one of them has now, NaN where nothing is requested.
    deferred_s
        For how long a resize has waited for room on a node, the longest; 0 when none does.
    """

    members: Sequence[Member] = ()
    expected: Sequence[Decision] = ()
    requests: FloatArray = field(default_factory=lambda: np.full(2, np.nan))
    deferred_s: float = 0.0


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
    members = present.members
    forecast, leading, decision = _largest_demand(present)
    doubt = _doubt(present, forecast)
    if doubt is not None:
        for member in members:
            if member.unremembered:
                fleet.remember(member)
    judged = int(book.judged)
    doubtful = doubt is not None or overspent(book.violation_ratio, judged, options.rails)
    history = book.history.estimate() if doubtful else None  # nobody asks for it otherwise
    book.want(_wanted_memory(forecast, doubt, history), now_s)
    situation = Situation(
        now_s=now_s,
        doubt=doubt,
        working_set_bytes=max((float(m.latest[MEMORY]) for m in members), default=np.nan),
        applied=book.published.tolist(),
        less_memory_since_s=book.less_memory_since_s,
        violations=book.violation_ratio,
        judged=judged,
        histogram=history,
        confidence=book.history.confidence() if doubtful else np.inf,
        requests=present.requests.tolist(),
        oom_floor_bytes=book.oom_floor(now_s),
        recent_changes=book.recent_changes(now_s),
        deferred_s=present.deferred_s,
        pinned=any(member.pinned >= PINNED_SAMPLES for member in members),
        run_s=max((made.run_s for made in _decisions(present)), default=np.inf),
    )
    draft = guarded(forecast, situation, options.rails)
    if any(map(math.isnan, draft.target)):
        return None
    target = np.array(draft.target)
    if not draft.confident and history is not None:
        # Nobody is disturbed for a guess: as wide as the default recommender's own bounds, which narrow with history.
        wide = Estimate(np.fmin(history.lower, target), target, np.fmax(history.upper, target))
        book.guess = wide = guessed(wide, book.guess, options.band)
        return Advice(wide, draft, forecast, leading, decision, doubt)
    book.guess = None
    published = band(held(target, book.published, options.band), options.band)
    estimate = Estimate(published.lower, published.target, published.upper)
    return Advice(estimate, draft, forecast, leading, decision, doubt)


def _largest_demand(present: Present) -> tuple[FloatArray, Member | None, Decision | None]:
    """Pods of one VPA may be in different phases: what the most demanding one needs, per resource."""
    decisions = [(member, member.decision) for member in present.members if member.decision is not None]
    all_of_them: list[tuple[Member | None, Decision]] = [*decisions, *((None, made) for made in present.expected)]
    if not all_of_them:
        return np.full(2, np.nan), None, None
    demand = (
        np.maximum.reduce([made.allocation for _, made in all_of_them])
        if len(all_of_them) > 1
        else (all_of_them[0][1].allocation)
    )
    _, decision = max(all_of_them, key=_cpu_cores)
    return demand, max(decisions, key=_cpu_cores)[0] if decisions else None, decision


def _decisions(present: Present) -> list[Decision]:
    return [*(member.decision for member in present.members if member.decision is not None), *present.expected]


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
