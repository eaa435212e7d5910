"""What workloads of the simulated worlds use."""

from __future__ import annotations

import pytest

from benchmarks.harm.grid import HEAVY_S, PARTS, Cell
from tests.worlds.playing import START_S
from tests.worlds.workloads import DAY_S, GIB, HOUR_S, MINUTE_S, by_day, by_number, heap, steady


def test_a_heap_grows_ever_slower_up_to_its_size() -> None:
    use = heap(0.3, GIB, 3 * GIB, HOUR_S)
    sizes = [use(hours * HOUR_S, START_S, 0)[1] / GIB for hours in (0.0, 1.0, 2.0, 20.0)]
    assert sizes == pytest.approx([1.0, 2.264, 2.729, 3.0], abs=0.001)


def test_a_share_of_runs_is_of_the_other_mode() -> None:
    use = by_number(steady(1.0, GIB), steady(1.0, 3 * GIB), 0.3)
    large = [use(0.0, START_S, number)[1] == 3 * GIB for number in range(1000)]
    assert sum(large) / len(large) == pytest.approx(0.3, abs=0.05)
    assert sum(large[:60]) / 60 == pytest.approx(0.3, abs=0.1)


def test_on_idle_days_the_use_is_another() -> None:
    use = by_day(steady(1.0, GIB), steady(0.1, GIB), (4, 5))
    assert [use(0.0, START_S + day * DAY_S, 0)[0] for day in range(3, 7)] == [1.0, 0.1, 0.1, 1.0]


def test_a_job_of_the_grid_is_light_and_heavy_by_turns() -> None:
    cell = Cell("node full", 0.2, 1.8, 20, 0.0)
    part_s = 20 * MINUTE_S + HEAVY_S
    levels = [cell.use()(number * part_s + at_s, START_S, 0)[0] for number in range(PARTS) for at_s in (0.0, 1201.0)]
    assert levels == PARTS * [0.2, 1.8]
