"""Training progress that jobs push over HTTP: what is accepted, and what is rejected with which status."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from prometheus_client import CollectorRegistry

from recommender.base.errors import Misuse
from recommender.live.health import MAX_CONNECTIONS, PostHandler, serve
from recommender.live.progress.push import MAX_BODY_BYTES, MAX_READINGS, PushedProgress
from recommender.progress.readings import Reading, Stage
from tests.fakes.loopback import HOSTS
from tests.rig.waiting import wait_until

TOKEN = "s3cr3t-of-the-jobs"  # noqa: S105 - an invented one
BODY = {"namespace": "ns", "pod": "p", "loss": 0.42, "step": 7}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture
def inbox(token_file: Path) -> PushedProgress:
    return PushedProgress(token_file, clock=lambda: 99.0)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, dict[str, PostHandler]]]:
    """One server for all tests, since each takes half a second to stop; a test sets the handler."""
    posts: dict[str, PostHandler] = {"/progress": lambda _headers, _read: (404, "no handler yet")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("recommender.live.health.IDLE_TIMEOUT_S", 600.0)  # silence alone closes no connection
        server = serve("127.0.0.1:0", CollectorRegistry(), {}, posts)
    yield f"http://127.0.0.1:{server.server_port}", posts
    server.shutdown()
    server.server_close()


@pytest.fixture
def url(inbox: PushedProgress, served: tuple[str, dict[str, PostHandler]]) -> str:
    address, posts = served
    posts["/progress"] = inbox.answer
    return address


def push(url: str, json: object = BODY, token: str | None = TOKEN, data: bytes | None = None) -> requests.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    body = {"json": json} if data is None else {"data": data}
    return requests.post(f"{url}/progress", headers=headers, timeout=5, **body)


def test_a_pushed_reading_is_taken_once(url: str, inbox: PushedProgress) -> None:
    answer = push(url)
    assert (answer.status_code, answer.content) == (204, b"")
    assert inbox.take([], 100.0).readings == {("ns", "p"): [Reading(99.0, 0.42, "loss", 7)]}
    assert inbox.take([], 100.0).readings == {}


def test_a_stage_is_pushed_alone_or_with_a_loss(url: str, inbox: PushedProgress) -> None:
    pod = {"namespace": "ns", "pod": "p"}
    for fields in ({"stage": "Load"}, {"stage": "train", "loss": 2.0}):
        assert push(url, pod | fields).status_code == 204
    update = inbox.take([], 100.0)
    assert update.stages == {("ns", "p"): [Stage(99.0, "load"), Stage(99.0, "train")]}
    assert update.readings == {("ns", "p"): [Reading(99.0, 2.0, "loss")]}


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "\xff\xfe"])
def test_a_push_without_the_token_is_rejected(url: str, inbox: PushedProgress, token: str | None) -> None:
    answer = push(url, token=token)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert TOKEN not in answer.text
    assert inbox.take([], 100.0).readings == {}


def test_a_token_under_another_scheme_is_rejected(url: str) -> None:
    answer = requests.post(f"{url}/progress", headers={"Authorization": f"Basic {TOKEN}"}, json=BODY, timeout=5)
    assert answer.status_code == 401


def test_a_new_token_is_valid_at_once_and_a_missing_one_rejects_every_push(url: str, token_file: Path) -> None:
    token_file.write_text("another")
    assert push(url).status_code == 401
    assert push(url, token="another").status_code == 204  # noqa: S106
    token_file.unlink()
    assert push(url).status_code == 503
    token_file.write_text("")
    assert push(url, token="").status_code == 503


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"[" * 4000, "not JSON"),
        (b'{"pod": "p", "loss": 1}', "namespace is missing"),
        (b'{"namespace": "ns", "pod": 3, "loss": 1}', "pod is missing"),
        (b'{"namespace": "ns", "pod": "' + b"p" * 300 + b'", "loss": 1}', "pod is missing, or not a valid name"),
        (b'{"namespace": "ns", "pod": "p"}', "none of loss"),
        (b'{"namespace": "ns", "pod": "p", "loss": true}', "loss is not a number"),
        (b'{"namespace": "ns", "pod": "p", "loss": 1, "node": "x"}', "unknown field 'node'"),
        (b'{"namespace": "ns", "pod": "p", "stage": 3}', "stage is not a string"),
        (b'{"namespace": "ns", "pod": "p", "stage": "train", "loss": true}', "loss is not a number"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_a_malformed_body_is_rejected_with_a_reason(url: str, inbox: PushedProgress, data: bytes, reason: str) -> None:
    answer = push(url, data=data)
    assert answer.status_code == 400
    assert reason in answer.text
    assert inbox.take([], 100.0).readings == {}


@pytest.mark.parametrize("size", [MAX_BODY_BYTES + 1, 100_000, 3_000_000])
def test_a_body_that_is_too_large_is_rejected_with_413(url: str, size: int) -> None:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5) as connection:
        head = f"POST /progress HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode() + b"x" * min(size, 1 << 20))
        assert connection.recv(100).split()[1] == b"413"


@pytest.mark.parametrize("length", ["", "Content-Length: -5\r\n", "Content-Length: many\r\n"])
def test_a_body_of_unknown_length_is_rejected_with_411(url: str, length: str) -> None:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=5) as connection:
        connection.sendall(f"POST /progress HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n{length}\r\n".encode())
        assert connection.recv(100).split()[1] == b"411"


def test_a_thousand_silent_connections_block_no_push_and_hold_few_threads(url: str) -> None:
    port, before = int(url.rpartition(":")[2]), threading.active_count()
    with ExitStack() as silent:
        for _ in range(1000):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert push(url).status_code == 204
        wait_until(lambda: threading.active_count() - before <= MAX_CONNECTIONS, "the oldest connections to be closed")


def test_a_standby_replica_rejects_pushes(token_file: Path) -> None:
    inbox = PushedProgress(token_file, accepts=lambda: False)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Length": "5"}
    assert inbox.answer(headers, lambda n: b"x" * n)[0] == 503  # type: ignore[arg-type]


def test_of_many_readings_of_a_pod_the_latest_are_kept(url: str, inbox: PushedProgress) -> None:
    for step in range(40):
        assert push(url, {**BODY, "step": step}).status_code == 204
    assert [reading.step for reading in inbox.take([], 100.0).readings["ns", "p"]] == [*range(40 - MAX_READINGS, 40)]


def test_only_posts_to_the_progress_path_are_accepted(url: str) -> None:
    assert requests.post(f"{url}/healthz", json=BODY, timeout=5).status_code == 404
    assert requests.get(f"{url}/progress", timeout=5).status_code == 404


def test_an_unusable_token_file_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no such file"):
        PushedProgress(tmp_path / "none")
    (tmp_path / "two").write_text("a\nb\n")
    with pytest.raises(Misuse, match="one line"):
        PushedProgress(tmp_path / "two")


@pytest.mark.parametrize("host", HOSTS)
def test_without_a_host_in_the_address_clients_are_answered_by_ipv4_and_ipv6(host: str) -> None:
    """A pod of a cluster has either or both."""
    server = serve(":0", CollectorRegistry(), {})
    with socket.create_connection((host, server.server_port), timeout=5.0) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b" 200 OK" in client.recv(100)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", HOSTS)
def test_an_address_may_be_of_ipv4_or_ipv6(host: str) -> None:
    server = serve(f"[{host}]:0" if ":" in host else f"{host}:0", CollectorRegistry(), {})
    assert server.server_address[0] == host
    server.shutdown()
    server.server_close()
