"""`phasewise extender explain NAMESPACE/POD`: a running extender asked, and what it says to people."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from flask import Flask
from prometheus_client import CollectorRegistry
from werkzeug.serving import make_server

from extender.cli.main import cli
from extender.errors import NotAnswered
from extender.web.api import create_app
from extender.web.asking import Asking
from extender.web.telemetry import Telemetry
from recommender.errors import Misuse
from tests.extender.worlds import World, class_json, node_json, pod_json

EARLY, GREEDY = [6.0] * 12 + [1.0] * 12, [1.0] * 24


def served(app: Flask) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def extender() -> Iterator[str]:
    """One that has placed a pod among four nodes, and has refused another all of them."""
    nodes = [node_json(f"n{number}") for number in range(4)]
    world = World(None, *nodes, class_json("early", EARLY, [1.0] * 24), class_json("greedy", GREEDY, [31.0] * 24))
    world.place(pod_json("first", workload="early"))
    world.put(pod_json("first", node="n0", workload="early"))
    for number in range(4):
        world.put(pod_json(f"big-{number}", node=f"n{number}", memory="8Gi"))
    world.filter(pod_json("never", workload="greedy"))
    placer = world.placer
    yield from served(create_app(placer, Telemetry(CollectorRegistry()), lambda: ""))


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["extender", "explain", *arguments], env={"COLUMNS": "120"})


def test_it_tells_where_a_pod_went_and_of_nodes_that_are_alike_only_once(extender: str) -> None:
    said = explain("team/first", "--server", extender).output
    assert "team/first: workload early, expected use from history" in said
    assert "on n0: bound where advised\nasked once, last at " in said
    assert re.search(r"^n0 +10 +complement", said, re.MULTILINE)
    assert re.search(r"^3 nodes +9 +complement", said, re.MULTILINE)
    assert "n1, n2, n3" in said
    assert said.count("complement 0.") == 2


def test_it_tells_that_a_pod_waits_and_for_what(extender: str) -> None:
    said = explain("team/never", "--server", extender).output
    assert "not bound yet" in said
    assert "4 nodes     no  forecast memory would not suffice in the coming cycle" in said


def test_json_is_that_of_the_server(extender: str) -> None:
    told = explain("team/first", "--server", extender, "--json").output
    assert '"outcome": "bound where advised"' in told
    assert Asking(extender).explain("team", "first", 2)["advised"] == "n0"


def test_what_it_does_not_know_it_says_with_what_else_to_try(extender: str) -> None:
    with pytest.raises(NotAnswered, match=r"no decision on team/who is kept\. It judges pods of its scheduler"):
        Asking(extender).explain("team", "who", 5)


def test_nobody_there_is_said_with_how_to_ask_inside_the_pod() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(NotAnswered, match=r"no extender answers at .* -c extender -- phasewise extender explain"):
        Asking(f"http://127.0.0.1:{port}").explain("team", "first", 5)


def test_something_else_that_answers_is_no_extender() -> None:
    other = Flask("other")
    other.add_url_rule("/<path:path>", view_func=lambda path: "<html>", endpoint="all")
    for url in served(other):
        with pytest.raises(NotAnswered, match="is no extender"):
            Asking(url).explain("team", "first", 5)


@pytest.mark.parametrize("what", ["no-such-file.json", "team/", "/pod", "a/b/c"])
def test_what_is_neither_file_nor_pod_is_said_to_be_neither(what: str) -> None:
    result = explain(what)
    assert isinstance(result.exception, Misuse)
    assert "a pod is written NAMESPACE/POD" in str(result.exception)
