"""The server on a socket: slow, idle, too large and invalid requests do not affect other clients; and TLS."""

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

from extender.web.app import MAX_INLINE_BYTES, App, BodyLimits, Telemetry
from extender.web.server import Server
from recommender.base.errors import Misuse
from tests.extender.asgi import serving
from tests.fakes.loopback import HOSTS

PARTIAL_HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
PARTIAL_BODY = PARTIAL_HEAD + b"Content-Length: 10\r\n\r\n12345"
REQUEST = PARTIAL_HEAD + b"Content-Length: 4\r\n\r\nbody"

LARGE = b"x" * (8 << 20)
"""More than the kernel buffers."""


def app() -> App:
    """Echoes bodies, and answers `/large` with many bytes."""
    posts = {"/echo": lambda body: body, "/large": lambda _: LARGE}
    return App(Telemetry("extender"), posts, lambda: "", BodyLimits(1 << 20, 0.3))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(app(), request_s=0.3, max_connections=20) as served:
        yield served


def test_parts_of_a_program_stop_in_reverse_order_even_if_one_does_not_start() -> None:
    """Else a controller would release its Lease while it still writes."""
    done: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.name = name

        def start(self) -> None:
            done.append(f"start {self.name}")
            assert self.name != "broken"

        def stop(self) -> None:
            done.append(f"stop {self.name}")

    async def message(*_: object) -> dict[str, str]:
        return {}

    whole = app()
    whole.parts = (Part("election"), None, Part("loop"))
    asyncio.run(whole({"type": "lifespan"}, message, message))
    whole.parts = (Part("election"), Part("broken"))
    with pytest.raises(AssertionError):
        asyncio.run(whole({"type": "lifespan"}, message, message))
    complete, broken = done[:4], done[4:]
    assert complete == ["start election", "start loop", "stop loop", "stop election"]
    assert broken == ["start election", "start broken", "stop election"]


Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5.0))


def ask(connection: socket.socket, request: bytes = REQUEST) -> bytes:
    """The body of the answer, of a few bytes."""
    connection.sendall(request)
    return answer(connection)


def answer(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received or received.endswith(b"\r\n\r\n"):
        if not (chunk := connection.recv(65536)):
            break
        received += chunk
    return received.partition(b"\r\n\r\n")[2]


def closed_after_s(connection: socket.socket) -> float:
    began_s = time.monotonic()
    with contextlib.suppress(ConnectionResetError):
        assert connection.recv(1) == b""
    return time.monotonic() - began_s


def hang_ups(connect: Connect, reason: str) -> float:
    connection = connect()
    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    page = b""
    while chunk := connection.recv(65536):
        page += chunk
    lines = page.decode().splitlines()
    name = f'phasewise_extender_connections_hung_up_total{{reason="{reason}"}} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_a_connection_is_kept_and_answers_consecutive_requests_without_delay(connect: Connect) -> None:
    connection = connect()
    began_s = time.monotonic()
    for _ in range(20):
        assert ask(connection) == b"body"
    assert time.monotonic() - began_s < 0.4, "with 40 ms between two writes it would be 0.8 s"


def test_requests_in_one_piece_in_pieces_pipelined_or_of_http_1_0_get_the_same_answers(connect: Connect) -> None:
    connection = connect()
    connection.sendall(REQUEST[:-2])
    time.sleep(0.05)
    connection.sendall(REQUEST[-2:] + REQUEST.replace(b"body", b"more") + REQUEST.replace(b"body", b"last"))
    received = b""
    while received.count(b"\r\n\r\n") < 3 or not received.endswith(b"last"):
        received += connection.recv(65536)
    assert [each[:4] for each in received.split(b"\r\n\r\n")[1:]] == [b"body", b"more", b"last"]
    for closing in (REQUEST.replace(b"1.1", b"1.0"), REQUEST.replace(b"Host: x", b"Connection: close")):
        connection = connect()
        assert ask(connection, closing) == b"body"
        assert connection.recv(1) == b"", "closed"


def test_slow_processing_of_a_large_body_does_not_delay_other_requests() -> None:
    """A pod of a megabyte takes a quarter of a second to parse; this one takes until another request was answered."""
    started, other = threading.Event(), threading.Event()

    def post(body: bytes) -> bytes:
        (started if len(body) > MAX_INLINE_BYTES else other).set()
        return b"meanwhile" if other.wait(20.0) else b"alone"

    app = App(Telemetry("extender"), {"/echo": post}, lambda: "")
    large = PARTIAL_HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_INLINE_BYTES + 1) + b"x" * (MAX_INLINE_BYTES + 1)
    with (
        serving(app) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=30.0) as slow,
        socket.create_connection(("127.0.0.1", server.port), timeout=30.0) as quick,
    ):
        slow.sendall(large)
        assert started.wait(20.0)
        assert ask(quick) == b"meanwhile"
        assert answer(slow) == b"meanwhile"


