"""The contents of the report: headline, savings, ratios and rankings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from recommender.base.nodes import NodeUse
from recommender.base.records import ContainerReplay, ReplayResult, RunTally, Tally
from recommender.report.nodes import nodes_by_policy
from recommender.report.summary import Prices, headline, number, outcome_of, percent, summarise
from tests.recommender.report.simulation import Simulated

GIB_S = float(1 << 30)


def result_of(policies: Mapping[str, list[Tally]], oracles: frozenset[str] = frozenset()) -> ReplayResult:
    count = len(next(iter(policies.values())))
    containers = tuple(
        ContainerReplay(f"c{i}", None, {name: tallies[i] for name, tallies in policies.items()}) for i in range(count)
    )
    return ReplayResult(15, 600, tuple(policies), oracles, containers, (), {})


def tally(cores: float, gib: float, *, used: float = 1.0, violations: tuple[int, int] = (0, 0), ooms: int = 0) -> Tally:
    """One hour in 100 samples."""
    return Tally(
        samples=100,
        judged_s=3600,
        used=(used * 3600, used * 3600 * GIB_S),
        allocated=(cores * 3600, gib * 3600 * GIB_S),
        slack=((cores - used) * 3600, (gib - used) * 3600 * GIB_S),
        violations=violations,
        oom_events=ooms,
    )


def test_the_headline_of_a_worked_example() -> None:
    phasewise = tally(2, 3, violations=(4, 3), ooms=1)
    summary = summarise(result_of({"static": [tally(4, 4)], "phasewise": [phasewise]}))
    assert headline(summary) == (
        "phasewise would have reserved 50 % less CPU and 25 % less memory than the declared requests, "
        "at 4.0 % / 3.0 % of samples in violation (CPU / memory) and 1 OOM kill."
    )


def test_reserving_more_than_the_baseline_is_reported_as_more() -> None:
    summary = summarise(result_of({"static": [tally(4, 4)], "phasewise": [tally(5, 3)]}))
    assert "25 % more CPU and 25 % less memory" in headline(summary)


def test_without_declared_requests_savings_count_against_the_default_vpa() -> None:
    summary = summarise(result_of({"histogram": [tally(4, 4)], "phasewise": [tally(2, 2)]}))
    assert summary.baseline == "histogram" and "than the default VPA" in headline(summary)


def test_without_any_baseline_there_are_amounts_and_no_savings() -> None:
    summary = summarise(result_of({"phasewise": [tally(2, 3)]}))
    assert summary.baseline is None and summary.row("phasewise").saved is None
    assert headline(summary).startswith("phasewise would have reserved 2.00 core-hours and 3.00 GiB-hours, at")


def test_a_baseline_that_is_the_only_choice_is_not_compared_with_itself() -> None:
    summary = summarise(result_of({"static": [tally(2, 3)]}))
    assert summary.focus == "static" and summary.baseline is None


def test_savings_are_shares_of_what_the_baseline_reserved_and_lost_by_kills() -> None:
    """The declared 4 core-hours and 4 GiB-hours are too little memory: kills lose another 12 of each."""
    killed = RunTally(runs=1, killed_runs=1, kills=3, lost=(12 * 3600, 12 * 3600 * GIB_S))
    runs = {"static": killed, "phasewise": RunTally(runs=1)}
    container = ContainerReplay("c", None, {"static": tally(4, 4), "phasewise": tally(8, 4)}, runs)
    summary = summarise(ReplayResult(15, 600, ("static", "phasewise"), frozenset(), (container,), (), {}))
    assert headline(summary).startswith(
        "phasewise would have reserved or lost 50 % less CPU and 75 % less memory than the declared requests, at"
    )
    assert summary.containers[0].rank == pytest.approx(0.5 + 0.75)


def test_slack_is_relative_to_use_and_violations_to_samples() -> None:
    outcome = outcome_of(tally(3, 2, used=2, violations=(7, 0)))
    assert outcome.cpu.slack_ratio == pytest.approx(0.5) and outcome.memory.slack_ratio == pytest.approx(0)
    assert outcome.cpu.violation_ratio == 0.07 and outcome.resizes_per_hour == 0


def test_a_container_without_use_and_duration_has_no_ratios() -> None:
    outcome = outcome_of(Tally())
    assert (outcome.cpu.slack_ratio, outcome.cpu.violation_ratio, outcome.resizes_per_hour) == (None, None, None)


def test_net_saving_is_the_difference_of_the_two_bills() -> None:
    policies = {"static": [tally(4, 4)], "phasewise": [tally(2, 2, violations=(10, 0), ooms=1)]}
    summary = summarise(result_of(policies), Prices(1.0, 0.5, violation_hour=2.0, oom_event=0.25))
    assert summary.row("phasewise").net_saving == pytest.approx(2 * 1 + 2 * 0.5 - 0.1 * 2 - 0.25)


def test_harmed_containers_are_ranked_by_oom_events_then_by_time_in_violation() -> None:
    phasewise = [tally(1, 1), tally(1, 1, violations=(9, 0)), tally(1, 1, ooms=1), tally(1, 1, violations=(3, 3))]
    summary = summarise(result_of({"phasewise": phasewise}))
    assert [row.container for row in summary.most_harmed(5)] == ["c2", "c1", "c3"]


def test_the_table_lists_the_baseline_phasewise_those_of_papers_and_then_oracles(run: Simulated) -> None:
    summary = summarise(run.result)
    assert [row.name for row in summary.in_force] == ["static", "phasewise"]
    names = [row.name for row in summary.of_papers]
    assert names[0] == "prev.step.rules" or set(names[:4]).isdisjoint(run.result.oracles)
    assert set(names[4:]) == run.result.oracles


def test_a_policy_with_kills_is_never_above_one_without_and_research_has_no_bill() -> None:
    """It saves most, and is last of those in force; what is counted for papers costs nothing, so it has no price."""
    policies = {
        "class.peak": [tally(1, 1, ooms=2)],
        "histogram": [tally(1, 1)],
        "vpa": [tally(3, 3)],
        "phasewise": [tally(2, 2)],
        "static": [tally(4, 4)],
    }
    summary = summarise(result_of(policies), Prices(1.0, 1.0))
    assert [row.name for row in summary.policies] == ["static", "phasewise", "vpa", "class.peak", "histogram"]
    assert [row.bill is None for row in summary.policies] == [False, False, False, False, True]
    cheap = NodeUse(1.0, 1.0, 1, 0.0, 0.1, 0, math.nan, (), ())
    nodes = {"class.peak": cheap} | {name: replace(cheap, cost=9.0) for name in ("new", "vpa", "static", "phasewise")}
    with_nodes = summarise(replace(result_of(policies), nodes=nodes), Prices(1.0, 1.0))
    assert list(nodes_by_policy(with_nodes)) == ["static", "phasewise", "vpa", "class.peak", "new"]


def test_the_report_is_never_about_a_research_policy_beside_one_in_force() -> None:
    policies = {"phase.rules": [tally(1, 1)], "class.peak": [tally(2, 2)], "static": [tally(4, 4)]}
    assert summarise(result_of(policies)).focus == "class.peak"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00"), (1.234, "1.23"), (45.67, "45.7"), (1234.5, "1,234"), (-3.1, "−3.10"), (0.002, "0.002"), (None, "–")],
)
def test_numbers_keep_three_digits_and_their_sign(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_share_that_is_undefined_is_a_dash() -> None:
    assert (percent(None), percent(0.0412), percent(-0.5, 0)) == ("–", "4.1 %", "−50 %")
    assert percent(-0.001, 0) == "0 %"
