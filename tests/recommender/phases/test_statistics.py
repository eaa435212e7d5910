"""Statistics of phases."""

from __future__ import annotations

import numpy as np
import pytest

from recommender.base.records import UsageSeries
from recommender.phases.statistics import phase_statistics


def test_a_spread_that_is_tiny_beside_the_bytes_is_kept() -> None:
    usage = np.column_stack([np.ones(40), 1e12 + np.tile([0.0, 2000.0], 20)])
    series = UsageSeries("a", np.arange(40) * 15, 15.0, usage)
    found = phase_statistics([series], [np.zeros(40, np.int64)], ("memory_bytes",), 1)
    assert found.usage_sd[0].tolist() == pytest.approx([0.0, 1000.0])
