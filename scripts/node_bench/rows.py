"""The rows of the bench, one after the other, each on an empty node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benches import log_progress
from local_cluster.cluster import Cluster, lent_or_own
from node_bench.batch import Place, Seen, run_batch
from node_bench.interpreter import Interpreter
from node_bench.objects import Plan
from node_bench.setters import LESSONS, OF_OURS, OnStage, Row, setting_requests

NODE = "bench"
NODE_CORES = 1.8
NODE_BYTES = 3400 * 2**20


@contextmanager
def a_node(
    interpreter: Interpreter, rows: Sequence[Row], lent: Cluster | None = None, logs_to: Path | None = None
) -> Iterator[Place]:
    """A real node of the bench's size, and where some row has VPAs metrics-server and their webhook.

    They are part of a cluster that is lent, or of one of the bench's own, gone afterwards.
    """
    log_progress("starting the cluster")
    with lent_or_own(lent, f"bench-{os.getpid()}", logs_to) as cluster:
        node = cluster.real_node(NODE, cpu_cores=NODE_CORES, memory_bytes=NODE_BYTES)
        if any(row.vpas for row in rows):
            cluster.metrics_server()
            cluster.vpa_admission_controller()
        yield Place(cluster, node, interpreter)
        log_progress("taking all down")


def run_rows(
    place: Place, rows: Sequence[Row], plans: Sequence[Plan], lessons: Sequence[Plan]
) -> Iterator[tuple[Row, Seen]]:
    """Run the batch once for each row; yields what was seen as soon as the row is done."""
    for row in rows:
        if row.key not in OF_OURS:
            with _setting(place, row) as (namespace, on_stage):
                yield row, run_batch(place, namespace, row, plans, on_stage)
    if ours := {row.key: row for row in rows if row.key in OF_OURS}:
        yield from _rows_of_ours(place, ours, plans, lessons)


def _rows_of_ours(
    place: Place, rows: Mapping[str, Row], plans: Sequence[Plan], lessons: Sequence[Plan]
) -> Iterator[tuple[Row, Seen]]:
    """Both rows in one namespace: what the first batch has taught counts among the lessons of the second."""
    first = 1
    with _setting(place, next(iter(rows.values()))) as (namespace, on_stage):
        if row := rows.get("unseen"):
            yield row, run_batch(place, namespace, row, plans, on_stage)
            first += len(plans)
        if row := rows.get("ours"):
            if remaining := lessons[first - 1 :]:
                run_batch(place, namespace, LESSONS, remaining, on_stage, first)
                first += len(remaining)
            yield row, run_batch(place, namespace, row, plans, on_stage, first)


@contextmanager
def _setting(place: Place, row: Row) -> Iterator[tuple[str, OnStage]]:
    """A namespace of the row's own, and the one whom the row is about at work.

    The namespace is gone before the next row; after a failure the whole cluster goes anyway.
    """
    namespace = place.cluster.namespace("bench")
    with setting_requests(place.cluster, namespace, row) as on_stage:
        yield namespace, on_stage
    place.cluster.kubectl("delete", "namespace", namespace, "--timeout=120s")
