"""What reservations, violations and OOM kills cost, each counted once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from recommender.records import CPU, MEMORY, RunTally, Tally
from recommender.units import BYTES_PER_GIB, SECONDS_PER_HOUR

FORMULA = (
    "cost = core-hours reserved or lost × CPU price + GiB-hours reserved or lost × memory price "
    "+ hours in violation × violation price + OOM kills × OOM price; "
    "net saving = cost of the baseline − cost of the policy"
)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in any one currency; None counts as zero."""

    # Per core-hour and per GiB-hour reserved.
    cpu_core_hour: float | None = None
    memory_gib_hour: float | None = None
    violation_hour: float | None = None  # per container-hour in violation
    # Per OOM event. If given, memory violations cost by the event and not by the hour: each lies inside an OOM event
    # and would otherwise be charged twice.
    oom_event: float | None = None

    @property
    def any_given(self) -> bool:
        """True if at least one price is given."""
        return any(price is not None for price in asdict(self).values())

    @property
    def charges_harm(self) -> bool:
        """True if violations or OOM events have a price."""
        return self.violation_hour is not None or self.oom_event is not None


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one policy, in the currency of the prices."""

    reserved: float = 0.0
    violations: float = 0.0
    ooms: float = 0.0

    @property
    def total(self) -> float:
        return self.reserved + self.violations + self.ooms

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.reserved + other.reserved, self.violations + other.violations, self.ooms + other.ooms)


def bill_of(tallies: Iterable[tuple[Tally, RunTally | None]], prices: Prices) -> Bill:
    """The bill of many containers under one policy; work lost by kills costs as much as reservations.

    Violations are charged per container: with an OOM price by the hours of CPU violation; without one by the longer of
    the CPU and the memory hours. A sample that violates both counts once, but tallies do not tell which samples do, so
    the charge is a lower bound.
    """
    return sum((_bill_of_one(tally, run, prices) for tally, run in tallies), Bill())


def _bill_of_one(tally: Tally, run: RunTally | None, prices: Prices) -> Bill:
    lost, kills = ((0.0, 0.0), tally.oom_events) if run is None else (run.lost, run.kills)
    sample_h = tally.judged_s / tally.samples / SECONDS_PER_HOUR if tally.samples else 0.0
    charged = tally.violations[CPU] if prices.oom_event is not None else max(tally.violations)
    return Bill(
        reserved=(prices.cpu_core_hour or 0.0) * (tally.allocated[CPU] + lost[CPU]) / SECONDS_PER_HOUR
        + (prices.memory_gib_hour or 0.0) * (tally.allocated[MEMORY] + lost[MEMORY]) / SECONDS_PER_HOUR / BYTES_PER_GIB,
        violations=(prices.violation_hour or 0.0) * charged * sample_h,
        ooms=(prices.oom_event or 0.0) * kills,
    )
