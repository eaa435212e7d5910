"""The HTTP client: requests, responses as arrays, large queries in parts, retries, credentials and errors."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recommender.base.errors import Misuse
from recommender.sources import prometheus_api
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_faults import AccessRefused, QueryRefused, QueryTooLarge, Unavailable
from tests.fakes.prometheus import START_S, failure, matrix, success, vector
from tests.rig.played_http import Asked, Reply, played

A, B = {"pod": "a"}, {"pod": "b"}
TOO_MANY = failure(422, "execution", "query processing would load too many samples into memory in query execution")


class Script:
    """Gives one reply after another; then repeats the last."""

    def __init__(self, *replies: Reply | Callable[[Asked], Reply]) -> None:
        self.replies = list(replies)

    def __call__(self, request: Asked) -> Reply:
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(request) if callable(reply) else reply


def count_up(request: Asked) -> Reply:
    """One series, whose values are the requested times."""
    return matrix((A, [(at, at) for at in request.moments]))


def client_for(url: str, *, retries: int = 3, slept: list[float] | None = None, **options: Any) -> PrometheusClient:
    """A client that retries without waiting."""
    sleep = (lambda _: None) if slept is None else slept.append
    return PrometheusClient(url, retries=retries, sleep=sleep, **options)


def test_a_vector_becomes_arrays_without_nan_and_infinity() -> None:
    reply = vector((A, 1.5), (B, "NaN"), ({"pod": "c"}, "+Inf"), ({"pod": "d"}, "2e9"))
    with played(lambda _: reply) as server, client_for(server.url) as client:
        result = client.instant("up", START_S)
    assert [result.labels[at]["pod"] for at in result.owner] == ["a", "d"]
    assert result.values.tolist() == [1.5, 2e9]
    assert result.times_s.tolist() == [START_S, START_S]
    assert (server.asked[0].method, server.asked[0].path) == ("GET", "/api/v1/query")
    assert server.asked[0].parameters == {"query": "up", "time": str(START_S), "timeout": "120s"}


def test_a_matrix_becomes_arrays_and_histograms_are_skipped() -> None:
    histogram = {"metric": B, "histograms": [[START_S, {"count": "1", "sum": "2"}]]}
    numbers = {"metric": A, "values": [[START_S, "1"], [START_S + 15, "NaN"], [START_S + 30, "3"]]}
    reply = success({"resultType": "matrix", "result": [histogram, numbers]})
    with played(lambda _: reply) as server, client_for(server.url) as client:
        result = client.range("up", START_S, START_S + 30, 15)
    assert result.labels == (A,)
    assert result.times_s.tolist() == [START_S, START_S + 30]
    assert result.values.tolist() == [1.0, 3.0]


def test_a_month_is_queried_in_parts_within_the_limit_of_points() -> None:
    month_s = 30 * 86_400
    with played(count_up) as server, client_for(server.url) as client:
        result = client.range("up", START_S, START_S + month_s, 15)
    assert [len(one.moments) for one in server.asked] == [11_000] * 15 + [7801]
    assert result.labels == (A,)
    np.testing.assert_array_equal(result.times_s, np.arange(START_S, START_S + month_s + 1, 15))


def test_responses_stay_small_for_any_number_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MAX_SAMPLES_PER_RESPONSE", 1000)
    with played(count_up) as server, client_for(server.url) as client:
        client.range("up", START_S, START_S + 99 * 15, 15, series=40)
        client.range("up", START_S, START_S + 15, 15, series=5000)
    assert [len(one.moments) for one in server.asked] == [25] * 4 + [1] * 2


@given(
    n_points=st.integers(1, 60),
    max_points=st.integers(1, 70),
    refused_above=st.integers(1, 70),
    step_s=st.sampled_from([1, 15, 0.25, 0.1]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_cover_every_time_once(n_points: int, max_points: int, refused_above: int, step_s: float) -> None:
    def answer(request: Asked) -> Reply:
        return TOO_MANY if len(request.moments) > refused_above else count_up(request)

    with (
        pytest.MonkeyPatch.context() as patch,
        played(answer) as server,
        client_for(server.url) as client,
    ):
        patch.setattr(prometheus_api, "MAX_POINTS_PER_SERIES", max_points)
        result = client.range("up", START_S, START_S + (n_points - 1) * step_s, step_s)
    np.testing.assert_allclose(result.times_s, START_S + np.arange(n_points) * step_s, atol=0.002)


def test_series_that_differ_between_parts_are_kept_apart() -> None:
    script = Script(TOO_MANY, matrix((A, [(0, 1)])), matrix((B, [(15, 2)]), (A, [(15, 3)])))
    with played(script) as server, client_for(server.url) as client:
        result = client.range("up", 0, 15, 15)
    assert result.labels == (A, B)
    assert list(zip(result.owner.tolist(), result.values.tolist(), strict=True)) == [(0, 1.0), (1, 2.0), (0, 3.0)]


@pytest.mark.parametrize(
    "reply",
    [
        TOO_MANY,
        failure(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries."),
        failure(503, "timeout", "query timed out in expression evaluation"),
        Reply(413, b"request entity too large", {}),
    ],
    ids=["samples", "points", "time", "bytes"],
)
def test_a_query_too_large_for_a_single_time_fails(reply: Reply) -> None:
    with played(lambda _: reply) as server, client_for(server.url) as client, pytest.raises(QueryTooLarge):
        client.range("up", START_S, START_S + 30, 15)
    assert [len(one.moments) for one in server.asked] == [3, 1]


def test_a_body_over_the_limit_is_dropped_and_queried_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MAX_RESPONSE_BYTES", 20_000)
    with played(count_up) as server, client_for(server.url) as client:
        result = client.range("up", START_S, START_S + 999 * 15, 15)
    assert len(result) == 1000
    assert [len(one.moments) for one in server.asked] == [1000, 500, 500]


STATUS_503 = Reply(503, b"upstream connect error", {"Content-Type": "text/plain"})


@pytest.mark.parametrize(
    "reply",
    [
        STATUS_503,
        Reply(body=vector((A, 1)).body, withheld=7),
        Reply(body=vector((A, 1)).body[:-7]),
        failure(500, "internal", "expanding series: context canceled"),
        Reply(429, b"", {}),
        Reply(504, b"<html>Gateway Time-out</html>", {"Content-Type": "text/html"}),
    ],
    ids=["503", "cut off", "cut off, length too", "500", "429", "504"],
)
def test_transient_errors_are_retried(reply: Reply) -> None:
    slept: list[float] = []
    with played(Script(reply, reply, vector((A, 7)))) as server, client_for(server.url, slept=slept) as client:
        assert client.instant("up", START_S).values.tolist() == [7.0]
    assert len(server.asked) == 3
    assert len(slept) == 2


def test_delays_between_retries_grow_with_jitter_up_to_a_limit() -> None:
    slept: list[float] = []
    with (
        played(lambda _: STATUS_503) as server,
        client_for(server.url, slept=slept, retries=9) as client,
        pytest.raises(Unavailable, match="status 503, upstream connect error"),
    ):
        client.instant("up", START_S)
    assert len(server.asked) == 10
    lowest = [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert all(low <= one <= min(low + 0.5, 30) for low, one in zip(lowest, slept, strict=True))
    assert len({one % 1 for one in slept[1:6]}) > 1


@pytest.mark.parametrize(("retry_after", "waited"), [("7", 7), ("3600", 30), ("soon", 0)])
def test_retry_after_is_followed_up_to_a_limit(retry_after: str, waited: float) -> None:
    slept: list[float] = []
    script = Script(Reply(429, b"", {"Retry-After": retry_after}), vector((A, 7)))
    with played(script) as server, client_for(server.url, slept=slept) as client:
        client.instant("up", START_S)
    assert slept == [waited]


def test_a_wrong_query_is_refused_with_the_servers_message_and_not_retried() -> None:
    reply = failure(400, "bad_data", 'invalid parameter "query": parse error: unexpected end of input')
    with (
        played(lambda _: reply) as server,
        client_for(server.url) as client,
        pytest.raises(QueryRefused, match="unexpected end of input") as caught,
    ):
        client.range("sum(", START_S, START_S + 30, 15)
    assert (len(server.asked), caught.value.exit_code) == (1, 2)
    assert not isinstance(caught.value, QueryTooLarge)


def secret_file(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


STATUS_BODY = b'{"kind":"Status","message":"nope"}'


@pytest.mark.parametrize(
    ("reply", "message", "code", "asked"),
    [
        (Reply(401, b"Unauthorized\n", {}), "--bearer-token-file, or --user and --password-file", 2, 1),
        (Reply(body=b"<!doctype html>", headers={"Content-Type": "text/html"}), "web page.*--bearer-token-file", 1, 1),
        (Reply(404, b"404 page not found", {}), "behind a proxy it may need a path", 1, 1),
        *((Reply(body=body), "does not respond like Prometheus", 1, 4) for body in (STATUS_BODY, b"[1]", b"pong", b"")),
    ],
    ids=["no credentials", "login page", "no such page", "a status", "a list", "pong", "nothing"],
)
def test_a_refusal_is_reported_with_a_remedy_and_only_an_answer_of_another_server_is_retried(
    reply: Reply, message: str, code: int, asked: int
) -> None:
    with played(lambda _: reply) as server, client_for(server.url) as client:
        with pytest.raises((AccessRefused, Unavailable), match=message) as caught:
            client.instant("up", START_S)
        assert (len(server.asked), caught.value.exit_code) == (asked, code)


def test_plain_http_under_an_https_url_is_recognised() -> None:
    with (
        played(lambda _: vector()) as server,
        client_for(server.url.replace("http:", "https:")) as client,
        pytest.raises(Unavailable, match="Is it http instead of https"),
    ):
        client.instant("up", START_S)


@pytest.mark.parametrize(("status", "message"), [(401, "does not accept"), (403, "denies reading")])
def test_a_refused_secret_is_named_by_its_file_and_never_shown(tmp_path: Path, status: int, message: str) -> None:
    token = secret_file(tmp_path, "token", "s3cret-token\n")
    password = secret_file(tmp_path, "password", "s3cret-word")
    for access in (Access(bearer_token_file=token), Access(user="me", password_file=password)):
        with (
            played(lambda _: Reply(status, b"no", {})) as server,
            client_for(server.url, access=access) as client,
            pytest.raises(AccessRefused, match=message) as caught,
        ):
            client.instant("up", START_S)
        assert str(tmp_path) in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_a_renewed_token_is_used_at_once(tmp_path: Path) -> None:
    token = secret_file(tmp_path, "token", "first\n")
    with played(lambda _: vector()) as server, client_for(server.url, access=Access(bearer_token_file=token)) as client:
        client.instant("up", START_S)
        token.write_text("second\n")
        client.instant("up", START_S)
    assert [one.headers["Authorization"] for one in server.asked] == ["Bearer first", "Bearer second"]


def test_a_password_may_have_any_characters(tmp_path: Path) -> None:
    password = secret_file(tmp_path, "password", "pä:ß wörd\n")
    access = Access(user="jörg", password_file=password)
    with played(lambda _: vector()) as server, client_for(server.url, access=access) as client:
        client.instant("up", START_S)
    assert server.asked[0].headers["Authorization"] == "Basic asO2cmc6cMOkOsOfIHfDtnJk"


@pytest.mark.parametrize("text", ["", "two\nlines\n", "\n"], ids=["empty", "two lines", "blank"])
def test_a_file_without_a_secret_of_one_line_is_refused(tmp_path: Path, text: str) -> None:
    access = Access(bearer_token_file=secret_file(tmp_path, "token", text))
    with (
        played(lambda _: vector()) as server,
        client_for(server.url, access=access) as client,
        pytest.raises(Misuse, match=r"--bearer-token-file .*one line"),
    ):
        client.instant("up", START_S)
    assert not server.asked


HERE = Path(__file__)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bearer_token_file": HERE, "user": "me", "password_file": HERE}, "exclude each other"),
        ({"user": "me"}, "belong together"),
        ({"password_file": HERE}, "belong together"),
        ({"key_file": HERE}, "--certificate-file"),
        ({"ca_file": HERE, "verify": False}, "--insecure"),
        ({"ca_file": HERE / "none"}, "--ca-file .*no such file"),
        ({"headers": ("X-Scope-OrgID",)}, "write NAME: VALUE"),
        ({"headers": ("X-Scope-OrgID: a\r\nX-Other: b",)}, "write NAME: VALUE"),
        ({"headers": ("authorization: Bearer s3cret",)}, "--bearer-token-file"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        Access(**options)


def test_a_redirect_is_not_followed_and_its_secrets_are_not_shown() -> None:
    reply = Reply(302, b"", {"Location": "https://login.example/oauth?state=s3cret"})
    with (
        played(lambda _: reply) as server,
        client_for(server.url) as client,
        pytest.raises(Unavailable, match=r"redirects to https://login.example/oauth\.") as caught,
    ):
        client.instant("up", START_S)
    assert len(server.asked) == 1
    assert "s3cret" not in str(caught.value)


def test_a_url_may_have_a_path() -> None:
    with played(lambda _: vector()) as server, client_for(f"{server.url}/monitoring/prom/") as client:
        client.instant("up", START_S)
    assert server.asked[0].path == "/monitoring/prom/api/v1/query"


@pytest.mark.parametrize("url", ["localhost:9090", "ftp://host", "http://", "http://host:port", "http://h/x?y=1", ""])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(Misuse, match="Write http://HOST:PORT"):
        PrometheusClient(url)


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(Misuse, match="--password-file") as caught:
        PrometheusClient("http://me:s3cret@host:9090")
    assert "s3cret" not in str(caught.value)


def test_a_refused_connection_is_reported_after_retries() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        slept: list[float] = []
        with (
            client_for(f"http://127.0.0.1:{unused.getsockname()[1]}", slept=slept) as client,
            pytest.raises(Unavailable, match="connection refused"),
        ):
            client.instant("up", START_S)
    assert len(slept) == 3


def test_a_slow_response_times_out() -> None:
    release = threading.Event()

    def answer(request: Asked) -> Reply:
        release.wait(30)
        return vector()

    with played(answer) as server, client_for(server.url, retries=1, timeout_s=0.1) as client:
        with pytest.raises(Unavailable, match=r"within 0.1 s\. Raise --timeout"):
            client.instant("up", START_S)
        assert len(server.asked) == 2
        release.set()


def test_each_warning_is_reported_once() -> None:
    reported: list[str] = []
    reply = vector((A, 1), warnings=["store gateway 3 did not answer"], infos=["may not be a counter"])
    with played(lambda _: reply) as server, client_for(server.url, warn=reported.append) as client:
        client.instant("up", START_S)
        client.instant("up", START_S + 1)
    assert reported == ["store gateway 3 did not answer"]


def test_a_long_query_is_posted() -> None:
    query = 'up{namespace=~"' + "|".join(f"namespace-{at}" for at in range(500)) + '"}'
    with played(lambda _: vector()) as server, client_for(server.url) as client:
        client.instant(query, START_S)
    assert server.asked[0].method == "POST"
    assert server.asked[0].query == query


def test_labels_are_queried_by_series_and_time() -> None:
    def answer(request: Asked) -> Reply:
        return success(["b", "a"])

    with played(answer) as server, client_for(server.url) as client:
        assert client.label_values("namespace", "up", 1, 2) == ["a", "b"]
        assert client.label_names("up", 1, 2) == ["a", "b"]
    assert [one.path for one in server.asked] == ["/api/v1/label/namespace/values", "/api/v1/labels"]
    assert server.asked[0].parameters == {"match[]": "up", "start": "1", "end": "2"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_context(authority: trustme.CA, *, client_certificates: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if client_certificates:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pem(file: Path, *blobs: trustme.Blob) -> Path:
    file.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return file


def test_a_certificate_is_verified_with_the_given_authority(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = pem(tmp_path / "ca.crt", authority.cert_pem)
    other = pem(tmp_path / "other.crt", trustme.CA().cert_pem)
    with played(lambda _: vector((A, 1)), tls_context(authority)) as server:
        for access in (Access(ca_file=ca_file), Access(verify=False)):
            with client_for(server.url, access=access) as client:
                assert len(client.instant("up", START_S)) == 1
        for access in (Access(), Access(ca_file=other)):
            with client_for(server.url, access=access) as client, pytest.raises(Unavailable, match="--ca-file"):
                client.instant("up", START_S)
    assert len(server.asked) == 2


def test_a_client_certificate_is_presented_when_required(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = pem(tmp_path / "ca.crt", authority.cert_pem)
    issued = authority.issue_cert("client.test")
    certificate = pem(tmp_path / "tls.crt", *issued.cert_chain_pems)
    key = pem(tmp_path / "tls.key", issued.private_key_pem)
    both = pem(tmp_path / "both.pem", issued.private_key_and_cert_chain_pem)
    with played(lambda _: vector((A, 1)), tls_context(authority, client_certificates=True)) as server:
        for files in ({"certificate_file": certificate, "key_file": key}, {"certificate_file": both}):
            with client_for(server.url, access=Access(ca_file=ca_file, **files)) as client:
                assert len(client.instant("up", START_S)) == 1
        with (
            client_for(server.url, access=Access(ca_file=ca_file)) as client,
            pytest.raises(Unavailable, match="--certificate-file"),
        ):
            client.instant("up", START_S)


def test_a_ca_file_that_is_not_a_certificate_is_reported(authority: trustme.CA) -> None:
    with (
        played(lambda _: vector(), tls_context(authority)) as server,
        client_for(server.url, access=Access(ca_file=HERE)) as client,
        pytest.raises(Unavailable, match="not PEM"),
    ):
        client.instant("up", START_S)


def test_the_client_can_be_closed_twice_and_holds_no_secret(tmp_path: Path) -> None:
    client = PrometheusClient("http://host:9090", Access(bearer_token_file=secret_file(tmp_path, "token", "s3cret")))
    client.close()
    client.close()
    assert "s3cret" not in repr(vars(client))


@pytest.mark.parametrize("labels", [["pod"], "pod", {"pod": ["a"]}, None])
def test_an_answer_whose_labels_are_no_texts_by_name_is_invalid(labels: object) -> None:
    entry = {"metric": labels, "value": [0, "1"]}
    with pytest.raises(prometheus_api.InvalidResponse):
        prometheus_api.read_samples({"resultType": "vector", "result": [entry]})
