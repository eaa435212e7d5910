"""Run the rows of the benchmark one after the other, each on an empty node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benches import log_progress
from local_cluster.cluster import Cluster, lent_or_own
from node_bench.batch import Bench, Observations, run_batch
from node_bench.interpreter import Interpreter
from node_bench.objects import Plan
from node_bench.setters import LEARNING_ROW, OUR_ROWS, OnStage, Row, setting_requests

NODE = "bench"
NODE_CORES = 1.8
NODE_BYTES = 3400 * 2**20


@contextmanager
def bench_node(
    interpreter: Interpreter, rows: Sequence[Row], lent: Cluster | None = None, logs_to: Path | None = None
) -> Iterator[Bench]:
    """Start a real node of the benchmark's size, and metrics-server and the VPA's webhook if a row has VPAs.

    They belong to the cluster that is lent, or to one that is stopped afterwards.
    """
    log_progress("starting the cluster")
    with lent_or_own(lent, f"bench-{os.getpid()}", logs_to) as cluster:
        node = cluster.real_node(NODE, cpu_cores=NODE_CORES, memory_bytes=NODE_BYTES)
        if any(row.vpas for row in rows):
            cluster.metrics_server()
            cluster.vpa_admission_controller()
        yield Bench(cluster, node, interpreter)
        log_progress("stopping the cluster")


def run_rows(
    bench: Bench, rows: Sequence[Row], plans: Sequence[Plan], learning_plans: Sequence[Plan]
) -> Iterator[tuple[Row, Observations]]:
    """Run the batch once for each row; yield its observations as soon as it is done."""
    for row in rows:
        if row.key not in OUR_ROWS:
            with _row_namespace(bench, row) as (namespace, on_stage):
                yield row, run_batch(bench, namespace, row, plans, on_stage)
    if ours := {row.key: row for row in rows if row.key in OUR_ROWS}:
        yield from _run_our_rows(bench, ours, plans, learning_plans)


def _run_our_rows(
    bench: Bench, rows: Mapping[str, Row], plans: Sequence[Plan], learning_plans: Sequence[Plan]
) -> Iterator[tuple[Row, Observations]]:
    """Run both rows in one namespace: the jobs of the first count among those that the second learns from."""
    first = 1
    with _row_namespace(bench, next(iter(rows.values()))) as (namespace, on_stage):
        if row := rows.get("unseen"):
            yield row, run_batch(bench, namespace, row, plans, on_stage)
            first += len(plans)
        if row := rows.get("ours"):
            if remaining := learning_plans[first - 1 :]:
                run_batch(bench, namespace, LEARNING_ROW, remaining, on_stage, first)
                first += len(remaining)
            yield row, run_batch(bench, namespace, row, plans, on_stage, first)


@contextmanager
def _row_namespace(bench: Bench, row: Row) -> Iterator[tuple[str, OnStage]]:
    """Yield a namespace of the row's own, with whoever sets the requests at work.

    The namespace is deleted before the next row; after a failure the whole cluster is removed anyway.
    """
    namespace = bench.cluster.namespace("bench")
    with setting_requests(bench.cluster, namespace, row) as on_stage:
        yield namespace, on_stage
    bench.cluster.kubectl("delete", "namespace", namespace, "--timeout=120s")
