"""Requests, watches and their failures, against a scripted server on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import orjson
import pytest
from urllib3.exceptions import HTTPError

from recommender.cluster import errors
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.access.credentials import Credentials
from recommender.cluster.access.rate import TokenBucket
from tests.fakes.api_server import SECRET, FakeServer, kubeconfig, status


@pytest.fixture
def api(server: FakeServer, tmp_path: Path) -> Api:
    return connect(kubeconfig(tmp_path / "config", server.url), user_agent="phasewise-tests")


def test_each_method_sends_what_the_api_expects(api: Api, server: FakeServer) -> None:
    api.get("/api/v1/pods", {"labelSelector": "a=b,c!=d"})
    api.create("/p", {"kind": "X"})
    api.replace("/p/x", {"kind": "X"})
    api.patch("/p/x", {"spec": None})
    api.patch("/p/x", [{"op": "remove", "path": "/spec"}])
    api.patch("/p/x", {"spec": {}}, strategic=True)
    api.delete("/p/x", uid="u")
    api.evict("/p/x", "u")
    assert [(method, path, body) for method, path, _, body in server.requests] == [
        ("GET", "/api/v1/pods?labelSelector=a%3Db%2Cc%21%3Dd", b""),
        ("POST", "/p", b'{"kind":"X"}'),
        ("PUT", "/p/x", b'{"kind":"X"}'),
        ("PATCH", "/p/x?fieldValidation=Ignore", b'{"spec":null}'),
        ("PATCH", "/p/x?fieldValidation=Ignore", b'[{"op":"remove","path":"/spec"}]'),
        ("PATCH", "/p/x?fieldValidation=Ignore", b'{"spec":{}}'),
        (
            "DELETE",
            "/p/x",
            b'{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","preconditions":{"uid":"u"}}',
        ),
        (
            "POST",
            "/p/x/eviction",
            b'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"x"},'
            b'"deleteOptions":{"preconditions":{"uid":"u"}}}',
        ),
    ]
    kinds = [headers.get("Content-Type") for _, _, headers, _ in server.requests]
    assert kinds[3:6] == [f"application/{way}-patch+json" for way in ("merge", "json", "strategic-merge")]
    assert server.requests[0][2]["Authorization"] == f"Bearer {SECRET}"
    assert server.requests[0][2]["User-Agent"] == "phasewise-tests"


def test_metadata_only_requests_accept_partial_metadata_or_else_the_whole_object(api: Api, server: FakeServer) -> None:
    patched = api.patch("/p/x", {"spec": None}, metadata_only=True)
    list(api.list_pages("/p", metadata_only=True))
    with api.watch_lines("/p", idle_timeout_s=5.0, metadata_only=True):
        pass
    api.get("/p/x")
    assert patched == {}
    kind, accepted = "application/json;as={};g=meta.k8s.io;v=v1,application/json", "application/json"
    single, list_ = kind.format("PartialObjectMetadata"), kind.format("PartialObjectMetadataList")
    assert [headers["Accept"] for _, _, headers, _ in server.requests] == [single, list_, single, accepted]


def test_a_list_is_read_in_pages(api: Api, server: FakeServer) -> None:
    pages: list[Any] = [{"items": [1], "metadata": {"continue": "a/b"}}, {"items": [2], "metadata": {}}]
    server.answers = [(200, {}, orjson.dumps(page)) for page in pages]
    assert [page["items"] for page in api.list_pages("/p", {"fieldSelector": "x"}, page_size=1)] == [[1], [2]]
    assert [path for _, path, _, _ in server.requests] == [
        "/p?fieldSelector=x&limit=1", "/p?fieldSelector=x&limit=1&continue=a%2Fb",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, errors.Invalid), (401, errors.Unauthorized), (403, errors.Forbidden), (404, errors.NotFound),
        (405, errors.Invalid), (409, errors.Conflict), (410, errors.Gone), (413, errors.Invalid), (422, errors.Invalid),
        (500, errors.ServerFailed), (503, errors.ServerFailed), (302, errors.ServerFailed),
    ],
)  # fmt: skip
def test_each_status_code_raises_its_error_with_the_message_of_the_server(
    api: Api, server: FakeServer, code: int, kind: type[errors.ApiError]
) -> None:
    server.answers = [status(code, "the   reason\nin words")]
    with pytest.raises(errors.ApiError) as raised:
        api.get("/p", {"continue": "private"})
    assert type(raised.value) is kind
    assert (str(raised.value), raised.value.status) == (f"GET /p: the reason in words ({code})", code)


def test_long_messages_are_cut_and_html_pages_are_not_quoted(api: Api, server: FakeServer) -> None:
    server.answers = [status(422, "x" * 10_000), (502, {}, b"<html>a proxy speaks</html>")]
    with pytest.raises(errors.Invalid) as long:
        api.get("/p")
    assert len(str(long.value)) < 450
    with pytest.raises(errors.ServerFailed) as page:
        api.get("/p")
    assert str(page.value) == "GET /p: the server did not say why (502)"


@pytest.mark.parametrize("body", [b"<html>", b"", b"[1]", b'{"half":'])
def test_a_successful_response_without_a_json_object_raises(api: Api, server: FakeServer, body: bytes) -> None:
    server.answers = [(200, {}, body)]
    with pytest.raises(errors.ServerFailed, match="JSON"):
        api.get("/p")


def test_an_object_nested_deeply_by_its_owner_does_not_keep_the_others_from_being_read(
    api: Api, server: FakeServer
) -> None:
    """The API server stores what owners write into `managedFields`, up to ten thousand levels."""
    deep = b'{"f:]\\"a":' * 5000 + b"{}" + b"}" * 5000
    items = (
        b'{"name": "a[{", "managedFields": [{"fieldsV1": %s}], "uid": "1"}, {"name": "b", "managedFields": "\xff"}'
        % deep
    )
    server.answers[:] = [(200, {}, b'{"items": [%s]}' % items), chunks(b'{"object": %s, "type": "x"}\n' % deep)]
    first, second = api.get("/p")["items"]
    assert (first["name"], first["uid"], second) == ("a[{", "1", {"name": "b", "managedFields": "\ufffd"})
    with api.watch_lines("/p", idle_timeout_s=5) as watch:
        assert [event["type"] for event in watch] == ["x"]


def test_throttled_requests_but_no_evictions_are_retried_after_a_short_wait(server: FakeServer, tmp_path: Path) -> None:
    slept: list[float] = []
    bucket = TokenBucket(10, 10, clock=lambda: sum(slept), sleep=slept.append)
    api = Api(Credentials(kubeconfig(tmp_path / "c", server.url)), bucket, user_agent="t")
    server.answers = [status(429, "busy", Retry_After="2"), status(429, "busy"), (200, {}, b'{"a":1}')]
    assert api.get("/p") == {"a": 1}
    assert slept == pytest.approx([2.0, 1.2]), "2 s as requested; then 1 s by default and 0.2 s for the next two tokens"
    server.answers = [status(429, "a disruption budget says no", Retry_After="10")]
    with pytest.raises(errors.Throttled) as raised:
        api.create("/eviction", {})
    assert raised.value.retry_after_s == 10
    assert sum(slept) < 5, "long waits are left to the caller"
    before_s, server.answers = sum(slept), [status(429, "the disruption budget says no"), (201, {}, b"{}")]
    with pytest.raises(errors.Throttled, match="budget"):
        api.evict("/api/v1/namespaces/team/pods/j", "u")
    assert sum(slept) - before_s < 1.0, "a refused eviction does not delay other requests"


def test_a_replaced_token_file_is_read_when_the_old_token_is_refused(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old\n")
    api = connect(kubeconfig(tmp_path / "config", server.url, tokenFile="token"), user_agent="t")
    api.get("/p")
    (tmp_path / "token").write_text("new\n")
    server.answers = [status(401, "Unauthorized"), (200, {}, b"{}")]
    api.get("/p")
    sent = [headers["Authorization"] for _, _, headers, _ in server.requests]
    assert sent == ["Bearer old", "Bearer old", "Bearer new"]
    server.answers = [status(401, "Unauthorized")]
    with pytest.raises(errors.Unauthorized):
        api.get("/p")
    assert len(server.requests) == 5, "repeated only once"


@pytest.mark.parametrize(
    ("failure", "raised"),
    [(HTTPError("the identity provider is down"), errors.Unreachable), (OSError("no file"), errors.BadCredentials)],
)
def test_a_request_whose_token_cannot_be_fetched_fails_and_counts_as_one_without_an_answer(
    tmp_path: Path, failure: Exception, raised: type[Exception]
) -> None:
    def fetch_token(_: object) -> None:
        raise failure

    observed: list[tuple[str, int]] = []
    credentials = Credentials(kubeconfig(tmp_path / "config", "http://127.0.0.1:9"))
    credentials._configuration.refresh_api_key_hook = fetch_token
    api = Api(credentials, TokenBucket(10, 10), user_agent="t", observe=lambda *of: observed.append(of[:2]))
    with pytest.raises(raised):
        api.get("/p")
    assert observed == [("GET", 0)]


def test_a_timeout_and_a_refused_connection_are_different_errors(api: Api, server: FakeServer, tmp_path: Path) -> None:
    server.answers = [lambda _: time.sleep(0.5)]
    with pytest.raises(errors.ReadTimeout, match="did not answer in time"):
        api.get("/p", timeout_s=0.1)
    unreachable = connect(kubeconfig(tmp_path / "unreachable", "http://127.0.0.1:9"), user_agent="t")
    with pytest.raises(errors.Unreachable, match=r"GET /p: .*refused"):
        unreachable.get("/p")


def test_a_response_that_breaks_off_raises_unreachable(api: Api, server: FakeServer) -> None:
    def half(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b'{"a"')
        handler.close_connection = True

    server.answers = [half]
    with pytest.raises(errors.Unreachable, match="broke off"):
        api.get("/p")


def test_each_request_is_observed(server: FakeServer, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    api = connect(
        kubeconfig(tmp_path / "c", server.url),
        user_agent="t",
        observe=lambda method, code, seconds: seen.append((method, code)),
    )
    server.answers = [(200, {}, b"{}"), status(404, "no")]
    api.get("/p")
    with pytest.raises(errors.NotFound):
        api.delete("/p")
    assert seen == [("GET", 200), ("DELETE", 404)]


# -- watches -----------------------------------------------------------------------------------------------------------


def chunks(*parts: bytes, end: bool = True, hold: threading.Event | None = None) -> Callable[..., None]:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if hold is not None:
            hold.wait(60)
        if end:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True

    return send


def test_events_are_parsed_whole_however_the_stream_is_chunked(api: Api, server: FakeServer) -> None:
    server.answers = [chunks(b'{"a":', b'1}\n{"a":2}\n{"a"', b":3}\n")]
    with api.watch_lines("/p", {"resourceVersion": "5"}, idle_timeout_s=5) as watch:
        assert [event["a"] for event in watch] == [1, 2, 3]
    assert server.requests[0][1] == "/p?resourceVersion=5&watch=1"


def test_a_watch_that_breaks_off_or_stays_silent_raises(api: Api, server: FakeServer) -> None:
    server.answers = [chunks(b'{"a":1}\n', end=False)]
    with api.watch_lines("/p", idle_timeout_s=5) as watch, pytest.raises(errors.Unreachable):
        list(watch)
    held = threading.Event()
    server.answers = [chunks(b'{"a":1}\n', hold=held)]
    with api.watch_lines("/p", idle_timeout_s=0.1) as watch, pytest.raises(errors.ReadTimeout):
        list(watch)
    held.set()


def test_a_refused_watch_raises_with_the_reason(api: Api, server: FakeServer) -> None:
    server.answers = [status(403, "pods is forbidden")]
    with pytest.raises(errors.Forbidden, match=r"WATCH /p: pods is forbidden \(403\)"):
        api.watch_lines("/p", idle_timeout_s=5)


def test_a_watch_is_stopped_from_another_thread(api: Api, server: FakeServer) -> None:
    held = threading.Event()
    server.answers = [chunks(b'{"a":1}\n', hold=held)]
    with api.watch_lines("/p", idle_timeout_s=30) as watch:
        events: list[Any] = []
        reader = threading.Thread(target=lambda: events.extend(watch))
        reader.start()
        time.sleep(0.05)
        watch.stop()
        reader.join(20)
        assert not reader.is_alive(), "the server stays silent for longer than that"
    held.set()
    assert [event["a"] for event in events] == [1]


def test_at_shutdown_requests_are_cut_short_and_then_no_longer_sent(api: Api, server: FakeServer) -> None:
    go_on = threading.Event()
    server.answers = [lambda _: go_on.wait(10) and None]  # type: ignore[list-item, return-value]
    began_s = time.monotonic()
    api.hurry(began_s + 0.2)
    with pytest.raises(errors.Unreachable):
        api.get("/p")
    assert time.monotonic() - began_s < 5.0
    sent = len(server.requests)
    with pytest.raises(errors.Unreachable, match="not sent, the process is shutting down"):
        api.patch("/p", {})
    assert len(server.requests) == sent
    go_on.set()
