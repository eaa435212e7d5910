"""What is remembered of one container name of one VPA between rounds: what was published, and how that went."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recommender.errors import BadInput
from recommender.live.view.present import NOTHING
from recommender.policies.histogram import Estimate, HistogramSession
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import CPU, MEMORY, Amounts

HOUR_S, DAY_S = 3600.0, 86400.0

FORGETTING = 1.0 - 1.0 / 400.0
"""What a judged sample counts for after one more: some four hundred of the latest ones make up the share."""

LOOKED_UP_EVERY_S = 60.0
"""The default recommender looks at its histograms so often."""

NOTHING_KNOWN: tuple[None, float] = (None, 0.0)

OOM_MEMORY_S = 7 * 24 * HOUR_S
"""How long a kill for memory binds: a weekly job meets the same stage again."""


@dataclass(slots=True)
class Book:
    """One container name of one VPA.

    Attributes
    ----------
    history
        What the default recommender would know.
    published
        Cores and bytes: the target in force, before the limits of users and operators; NaN where there is none, and
        `NOTHING` where there is none of either.
    changed_s
        When it changed, within the last hour.
    less_memory_since_s
        Since when less memory is wanted than is published.
    violations, judged
        Of CPU and memory, and a number of samples, both fading.
    oom_floor_bytes, oom_s
        What a kill for memory showed to be needed, and when that was.
    guess
        What was published last while in doubt; None while not.
    banded
        The target advised last while not in doubt, with its band.
    known, known_s
        What the default recommender said when it was asked last, the days of history that rested on, and when.
    """

    history: HistogramAggregate = field(default_factory=HistogramAggregate)
    published: Amounts = NOTHING
    changed_s: deque[float] = field(default_factory=deque)
    less_memory_since_s: float | None = None
    violations: tuple[float, float] = (0.0, 0.0)
    judged: float = 0.0
    oom_floor_bytes: float = 0.0
    oom_s: float = 0.0
    guess: Estimate | None = None
    banded: Estimate | None = None
    known: tuple[Estimate | None, float] = NOTHING_KNOWN
    known_s: float = -math.inf

    def session(self, who: object) -> HistogramSession:
        """The history session of one of its containers."""
        return self.history.session(who)

    @property
    def known_until_s(self) -> float:
        """How long what the default recommender said last holds, unix seconds."""
        return self.known_s + min(LOOKED_UP_EVERY_S, 0.1 * DAY_S * self.known[1])

    def look_up(self, now_s: float) -> None:
        """What the default recommender would say now."""
        self.known, self.known_s = (self.history.estimate(), self.history.confidence()), now_s

    def let_go(self) -> None:
        """In doubt no more: what the default recommender said would only take memory, for thousands of books."""
        self.guess, self.known, self.known_s = None, NOTHING_KNOWN, -math.inf

    def judge(self, cpu_violates: bool, memory_violates: bool) -> None:
        """Count one sample, by whether it was above what the container had at the time."""
        cpu, memory = self.violations
        self.violations = cpu * FORGETTING + cpu_violates, memory * FORGETTING + memory_violates
        self.judged = self.judged * FORGETTING + 1.0

    @property
    def violation_ratio(self) -> tuple[float, float]:
        """Share of the judged samples that violated, CPU and memory, the latest counting most."""
        judged = max(self.judged, 1.0)
        return self.violations[CPU] / judged, self.violations[MEMORY] / judged

    def want(self, memory_bytes: float, now_s: float) -> None:
        """Note how much memory is wanted now, so that less of it is had only after a while."""
        if not memory_bytes < self.published[MEMORY]:
            self.less_memory_since_s = None
        elif self.less_memory_since_s is None:
            self.less_memory_since_s = now_s

    def killed(self, memory_bytes: float, now_s: float) -> None:
        """A container was killed for memory; `memory_bytes` is what it is taken to have needed, bump included."""
        self.oom_floor_bytes, self.oom_s = max(self.oom_floor(now_s), memory_bytes), now_s
        self.known_s = -math.inf

    def oom_floor(self, now_s: float) -> float:
        """Bytes below which memory must not fall; 0 when no kill is remembered."""
        return self.oom_floor_bytes if now_s - self.oom_s < OOM_MEMORY_S else 0.0

    def stands_until(self, now_s: float) -> float:
        """The moment (unix seconds) at which its own memory of what happened changes for the passing of time alone."""
        until_s = self.changed_s[0] + HOUR_S if self.changed_s else math.inf
        if self.oom_floor(now_s):
            until_s = min(until_s, self.oom_s + OOM_MEMORY_S)
        return until_s

    def publish(self, target: Amounts, now_s: float) -> bool:
        """Note a target, cores and bytes; True when it is another one than before."""
        while self.changed_s and now_s - self.changed_s[0] > HOUR_S:
            self.changed_s.popleft()
        if target == self.published or np.array_equal(target, self.published, equal_nan=True):
            return False
        if self.speaks:
            self.changed_s.append(now_s)
        if target[MEMORY] < self.published[MEMORY]:
            self.less_memory_since_s = now_s  # the next step down waits anew
        self.stand(target)
        return True

    def stand(self, target: Amounts) -> None:
        """Another target is in force."""
        self.published = target if tells(target) else NOTHING

    @property
    def speaks(self) -> bool:
        """Whether a target is in force, of one resource at least."""
        return self.published is not NOTHING

    def recent_changes(self, now_s: float) -> int:
        """How often the target changed within the last hour."""
        return sum([now_s - at_s <= HOUR_S for at_s in self.changed_s]) if self.changed_s else 0

    def kept(self) -> dict[str, Any]:
        """What must survive a restart, ready for JSON; the history has its checkpoint, the target the VPA's status."""
        return {
            "changed_s": list(self.changed_s),
            "less_memory_since_s": self.less_memory_since_s,
            "violations": [float(share) for share in self.violations],
            "judged": self.judged,
            "oom_floor_bytes": self.oom_floor_bytes,
            "oom_s": self.oom_s,
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on with what `kept` said.

        Raises
        ------
        BadInput
            It does not fit; the book is as it was.
        """
        try:
            since = kept["less_memory_since_s"]
            violations = np.array(kept["violations"], dtype=np.float64)
            numbers = [float(kept[name]) for name in ("judged", "oom_floor_bytes", "oom_s")]
            changed_s = deque(float(at_s) for at_s in kept["changed_s"])
            if violations.shape != (2,) or not np.isfinite([*violations, *numbers, *changed_s]).all():
                raise ValueError("not numbers")
            self.less_memory_since_s = None if since is None else float(since)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"the kept state of a VPA does not fit ({error!r})"
            raise BadInput(problem, remedy="Nothing is to be done; it starts anew.") from error
        self.violations, self.changed_s = (float(violations[CPU]), float(violations[MEMORY])), changed_s
        self.judged, self.oom_floor_bytes, self.oom_s = numbers


def tells(amounts: Amounts) -> bool:
    """Whether one resource at least is known."""
    return not (math.isnan(amounts[CPU]) and math.isnan(amounts[MEMORY]))
