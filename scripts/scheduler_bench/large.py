"""A cluster grown step by step: memory of the extender, and latency of its calls."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.progress import Progress

from benches import log_progress
from scheduler_bench import calls, objects
from scheduler_bench.objects import fill, prepare, waiting
from scheduler_bench.place import BenchCluster, Memory
from scheduler_bench.slow import KINDS, SlowClients

WAITING, WAITING_FROM = 400, 1_000_000
"""Number of pending pods to call with (at most the number of calls), and their first number, beyond all bound pods."""

CONTROL_PLANE = ("kube-apiserver", "etcd")

SETTLE_S = 3.0
"""Seconds to wait after readiness: the extender then frees memory once."""


@dataclass(frozen=True)
class ServiceMemory:
    """Memory of the extender: once synced, and after the calls."""

    nodes: int
    pods: int
    synced_s: float
    synced: Memory
    used: Memory


def grow(
    bench: BenchCluster,
    sizes: Sequence[int],
    pods_a_node: int,
    call_count: int,
    slow: int,
    seed: int,
    progress: Progress,
) -> Iterator[tuple[ServiceMemory, list[calls.Times]]]:
    """Grow the cluster to each of `sizes` nodes, and time a fresh extender's calls alone and beside `slow` clients."""
    wait = range(WAITING_FROM, WAITING_FROM + min(WAITING, call_count))
    classes = objects.classes_of((*range(max(sizes) * pods_a_node), *wait))
    prepare(bench, map(objects.namespace_of, range(objects.NAMESPACES)), classes)
    pending = waiting(bench, progress, wait)
    nodes = pods = 0
    for size in sorted(sizes):
        log_progress(f"{size:,} nodes, {size * pods_a_node:,} pods")
        fill(bench, progress, range(nodes, size), range(pods, size * pods_a_node), size)
        nodes, pods = size, size * pods_a_node
        began_s = time.monotonic()
        with bench.answering("ours") as ours, bench.answering("served") as stub:
            synced_s = time.monotonic() - began_s
            time.sleep(SETTLE_S)
            synced = ours.memory
            times: list[calls.Times] = []
            if call_count:
                with _control_plane_paused(bench):
                    times = calls.measure(ours, stub, pending, nodes, call_count, seed)
                    if slow:
                        with SlowClients(ours.port, slow // len(KINDS), KINDS):
                            times += calls.measure(ours, stub, pending, nodes, call_count, seed, slow)
            yield ServiceMemory(nodes, pods, synced_s, synced, ours.memory), times


@contextlib.contextmanager
def _control_plane_paused(bench: BenchCluster) -> Iterator[None]:
    """Pause the control plane, which elsewhere runs on other machines, and garbage collection in this process."""
    for name in CONTROL_PLANE:
        bench.cluster.servers[name].pause()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        for name in CONTROL_PLANE:
            bench.cluster.servers[name].resume()
