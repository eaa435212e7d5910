"""Each option of Prometheus queries and credentials changes the requests of `export` and of the recommender."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from recommender.base.errors import Misuse, PhasewiseError
from recommender.cli.live_options import PrometheusOptions
from tests.fakes.command_line import CommandResult
from tests.fakes.prometheus import START_S, SmallCluster, success
from tests.fakes.records import FakeView, a_pod, a_vpa
from tests.rig.played_http import Asked, Played, Reply, played

Phasewise = Callable[..., CommandResult]
Send = Callable[..., list[Asked]]

CONTAINERS = SmallCluster({("ns", "train-1"): (0.0, 1e12)})


def cluster(request: Asked) -> Reply:
    """One container; the owners of pods are unknown."""
    return success([]) if request.path.endswith("/series") else CONTAINERS(request)


QUERIES = {
    "-n": ("ml", 'namespace="ml"'),
    "--selector": ('cluster="a"', 'cluster="a"'),
    "--usage-selector": ('job="kubelet"', 'job="kubelet"'),
    "--label": ("pod=pod_name", "pod_name"),
    "--request-label": ("namespace=kube_ns", "kube_ns"),
    "--cpu-metric": ("ns:cpu:rate", "ns:cpu:rate"),
    "--memory-metric": ("held", "held{"),
    "--rate-window": ("90s", "[90s]"),
    "--staleness": ("77s", "77"),
}
"""By option: a value, and text that is in some query with it and in none without it."""


ALL_QUERIES = pytest.fixture(params=["export", "recommender"])
WITH_FETCHING = pytest.fixture(params=["export", "recommender", "recommend", "dry-run"])


def _sender(
    request: pytest.FixtureRequest, phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Played], Send]:
    """The requests that a command sends to a Prometheus, with more options."""

    def sender_to(server: Played) -> Send:
        def send(*options: object) -> list[Asked]:
            server.asked.clear()
            if request.param in ("recommend", "dry-run"):
                phasewise(request.param, "--prometheus", server.url, "--since", "1h", *options)
            elif request.param == "export":
                span = ("--since", START_S, "--until", START_S + 3600, "--retries", 0)
                phasewise("export", "--prometheus", server.url, *span, "-o", tmp_path / "e.csv", "--restart", *options)
            else:
                history = "2h" if set(options) & QUERIES.keys() else "none"
                query_live(phasewise, monkeypatch, tmp_path, "--prometheus", server.url, "--history", history, *options)
            return list(server.asked)

        return send

    return sender_to


sender, every_sender = ALL_QUERIES(_sender), WITH_FETCHING(_sender)


def query_live(phasewise: Phasewise, monkeypatch: pytest.MonkeyPatch, folder: Path, *options: object) -> None:
    """Send the queries that the recommender sends at its start and in its first round."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    calls: list[tuple[Any, ...]] = []

    def sources(*arguments: Any) -> None:
        calls.append(arguments)
        raise Misuse("enough")

    with monkeypatch.context() as patch:
        patch.setattr("recommender.cli.recommender.load_and_compile", lambda *_: "")
        patch.setattr(PrometheusOptions, "sources", sources)
        ended = phasewise("recommender", "--kubeconfig", kubeconfig, *options)
    assert ended.err.endswith("enough\n"), ended.err
    prometheus, server, *rest = calls[0]
    usage, prior, _ = prometheus.sources(server, *rest)
    if prior is not None:
        one_job = FakeView()
        one_job.raw["job"], one_job.pods["job"] = a_vpa(), [a_pod("train-1")]
        prior.load(one_job)
    with contextlib.suppress(PhasewiseError):  # only the requests matter
        list(usage(float(START_S)).samples)


def queries(requests: list[Asked]) -> str:
    return "\n".join(one.query or str(one.parameters) for one in requests)


@pytest.mark.option("phasewise export", "--prometheus", *QUERIES)
@pytest.mark.option("phasewise recommender", "--prometheus", *QUERIES)
@pytest.mark.parametrize("option", QUERIES)
def test_another_value_changes_a_query(option: str, sender: Callable[[Played], Send]) -> None:
    value, expected = QUERIES[option]
    with played(cluster) as server:
        send = sender(server)
        assert expected not in queries(send())
        assert expected in queries(send(option, value))


FETCHING = ("--prometheus", "-n", "--selector", "--since")


