"""Fixtures of the report: one simulated dry run, made once."""

from __future__ import annotations

import pytest

from tests.recommender.report.simulation import Simulated, simulated_run


@pytest.fixture(scope="session")
def run() -> Simulated:
    return simulated_run()
