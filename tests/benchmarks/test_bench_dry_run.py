"""The baseline of bench_dry_run."""

from __future__ import annotations

import numpy as np

from recommender.base.records import UsageSeries
from recommender.policies.registry import POLICIES
from tests.benchmarks.benches import module_of


def test_the_baseline_replays_each_of_its_policies_which_the_dry_run_has_too() -> None:
    script, usage = module_of("bench_dry_run"), np.full((60, 2), [0.5, 2.0**30])
    usage[20:25] = np.nan
    series = UsageSeries("vm", 300 * np.arange(60), 300.0, usage)
    assert script.baseline_rate(series, 600.0) > 0.0
    assert set(script.SLOW_POLICIES) < set(POLICIES)
