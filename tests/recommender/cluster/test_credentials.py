"""Trust and identity from kubeconfigs and service accounts; no message ever shows a secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kubernetes.config import incluster_config

from recommender.cluster import errors
from recommender.cluster.access.connection import connect
from recommender.cluster.access.credentials import Credentials
from tests.fakes.api_server import SECRET, FakeServer, kubeconfig


@pytest.mark.parametrize(
    "content",
    [
        "users: [{name: u, user: {token: s3cr3t-token}}]",
        "users: [{user: {token: s3cr3t-token}}]\nclusters: []\ncontexts: []\ncurrent-context: x",
        "token: s3cr3t-token: :\n\t- x",
        "[s3cr3t-token]",
        "s3cr3t-token",
        "",
        "clusters: [{name: c, cluster: {}}]\nusers: [{name: u, user: {client-key-data: s3cr3t-token, exec: {}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x",
    ],
)
def test_a_malformed_kubeconfig_is_named_and_never_quoted(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The library quotes whole entries in its messages, so neither its text nor a traceback through it may be shown."""
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(errors.ClusterError) as raised:
        connect(file, user_agent="t").get("/p")
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in str(error)
        error = None if error.__suppress_context__ else error.__cause__ or error.__context__
    assert str(file) in str(raised.value) or isinstance(raised.value, errors.ApiError)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("end", ["\nx", "\r\nX-Remote-User: admin"])
def test_a_token_that_is_not_valid_in_a_header_is_neither_sent_nor_shown(
    server: FakeServer, tmp_path: Path, end: str
) -> None:
    api = connect(kubeconfig(tmp_path / "c", server.url, token=f"{SECRET}{end}"), user_agent="t")
    with pytest.raises(errors.BadCredentials) as raised:
        api.patch("/p", {})
    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__
    assert not server.requests


def test_without_a_kubeconfig_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(errors.BadCredentials, match="Name a kubeconfig"):
        connect(user_agent="t")
    with pytest.raises(errors.BadCredentials, match="no such kubeconfig"):
        connect(tmp_path / "other", user_agent="t")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", "http://127.0.0.1:9")))
    assert connect(user_agent="t").server == "http://127.0.0.1:9"
    with pytest.raises(errors.BadCredentials, match="nowhere"):
        connect(None, "nowhere", user_agent="t")


@pytest.mark.parametrize("pod", [False, True])
def test_a_kubeconfig_list_is_merged_and_its_first_current_context_holds_as_in_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod: bool
) -> None:
    first = kubeconfig(tmp_path / "first", "http://127.0.0.1:1")
    second = tmp_path / "second"
    second.write_text(
        "clusters: [{name: d, cluster: {server: 'http://127.0.0.1:2'}}]\n"
        "contexts: [{name: y, context: {cluster: d}}]\ncurrent-context: y"
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (tmp_path / "none", first, second, ""))))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    assert connect(user_agent="t").server == "http://127.0.0.1:1"
    assert connect(None, "y", user_agent="t").server == "http://127.0.0.1:2"


def test_the_default_kubeconfig_is_named_when_it_is_malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("[]")
    with pytest.raises(errors.BadCredentials, match=rf"^{tmp_path}/\.kube/config: this is not a kubeconfig"):
        connect(user_agent="t")


def test_in_a_pod_the_service_account_is_used_but_not_with_an_untrusted_server(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "ca.crt").write_text("no certificate")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server.server_port))
    api = connect(user_agent="t")
    assert api.server == f"https://127.0.0.1:{server.server.server_port}"
    with pytest.raises(errors.Unreachable):
        api.get("/p")
    assert not server.requests, "nothing is sent to a server that cannot be trusted"


def test_credentials_are_refreshed_once_per_second_and_on_reload(tmp_path: Path) -> None:
    now_s, refreshed_s = [0.0], list[float]()
    credentials = Credentials(kubeconfig(tmp_path / "c", "http://127.0.0.1:9"), clock=lambda: now_s[0])
    library = credentials._configuration
    renew = library.auth_settings
    library.auth_settings = lambda: (refreshed_s.append(now_s[0]), renew())[1]
    for now_s[0] in (0.0, 0.1, 0.9, 1.0, 1.5, 2.5):
        assert credentials.headers() == {"Authorization": f"Bearer {SECRET}"}
    assert refreshed_s == [0.0, 1.0, 2.5]
    kubeconfig(tmp_path / "c", "http://127.0.0.1:9", username="u", password=SECRET)
    credentials.reload(credentials.generation)
    assert credentials.headers()["Authorization"].startswith("Basic ")
