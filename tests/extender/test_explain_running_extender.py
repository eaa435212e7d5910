"""`phasewise extender explain NAMESPACE/POD`, which asks a running extender."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner, Result

from extender.cli.explain import ask_server
from extender.cli.main import cli
from extender.errors import NotAnswered
from extender.web.app import App, Telemetry
from recommender.base.errors import Misuse
from tests.extender.asgi import extender_app, serving
from tests.rig.played_http import Reply, played
from tests.worlds.placement import World, class_json, node_json, pod_json

EARLY, GREEDY = [6.0] * 12 + [1.0] * 12, [1.0] * 24


@pytest.fixture
def extender() -> Iterator[str]:
    """The URL of an extender that has placed one pod, and refused another every node."""
    nodes = [node_json(f"n{number}") for number in range(4)]
    world = World(None, *nodes, class_json("early", EARLY, [1.0] * 24), class_json("greedy", GREEDY, [31.0] * 24))
    world.place(pod_json("first", workload="early"))
    world.put(pod_json("first", node="n0", workload="early"))
    for number in range(4):
        world.put(pod_json(f"big-{number}", node=f"n{number}", memory="8Gi"))
    world.filter(pod_json("never", workload="greedy"))
    with serving(extender_app(world)) as server:
        yield f"http://127.0.0.1:{server.port}"


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["extender", "explain", *arguments], env={"COLUMNS": "120"})


@pytest.mark.option("phasewise extender explain", "--server")
def test_explain_shows_where_a_pod_was_bound_and_groups_equal_nodes(extender: str) -> None:
    output = explain("team/first", "--server", extender).output
    assert "team/first: workload early, expected use from history" in output
    assert "on n0: bound where advised\nasked once, last at " in output
    assert re.search(r"^n0 +10 +complement", output, re.MULTILINE)
    assert re.search(r"^3 nodes +9 +complement", output, re.MULTILINE)
    assert "n1, n2, n3" in output
    assert output.count("complement 1.") == 2


def test_explain_shows_why_a_pod_is_not_bound(extender: str) -> None:
    output = explain("team/never", "--server", extender).output
    assert "not bound yet" in output
    assert "4 nodes     no  forecast memory exceeds the limit while the pod would run" in output


def test_json_output_is_the_answer_of_the_server(extender: str) -> None:
    output = explain("team/first", "--server", extender, "--json").output
    assert '"outcome": "bound where advised"' in output
    assert ask_server(extender, "team", "first", 2)["advised"] == "n0"


def test_a_pod_without_a_decision_is_an_error_that_says_for_which_pods_there_are(extender: str) -> None:
    with pytest.raises(
        NotAnswered, match=r"no decision on team/who is kept\. Decisions are kept for pods of its scheduler"
    ):
        ask_server(extender, "team", "who", 5)


def test_an_unreachable_extender_is_an_error_that_suggests_asking_inside_the_pod() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(NotAnswered, match=r"no extender answers at .* get lease .* -- phasewise extender explain"):
        ask_server(f"http://127.0.0.1:{port}", "team", "first", 5)


def test_a_server_that_is_not_an_extender_is_an_error() -> None:
    app = App(Telemetry("extender"), {}, lambda: "")
    app.pages.add_url_rule("/<path:path>", view_func=lambda path: "<html>", endpoint="all")
    with serving(app) as server, pytest.raises(NotAnswered, match="is not an extender"):
        ask_server(f"http://127.0.0.1:{server.port}", "team", "first", 5)


@pytest.mark.parametrize("argument", ["no-such-file.json", "team/", "/pod", "a/b/c"])
def test_an_argument_that_is_neither_a_file_nor_a_pod_is_refused(argument: str) -> None:
    result = explain(argument)
    assert isinstance(result.exception, Misuse)
    assert "neither a file nor NAMESPACE/POD" in str(result.exception)


@pytest.mark.option("phasewise extender explain", "--authority", "--certificate", "--key")
def test_a_server_that_requires_client_certificates_is_asked_with_all_tls_options(tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ours = authority.issue_cert("us")
    files = {"ca": authority.cert_pem, "key": ours.private_key_pem, "cert": ours.cert_chain_pems[0]}
    for name, blob in files.items():
        blob.write_to_path(tmp_path / name)
    trusts, presents = ("--authority", f"{tmp_path}/ca"), ("--certificate", f"{tmp_path}/cert")
    reached = []
    with played(lambda _: Reply(), context) as server:
        for options in ((), trusts, (*trusts, *presents), (*trusts, *presents, "--key", f"{tmp_path}/key")):
            server.asked.clear()
            explain("team/first", "--server", server.url, *options)
            reached.append(bool(server.asked))
    assert reached == [False, False, False, True]
