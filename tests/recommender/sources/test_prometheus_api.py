"""The HTTP client: what is asked, what is made of the answers, and what is said when there is none."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from local_cluster.played_http import Asked, Reply, played
from recommender.errors import Misuse
from recommender.sources import prometheus_api
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_faults import AccessRefused, QueryRefused, QueryTooLarge, Unavailable
from tests.fakes.prometheus import START_S, failure, matrix, success, vector

A, B = {"pod": "a"}, {"pod": "b"}
LOGIN = Reply(body=b"<!doctype html><title>Log in</title>", headers={"Content-Type": "text/html"})
TOO_MANY = failure(422, "execution", "query processing would load too many samples into memory in query execution")


class Script:
    """Answers one after another; the last one for ever."""

    def __init__(self, *replies: Reply | Callable[[Asked], Reply]) -> None:
        self.replies = list(replies)

    def __call__(self, asked: Asked) -> Reply:
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply(asked) if callable(reply) else reply


def count_up(asked: Asked) -> Reply:
    """One series whose value is its time, with as many moments as asked for."""
    return matrix((A, [(at, at) for at in asked.moments]))


def ask(url: str, *, retries: int = 3, slept: list[float] | None = None, **options: Any) -> PrometheusClient:
    """A client that waits for nothing."""
    sleep = (lambda _: None) if slept is None else slept.append
    return PrometheusClient(url, retries=retries, sleep=sleep, **options)


def test_a_vector_becomes_arrays_without_what_is_no_number() -> None:
    reply = vector((A, 1.5), (B, "NaN"), ({"pod": "c"}, "+Inf"), ({"pod": "d"}, "2e9"))
    with played(lambda _: reply) as server, ask(server.url) as client:
        answered = client.instant("up", START_S)
    assert [answered.labels[at]["pod"] for at in answered.owner] == ["a", "d"]
    assert answered.values.tolist() == [1.5, 2e9]
    assert answered.times_s.tolist() == [START_S, START_S]
    assert (server.asked[0].method, server.asked[0].path) == ("GET", "/api/v1/query")
    assert server.asked[0].parameters == {"query": "up", "time": str(START_S), "timeout": "120s"}


def test_a_matrix_becomes_arrays_and_histograms_are_passed_over() -> None:
    histogram = {"metric": B, "histograms": [[START_S, {"count": "1", "sum": "2"}]]}
    numbers = {"metric": A, "values": [[START_S, "1"], [START_S + 15, "NaN"], [START_S + 30, "3"]]}
    reply = success({"resultType": "matrix", "result": [histogram, numbers]})
    with played(lambda _: reply) as server, ask(server.url) as client:
        answered = client.range("up", START_S, START_S + 30, 15)
    assert answered.labels == (A,)
    assert answered.times_s.tolist() == [START_S, START_S + 30]
    assert answered.values.tolist() == [1.0, 3.0]


def test_a_month_is_asked_for_in_parts_that_prometheus_answers() -> None:
    month_s = 30 * 86_400
    with played(count_up) as server, ask(server.url) as client:
        answered = client.range("up", START_S, START_S + month_s, 15)
    assert [len(one.moments) for one in server.asked] == [11_000] * 15 + [7801]
    assert answered.labels == (A,)
    np.testing.assert_array_equal(answered.times_s, np.arange(START_S, START_S + month_s + 1, 15))


def test_answers_stay_small_however_many_series_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MAX_SAMPLES_PER_RESPONSE", 1000)
    with played(count_up) as server, ask(server.url) as client:
        client.range("up", START_S, START_S + 99 * 15, 15, series=40)
        client.range("up", START_S, START_S + 15, 15, series=5000)
    assert [len(one.moments) for one in server.asked] == [25] * 4 + [1] * 2


@given(
    n_points=st.integers(1, 60),
    most=st.integers(1, 70),
    refused_above=st.integers(1, 70),
    step_s=st.sampled_from([1, 15, 0.25, 0.1]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parts_cover_every_moment_once(n_points: int, most: int, refused_above: int, step_s: float) -> None:
    def answer(asked: Asked) -> Reply:
        return TOO_MANY if len(asked.moments) > refused_above else count_up(asked)

    with (
        pytest.MonkeyPatch.context() as patch,
        played(answer) as server,
        ask(server.url) as client,
    ):
        patch.setattr(prometheus_api, "MAX_POINTS_PER_SERIES", most)
        answered = client.range("up", START_S, START_S + (n_points - 1) * step_s, step_s)
    np.testing.assert_allclose(answered.times_s, START_S + np.arange(n_points) * step_s, atol=0.002)


def test_series_that_come_and_go_between_parts_stay_apart() -> None:
    script = Script(TOO_MANY, matrix((A, [(0, 1)])), matrix((B, [(15, 2)]), (A, [(15, 3)])))
    with played(script) as server, ask(server.url) as client:
        answered = client.range("up", 0, 15, 15)
    assert answered.labels == (A, B)
    assert list(zip(answered.owner.tolist(), answered.values.tolist(), strict=True)) == [(0, 1.0), (1, 2.0), (0, 3.0)]


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
def test_a_single_moment_that_is_too_much_ends_with_its_message(reply: Reply) -> None:
    with played(lambda _: reply) as server, ask(server.url) as client, pytest.raises(QueryTooLarge):
        client.range("up", START_S, START_S + 30, 15)
    assert [len(one.moments) for one in server.asked] == [3, 1]


def test_a_body_without_end_is_dropped_and_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MAX_RESPONSE_BYTES", 20_000)
    with played(count_up) as server, ask(server.url) as client:
        answered = client.range("up", START_S, START_S + 999 * 15, 15)
    assert len(answered) == 1000
    assert [len(one.moments) for one in server.asked] == [1000, 500, 500]


UNWELL = Reply(503, b"upstream connect error", {"Content-Type": "text/plain"})
CUT = Reply(body=vector((A, 1)).body, withheld=7)


@pytest.mark.parametrize(
    "reply",
    [
        UNWELL,
        CUT,
        Reply(body=vector((A, 1)).body[:-7]),
        failure(500, "internal", "expanding series: context canceled"),
        Reply(429, b"", {}),
        Reply(504, b"<html>Gateway Time-out</html>", {"Content-Type": "text/html"}),
    ],
    ids=["503", "cut off", "cut off, length too", "500", "429", "504"],
)
def test_what_may_pass_is_asked_again(reply: Reply) -> None:
    slept: list[float] = []
    with played(Script(reply, reply, vector((A, 7)))) as server, ask(server.url, slept=slept) as client:
        assert client.instant("up", START_S).values.tolist() == [7.0]
    assert len(server.asked) == 3
    assert len(slept) == 2


def test_waits_grow_and_differ_and_have_an_end() -> None:
    slept: list[float] = []
    with (
        played(lambda _: UNWELL) as server,
        ask(server.url, slept=slept, retries=9) as client,
        pytest.raises(Unavailable, match="status 503, upstream connect error"),
    ):
        client.instant("up", START_S)
    assert len(server.asked) == 10
    lowest = [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert all(low <= one <= min(low + 0.5, 30) for low, one in zip(lowest, slept, strict=True))
    assert len({one % 1 for one in slept[1:6]}) > 1


@pytest.mark.parametrize(("told", "waited"), [("7", 7), ("3600", 30), ("soon", 0)])
def test_a_server_may_say_when_to_come_again_within_reason(told: str, waited: float) -> None:
    slept: list[float] = []
    script = Script(Reply(429, b"", {"Retry-After": told}), vector((A, 7)))
    with played(script) as server, ask(server.url, slept=slept) as client:
        client.instant("up", START_S)
    assert slept == [waited]


def test_a_wrong_query_is_refused_in_prometheus_own_words_and_not_repeated() -> None:
    reply = failure(400, "bad_data", 'invalid parameter "query": parse error: unexpected end of input')
    with (
        played(lambda _: reply) as server,
        ask(server.url) as client,
        pytest.raises(QueryRefused, match="unexpected end of input") as caught,
    ):
        client.range("sum(", START_S, START_S + 30, 15)
    assert (len(server.asked), caught.value.exit_code) == (1, 2)
    assert not isinstance(caught.value, QueryTooLarge)


def secret_file(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_without_credentials_the_options_for_them_are_named() -> None:
    with (
        played(lambda _: Reply(401, b"Unauthorized\n", {})) as server,
        ask(server.url) as client,
        pytest.raises(AccessRefused, match=r"--bearer-token-file, or --user and --password-file") as caught,
    ):
        client.instant("up", START_S)
    assert (len(server.asked), caught.value.exit_code) == (1, 2)


@pytest.mark.parametrize(("status", "words"), [(401, "does not accept"), (403, "denies reading")])
def test_a_refused_secret_is_named_by_its_file_and_never_shown(tmp_path: Path, status: int, words: str) -> None:
    token = secret_file(tmp_path, "token", "s3cret-token\n")
    password = secret_file(tmp_path, "password", "s3cret-word")
    for access in (Access(bearer_token_file=token), Access(user="me", password_file=password)):
        with (
            played(lambda _: Reply(status, b"no", {})) as server,
            ask(server.url, access=access) as client,
            pytest.raises(AccessRefused, match=words) as caught,
        ):
            client.instant("up", START_S)
        assert str(tmp_path) in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_a_renewed_token_is_used_at_once(tmp_path: Path) -> None:
    token = secret_file(tmp_path, "token", "first\n")
    with played(lambda _: vector()) as server, ask(server.url, access=Access(bearer_token_file=token)) as client:
        client.instant("up", START_S)
        token.write_text("second\n")
        client.instant("up", START_S)
    assert [one.headers["Authorization"] for one in server.asked] == ["Bearer first", "Bearer second"]


def test_a_password_may_have_any_letters(tmp_path: Path) -> None:
    password = secret_file(tmp_path, "password", "pä:ß wörd\n")
    access = Access(user="jörg", password_file=password)
    with played(lambda _: vector()) as server, ask(server.url, access=access) as client:
        client.instant("up", START_S)
    assert server.asked[0].headers["Authorization"] == "Basic asO2cmc6cMOkOsOfIHfDtnJk"


@pytest.mark.parametrize("text", ["", "two\nlines\n", "\n"], ids=["empty", "two lines", "blank"])
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, text: str) -> None:
    access = Access(bearer_token_file=secret_file(tmp_path, "token", text))
    with (
        played(lambda _: vector()) as server,
        ask(server.url, access=access) as client,
        pytest.raises(Misuse, match=r"--bearer-token-file .*one line"),
    ):
        client.instant("up", START_S)
    assert not server.asked


HERE = Path(__file__)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bearer_token_file": HERE, "user": "me", "password_file": HERE}, "exclude each other"),
        ({"user": "me"}, "belong together"),
        ({"password_file": HERE}, "belong together"),
        ({"key_file": HERE}, "--certificate-file"),
        ({"ca_file": HERE, "verify": False}, "--insecure"),
        ({"ca_file": HERE / "none"}, "--ca-file .*no such file"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        Access(**options)


def test_a_page_to_log_in_is_no_answer() -> None:
    with (
        played(lambda _: LOGIN) as server,
        ask(server.url) as client,
        pytest.raises(Unavailable, match=r"web page.*--bearer-token-file"),
    ):
        client.instant("up", START_S)
    assert len(server.asked) == 1


def test_a_redirect_is_not_followed_and_its_secrets_are_not_shown() -> None:
    reply = Reply(302, b"", {"Location": "https://login.example/oauth?state=s3cret"})
    with (
        played(lambda _: reply) as server,
        ask(server.url) as client,
        pytest.raises(Unavailable, match=r"redirects to https://login.example/oauth\.") as caught,
    ):
        client.instant("up", START_S)
    assert len(server.asked) == 1
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("body", [b'{"kind":"Status","message":"nope"}', b"[1]", b"pong", b""])
def test_something_else_than_prometheus_is_said_to_be(body: bytes) -> None:
    with (
        played(lambda _: Reply(body=body)) as server,
        ask(server.url) as client,
        pytest.raises(Unavailable, match="does not respond like Prometheus"),
    ):
        client.instant("up", START_S)


def test_a_path_that_leads_nowhere_is_named() -> None:
    with (
        played(lambda _: Reply(404, b"404 page not found", {})) as server,
        ask(server.url) as client,
        pytest.raises(Unavailable, match="behind a proxy it may need a path"),
    ):
        client.instant("up", START_S)


def test_an_address_may_have_a_path() -> None:
    with played(lambda _: vector()) as server, ask(f"{server.url}/monitoring/prom/") as client:
        client.instant("up", START_S)
    assert server.asked[0].path == "/monitoring/prom/api/v1/query"


@pytest.mark.parametrize("url", ["localhost:9090", "ftp://host", "http://", "http://host:port", "http://h/x?y=1", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Misuse, match="Write http://HOST:PORT"):
        PrometheusClient(url)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(Misuse, match="--password-file") as caught:
        PrometheusClient("http://me:s3cret@host:9090")
    assert "s3cret" not in str(caught.value)


def test_nobody_there_is_said_after_some_attempts() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        slept: list[float] = []
        with (
            ask(f"http://127.0.0.1:{unused.getsockname()[1]}", slept=slept) as client,
            pytest.raises(Unavailable, match="connection refused"),
        ):
            client.instant("up", START_S)
    assert len(slept) == 3


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_slow_answer_is_not_waited_for(never: threading.Event) -> None:
    def answer(asked: Asked) -> Reply:
        never.wait(30)
        return vector()

    with played(answer) as server, ask(server.url, retries=1, timeout_s=0.1) as client:
        with pytest.raises(Unavailable, match=r"within 0.1 s\. Raise --timeout"):
            client.instant("up", START_S)
        assert len(server.asked) == 2
        never.set()


def test_each_warning_is_passed_on_once() -> None:
    told: list[str] = []
    reply = vector((A, 1), warnings=["store gateway 3 did not answer"], infos=["may not be a counter"])
    with played(lambda _: reply) as server, ask(server.url, warn=told.append) as client:
        client.instant("up", START_S)
        client.instant("up", START_S + 1)
    assert told == ["store gateway 3 did not answer"]


def test_a_long_query_is_posted() -> None:
    query = 'up{namespace=~"' + "|".join(f"namespace-{at}" for at in range(500)) + '"}'
    with played(lambda _: vector()) as server, ask(server.url) as client:
        client.instant(query, START_S)
    assert server.asked[0].method == "POST"
    assert server.asked[0].query == query


def test_labels_are_asked_for_by_series_and_time() -> None:
    def answer(asked: Asked) -> Reply:
        return success(["b", "a"])

    with played(answer) as server, ask(server.url) as client:
        assert client.label_values("namespace", "up", 1, 2) == ["a", "b"]
        assert client.label_names("up", 1, 2) == ["a", "b"]
    assert [one.path for one in server.asked] == ["/api/v1/label/namespace/values", "/api/v1/labels"]
    assert server.asked[0].parameters == {"match[]": "up", "start": "1", "end": "2"}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def served_by(authority: trustme.CA, *, asks_for_certificates: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if asks_for_certificates:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def pem(file: Path, *blobs: trustme.Blob) -> Path:
    file.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return file


def test_a_certificate_is_verified_with_the_given_authority(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = pem(tmp_path / "ca.crt", authority.cert_pem)
    other = pem(tmp_path / "other.crt", trustme.CA().cert_pem)
    with played(lambda _: vector((A, 1)), served_by(authority)) as server:
        for access in (Access(ca_file=ca_file), Access(verify=False)):
            with ask(server.url, access=access) as client:
                assert len(client.instant("up", START_S)) == 1
        for access in (Access(), Access(ca_file=other)):
            with ask(server.url, access=access) as client, pytest.raises(Unavailable, match="--ca-file"):
                client.instant("up", START_S)
    assert len(server.asked) == 2


def test_our_own_certificate_is_shown_where_it_is_asked_for(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = pem(tmp_path / "ca.crt", authority.cert_pem)
    ours = authority.issue_cert("client.test")
    certificate = pem(tmp_path / "tls.crt", *ours.cert_chain_pems)
    key = pem(tmp_path / "tls.key", ours.private_key_pem)
    both = pem(tmp_path / "both.pem", ours.private_key_and_cert_chain_pem)
    with played(lambda _: vector((A, 1)), served_by(authority, asks_for_certificates=True)) as server:
        for shown in ({"certificate_file": certificate, "key_file": key}, {"certificate_file": both}):
            with ask(server.url, access=Access(ca_file=ca_file, **shown)) as client:
                assert len(client.instant("up", START_S)) == 1
        with (
            ask(server.url, access=Access(ca_file=ca_file)) as client,
            pytest.raises(Unavailable, match="--certificate-file"),
        ):
            client.instant("up", START_S)


def test_files_that_are_no_certificates_are_named(authority: trustme.CA, tmp_path: Path) -> None:
    with (
        played(lambda _: vector(), served_by(authority)) as server,
        ask(server.url, access=Access(ca_file=HERE)) as client,
        pytest.raises(Unavailable, match="not PEM"),
    ):
        client.instant("up", START_S)


def test_plain_http_behind_https_is_told_apart() -> None:
    with (
        played(lambda _: vector()) as server,
        ask(server.url.replace("http:", "https:")) as client,
        pytest.raises(Unavailable, match="Is it http instead of https"),
    ):
        client.instant("up", START_S)


def test_the_client_can_be_closed_twice_and_names_no_secret(tmp_path: Path) -> None:
    client = PrometheusClient("http://host:9090", Access(bearer_token_file=secret_file(tmp_path, "token", "s3cret")))
    client.close()
    client.close()
    assert "s3cret" not in repr(vars(client))
