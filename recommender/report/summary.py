"""The contents of a report without its layout: rates, savings, bills, rankings and the headline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from recommender.base.records import CPU, MEMORY, ContainerReplay, ReplayResult, RunTally, Tally
from recommender.base.units import BYTES_PER_GIB, SECONDS_PER_HOUR, counted
from recommender.policies.registry import POLICIES
from recommender.replaying.timelines import BASELINES, baseline_of, focus_of
from recommender.report.palette import OURS

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


USUAL_PRICES = Prices(cpu_core_hour=0.03, memory_gib_hour=0.004)
"""Taken if none is given: about what general-purpose machines cost on demand, in dollars."""


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of one policy, in the currency of the prices."""

    reserved: float = 0.0
    violations: float = 0.0
    ooms: float = 0.0

    @property
    def total(self) -> float:
        return self.reserved + self.violations + self.ooms


def bill_of(tallies: Iterable[tuple[Tally, RunTally | None]], prices: Prices) -> Bill:
    """The bill of many containers under one policy; work lost by kills costs as much as reservations.

    Violations are charged per container: with an OOM price by the hours of CPU violation; without one by the longer of
    the CPU and the memory hours. A sample that violates both counts once, but tallies do not tell which samples do, so
    the charge is a lower bound.
    """
    reserved = violations = ooms = 0.0
    for tally, run in tallies:
        lost, kills = ((0.0, 0.0), tally.oom_events) if run is None else (run.lost, run.kills)
        cpu = (prices.cpu_core_hour or 0.0) * (tally.allocated[CPU] + lost[CPU]) / SECONDS_PER_HOUR
        memory = (prices.memory_gib_hour or 0.0) * (tally.allocated[MEMORY] + lost[MEMORY]) / SECONDS_PER_HOUR
        sample_h = tally.judged_s / tally.samples / SECONDS_PER_HOUR if tally.samples else 0.0
        charged = tally.violations[CPU] if prices.oom_event is not None else max(tally.violations)
        reserved += cpu + memory / BYTES_PER_GIB
        violations += (prices.violation_hour or 0.0) * charged * sample_h
        ooms += (prices.oom_event or 0.0) * kills
    return Bill(reserved, violations, ooms)


@dataclass(frozen=True, slots=True)
class Usage:
    """One resource of a tally in core-hours or GiB-hours; undefined ratios are None."""

    used: float
    allocated: float
    slack: float
    shortage: float
    slack_ratio: float | None
    violations: int
    violation_ratio: float | None