@pytest.mark.option("phasewise recommend", *FETCHING)
@pytest.mark.option("phasewise dry-run", *FETCHING)
@pytest.mark.parametrize("command", ["recommend", "dry-run"])
def test_what_is_fetched_is_of_the_namespace_the_selector_and_the_time(command: str, phasewise: Phasewise) -> None:
    """A name that no container has: nothing is found, and nothing replayed."""
    yesterday_s = time.time() - 86400  # steps grow with the distance of the start from now
    with played(cluster) as server:
        chosen = ("-n", "nowhere", "--selector", 'cluster="a"')
        ended = phasewise(command, "--prometheus", server.url, "--since", yesterday_s, *chosen)
        assert ended.code == 2 and "Namespaces here are ns" in ended.err
        asked = queries(server.asked)
    assert 'namespace="nowhere"' in asked and 'cluster="a"' in asked
    assert float(server.ranges("")[0].parameters["start"]) == pytest.approx(yesterday_s, abs=3600)


@pytest.mark.option("phasewise export", "--requests-metric")
def test_requests_metric_is_the_metric_of_requests(phasewise: Phasewise, tmp_path: Path) -> None:
    with played(cluster) as server:
        span = ("--since", START_S, "--until", START_S + 3600)
        phasewise("export", "--prometheus", server.url, *span, "-o", tmp_path / "e.csv", "--requests-metric", "asks")
        assert "asks{" in queries(server.asked)


@pytest.mark.option("phasewise recommender", "--history", "--history-resolution")
def test_history_options_set_the_length_and_step_of_range_queries(
    phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spans(*options: object) -> tuple[float, set[str]]:
        """The total length of all range queries, and their steps."""
        with played(cluster) as server:
            query_live(phasewise, monkeypatch, tmp_path, "--prometheus", server.url, *options)
            ranges = server.ranges("")
        lengths_s = [float(one.parameters["end"]) - float(one.parameters["start"]) for one in ranges]
        return sum(lengths_s), {one.parameters["step"] for one in ranges}

    assert spans("--history", "none")[0] == 0.0
    short_s, steps = spans("--history", "2h")
    assert spans("--history", "4h")[0] > short_s > 0.0
    assert spans("--history", "2h", "--history-resolution", "30m")[1] - steps


# -- credentials -------------------------------------------------------------------------------------------------------


@pytest.mark.option("phasewise export", "--bearer-token-file", "--user", "--password-file")
@pytest.mark.option("phasewise recommender", "--bearer-token-file", "--user", "--password-file")
@pytest.mark.option("phasewise recommend", "--bearer-token-file", "--user", "--password-file")
@pytest.mark.option("phasewise dry-run", "--bearer-token-file", "--user", "--password-file")
def test_credentials_are_sent(every_sender: Callable[[Played], Send], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    with played(cluster) as server:
        sent = [
            {one.headers.get("Authorization", "") for one in every_sender(server)(*options)}
            for options in (
                (),
                ("--bearer-token-file", secret),
                ("--user", "me", "--password-file", secret),
                ("--user", "you", "--password-file", secret),
            )
        ]
    assert sent[:2] == [{""}, {"Bearer s3cret"}]
    assert len({next(iter(one)) for one in sent}) == 4


@pytest.mark.option("phasewise export", "--header")
@pytest.mark.option("phasewise recommender", "--header")
@pytest.mark.option("phasewise recommend", "--header")
@pytest.mark.option("phasewise dry-run", "--header")
def test_the_tenant_is_sent_with_each_query(every_sender: Callable[[Played], Send]) -> None:
    with played(cluster) as server:
        send = every_sender(server)
        tenants = [
            {one.headers.get("X-Scope-OrgID", "") for one in send(*options)}
            for options in ((), ("--header", "X-Scope-OrgID: team-a"), ("--header", "X-Scope-OrgID:team-b|team-c"))
        ]
    assert tenants == [{""}, {"team-a"}, {"team-b|team-c"}]


@pytest.mark.option("phasewise export", "--ca-file", "--insecure", "--certificate-file", "--key-file")
@pytest.mark.option("phasewise recommender", "--ca-file", "--insecure", "--certificate-file", "--key-file")
@pytest.mark.option("phasewise recommend", "--ca-file", "--insecure", "--certificate-file", "--key-file")
@pytest.mark.option("phasewise dry-run", "--ca-file", "--insecure", "--certificate-file", "--key-file")
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_tls_options_set_the_trusted_authority_and_the_client_certificate(
    every_sender: Callable[[Played], Send], tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = authority.issue_cert("us")
    client.private_key_pem.write_to_path(tmp_path / "key.pem")
    client.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    trusted = ("--ca-file", tmp_path / "ca.pem")
    certificate = ("--certificate-file", tmp_path / "cert.pem", "--key-file", tmp_path / "key.pem")
    with played(cluster, tls=context) as server:
        send = every_sender(server)
        choices = (trusted, certificate, (*trusted, *certificate), ("--insecure", *certificate))
        answered = [bool(send(*options)) for options in choices]
    assert answered == [False, False, True, True]
