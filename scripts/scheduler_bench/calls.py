"""How long a call takes: the service asked about all nodes of its cluster, beside a server that answers a constant."""

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

from scheduler_bench import objects
from scheduler_bench.place import Answering, Others

TIMEOUT_S = 10.0
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
END_OF_HEAD = b"\r\n\r\n"


class Answered(NamedTuple):
    """`seconds` from the first byte that was sent to the last that was read."""

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

    def post(self, verb: str, body: bytes) -> Answered:
        """Ask, and read the whole answer.

        Raises
        ------
        ConnectionError
            The connection was closed before the answer was complete.
        """
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
                    whole = begins + self._length(ends)
        seconds = time.perf_counter() - began_s
        return Answered(seconds, int(self._buffer[9:12]), bytes(self._buffer[begins:whole]))

    def _length(self, end_of_head: int) -> int:
        found = LENGTH.search(self._buffer, 0, end_of_head)
        if found is None:
            raise ConnectionError("an answer without Content-Length")
        return int(found[1])


VERBS = ("filter", "prioritize")
TAKES_TURNS = 5
"""Ours and the constant one are asked by turns, so many times each."""

WARM_UP = 50


@dataclass(frozen=True)
class Times:
    """Milliseconds of calls of one verb at so many node names."""

    server: str
    verb: str
    names: int
    calls: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    most_ms: float
    others_cores: float
    slow_clients: int = 0

    @classmethod
    def of(
        cls, server: str, verb: str, names: int, seconds: Sequence[float], others_cores: float, slow_clients: int = 0
    ) -> Times:
        """`others_cores`: what processes of others used of the machine meanwhile."""
        p50, p90, p99, most = np.percentile(np.array(seconds) * 1e3, [50, 90, 99, 100]).tolist()
        return cls(server, verb, names, len(seconds), p50, p90, p99, most, others_cores, slow_clients)


def measure(
    ours: Answering,
    stub: Answering,
    pods: Sequence[objects.Json],
    nodes: int,
    calls: int,
    seed: int,
    slow_clients: int = 0,
) -> list[Times]:
    """Ask both servers `calls` times about each verb, by turns.

    One waiting pod after the other is asked about as schedulers do: `filter`, then `prioritize` with the names that
    passed. The names come in the order of the cluster from a random one on, since a scheduler begins each time behind
    the nodes it saw last. In between the answer is read, as a scheduler would, which also has scores of its own to work
    out then. So many slow clients are there, which is told with the times.
    """
    names, chance = [objects.node_name(number) for number in range(nodes)], random.Random(seed)  # noqa: S311
    seconds: dict[tuple[str, str], list[float]] = {(who, verb): [] for who in ("ours", "constant") for verb in VERBS}
    others, queue = Others(), cycle(pods)
    with Caller(ours.port) as asks_us, Caller(stub.port) as asks_stub:
        sizes = dict.fromkeys(VERBS, 2)
        for turn in range(TAKES_TURNS + 1):  # the first warms up
            for _ in range(calls // TAKES_TURNS if turn else WARM_UP):
                told = _ask(asks_us, _question(next(queue), names, chance), names)
                sizes = {verb: len(answered.body) for verb, answered in told.items()}
                for verb, answered in told.items() if turn else ():
                    seconds["ours", verb].append(answered.seconds)
            for _ in range(calls // TAKES_TURNS if turn else WARM_UP):
                body = _question(next(queue), names, chance)
                for verb in VERBS:
                    answered = asks_stub.post(f"constant/{sizes[verb]}", body)
                    if turn:
                        seconds["constant", verb].append(answered.seconds)
    cores = others.cores
    return [Times.of(who, verb, nodes, taken, cores, slow_clients) for (who, verb), taken in seconds.items()]


def _question(pod: objects.Json, names: list[str], chance: random.Random) -> bytes:
    """ExtenderArgs."""
    first = chance.randrange(len(names))
    return orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names[first:] + names[:first]})


def _ask(caller: Caller, question: bytes, names: list[str]) -> dict[str, Answered]:
    """Both verbs about one pod; every node must be answered, once."""
    filtered = caller.post("filter", question)
    passed = orjson.loads(filtered.body)["NodeNames"] if filtered.status == 200 else []
    if sorted(passed) != names:
        raise RuntimeError(f"filter: {filtered.status}, {len(passed)} of {len(names)} nodes")
    scored = caller.post("prioritize", question)
    hosts = sorted(each["Host"] for each in orjson.loads(scored.body)) if scored.status == 200 else []
    if hosts != names:
        raise RuntimeError(f"prioritize: {scored.status}, {len(hosts)} of {len(names)} nodes")
    return {"filter": filtered, "prioritize": scored}