@dataclass(frozen=True, slots=True)
class PolicyTotals:
    """A tally in readable units; `kills` is None for policies that were not run in the simulated cluster."""

    samples: int
    hours: float
    cpu: Usage
    memory: Usage
    oom_events: int
    resizes: int
    resizes_per_hour: float | None
    kills: RunTally | None = None

    @property
    def oom_kills(self) -> int:
        """Simulated OOM kills; for policies without simulation the OOM events."""
        return self.oom_events if self.kills is None else self.kills.kills

    @property
    def lost(self) -> tuple[float, float]:
        """Core-hours and GiB-hours of repeated work and restarts."""
        lost = (0.0, 0.0) if self.kills is None else self.kills.lost
        return lost[CPU] / SECONDS_PER_HOUR, lost[MEMORY] / SECONDS_PER_HOUR / BYTES_PER_GIB

    @property
    def reserved_or_lost(self) -> tuple[float, float]:
        """Core-hours and GiB-hours, with those that kills lost."""
        return self.cpu.allocated + self.lost[CPU], self.memory.allocated + self.lost[MEMORY]

    @property
    def resources(self) -> tuple[Usage, Usage]:
        return self.cpu, self.memory


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One row of the table of policies; savings are None without a baseline, money is None without prices."""

    name: str
    oracle: bool
    ours: bool
    baseline: bool
    # Of the papers: its decisions apply at once, and a kill costs it nothing; it has no bill.
    research: bool
    outcome: PolicyTotals
    # Core-hours and GiB-hours saved against the baseline, reserved and lost ones; negative if it used more.
    saved: tuple[float, float] | None
    saved_share: tuple[float | None, float | None] | None  # the same as shares of what the baseline reserved or lost
    bill: Bill | None
    net_saving: float | None


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """One container under the policy in focus, beside the baseline."""

    container: str
    workload: str | None
    outcome: PolicyTotals
    saved: tuple[float, float] | None
    rank: float  # sort key of savings: money; without prices the share of all that the baseline reserved or lost


@dataclass(frozen=True, slots=True)
class Summary:
    """The contents that all report formats share."""

    result: ReplayResult
    focus: str  # the policy the report is about: ours, otherwise one that is neither oracle nor baseline
    # What savings are measured against; None if neither `static` nor `histogram` was judged or it is the focus.
    baseline: str | None
    # In reading order: the baseline, ours and the others, those with kills after those without; then those of papers.
    policies: tuple[PolicyRow, ...]
    containers: tuple[ContainerRow, ...]
    prices: Prices

    @property
    def samples(self) -> int:
        return self.row(self.focus).outcome.samples

    @property
    def hours(self) -> float:
        return self.row(self.focus).outcome.hours

    def row(self, policy: str) -> PolicyRow:
        return next(row for row in self.policies if row.name == policy)

    @property
    def in_force(self) -> list[PolicyRow]:
        """Policies that were applied in the simulated cluster."""
        return [row for row in self.policies if not row.research]

    @property
    def of_papers(self) -> list[PolicyRow]:
        return [row for row in self.policies if row.research]

    def most_harmed(self, count: int) -> list[ContainerRow]:
        """The containers with most memory kills, then most time in violation."""
        harmed = [row for row in self.containers if row.outcome.oom_kills or _hours_in_violation(row.outcome)]
        return sorted(harmed, key=lambda row: (-row.outcome.oom_kills, -_hours_in_violation(row.outcome)))[:count]


def summarise(result: ReplayResult, prices: Prices | None = None) -> Summary:
    """Rates, savings and rankings of a dry run.

    Savings are reservations and losses of the baseline minus those of the policy over the same judged samples.
    """
    prices = prices or Prices()
    focus, baseline = focus_of(result.policies, result.oracles), baseline_of(result.policies)
    outcomes, rows = outcomes_of(result), list[PolicyRow]()
    billed = [name for name in result.policies if prices.any_given and name not in POLICIES]
    bills = {name: _bill(result.containers, name, prices) for name in billed}
    before = outcomes[baseline] if baseline else None
    for name, outcome in outcomes.items():
        saved: tuple[float, float] | None = None
        share: tuple[float | None, float | None] | None = None
        net = None
        if before is not None and baseline is not None and name != baseline:
            saved = _saved(before, outcome)
            pairs = zip(saved, before.reserved_or_lost, strict=True)
            cpu, memory = (part / whole if whole > 0 else None for part, whole in pairs)
            share = cpu, memory
            net = bills[baseline].total - bills[name].total if {baseline, name} <= bills.keys() else None
        flags = name in result.oracles, name == OURS, name == baseline, name in POLICIES
        rows.append(PolicyRow(name, *flags, outcome, saved, share, bills.get(name), net))
    rows.sort(key=lambda row: (row.oracle, row.research, not row.baseline, row.outcome.oom_kills > 0, not row.ours))
    against = None if baseline == focus else baseline
    containers = tuple(_container_row(c, focus, against, before, prices) for c in result.containers)
    return Summary(result, focus, against, tuple(rows), containers, prices)


def outcome_of(tally: Tally, run: RunTally | None = None) -> PolicyTotals:
    """Convert a tally to hours, core-hours, GiB-hours and ratios; `run` holds its simulated kills, if any."""
    hours = tally.judged_s / SECONDS_PER_HOUR
    return PolicyTotals(
        samples=tally.samples,
        hours=hours,
        cpu=_usage(tally, CPU, SECONDS_PER_HOUR),
        memory=_usage(tally, MEMORY, SECONDS_PER_HOUR * BYTES_PER_GIB),
        oom_events=tally.oom_events,
        resizes=tally.resizes,
        resizes_per_hour=tally.resizes / hours if hours else None,
        kills=run,
    )


def outcomes_of(result: ReplayResult) -> dict[str, PolicyTotals]:
    """Totals of all containers together, by policy."""
    runs = result.run_totals()
    return {name: outcome_of(tally, runs.get(name)) for name, tally in result.totals().items()}


def headline(summary: Summary) -> str:
    """The main result in one sentence."""
    row = summary.row(summary.focus)
    outcome, harm = row.outcome, _harm(row.outcome)
    if summary.baseline is None or row.saved_share is None:
        return (
            f"{row.name} would have reserved {number(outcome.cpu.allocated)} core-hours and "
            f"{number(outcome.memory.allocated)} GiB-hours, at {harm}."
        )
    return f"{row.name} would have {_compared(summary, row, summary.baseline)}, at {harm}."


def comparison(summary: Summary) -> str:
    """A sentence about the default VPA if it is neither the baseline nor the focus; otherwise empty."""
    default = next((row for name in ("vpa", "histogram") for row in summary.policies if row.name == name), None)
    if default is None or summary.baseline != "static" or default.saved_share is None or default.name == summary.focus:
        return ""
    compared = _compared(summary, default, summary.baseline)
    return f"The default VPA ({default.name}) would have {compared}, at {_harm(default.outcome)}."


def _harm(outcome: PolicyTotals) -> str:
    cpu, memory = percent(outcome.cpu.violation_ratio), percent(outcome.memory.violation_ratio)
    if outcome.kills is None:
        return f"{cpu} / {memory} of samples in violation (CPU / memory) and {counted(outcome.oom_events, 'OOM kill')}"
    runs = outcome.kills.runs
    killed = f"{outcome.kills.killed_runs:,} of {counted(runs, 'run')} OOM-killed" if runs else "no memory limits"
    return f"{cpu} of samples short of CPU and {killed}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share in per cent; a dash for None."""
    return "–" if share is None else f"{share * 100:z.{digits}f} %".replace("-", "−")


