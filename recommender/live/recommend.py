"""One VPA: from what its containers are about to do to what is published of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from recommender.live.band import BandOptions, band, held
from recommender.live.book import Book
from recommender.live.fleet import Fleet, Member
from recommender.live.rails import Draft, RailOptions, Situation, guarded
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, UNKNOWN_PHASE, FloatArray


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
        The container whose demand that is; None where there is none.
    doubt
        Why the forecast was not used; None when it was.
    """

    estimate: Estimate
    draft: Draft
    forecast: FloatArray
    leading: Member | None
    doubt: str | None


@dataclass(frozen=True, slots=True)
class Options:
    """The rails' and the band's."""

    rails: RailOptions = field(default_factory=RailOptions)
    band: BandOptions = field(default_factory=BandOptions)


def advise(
    fleet: Fleet, members: Sequence[Member], book: Book, requests: FloatArray, now_s: float, options: Options
) -> Advice | None:
    """What to publish of one container name; None when nothing is known that could be said.

    Parameters
    ----------
    fleet
        Of the members; brings their history up to date where it is needed.
    members
        The live containers of that name under one VPA.
    book
        What is remembered of them.
    requests
        float64 (2,): the most that one of them has now, NaN where nothing is requested.
    now_s
        Unix seconds.
    """
    forecast, leading = _largest_demand(members)
    doubt = _doubt(members, forecast)
    if doubt is not None:
        for member in members:
            fleet.remember(member)
    history = book.history.estimate()
    book.want(_wanted_memory(forecast, doubt, history), now_s)
    situation = Situation(
        now_s=now_s,
        doubt=doubt,
        working_set_bytes=max((float(m.latest[MEMORY]) for m in members), default=np.nan),
        applied=book.published,
        less_memory_since_s=book.less_memory_since_s,
        violations=book.violation_ratio,
        judged=int(book.judged),
        histogram=history,
        confidence=book.history.confidence(),
        requests=requests,
        oom_floor_bytes=book.oom_floor(now_s),
        recent_changes=book.recent_changes(now_s),
    )
    draft = guarded(forecast, situation, options.rails)
    if np.isnan(draft.target).any():
        return None
    if not draft.confident and history is not None:
        # Nobody is disturbed for a guess: as wide as the default recommender's own bounds, which narrow with history.
        wide = Estimate(np.fmin(history.lower, draft.target), draft.target, np.fmax(history.upper, draft.target))
        return Advice(wide, draft, forecast, leading, doubt)
    published = band(held(draft.target, book.published, options.band), options.band)
    return Advice(Estimate(published.lower, published.target, published.upper), draft, forecast, leading, doubt)


def safe_values(books: Mapping[str, Book]) -> dict[str, Estimate]:
    """What is left behind at shutdown: by container, the default recommender's upper bound as target.

    A passing phase must not be what pods are made with while nobody watches. The upper bound is cut at the target
    times ten, since with little history it says nothing.
    """
    left: dict[str, Estimate] = {}
    for name, book in books.items():
        estimate = book.history.estimate()
        if estimate is None or np.isnan(book.published).any():
            continue
        upper = np.minimum(estimate.upper, 10.0 * estimate.target)
        target = np.fmax(np.fmax(upper, book.published), [0.0, book.oom_floor_bytes])
        left[name] = Estimate(estimate.lower, target, np.fmax(estimate.upper, target))
    return left


def _largest_demand(members: Iterable[Member]) -> tuple[FloatArray, Member | None]:
    """Pods of one VPA may be in different phases: what the most demanding one needs, per resource."""
    demand, leading = np.full(2, np.nan), None
    for member in members:
        if member.decision is None:
            continue
        wanted = member.decision.allocation
        if leading is None or wanted[CPU] > demand[CPU]:
            leading = member
        demand = np.fmax(demand, wanted)
    return demand, leading


def _doubt(members: Sequence[Member], forecast: FloatArray) -> str | None:
    """Why the forecast is not to be trusted; None when it is."""
    if not members:
        return "no running container"
    if np.isnan(forecast).any():
        return "too little history"
    decided = [member for member in members if member.decision is not None]
    unknown = sum(1 for member in decided if member.phase == UNKNOWN_PHASE)
    if 2 * unknown > len(decided):
        return "phase unknown"
    return None


def _wanted_memory(forecast: FloatArray, doubt: str | None, history: Estimate | None) -> float:
    if doubt is None or history is None:
        return float(forecast[MEMORY])
    return float(history.target[MEMORY])
