"""Latency of calls with all node names of the cluster, beside a server with a constant answer."""

from __future__ import annotations

import random
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

import numpy as np
import orjson

from benchmarks.scheduler import objects
from benchmarks.scheduler.place import OURS, BackgroundLoad, RunningServer

TIMEOUT_S = 10.0
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
END_OF_HEAD = b"\r\n\r\n"


class Response(NamedTuple):
    """An answer; `seconds` from the first byte sent to the last byte read."""

    seconds: float
    status: int
    body: bytes


class Caller:
    """A context manager: `with Caller(port) as caller: caller.post("filter", body)`."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(1 << 22)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def post(self, verb: str, body: bytes) -> Response:
        """Call, and read the whole answer; raises ConnectionError if the connection is closed before its end."""
        head = (
            f"POST /{verb} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        request = head.encode() + body
        began_s = time.perf_counter()
        self._socket.sendall(request)
        have, whole, begins = 0, 0, 0
        with memoryview(self._buffer) as view:
            while not whole or have < whole:
                got = self._socket.recv_into(view[have:])
                if not got:
                    raise ConnectionError(f"/{verb}: the connection was closed after {have} bytes of the answer")
                have += got
                if not whole and (ends := self._buffer.find(END_OF_HEAD, 0, have)) >= 0:
                    begins = ends + len(END_OF_HEAD)
                    found = LENGTH.search(self._buffer, 0, ends)
                    if found is None:
                        raise ConnectionError("an answer without Content-Length")
                    whole = begins + int(found[1])
        seconds = time.perf_counter() - began_s
        return Response(seconds, int(self._buffer[9:12]), bytes(self._buffer[begins:whole]))


BOTH = "both"
"""Stands for all verbs of a pod together."""

TURNS = 5
"""Number of turns in which ours and the constant server are called alternately."""

WARM_UP = 50


@dataclass(frozen=True)
class Times:
    """Latency of one verb at a number of node names, milliseconds."""

    server: str
    verb: str
    names: int
    calls: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    most_ms: float
    other_cores: float
    slow_clients: int = 0

    @classmethod
    def of(
        cls, server: str, verb: str, names: int, seconds: Sequence[float], other_cores: float, slow_clients: int = 0
    ) -> Times:
        """`other_cores` are the cores used by unrelated processes meanwhile."""
        p50, p90, p99, most = np.percentile(np.array(seconds) * 1e3, [50, 90, 99, 100]).tolist()
        return cls(server, verb, names, len(seconds), p50, p90, p99, most, other_cores, slow_clients)


def measure(
    kind: str,
    ours: RunningServer,
    stub: RunningServer,
    pods: Sequence[objects.Json],
    nodes: int,
    calls: int,
    seed: int,
    slow_clients: int = 0,
) -> list[Times]:
    """Call both servers `calls` times per verb, in turns; ours is of a kind that `OURS` names.

    For each pending pod, `filter` is called and then `prioritize` with the names that passed, unless it passes one, as
    schedulers do. Each pod has them in an order of its own, since a scheduler filters nodes on many threads at once.
    The number of `slow_clients` is only recorded.
    """
    names, chance = [objects.node_name(number) for number in range(nodes)], random.Random(seed)  # noqa: S311
    verbs = OURS[kind]
    seconds: dict[tuple[str, str], list[float]] = {(who, verb): [] for who in (kind, "constant") for verb in verbs}
    background, queue = BackgroundLoad(), cycle(pods)
    with Caller(ours.port) as our_caller, Caller(stub.port) as stub_caller:
        sizes = dict.fromkeys(verbs, 2)
        for turn in range(TURNS + 1):  # the first warms up
            for _ in range(calls // TURNS if turn else WARM_UP):
                answers = _ask(our_caller, _question(next(queue), names, chance), names, verbs)
                sizes = {verb: len(answered.body) for verb, answered in answers.items()}
                for verb, answered in answers.items() if turn else ():
                    seconds[kind, verb].append(answered.seconds)
            for _ in range(calls // TURNS if turn else WARM_UP):
                body = _question(next(queue), names, chance)
                for verb in verbs:
                    answered = stub_caller.post(f"constant/{sizes[verb]}", body)
                    if turn:
                        seconds["constant", verb].append(answered.seconds)
    cores = background.cores
    if len(verbs) > 1:  # what a pod waits for in all
        for who in (kind, "constant"):
            of_verbs = (seconds[who, verb] for verb in verbs)
            seconds[who, BOTH] = [sum(of_pod) for of_pod in zip(*of_verbs, strict=True)]
    return [Times.of(who, verb, nodes, taken, cores, slow_clients) for (who, verb), taken in seconds.items()]


def _question(pod: objects.Json, names: list[str], chance: random.Random) -> bytes:
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": chance.sample(names, len(names))})


def _ask(caller: Caller, question: bytes, names: list[str], verbs: Sequence[str]) -> dict[str, Response]:
    """Call the verbs for one pod; check that every node is in the answer exactly once, or one node if that is all."""
    filtered = caller.post("filter", question)
    passed = orjson.loads(filtered.body)["NodeNames"] if filtered.status == 200 else []
    if len(passed) != 1 if len(verbs) == 1 else sorted(passed) != names:
        raise RuntimeError(f"filter: {filtered.status}, {len(passed)} of {len(names)} nodes")
    if len(verbs) == 1:
        return {"filter": filtered}
    scored = caller.post("prioritize", question)
    hosts = sorted(each["Host"] for each in orjson.loads(scored.body)) if scored.status == 200 else []
    if hosts != names:
        raise RuntimeError(f"prioritize: {scored.status}, {len(hosts)} of {len(names)} nodes")
    return {"filter": filtered, "prioritize": scored}
