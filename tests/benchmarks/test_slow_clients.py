"""With hundreds of slow clients connected, each server still answers all others."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest

from benchmarks.scheduler.large import FIRST_BYTES, KINDS, SlowClients
from extender.web.server import Server
from tests.extender.gangs.herds import pod_json as member_json
from tests.fakes.served_commands import FakeApi, fake_api, kubeconfig, run_until
from tests.worlds.placement import node_json, pod_json

COUNT = 100
"""Of each kind: far more than the threads that any server has."""

CALLS = 100
WITHIN_S = 20.0
"""For all calls together on a busy machine; when slow clients held eight threads, a single call took 70 s."""

Call = Callable[[HTTPConnection], int]


def post(path: str, body: object) -> Call:
    def call(connection: HTTPConnection) -> int:
        connection.request("POST", path, json.dumps(body))
        return status(connection)

    return call


def get(connection: HTTPConnection) -> int:
    connection.request("GET", "/metrics")
    return status(connection)


def status(connection: HTTPConnection) -> int:
    answer = connection.getresponse()
    answer.read()
    return answer.status


def connected(server: Server, *, tls: bool) -> HTTPConnection:
    if not tls:
        return HTTPConnection("127.0.0.1", server.port, timeout=WITHIN_S)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection("127.0.0.1", server.port, timeout=WITHIN_S, context=context)


FILTER = {"Pod": pod_json("p"), "NodeNames": ["a", "b"]}
REVIEW = {"request": {"uid": "1", "operation": "CREATE", "object": member_json("p", gang="g", size=2)}}


@pytest.mark.parametrize(
    ("command", "call", "kinds"),
    [
        (("extender", "serve"), post("//filter", FILTER), KINDS),
        (("controller",), get, KINDS),
        (("webhook",), post("/mutate", REVIEW), tuple(FIRST_BYTES)),
    ],
    ids=["extender", "controller", "webhook"],
)
def test_every_call_is_answered_in_spite_of_hundreds_of_slow_clients(
    command: tuple[str, ...], call: Call, kinds: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(server: Server) -> None:
        tls = command == ("webhook",)
        with contextlib.closing(connected(server, tls=tls)) as kept:
            until_s = time.monotonic() + WITHIN_S
            while call(kept) == 503:  # until the cluster is known
                assert time.monotonic() < until_s
            with SlowClients(server.port, COUNT, kinds):
                began_s = time.monotonic()
                assert {call(kept) for _ in range(CALLS)} == {200}
                for _ in range(5):
                    with contextlib.closing(connected(server, tls=tls)) as fresh:
                        assert call(fresh) == 200
                assert time.monotonic() - began_s < WITHIN_S

    api: FakeApi
    with fake_api(nodes=[node_json("a"), node_json("b")]) as api:
        arguments = (*command, "--address", "127.0.0.1:0", "--kubeconfig", kubeconfig(tmp_path, here=api))
        run_until(monkeypatch, probe, *arguments)