def test_probes_of_the_kubelet_are_answered_while_every_thread_renders_a_page() -> None:
    """Pages may wait for the API server. A liveness probe that waits behind them restarts the pod."""
    asked, probed = threading.Semaphore(0), threading.Event()
    web = App(Telemetry("web"), {}, lambda: "")

    @web.pages.get("/")
    def page() -> str:
        asked.release()
        return "after the probe" if probed.wait(20.0) else "before"

    with (
        serving(web) as server,
        contextlib.ExitStack() as opened,
    ):

        def connected() -> socket.socket:
            return opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30.0))

        readers = [connected() for _ in range(40)]  # asyncio has at most 32 threads
        for reader in readers:
            reader.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked.acquire(timeout=20.0)
        for path in (b"/healthz", b"/readyz"):
            assert ask(connected(), b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path) == b"ok\n"
        probed.set()
        assert {answer(reader) for reader in readers} == {b"after the probe"}


def test_a_head_that_is_incomplete_after_the_timeout_ends_its_connection_and_is_counted(connect: Connect) -> None:
    connection = connect()
    assert ask(connection) == b"body", "also after a complete request"
    connection.sendall(PARTIAL_HEAD)
    assert 0.2 < closed_after_s(connection) < 3.0
    assert hang_ups(connect, "slow head") == 1.0


def test_a_body_that_is_incomplete_after_the_timeout_is_an_error_and_ends_its_connection(connect: Connect) -> None:
    connection = connect()
    assert b"took longer than 0.3 s" in ask(connection, PARTIAL_BODY)
    assert closed_after_s(connection) < 3.0


def test_a_request_that_trickles_in_has_the_same_timeout(connect: Connect) -> None:
    connection = connect()
    connection.sendall(PARTIAL_HEAD)
    began_s = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - began_s < 3.0:
            connection.sendall(b"X: ")
            time.sleep(0.05)
    assert 0.2 < time.monotonic() - began_s < 2.0
    assert hang_ups(connect, "slow head") == 1.0


def test_idle_connections_are_kept_until_there_are_too_many_and_the_longest_idle_goes_first(
    connect: Connect,
) -> None:
    scheduler, idle = connect(), [connect() for _ in range(19)]
    time.sleep(0.5)
    assert ask(scheduler) == b"body"
    assert ask(idle[0]) == b"body", "an idle connection is no slow request"
    newcomers = [connect() for _ in range(5)]
    assert [ask(each) for each in newcomers] == [b"body"] * 5
    assert ask(scheduler) == b"body", "it was used since"
    for each in idle[1:6]:
        assert closed_after_s(each) < 3.0


@pytest.mark.parametrize("encrypted", [False, True], ids=["HTTP", "TLS"])
def test_a_thousand_idle_connections_and_partial_requests_delay_no_other_client(
    encrypted: bool, authority: trustme.CA, tmp_path: Path
) -> None:
    pem = write_certificate(authority, tmp_path / "shown.pem") if encrypted else None
    with serving(app(), certificate=pem, request_s=60.0) as server, contextlib.ExitStack() as opened:
        slow = [
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5.0)) for _ in range(1000)
        ]
        for connection in slow[::2]:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01" if encrypted else PARTIAL_HEAD)
        caller: socket.socket = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
        if encrypted:
            caller = trusting_context(authority).wrap_socket(caller, server_hostname="127.0.0.1")
        opened.enter_context(caller)
        began_s = time.monotonic()
        for call in range(100):
            with contextlib.suppress(OSError):  # a handshake may have timed out
                slow[2 * call].sendall(b"\x00" if encrypted else b"X")
            assert ask(caller) == b"body"
        assert time.monotonic() - began_s < 5.0
        if not encrypted:
            assert [ask(each) for each in slow[1::200]] == [b"body"] * 5


def test_an_answer_that_the_client_does_not_read_is_given_up(connect: Connect) -> None:
    connection = connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(REQUEST.replace(b"/echo", b"/large"))
    time.sleep(1.0)
    assert hang_ups(connect, "answer not taken") == 1.0


def test_an_unread_answer_is_given_up_though_the_client_sends_more_requests(connect: Connect) -> None:
    connection = connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sendall(REQUEST.replace(b"/echo", b"/large"))
    with contextlib.suppress(OSError):
        for _ in range(10):
            time.sleep(0.1)
            connection.sendall(REQUEST)
    assert hang_ups(connect, "answer not taken") == 1.0


