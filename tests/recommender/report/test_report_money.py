"""Bills: each hour and each event is charged once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import Tally
from recommender.report.summary import Bill, Prices, bill_of

GIB_H = float(1 << 30) * 3600
HOUR = Tally(samples=100, judged_s=3600, allocated=(2 * 3600, 3 * GIB_H), violations=(10, 4), oom_events=2)


def test_the_bill_of_a_worked_example() -> None:
    bill = bill_of([(HOUR, None)], Prices(0.05, 0.01, violation_hour=20, oom_event=1.5))
    assert bill.reserved == pytest.approx(2 * 0.05 + 3 * 0.01)
    assert bill.violations == pytest.approx(0.10 * 20)
    assert bill.ooms == 3.0
    assert bill.total == pytest.approx(0.13 + 2 + 3)


def test_memory_violations_are_charged_by_the_hour_only_without_an_oom_price() -> None:
    memory_only = Tally(samples=100, judged_s=3600, violations=(0, 50), oom_events=1)
    assert bill_of([(memory_only, None)], Prices(violation_hour=20, oom_event=1)) == Bill(0, 0, 1)
    assert bill_of([(memory_only, None)], Prices(violation_hour=20)) == Bill(0, 10, 0)


def test_a_sample_in_violation_of_both_resources_is_charged_once() -> None:
    both = Tally(samples=10, judged_s=3600, violations=(10, 10))
    assert bill_of([(both, None)], Prices(violation_hour=7)).violations == pytest.approx(7)


def test_containers_of_different_steps_are_charged_by_their_own_hours() -> None:
    slow = Tally(samples=1, judged_s=3600, violations=(1, 0))
    fast = Tally(samples=3600, judged_s=3600, violations=(1, 0))
    assert bill_of([(slow, None), (fast, None)], Prices(violation_hour=3600)).violations == pytest.approx(3601)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.floats(0, 1e3), st.floats(0, 1e3))
def test_violations_are_never_charged_for_more_than_the_whole_time(
    cpu: int, memory: int, ooms: int, price: float, oom_price: float
) -> None:
    tally = Tally(samples=50, judged_s=7200, violations=(cpu, memory), oom_events=ooms)
    for prices in (Prices(violation_hour=price), Prices(violation_hour=price, oom_event=oom_price)):
        assert bill_of([(tally, None)], prices).violations <= 2 * price * (1 + 1e-9)


def test_a_tally_without_samples_costs_nothing() -> None:
    assert bill_of([(Tally(), None)], Prices(1, 1, 1, 1)) == Bill()
