"""The server on a socket: what is slow, silent, too large or no HTTP costs nobody else anything, and TLS is its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from extender.web import server as server_module
from extender.web.app import MAX_INLINE_BYTES, App, BodyLimits, Telemetry, create_pages
from extender.web.server import CorkedTransport, Server, Serving
from local_cluster.waiting import wait_until
from recommender.errors import Misuse
from tests.extender.asgi import serving

HALF_A_HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
HALF_A_BODY = HALF_A_HEAD + b"Content-Length: 10\r\n\r\n12345"
WHOLE = HALF_A_HEAD + b"Content-Length: 4\r\n\r\nbody"

LARGE = b"x" * (8 << 20)
"""More than the kernel takes off our hands."""


def app() -> App:
    """Gives bodies back; and something large."""
    telemetry = Telemetry("extender")
    pages = create_pages("extender", telemetry, lambda: "")
    return App(
        pages, {"/echo": lambda body: body, "/large": lambda _: LARGE}, telemetry, lambda: "", BodyLimits(1 << 20, 0.3)
    )


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(app(), Serving("127.0.0.1:0", request_s=0.3, max_connections=20)) as served:
        yield served


Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5.0))


def ask(connection: socket.socket, request: bytes = WHOLE) -> bytes:
    """The answer's body, which is not larger than a few bytes."""
    connection.sendall(request)
    return answer(connection)


def answer(connection: socket.socket) -> bytes:
    told = b""
    while b"\r\n\r\n" not in told or told.endswith(b"\r\n\r\n"):
        if not (got := connection.recv(65536)):
            break
        told += got
    return told.partition(b"\r\n\r\n")[2]


def ended_after_s(connection: socket.socket) -> float:
    began_s = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    return time.monotonic() - began_s


def hung_up(connect: Connect, reason: str) -> float:
    connection = connect()
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    page = b""
    while got := connection.recv(65536):
        page += got
    lines = page.decode().splitlines()
    name = f'phasewise_extender_connections_hung_up_total{{reason="{reason}"}} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_connection_is_kept_and_answers_one_request_after_the_other_at_once(connect: Connect) -> None:
    connection = connect()
    began_s = time.monotonic()
    for _ in range(20):
        assert ask(connection) == b"body"
    assert time.monotonic() - began_s < 0.4, "with 40 ms for each of two writes it would be 0.8"


def test_head_and_body_of_an_answer_leave_together_and_nothing_is_left_behind_by_who_closes() -> None:
    sent: list[bytes] = []

    class Wire(asyncio.Transport):
        def write(self, data: object) -> None:
            assert isinstance(data, bytes)
            sent.append(data)

        def close(self) -> None:
            sent.append(b"closed")

        def is_closing(self) -> bool:
            return b"closed" in sent

        def get_extra_info(self, name: str, default: object = None) -> object:
            return name

    async def answers() -> None:
        corked = CorkedTransport(Wire(), asyncio.get_running_loop())
        corked.write(b"head")
        corked.write(b"body")
        assert sent == []
        await asyncio.sleep(0)
        assert sent == [b"headbody"]
        corked.write(b"more")
        corked.close()
        assert corked.get_extra_info("peername") == "peername"
        corked.write(b"too late")
        await asyncio.sleep(0)

    asyncio.run(answers())
    assert sent == [b"headbody", b"more", b"closed"]


def test_who_takes_long_over_a_large_body_keeps_nobody_else_waiting() -> None:
    """A pod of a megabyte takes a quarter of a second to read; this one takes until somebody else was answered."""
    begun, others = threading.Event(), threading.Event()

    def post(body: bytes) -> bytes:
        (begun if len(body) > MAX_INLINE_BYTES else others).set()
        return b"beside others" if others.wait(20.0) else b"alone"

    telemetry = Telemetry("extender")
    app = App(create_pages("extender", telemetry, lambda: ""), {"/echo": post}, telemetry, lambda: "")
    large = HALF_A_HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_INLINE_BYTES + 1) + b"x" * (MAX_INLINE_BYTES + 1)
    with (
        serving(app) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30.0) as slow,
        socket.create_connection(("127.0.0.1", server.port), timeout=30.0) as quick,
    ):
        slow.sendall(large)
        assert begun.wait(20.0)
        assert ask(quick) == b"beside others"
        assert answer(slow) == b"beside others"


def test_a_head_that_does_not_come_whole_in_time_ends_its_connection_and_is_counted(connect: Connect) -> None:
    connection = connect()
    assert ask(connection) == b"body", "also one that was good before"
    connection.sendall(HALF_A_HEAD)
    assert 0.2 < ended_after_s(connection) < 3.0
    assert hung_up(connect, "slow head") == 1.0


def test_a_body_that_does_not_come_whole_in_time_is_told_so_and_ends_its_connection(connect: Connect) -> None:
    connection = connect()
    assert b"took longer than 0.3 s" in ask(connection, HALF_A_BODY)
    assert ended_after_s(connection) < 3.0


def test_a_request_that_trickles_has_no_more_time_than_one_that_stops(connect: Connect) -> None:
    connection = connect()
    connection.sendall(HALF_A_HEAD)
    began_s = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - began_s < 3.0:
            connection.sendall(b"X: ")
            time.sleep(0.05)
    assert 0.2 < time.monotonic() - began_s < 2.0
    assert hung_up(connect, "slow head") == 1.0


def test_a_silent_connection_is_kept_until_there_are_too_many_and_the_longest_silent_goes_first(
    connect: Connect,
) -> None:
    scheduler, silent = connect(), [connect() for _ in range(19)]
    time.sleep(0.5)
    assert ask(scheduler) == b"body"
    assert ask(silent[0]) == b"body", "silence is no slow request"
    newcomers = [connect() for _ in range(5)]
    assert [ask(each) for each in newcomers] == [b"body"] * 5
    assert ask(scheduler) == b"body", "it has asked since"
    for each in silent[1:6]:
        assert ended_after_s(each) < 3.0


