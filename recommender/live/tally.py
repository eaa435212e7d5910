"""What a round did, in numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from recommender.errors import PhasewiseError
from recommender.live.member import PhaseChange
from recommender.phases.graph import PhaseGraph
from recommender.records import VIOLATION_TOLERANCE, FloatArray

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Report:
    """What a round did.

    Attributes
    ----------
    step_s
        Duration of each step in seconds, in order.
    problems
        What went wrong, by the object it is about.
    samples, decisions, published
        How many there were: new samples, decisions made, targets changed.
    phase_changes, forecast_hits, forecast_misses
        Phases entered, and of those for which the next phase had been foretold, whether it was the most probable one.
    resizes_s
        Of resizes that were seen done: seconds since their target was published.
    kills
        Kills for memory of our containers.
    runs
        Runs that came to their end and were learned.
    unsaid, unshown
        Statuses that could not be left behind at the end, and PhaseProfiles that changed and were not written yet.
    judged
        Samples held against what the container had.
    violating, used, slack
        float64 (2,): how many of them violated, and sums of use and of what was had beyond it, cores and bytes.
    """

    step_s: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    samples: int = 0
    decisions: int = 0
    published: int = 0
    phase_changes: int = 0
    forecast_hits: int = 0
    forecast_misses: int = 0
    resizes_s: list[float] = field(default_factory=list)
    kills: int = 0
    runs: int = 0
    unsaid: int = 0
    unshown: int = 0
    judged: int = 0
    violating: FloatArray = field(default_factory=lambda: np.zeros(2))
    used: FloatArray = field(default_factory=lambda: np.zeros(2))
    slack: FloatArray = field(default_factory=lambda: np.zeros(2))

    @contextmanager
    def sparing(self, about: str) -> Iterator[None]:
        """Whatever goes wrong with one object stops that object only, and is reported."""
        try:
            yield
        except PhasewiseError as error:
            self.problems[about] = str(error)
        except Exception as error:  # a round must outlive what nobody foresaw
            log.exception("round: %s", about)
            self.problems[about] = f"{type(error).__name__}: {error}"

    @property
    def resizes_done(self) -> int:
        """How many resizes were seen done."""
        return len(self.resizes_s)

    def judge(self, used: FloatArray, had: Sequence[float]) -> None:
        """Count one sample, float64 (2,), against what its container had at the time; NaN where it requests nothing."""
        self.judged += 1
        for place, amount in enumerate(used.tolist()):
            self.violating[place] += amount > had[place] * VIOLATION_TOLERANCE
            self.used[place] += amount
            if had[place] > amount:
                self.slack[place] += had[place] - amount

    def changed(self, change: PhaseChange, graph: PhaseGraph | None) -> None:
        """Count a change of phase, and whether it was foretold."""
        self.phase_changes += 1
        shares = shares_of_next(graph, change.before, change.phase, change.samples)
        if shares is not None:
            hit = int(shares.argmax()) == change.following
            self.forecast_hits += hit
            self.forecast_misses += not hit


def shares_of_next(graph: PhaseGraph | None, before: int, phase: int, samples: int) -> FloatArray | None:
    """float64 (k,): how probable each phase is as the next different one; None where nothing is known.

    Parameters
    ----------
    before, phase
        The phase before the present one (negative: none), and the present one.
    samples
        How long it has lasted.
    """
    if graph is None or not 0 <= phase < graph.n_phases:
        return None
    outlook = graph.compile()
    shares: FloatArray = outlook.next_phase[outlook.index(before, phase, max(1, samples))]
    return shares
