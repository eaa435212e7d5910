"""The order in which test files start."""

from __future__ import annotations

LONGEST_FIRST = (
    # with servers: from five minutes down to one
    "tests/benchmarks/test_bench_node.py",
    "tests/recommender/live/test_behaviours_on_a_cluster.py",
    "tests/benchmarks/test_bench_placement.py",
    "tests/recommender/live/test_faults_on_a_cluster.py",
    "tests/benchmarks/test_bench_scheduler.py",
    "tests/extender/test_faults_on_a_cluster.py",
    "tests/benchmarks/test_scheduler_perf.py",
    "tests/recommender/live/test_auto_vpas_on_a_cluster.py",
    "tests/recommender/live/test_on_a_cluster.py",
    "tests/recommender/sources/test_prometheus_for_real.py",
    "tests/extender/test_walk_through_on_a_cluster.py",
    "tests/recommender/live/test_progress_on_a_cluster.py",
    "tests/recommender/live/test_history_on_a_cluster.py",
    # without servers: files that compile kernels which most others then load, and long files that compile nothing
    "tests/recommender/cli/test_dry_run.py",
    "tests/extender/options/test_command_options.py",
    "tests/contracts/test_docs.py",
    "tests/benchmarks/test_record_training.py",
    "tests/recommender/test_processes.py",
    "tests/extender/test_processes.py",
    "tests/benchmarks/test_by_name.py",
    # long simulations
    "tests/recommender/live/test_no_harm.py",
    "tests/recommender/simulate/test_phasewise.py",
    "tests/recommender/engine/test_memory.py",
    "tests/recommender/live/test_live_as_simulated.py",
)
"""Files that start before all others: the process that ran one of them last would keep the others waiting."""
