"""A simulated dry run, made once, for the tests of reports."""

from __future__ import annotations

import pytest

from tests.recommender.report.simulation import Simulated, simulated_run


@pytest.fixture(scope="session")
def run() -> Simulated:
    return simulated_run()
