"""How long a call takes: the service asked about all nodes of its cluster, beside a server that answers a constant."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import orjson

from scheduler_bench import objects
from scheduler_bench.caller import Answered, Caller
from scheduler_bench.machine import Others
from scheduler_bench.place import Answering

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
