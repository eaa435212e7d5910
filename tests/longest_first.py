"""The order in which test files begin."""

from __future__ import annotations

LONGEST_FIRST = (
    # with servers: from five minutes down to one
    "tests/scripts/test_bench_node.py",
    "tests/cluster/test_scale.py",
    "tests/recommender/live/test_behaviours_on_a_cluster.py",
    "tests/scripts/test_bench_placement.py",
    "tests/recommender/live/test_faults_on_a_cluster.py",
    "tests/scripts/test_bench_scheduler.py",
    "tests/extender/test_faults_on_a_cluster.py",
    "tests/scripts/test_scheduler_perf.py",
    "tests/recommender/live/test_auto_vpas_on_a_cluster.py",
    "tests/recommender/live/test_on_a_cluster.py",
    "tests/recommender/sources/test_prometheus_for_real.py",
    "tests/extender/test_walk_through_on_a_cluster.py",
    "tests/recommender/live/test_progress_on_a_cluster.py",
    "tests/recommender/live/test_history_on_a_cluster.py",
    # without: from ten seconds down to three
    "tests/recommender/cli/test_dry_run.py",
    "tests/recommender/policies/test_phase_plan.py",
    "tests/recommender/phases/test_graph.py",
    "tests/recommender/cli/test_train_model_phases.py",
    "tests/scripts/test_record_training.py",
    "tests/recommender/report/test_report_page.py",
    "tests/recommender/phases/test_crbm.py",
)
"""Files that begin before all others: whoever takes one of them last keeps the other sessions waiting for it."""
