"""A cluster grown step by step, with slow clients: memory of the extender, and latency of its calls."""

from __future__ import annotations

import contextlib
import gc
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.progress import Progress

from benchmarks.benches import log_progress
from benchmarks.scheduler import calls, objects
from benchmarks.scheduler.objects import fill, prepare, waiting
from benchmarks.scheduler.place import OURS, BenchCluster, Memory

HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
FIRST_BYTES = {
    "silent": b"",
    "half a head": HEAD,
    "trickling": HEAD + b"Content-Length: 100000\r\n\r\n",
    "half a handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
"""First bytes of each kind; only the trickling one goes on, byte by byte."""

KINDS = ("silent", "half a head", "trickling")
"""Kinds that apply to servers without TLS, too."""

PER_SECOND = 1000.0
"""Connections opened, and bytes trickled, per second, evenly."""

TIMEOUT_S = 10.0


class SlowClients:
    """`count` connections of each kind of `FIRST_BYTES` during a block; those that the server closes are reopened."""

    def __init__(self, port: int, count: int, kinds: tuple[str, ...]) -> None:
        self._port, self._selector, self._ended = port, selectors.DefaultSelector(), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="slow clients", daemon=True)
        self._trickling: deque[socket.socket] = deque()
        for _ in range(count):
            for kind in kinds:
                self._open(kind)
                time.sleep(1.0 / PER_SECOND)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _open(self, kind: str) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=TIMEOUT_S)
        connection.sendall(FIRST_BYTES[kind])
        self._selector.register(connection, selectors.EVENT_READ, kind)
        if kind == "trickling":
            self._trickling.append(connection)

    def _keep(self) -> None:
        """In each turn, reopen one connection that the server closed, and trickle on one."""
        while not self._ended.wait(1.0 / PER_SECOND):
            for key, _ in self._selector.select(0)[:1]:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                self._open(key.data)
            if self._trickling and (connection := self._trickling.popleft()).fileno() >= 0:  # else it was reopened
                with contextlib.suppress(OSError):
                    connection.sendall(b" ")
                self._trickling.append(connection)


WAITING, WAITING_FROM = 400, 1_000_000
"""Number of pending pods to call with (at most the number of calls), and their first number, beyond all bound pods."""

CONTROL_PLANE = ("kube-apiserver", "etcd")

SETTLE_S = 3.0
"""Seconds to wait after readiness: the extender then frees memory once."""


@dataclass(frozen=True)
class ServiceMemory:
    """Memory of an extender of this kind: once synced, and after the calls."""

    kind: str
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
        for kind in OURS:
            began_s, times = time.monotonic(), list[calls.Times]()
            with bench.answering(kind) as ours, bench.answering("served") as stub:
                synced_s = time.monotonic() - began_s
                time.sleep(SETTLE_S)
                synced = ours.memory
                with _control_plane_paused(bench) if call_count else contextlib.nullcontext():
                    if call_count:
                        times += calls.measure(kind, ours, stub, pending, nodes, call_count, seed)
                    if call_count and slow:
                        with SlowClients(ours.port, slow // len(KINDS), KINDS):
                            times += calls.measure(kind, ours, stub, pending, nodes, call_count, seed, slow)
                yield ServiceMemory(kind, nodes, pods, synced_s, synced, ours.memory), times


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