@pytest.mark.parametrize("encrypted", [False, True], ids=["as the extender and the controller", "as the webhook"])
def test_a_thousand_who_say_nothing_or_not_all_keep_nobody_waiting(
    encrypted: bool, authority: trustme.CA, tmp_path: Path
) -> None:
    shown = written(authority, tmp_path / "shown.pem") if encrypted else None
    with serving(app(), Serving("127.0.0.1:0", shown, request_s=60.0)) as server, contextlib.ExitStack() as opened:
        slow = [
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5.0)) for _ in range(1000)
        ]
        for connection in slow[::2]:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01" if encrypted else HALF_A_HEAD)
        caller: socket.socket = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
        if encrypted:
            caller = trusting(authority).wrap_socket(caller, server_hostname="127.0.0.1")
        opened.enter_context(caller)
        began_s = time.monotonic()
        for call in range(100):
            with contextlib.suppress(OSError):  # a handshake may have had its time
                slow[2 * call].sendall(b"\x00" if encrypted else b"X")
            assert ask(caller) == b"body"
        assert time.monotonic() - began_s < 5.0
        if not encrypted:
            assert [ask(each) for each in slow[1::200]] == [b"body"] * 5


def test_an_answer_that_nobody_takes_is_given_up(connect: Connect) -> None:
    connection = connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(WHOLE.replace(b"/echo", b"/large"))
    time.sleep(1.0)
    assert hung_up(connect, "answer not taken") == 1.0


def test_nor_is_it_kept_for_who_asks_again_before_it_was_taken(connect: Connect) -> None:
    connection = connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(WHOLE.replace(b"/echo", b"/large"))
    with contextlib.suppress(OSError):
        for _ in range(10):
            time.sleep(0.1)
            connection.sendall(WHOLE)
    assert hung_up(connect, "answer not taken") == 1.0


def test_a_head_without_end_and_what_is_no_http_are_ended_and_counted(connect: Connect) -> None:
    endless, other = connect(), connect()
    with contextlib.suppress(OSError):
        for _ in range(200):
            endless.sendall(b"X: " + b"y" * 1000 + b"\r\n" if _ else HALF_A_HEAD)
    assert ended_after_s(endless) < 3.0
    assert b"Invalid HTTP" in ask(other, b"\x16\x03\x01 hello\r\n\r\n")
    assert (hung_up(connect, "large head"), hung_up(connect, "no HTTP")) == (1.0, 1.0)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:x", "no.such.host.invalid:1"])
def test_an_address_that_cannot_be_listened_on_is_said_in_words(address: str) -> None:
    with pytest.raises(Misuse, match="host:port"):
        Server(app(), Serving(address))


def test_an_address_that_is_taken_is_said_in_words(server: Server) -> None:
    with pytest.raises(Misuse, match="cannot listen there"):
        Server(app(), Serving(f"127.0.0.1:{server.port}"))


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def written(authority: trustme.CA, file: Path, name: str = "127.0.0.1") -> Path:
    """Certificate and key in one file."""
    shown = authority.issue_cert(name)
    file.write_bytes(b"".join(each.bytes() for each in (shown.private_key_pem, *shown.cert_chain_pems)))
    return file


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_a_handshake_that_never_ends_is_ended(authority: trustme.CA, tmp_path: Path) -> None:
    tls = Serving("127.0.0.1:0", written(authority, tmp_path / "shown.pem"), request_s=60.0)
    with serving(app(), tls) as server, contextlib.ExitStack() as opened:
        plain = [
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5.0)) for _ in range(5)
        ]
        plain[0].sendall(b"\x16\x03\x01\x02\x00\x01")
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
        with trusting(authority).wrap_socket(connection, server_hostname="127.0.0.1") as safe:
            assert ask(safe) == b"body"
            for each in plain:
                assert ended_after_s(each) < 3.0
            assert ask(safe) == b"body"


def test_a_client_without_a_certificate_of_the_authority_is_not_let_in(authority: trustme.CA, tmp_path: Path) -> None:
    trusted = tmp_path / "clients.pem"
    authority.cert_pem.write_to_path(trusted)
    tls = Serving("127.0.0.1:0", written(authority, tmp_path / "shown.pem"), client_authority=trusted)
    with serving(app(), tls) as server:
        for known in (True, False):
            context = trusting(authority)
            if known:
                authority.issue_cert("somebody").configure_cert(context)
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
            refused = contextlib.nullcontext() if known else contextlib.suppress(OSError)
            with refused, context.wrap_socket(connection, server_hostname="127.0.0.1") as safe:
                assert ask(safe) == (b"body" if known else b"")


def test_a_certificate_that_is_replaced_is_shown_to_those_who_come_then_and_nonsense_is_not(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "CERTIFICATE_CHECK_S", 0.01)
    file = written(authority, tmp_path / "shown.pem")
    with serving(app(), Serving("127.0.0.1:0", file)) as server:
        address = ("127.0.0.1", server.port)
        first = ssl.get_server_certificate(address)
        file.write_text("nonsense")
        wait_until(lambda: "cannot be loaded" in caplog.text, "the nonsense to be seen", every_s=0.1)
        assert ssl.get_server_certificate(address) == first
        written(authority, file)
        wait_until(lambda: ssl.get_server_certificate(address) != first, "the new one to be shown", every_s=0.1)


def test_what_is_no_certificate_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "nonsense.pem").write_text("nonsense")
    with pytest.raises(Misuse, match="not a valid certificate"):
        Server(app(), Serving("127.0.0.1:0", tmp_path / "nonsense.pem"))