def number(value: float | None) -> str:
    """A quantity with three significant digits, or all digits before the point; a dash for None."""
    if value is None:
        return "–"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    text = f"{value:,.{digits}f}"
    if 0 < size < 0.005:
        text = f"{value:.1g}" if size >= 1e-4 else "0"
    return text.replace("-", "−") if float(text.replace(",", "")) else text.replace("-", "")


def two_decimals(value: float | None) -> str:
    """A ratio or sum with two decimals, comparable in a column; a dash for None."""
    return "–" if value is None else f"{value:z,.2f}".replace("-", "−")


def _compared(summary: Summary, row: PolicyRow, baseline: str) -> str:
    lost = any(any(one.outcome.lost) for one in (row, summary.row(baseline)))
    cpu, memory = (_less_or_more(share) for share in row.saved_share or (None, None))
    return f"reserved{' or lost' if lost else ''} {cpu} CPU and {memory} memory than {BASELINES[baseline]}"


def _less_or_more(share: float | None) -> str:
    if share is None:
        return "no measurable amount of"
    return f"{abs(share) * 100:.0f} % {'less' if share >= 0 else 'more'}"


def _usage(tally: Tally, resource: int, unit: float) -> Usage:
    used, slack = tally.used[resource], tally.slack[resource]
    return Usage(
        used=used / unit,
        allocated=tally.allocated[resource] / unit,
        slack=slack / unit,
        shortage=tally.shortage[resource] / unit,
        slack_ratio=slack / used if used > 0 else None,
        violations=tally.violations[resource],
        violation_ratio=tally.violations[resource] / tally.samples if tally.samples else None,
    )


def _bill(containers: Iterable[ContainerReplay], policy: str, prices: Prices) -> Bill:
    pairs = ((container.tallies[policy], container.runs.get(policy)) for container in containers)
    return bill_of(pairs, prices)


def _container_row(
    replay: ContainerReplay, focus: str, baseline: str | None, whole: PolicyTotals | None, prices: Prices
) -> ContainerRow:
    outcome = outcome_of(replay.tallies[focus], replay.runs.get(focus))
    if baseline is None or whole is None:
        return ContainerRow(replay.container, replay.workload, outcome, None, 0.0)
    saved = _saved(outcome_of(replay.tallies[baseline], replay.runs.get(baseline)), outcome)
    if prices.any_given:
        rank = _bill([replay], baseline, prices).total - _bill([replay], focus, prices).total
    else:
        rank = sum(amount / total for amount, total in zip(saved, whole.reserved_or_lost, strict=True) if total > 0)
    return ContainerRow(replay.container, replay.workload, outcome, saved, rank)


def _saved(before: PolicyTotals, after: PolicyTotals) -> tuple[float, float]:
    cpu, memory = (one - other for one, other in zip(before.reserved_or_lost, after.reserved_or_lost, strict=True))
    return cpu, memory


def _hours_in_violation(outcome: PolicyTotals) -> float:
    ratios = (outcome.cpu.violation_ratio or 0.0) + (outcome.memory.violation_ratio or 0.0)
    return ratios * outcome.hours