def test_an_endless_head_and_invalid_http_end_their_connection(connect: Connect) -> None:
    endless, other = connect(), connect()
    with contextlib.suppress(OSError):
        for _ in range(200):
            endless.sendall(b"X: " + b"y" * 1000 + b"\r\n" if _ else PARTIAL_HEAD)
    assert closed_after_s(endless) < 3.0
    assert b"Invalid HTTP" in ask(other, b"\x16\x03\x01 hello\r\n\r\n")
    assert hang_ups(connect, "large head") == 1.0


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:x", "no.such.host.invalid:1"])
def test_an_invalid_address_is_refused_with_the_expected_form(address: str) -> None:
    with pytest.raises(Misuse, match="host:port"):
        Server(app, address)


@pytest.mark.parametrize("host", HOSTS)
def test_without_a_host_in_the_address_clients_are_answered_by_ipv4_and_ipv6(host: str) -> None:
    """A pod of a cluster has either or both."""
    with serving(app(), ":0") as server, socket.create_connection((host, server.port), timeout=5.0) as client:
        assert ask(client) == b"body"


def test_an_address_in_use_is_refused_with_a_reason(server: Server) -> None:
    with pytest.raises(Misuse, match="cannot listen there"):
        Server(app, f"127.0.0.1:{server.port}")


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def write_certificate(authority: trustme.CA, file: Path) -> Path:
    """Certificate and key in one file."""
    certificate = authority.issue_cert("127.0.0.1")
    file.write_bytes(b"".join(each.bytes() for each in (certificate.private_key_pem, *certificate.cert_chain_pems)))
    return file


def trusting_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def test_an_unfinished_handshake_is_ended(authority: trustme.CA, tmp_path: Path) -> None:
    tls = {"certificate": write_certificate(authority, tmp_path / "shown.pem"), "request_s": 60.0}
    with serving(app(), **tls) as server, contextlib.ExitStack() as opened:
        plain = [
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5.0)) for _ in range(5)
        ]
        plain[0].sendall(b"\x16\x03\x01\x02\x00\x01")
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
        with trusting_context(authority).wrap_socket(connection, server_hostname="127.0.0.1") as safe:
            assert ask(safe) == b"body"
            for each in plain:
                assert closed_after_s(each) < 3.0
            assert ask(safe) == b"body"


def test_a_client_without_a_certificate_of_the_authority_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    trusted = tmp_path / "clients.pem"
    authority.cert_pem.write_to_path(trusted)
    tls = {"certificate": write_certificate(authority, tmp_path / "shown.pem"), "client_authority": trusted}
    with serving(app(), **tls) as server:
        for known in (True, False):
            context = trusting_context(authority)
            if known:
                authority.issue_cert("somebody").configure_cert(context)
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=5.0)
            refused = contextlib.nullcontext() if known else contextlib.suppress(OSError)
            with refused, context.wrap_socket(connection, server_hostname="127.0.0.1") as safe:
                assert ask(safe) == (b"body" if known else b"")


def test_a_replaced_certificate_is_used_for_new_connections_unless_it_is_invalid(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_certificate(authority, tmp_path / "shown.pem")
    with serving(app(), certificate=file) as server:
        address = ("127.0.0.1", server.port)
        first = ssl.get_server_certificate(address)
        file.write_text("nonsense")
        assert ssl.get_server_certificate(address) == first
        assert "cannot be loaded" in caplog.text
        write_certificate(authority, file)
        assert ssl.get_server_certificate(address) != first


def test_a_certificate_that_is_replaced_before_its_key_is_used_once_both_are(
    authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (authority.issue_cert("127.0.0.1") for _ in range(2))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    first.cert_chain_pems[0].write_to_path(certificate)
    first.private_key_pem.write_to_path(key)
    with serving(app(), certificate=certificate, key=key) as server:
        address = ("127.0.0.1", server.port)
        former = ssl.get_server_certificate(address)
        second.cert_chain_pems[0].write_to_path(certificate)
        assert ssl.get_server_certificate(address) == former
        assert "cannot be loaded" in caplog.text
        second.private_key_pem.write_to_path(key)
        assert ssl.get_server_certificate(address) != former


def test_an_invalid_certificate_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "nonsense.pem").write_text("nonsense")
    with pytest.raises(Misuse, match="not a valid certificate"):
        Server(app, "127.0.0.1:0", tmp_path / "nonsense.pem")
