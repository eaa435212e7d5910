"""What all tests share: the seed, and small builders."""

from __future__ import annotations

import gc
import os
import signal

import hypothesis
import pytest


def pytest_configure() -> None:
    """Ctrl-C ends what tests start, also when the tests run in the background of a shell, which ignores it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST_FIRST = (
    # with servers: from five minutes down to one
    "tests/scripts/test_bench_node.py",
    "tests/cluster/test_scale.py",
    "tests/recommender/live/test_behaviours_on_a_cluster.py",
    "tests/scripts/test_bench_placement.py",
    "tests/recommender/live/test_faults_on_a_cluster.py",
    "tests/scripts/test_bench_scheduler.py",
    "tests/extender/test_faults_on_a_cluster.py",
    "tests/recommender/live/test_auto_vpas_on_a_cluster.py",
    "tests/recommender/live/test_on_a_cluster.py",
    "tests/recommender/sources/test_prometheus_for_real.py",
    "tests/extender/test_walk_through_on_a_cluster.py",
    "tests/recommender/live/test_progress_on_a_cluster.py",
    "tests/recommender/live/test_history_on_a_cluster.py",
    # without: from ten seconds down to three
    "tests/recommender/cli/test_dry_run.py",
    "tests/recommender/policies/test_demand.py",
    "tests/recommender/phases/test_graph.py",
    "tests/recommender/cli/test_train_model_phases.py",
    "tests/scripts/test_record_training.py",
    "tests/recommender/report/test_report_page.py",
    "tests/recommender/phases/test_crbm.py",
)
"""Files that begin before all others: whoever takes one of them last keeps the other sessions waiting for it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first; xdist is kept from starting with those of the most tests (`--no-loadscope-reorder`)."""
    rank = {file: number for number, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.nodeid.split("::")[0], len(rank)))


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end: looking for garbage in it took a tenth of all time."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One seed by default; `PHASEWISE_SEEDS=20` runs every test that asks for a seed with twenty."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(int(os.environ.get("PHASEWISE_SEEDS", "1"))))


hypothesis.settings.register_profile("project", deadline=None)  # a busy machine is no failure
hypothesis.settings.register_profile("fast", deadline=None, max_examples=25)  # of scripts/test --fast
hypothesis.settings.load_profile("project")
