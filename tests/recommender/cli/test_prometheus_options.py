"""Every option that says what a Prometheus is asked, and by whom: `export` and the recommender ask something else."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme

from local_cluster.played_http import Asked, Played, Reply, played
from recommender.cli.live_rounds import PrometheusOptions
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.errors import Misuse, PhasewiseError
from recommender.live.view.view import SelectedPods
from tests.fakes.command_line import CommandResult
from tests.fakes.prometheus import START_S, SmallCluster, success
from tests.fakes.records import a_pod, a_vpa

Phasewise = Callable[..., CommandResult]
Ask = Callable[..., list[Asked]]

CONTAINERS = SmallCluster({("ns", "train-1"): (0.0, 1e12)})


def cluster(asked: Asked) -> Reply:
    """One container; who made which pod is not known."""
    return success([]) if asked.path.endswith("/series") else CONTAINERS(asked)


QUERIES = {
    "--namespace": ("ml", 'namespace="ml"'),
    "--selector": ('cluster="a"', 'cluster="a"'),
    "--usage-selector": ('job="kubelet"', 'job="kubelet"'),
    "--label": ("pod=pod_name", "pod_name"),
    "--request-label": ("namespace=kube_ns", "kube_ns"),
    "--cpu-metric": ("ns:cpu:rate", "ns:cpu:rate"),
    "--memory-metric": ("held", "held{"),
    "--rate-window": ("90s", "[90s]"),
    "--staleness": ("77s", "77"),
}
"""A value, and what stands in some query then and never without it."""


@pytest.fixture(params=["export", "recommender"])
def ask(
    request: pytest.FixtureRequest, phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Played], Ask]:
    """What a command asks a Prometheus, given more options."""

    def of(server: Played) -> Ask:
        def asked(*options: object) -> list[Asked]:
            server.asked.clear()
            if request.param == "export":
                span = ("--since", START_S, "--until", START_S + 3600, "--retries", 0)
                phasewise("export", "--prometheus", server.url, *span, "-o", tmp_path / "e.csv", "--restart", *options)
            else:
                past = "2h" if set(options) & QUERIES.keys() else "none"
                ask_live(phasewise, monkeypatch, tmp_path, "--prometheus", server.url, "--history", past, *options)
            return list(server.asked)

        return asked

    return of


class OneJob:
    """What is looked at for the past: a VPA and its pod."""

    def vpas(self) -> Sequence[Vpa]:
        return [read_vpa(a_vpa())]

    def select(self, vpa: Vpa) -> SelectedPods:
        return SelectedPods([a_pod("train-1")], {})

    def history(self, vpa: ObjectKey, container: str) -> None:
        return None

    def adopt(self, histories: Mapping[Any, Any]) -> None:
        """Nobody looks at them."""


def ask_live(phasewise: Phasewise, monkeypatch: pytest.MonkeyPatch, folder: Path, *options: object) -> None:
    """What the recommender would ask at its start and in its first round."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    told: list[tuple[Any, ...]] = []

    def sources(*given: Any) -> None:
        told.append(given)
        raise Misuse("enough")

    with monkeypatch.context() as patch:
        patch.setattr("recommender.cli.recommender.load_and_compile", lambda *_: "")
        patch.setattr(PrometheusOptions, "sources", sources)
        ended = phasewise("recommender", "--kubeconfig", kubeconfig, *options)
    assert ended.err.endswith("enough\n"), ended.err
    asked, server, *more = told[0]
    usage, prior, _ = asked.sources(server, *more)
    if prior is not None:
        prior.load(OneJob())
    with contextlib.suppress(PhasewiseError):  # what was asked is looked at, whatever the answer
        list(usage(float(START_S)).samples)


def queries(asked: list[Asked]) -> str:
    return "\n".join(one.query or str(one.parameters) for one in asked)


