"""A large cluster, grown step by step: what the service holds of it in memory, and how long its calls take."""

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
from scheduler_bench.place import Memory, Place
from scheduler_bench.slow import KINDS, slow_clients

WAITING, WAITING_FROM = 400, 1_000_000
"""How many pods wait for a scheduler while calls are timed (no more than calls), and their first number, which no bound
pod has."""

CONTROL_PLANE = ("kube-apiserver", "etcd")

SETTLED_S = 3.0
"""After it is ready it tidies up once."""


@dataclass(frozen=True)
class Held:
    """What the service held of a cluster: once it was synced, and after the calls."""

    nodes: int
    pods: int
    synced_s: float
    synced: Memory
    used: Memory


def grow(
    place: Place,
    sizes: Sequence[int],
    pods_a_node: int,
    asked: int,
    slow: int,
    seed: int,
    progress: Progress,
) -> Iterator[tuple[Held, list[calls.Times]]]:
    """Make the cluster as large as each of `sizes` (nodes), and measure the service on it, started anew.

    Calls are timed while nobody else asks, and beside so many `slow` clients.
    """
    wait = range(WAITING_FROM, WAITING_FROM + min(WAITING, asked))
    classes = objects.classes_of((*range(max(sizes) * pods_a_node), *wait))
    prepare(place, map(objects.namespace_of, range(objects.NAMESPACES)), classes)
    asked_about = waiting(place, progress, wait)
    nodes = pods = 0
    for size in sorted(sizes):
        log_progress(f"{size:,} nodes, {size * pods_a_node:,} pods")
        fill(place, progress, range(nodes, size), range(pods, size * pods_a_node), size)
        nodes, pods = size, size * pods_a_node
        began_s = time.monotonic()
        with place.extender() as ours, place.stub("served") as stub:
            synced_s = time.monotonic() - began_s
            time.sleep(SETTLED_S)
            synced = ours.memory
            times: list[calls.Times] = []
            if asked:
                with _quiet(place):
                    times = calls.measure(ours, stub, asked_about, nodes, asked, seed)
                    if slow:
                        with slow_clients(ours.port, slow // len(KINDS), KINDS):
                            times += calls.measure(ours, stub, asked_about, nodes, asked, seed, slow)
            yield Held(nodes, pods, synced_s, synced, ours.memory), times


@contextlib.contextmanager
def _quiet(place: Place) -> Iterator[None]:
    """The control plane, which is on other machines elsewhere, sleeps; and nobody here looks for garbage."""
    for name in CONTROL_PLANE:
        place.cluster.servers[name].pause()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        for name in CONTROL_PLANE:
            place.cluster.servers[name].resume()
