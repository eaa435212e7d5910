"""Scale subresources: what chooses the pods of a controller that we do not know.

Answers are remembered, asked again now and then, and outlive failures of the server for a while. How many questions go
to the server in a window of time is limited, so that a thousand new targets do not hold up a round.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ClusterError, Forbidden, NotFound, Unreachable
from recommender.cluster.objects.metadata import OwnerRef, read_controller
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import path_of
from recommender.cluster.workloads.discovery import Discovery

RENEWED_S = 300.0
"""An answer is asked again after this and up to as much again, so that all do not come due together."""

ABSENT_S = 60.0
"""The same for "there is none" and for a selector not yet filled in: both often come a moment later."""

UNREAD_S = 3600.0
"""An answer that nobody wants for so long is forgotten."""

FIRST_RETRY_S = 15.0
"""After a failure; doubled with every further one, up to `RENEWED_S`."""

PATIENCE_S = 5.0
"""For one answer."""

WINDOW_S = 10.0
"""The limit on questions holds for so long; after an answer that never came, none is asked until it is over."""

KEPT_S = 1800.0
"""How long the last good answer stands for one that the server fails to give."""


class Outcome(Enum):
    """How a question about a scale subresource ended."""

    FOUND = "found"
    NOT_SCALABLE = "its kind has no scale subresource"
    NO_OBJECT = "it does not exist"
    NO_KIND = "the API server knows no such kind"
    FAILED = "the API server failed"
    FORBIDDEN = "the API server forbids it"
    NOT_ASKED = "not looked up yet"


FAILURES = frozenset({Outcome.FAILED, Outcome.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class ScaleAnswer:
    """What is known of one scale subresource.

    Attributes
    ----------
    selector
        `status.selector`, possibly empty.
    owner
        The owner that controls the scaled object, where the subresource tells it.
    error
        What the server said when it failed.
    """

    outcome: Outcome
    selector: str = ""
    owner: OwnerRef | None = None
    error: str = ""


@dataclass(slots=True)
class _Kept:
    answer: ScaleAnswer
    good_s: float
    next_s: float
    read_s: float
    failures: int = 0


class Scales:
    """Remembered answers by namespace and controller.

    Parameters
    ----------
    clock
        Monotonic seconds.
    chance
        Spreads the renewals.
    per_window
        Questions to the server within `WINDOW_S`.
    """

    def __init__(self, api: Api, clock: Callable[[], float], chance: random.Random, per_window: int = 100) -> None:
        self._api, self._clock, self._chance, self._per_window = api, clock, chance, per_window
        self._discovery = Discovery(api, clock)
        self._kept: dict[tuple[str, str, str, str], _Kept] = {}
        self._left, self._window_ends_s = 0, float("-inf")
        self.questions = 0
        """Calls of `of` so far, whether or not the server was asked."""

    def of(self, namespace: str, api_version: str, kind: str, name: str) -> ScaleAnswer:
        """What is known of the scale of an object, asked for when it is time to and questions are left."""
        place, now_s = (namespace, api_version, kind, name), self._clock()
        kept = self._kept.get(place)
        self.questions += 1
        if now_s >= self._window_ends_s:
            self._open_window(now_s)
        if kept is not None:
            kept.read_s = now_s
            if now_s < kept.next_s:
                return kept.answer
        if self._left <= 0:
            return ScaleAnswer(Outcome.NOT_ASKED) if kept is None else kept.answer
        self._left -= 1
        answer = self._ask(namespace, api_version, kind, name)
        self._kept[place] = new = self._remembered(kept, answer, now_s)
        return new.answer

    def _open_window(self, now_s: float) -> None:
        """Grant new questions, and forget answers that nobody has wanted for long."""
        self._left, self._window_ends_s = self._per_window, now_s + WINDOW_S
        for place in [place for place, kept in self._kept.items() if now_s - kept.read_s > UNREAD_S]:
            del self._kept[place]

    def _remembered(self, kept: _Kept | None, answer: ScaleAnswer, now_s: float) -> _Kept:
        if answer.outcome not in FAILURES:
            holds_s = RENEWED_S if answer.selector or answer.outcome is Outcome.NOT_SCALABLE else ABSENT_S
            return _Kept(answer, now_s, now_s + holds_s * (1.0 + self._chance.random()), now_s)
        failures = 1 if kept is None else kept.failures + 1
        next_s = now_s + min(FIRST_RETRY_S * 2.0 ** (failures - 1), RENEWED_S)
        if kept is not None and kept.answer.outcome not in FAILURES and now_s - kept.good_s < KEPT_S:
            return replace(kept, next_s=next_s, failures=failures)
        return _Kept(answer, now_s, next_s, now_s, failures)

    def _ask(self, namespace: str, api_version: str, kind: str, name: str) -> ScaleAnswer:
        try:
            resource = self._discovery.find(api_version, kind)
            if resource is None:
                return ScaleAnswer(Outcome.NO_KIND)
            if not resource.scalable:
                return ScaleAnswer(Outcome.NOT_SCALABLE)
            path = path_of((resource.api_version, resource.plural), namespace, name, "scale")
            return _read_scale(self._api.get(path, timeout_s=PATIENCE_S))
        except NotFound:
            return ScaleAnswer(Outcome.NO_OBJECT)
        except Forbidden as error:
            return ScaleAnswer(Outcome.FORBIDDEN, error=str(error))
        except ClusterError as error:
            if isinstance(error, Unreachable):
                self._left = 0  # the others would only wait as long, one after the other
            return ScaleAnswer(Outcome.FAILED, error=str(error))


@reads("Scale")
def _read_scale(raw: Fields) -> ScaleAnswer:
    selector = raw.child("status").text("selector")
    return ScaleAnswer(Outcome.FOUND, selector, read_controller(raw.child("metadata")))
