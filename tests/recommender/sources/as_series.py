"""Blocks of usage as one series per container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from recommender.base.records import UsageSeries
from recommender.sources.prometheus_usage import UsageBlock
from recommender.sources.series import to_series, whole_seconds


def series_of(blocks: Sequence[UsageBlock], step_s: float) -> Iterator[UsageSeries]:
    """Consecutive blocks as one series per container, by name."""
    containers = sorted({name for block in blocks for name in block.containers})
    number = {name: at for at, name in enumerate(containers)}
    nodes: list[str | None] = [None] * len(containers)
    workloads: list[str | None] = [None] * len(containers)
    owners = [np.empty(0, np.int64)]
    for block in blocks:
        renumbered = np.array([number[name] for name in block.containers], np.int64)
        owners.append(renumbered[block.owner])
        for at, node, workload in zip(renumbered.tolist(), block.nodes, block.workloads, strict=True):
            nodes[at], workloads[at] = node or nodes[at], workload or workloads[at]
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(len(containers) + 1))
    times_s = np.concatenate([np.empty(0), *(block.timestamps for block in blocks)])[order]
    usage = np.concatenate([np.empty((0, 2)), *(block.usage for block in blocks)])[order]
    requests = np.concatenate([np.empty((0, 2)), *(block.requests for block in blocks)])[order]
    for at, name in enumerate(containers):
        rows = slice(int(starts[at]), int(starts[at + 1]))
        if rows.start == rows.stop:
            continue
        declared = None if np.isnan(requests[rows]).all() else requests[rows]
        timestamps = whole_seconds(times_s[rows])
        samples = UsageSeries(
            "/".join(name), timestamps, 0.0, usage[rows], declared, workload=workloads[at], node=nodes[at]
        )
        yield to_series(samples, times_s[rows], step_s)