@pytest.mark.option("phasewise export", "--prometheus", *QUERIES)
@pytest.mark.option("phasewise recommender", "--prometheus", *QUERIES)
@pytest.mark.parametrize("option", QUERIES)
def test_another_value_is_another_query(option: str, ask: Callable[[Played], Ask]) -> None:
    value, stands = QUERIES[option]
    with played(cluster) as server:
        asks = ask(server)
        assert stands not in queries(asks())
        assert stands in queries(asks(option, value))


@pytest.mark.option("phasewise export", "--requests-metric")
def test_what_is_requested_is_asked_for_by_the_name_that_is_given(phasewise: Phasewise, tmp_path: Path) -> None:
    with played(cluster) as server:
        span = ("--since", START_S, "--until", START_S + 3600)
        phasewise("export", "--prometheus", server.url, *span, "-o", tmp_path / "e.csv", "--requests-metric", "asks")
        assert "asks{" in queries(server.asked)


@pytest.mark.option("phasewise recommender", "--history", "--history-resolution")
def test_the_past_is_asked_for_as_far_back_and_as_finely_as_is_said(
    phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spans(*options: object) -> tuple[float, set[str]]:
        """How far back the longest query goes, and the steps of all."""
        with played(cluster) as server:
            ask_live(phasewise, monkeypatch, tmp_path, "--prometheus", server.url, *options)
            ranges = server.ranges("")
        back_s = [float(one.parameters["end"]) - float(one.parameters["start"]) for one in ranges]
        return sum(back_s), {one.parameters["step"] for one in ranges}

    assert spans("--history", "none")[0] == 0.0
    short_s, steps = spans("--history", "2h")
    assert spans("--history", "4h")[0] > short_s > 0.0
    assert spans("--history", "2h", "--history-resolution", "30m")[1] - steps


# -- who asks ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def behind_tls(authority: trustme.CA, *, asks_for_one: bool = False) -> Iterator[Played]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if asks_for_one:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    with played(cluster, tls=context) as server:
        yield server


@pytest.mark.option("phasewise export", "--bearer-token-file", "--user", "--password-file")
@pytest.mark.option("phasewise recommender", "--bearer-token-file", "--user", "--password-file")
def test_credentials_are_shown(ask: Callable[[Played], Ask], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    with played(cluster) as server:
        shown = [
            {one.headers.get("Authorization", "") for one in ask(server)(*options)}
            for options in (
                (),
                ("--bearer-token-file", secret),
                ("--user", "me", "--password-file", secret),
                ("--user", "you", "--password-file", secret),
            )
        ]
    assert shown[:2] == [{""}, {"Bearer s3cret"}]
    assert len({next(iter(one)) for one in shown}) == 4


@pytest.mark.option("phasewise export", "--ca-file", "--insecure")
@pytest.mark.option("phasewise recommender", "--ca-file", "--insecure")
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_is_believed_when_its_authority_is_named_or_any_is(
    ask: Callable[[Played], Ask], tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with behind_tls(authority) as server:
        asks = ask(server)
        answered = [bool(asks(*options)) for options in ((), ("--ca-file", tmp_path / "ca.pem"), ("--insecure",))]
    assert answered == [False, True, True]


@pytest.mark.option("phasewise export", "--certificate-file", "--key-file")
@pytest.mark.option("phasewise recommender", "--certificate-file", "--key-file")
def test_our_own_certificate_is_shown_where_it_is_asked_for(ask: Callable[[Played], Ask], tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    ours = authority.issue_cert("us")
    ours.private_key_pem.write_to_path(tmp_path / "key.pem")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    ours.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    with behind_tls(authority, asks_for_one=True) as server:
        asks = ask(server)
        answered = [
            bool(asks("--ca-file", tmp_path / "ca.pem", *options))
            for options in (
                (),
                ("--certificate-file", tmp_path / "both.pem"),
                ("--certificate-file", tmp_path / "cert.pem", "--key-file", tmp_path / "key.pem"),
            )
        ]
    assert answered == [False, True, True]
