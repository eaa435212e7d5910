"""Each option of the serving commands changes what they do, in a complete run against a fake API server."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import urllib3
from cryptography import x509

from extender.cli.main import cli
from extender.gangs.controller import Controller, ControllerOptions
from extender.gangs.decide import INCOMPLETE
from extender.gangs.member import GATE, NodeCapacity
from extender.moves.board import Planner
from extender.moves.gate import MoveLimits
from extender.moves.mover import Mover
from extender.moves.phasewise import MoveOptions, PhasewisePlanner
from extender.moves.specon import SpeConPlanner
from extender.pods.pod import MEMORY_REASON
from extender.web.server import Server
from recommender.cli.common import run
from recommender.cli.logs import JsonLines
from tests.extender.dashboard import scenes
from tests.extender.gangs.herds import NOON_S, decided, gang, messages, node, pod, pod_json
from tests.extender.options.stage import COMMANDS, LATE_S, SOON_S, Stage, requested, requested_soon, servers_called
from tests.fakes.served_commands import FakeApi
from tests.rig.waiting import wait_until
from tests.worlds.placement import node_json
from tests.worlds.placement import pod_json as worlds_pod


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(request.param, tmp_path, monkeypatch)


# -- all commands ------------------------------------------------------------------------------------------------------


def address(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert stage.run(lambda server, _: server.port, "--address", f"127.0.0.1:{port}") == port


def kubeconfig_(stage: Stage) -> None:
    assert servers_called(stage) == (True, False)


def context(stage: Stage) -> None:
    assert servers_called(stage, "--context", "two") == (False, True)


def log_format(stage: Stage) -> None:
    def of_log(*_: object) -> type:
        return type(logging.getLogger().handlers[0].formatter)

    assert (stage.run(of_log), stage.run(of_log, "--log-format", "json")) == (logging.Formatter, JsonLines)


def log_level(stage: Stage) -> None:
    def of_log(*_: object) -> int:
        return logging.getLogger().level

    assert (stage.run(of_log), stage.run(of_log, "--log-level", "error")) == (logging.INFO, logging.ERROR)


def leader_elect(stage: Stage) -> None:
    lease = ("GET", "/namespaces/kube-system/leases/phasewise-")
    assert stage.run(requested(*lease), "--leader-elect")
    assert not stage.run(requested_soon(*lease))


def lease_namespace(stage: Stage) -> None:
    assert stage.run(requested("GET", "/namespaces/here/leases/"), "--leader-elect", "--lease-namespace", "here")


# -- the extender ------------------------------------------------------------------------------------------------------


def tls_certificate(stage: Stage) -> None:
    chain, key = stage.certificate()
    both = stage.folder / "both.pem"
    both.write_bytes(chain.read_bytes() + key.read_bytes())
    assert stage.run(lambda server, _: stage.get(server, tls=True), "--tls-certificate", both) == 200
    assert stage.run(lambda server, _: stage.get(server, tls=True)) == 0


def tls_key(stage: Stage) -> None:
    chain, key = stage.certificate()
    options = ("--tls-certificate", chain, "--tls-key", key)
    assert stage.run(lambda server, _: stage.get(server, tls=True), *options) == 200


def client_authority(stage: Stage) -> None:
    chain, key = stage.certificate()
    trusted = stage.folder / "clients.pem"
    stage.authority.cert_pem.write_to_path(trusted)
    options = ("--tls-certificate", chain, "--tls-key", key)
    assert stage.run(lambda server, _: stage.get(server, tls=True), *options) == 200

    def both(server: Server, _: FakeApi) -> tuple[int, int]:
        return stage.get(server, tls=True), stage.get(server, tls=True, client="scheduler")

    assert stage.run(both, *options, "--client-authority", trusted) == (0, 200)


def request_s(stage: Stage) -> None:
    def hangs_up(within_s: float, *options: str) -> bool:
        def probe(server: Server, _: FakeApi) -> bool:
            with socket.create_connection(("127.0.0.1", server.port), timeout=within_s) as connection:
                connection.sendall(b"POST /filter HTTP/1.1\r\n")
                with contextlib.suppress(TimeoutError, ConnectionResetError):
                    return connection.recv(1) == b""
            return False

        return bool(stage.run(probe, *options))

    assert hangs_up(30.0, "--request-timeout", "0.2s")
    assert not hangs_up(SOON_S)


def max_body_mib(stage: Stage) -> None:
    def posted(server: Server, _: FakeApi) -> int:
        with urllib3.PoolManager() as pool:
            url = f"http://127.0.0.1:{server.port}/filter"
            return pool.request("POST", url, body=b" " * (3 << 20), retries=False).status

    sizes = ({"nodes": [node_json("n0")]}, {"nodes": [node_json("n0")]})
    assert stage.run(posted, "--max-body", "2", **sizes[0]) == 413
    assert stage.run(posted, **sizes[1]) != 413


def filter_to_best(stage: Stage) -> None:
    def passed(server: Server, _: FakeApi) -> list[str]:
        body = orjson.dumps({"Pod": worlds_pod("p"), "NodeNames": ["n0", "n1"]})
        wait_until(lambda: stage.get(server, "/readyz") == 200, "the nodes to be known")
        with urllib3.PoolManager() as pool:
            answer = pool.request("POST", f"http://127.0.0.1:{server.port}/filter", body=body, retries=False)
        names: list[str] = answer.json()["NodeNames"]
        return names

    nodes = [node_json("n0"), node_json("n1")]
    assert stage.run(passed, "--filter-to-best", nodes=nodes) == ["n0"]
    assert stage.run(passed, nodes=nodes) == ["n0", "n1"]


# -- the controller ----------------------------------------------------------------------------------------------------


def controller_options(stage: Stage, *options: str) -> ControllerOptions:
    """The options of the controller in a run of the command."""
    passed: list[ControllerOptions] = []
    real = Controller.__init__

    def init(self: Controller, api: Any, leads: Any, given: ControllerOptions, **others: Any) -> None:
        passed.append(given)
        real(self, api, leads, given, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Controller, "__init__", init)
        stage.run(lambda *_: None, *options)
    return passed[0]


def bind_within_s(stage: Stage) -> None:
    """An admitted gang that is not bound makes the others wait for so long; no other timeout changes."""
    timeouts = controller_options(stage, "--bind-within", "10m").timeouts
    unbound = [
        replace(member, gates=(), reserved_node="n0", reserved_since_s=NOON_S) for member in gang("first", 2, cpu="4")
    ]
    nodes: list[NodeCapacity] = [node("n0"), node("n1")]

    def admits(after_s: float) -> bool:
        limits = {"bind_within_s": timeouts.bind_within_s, "incomplete_s": timeouts.incomplete_s}
        return decided([*unbound, *gang("second", 1, cpu="10")], nodes, after_s, **limits).admit is not None

    assert [admits(after_s) for after_s in (400.0, 700.0)] == [False, True]
    incomplete = gang("short", 3)[:2]
    notes = messages(decided(incomplete, nodes, 15.0, incomplete_s=timeouts.incomplete_s))
    assert notes["short"].startswith(INCOMPLETE), "after ten seconds, whatever --bind-within is"


def keep_after_s(stage: Stage) -> None:
    """So long the first gang of the queue waits until the capacity that others free is kept for it."""
    running, large = pod("r", on="n0", cpu="1"), gang("large", 1, cpu="10")
    for options, waits_s in (((), 600.0), (("--keep-after", "1m"), 60.0)):
        given = controller_options(stage, *options).timeouts.keep_after_s
        kept = [decided([running, *large], [node("n0")], s, keep_after_s=given).kept for s in (waits_s - 1.0, waits_s)]
        assert [each is not None for each in kept] == [False, True]


def period_s(stage: Stage) -> None:
    def rounds(probe: Callable[[list[float]], Any], *options: str) -> list[float]:
        seen: list[float] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Controller, "reconcile", lambda _: seen.append(time.monotonic()))
            stage.run(lambda *_: probe(seen), *options)
        return seen

    def several(seen: list[float]) -> bool:
        return wait_until(lambda: len(seen) > 5, "rounds", timeout_s=LATE_S, every_s=0.02)

    assert min(np.diff(rounds(several, "--period", "0.05s"))) < 1.0
    assert len(rounds(lambda _: time.sleep(SOON_S))) <= 2


def retry_s(stage: Stage) -> None:
    pending = worlds_pod("waits")
    message = f"0/1 nodes are available: 1 {MEMORY_REASON}."
    pending["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("extender.gangs.waking.PERIOD_S", 0.05)
        assert stage.run(requested("PATCH", "/pods/waits"), "--retry-after", "0.1s", pods=[pending])
        assert not stage.run(requested_soon("PATCH", "/pods/waits"), pods=[pending])
        assert not stage.run(requested_soon("PATCH", "/pods/waits"), "--retry-after", "none", pods=[pending])


def moves(stage: Stage) -> None:
    """Plans need the profiles, which nothing else in the controller does."""
    assert stage.run(requested("GET", "/phaseprofiles"), "--moves", "plan")
    assert not stage.run(requested_soon("GET", "/phaseprofiles"))
    assert move_limits(stage, "--moves", "plan") is None


def mover_of(stage: Stage, *options: str) -> tuple[Planner, MoveLimits | None]:
    """Planner and limits of the mover in a run of the command."""
    passed: list[tuple[Planner, MoveLimits | None]] = []
    real = Mover.__init__

    def init(self: Mover, api: Any, leads: Any, cluster: Any, ledger: Any, *given: Any) -> None:
        passed.append((given[0], given[1]))
        real(self, api, leads, cluster, ledger, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mover, "__init__", init)
        stage.run(lambda *_: None, "--moves", "act", *options)
    return passed[0]


def move_limits(stage: Stage, *options: str) -> MoveLimits | None:
    return mover_of(stage, *options)[1]


def moves_policy(stage: Stage) -> None:
    assert isinstance(mover_of(stage)[0], SpeConPlanner)
    assert isinstance(mover_of(stage, "--moves-policy", "phasewise")[0], PhasewisePlanner)


def phasewise_options(stage: Stage, *options: str) -> MoveOptions:
    planner, _ = mover_of(stage, "--moves-policy", "phasewise", *options)
    assert isinstance(planner, PhasewisePlanner)
    return planner.options


def move_cost_s(stage: Stage) -> None:
    assert (phasewise_options(stage).cost_s, phasewise_options(stage, "--move-cost", "5s").cost_s) == (60.0, 5.0)


def move_margin(stage: Stage) -> None:
    assert (phasewise_options(stage).margin, phasewise_options(stage, "--move-margin", "4").margin) == (2.0, 4.0)


def moves_at_once(stage: Stage) -> None:
    assert move_limits(stage, "--moves-at-once", "7") == replace(MoveLimits(), max_active=7)
    assert move_limits(stage) == MoveLimits()


def moves_at_once_in_namespace(stage: Stage) -> None:
    limits = move_limits(stage, "--moves-at-once-in-namespace", "3")
    assert limits == replace(MoveLimits(), max_active_in_namespace=3)


def back_within_s(stage: Stage) -> None:
    assert move_limits(stage, "--move-within", "1m") == replace(MoveLimits(), return_timeout_s=60.0)


def rest_s(stage: Stage) -> None:
    assert move_limits(stage, "--move-rest", "1m") == replace(MoveLimits(), cool_down_s=60.0)


def is_faster(stage: Stage, than_qps: float, *options: str) -> bool:
    """Whether the first four requests come faster than so many a second."""
    began_s = time.monotonic()

    def probe(_: Server, api: FakeApi) -> bool:
        wait_until(lambda: len(api.requests) >= 4, "four requests", every_s=0.02)
        return len(api.requests) > 1 + than_qps * (time.monotonic() - began_s)

    return bool(stage.run(probe, *options))


def qps(stage: Stage) -> None:
    assert not is_faster(stage, 10.0, "--burst", "1", "--qps", "10")
    assert is_faster(stage, 1.0, "--burst", "1", "--qps", "50")


def burst(stage: Stage) -> None:
    assert not is_faster(stage, 10.0, "--qps", "10", "--burst", "1")
    assert is_faster(stage, 0.5, "--qps", "0.5", "--burst", "50")


# -- the webhook -------------------------------------------------------------------------------------------------------


def names(stage: Stage) -> None:
    """They are the names in the certificate of the server."""

    def server_certificate(server: Server, _: FakeApi) -> str:
        return ssl.get_server_certificate(("127.0.0.1", server.port))

    def names_with(*options: str) -> set[str]:
        certificate = x509.load_pem_x509_certificate(stage.run(server_certificate, *options).encode())
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return {str(each.value) for each in listed}

    assert names_with("--name", "hook.here.svc") == {"hook.here.svc"}
    assert names_with() == {"phasewise-webhook.kube-system.svc"}


def namespace(stage: Stage) -> None:
    assert stage.run(requested("PUT", "/namespaces/here/secrets/"), "--namespace", "here")


def secret(stage: Stage) -> None:
    assert stage.run(requested("GET", "/secrets/ours"), "--secret", "ours")


def configuration(stage: Stage) -> None:
    assert stage.run(requested("PATCH", "/mutatingwebhookconfigurations/ours"), "--configuration", "ours")


def unverified_context() -> ssl.SSLContext:
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    return unverified


def scheduler(stage: Stage) -> None:
    def patched(server: Server, _: FakeApi) -> bytes:
        pod = pod_json("p", gang="g", size=2, gates=[GATE])
        pod["spec"]["schedulerName"] = "default-scheduler"
        review = {"request": {"uid": "1", "operation": "CREATE", "object": pod}}
        connection = HTTPSConnection("127.0.0.1", server.port, timeout=5.0, context=unverified_context())
        connection.request("POST", "/mutate", json.dumps(review))
        with contextlib.closing(connection):
            return connection.getresponse().read()

    assert b'"patch"' in stage.run(patched)
    assert b'"patch"' not in stage.run(patched, "--scheduler-name", "")


# -- the dashboard -----------------------------------------------------------------------------------------------------


def first_page(server: Server, _: FakeApi) -> urllib3.BaseHTTPResponse:
    """The answer once there is something to show."""
    with urllib3.PoolManager() as pool:
        url = f"http://127.0.0.1:{server.port}"
        wait_until(lambda: pool.request("GET", f"{url}/readyz").status == 200, "a first view", every_s=0.02)
        return pool.request("GET", url, retries=False)


def access(stage: Stage) -> None:
    """With `token`, a request without a token is refused."""
    assert stage.run(first_page).status == stage.run(first_page, "--access", "proxy").status == 200
    assert stage.run(first_page, "--access", "token").status == 401
    arguments = ["web", "--kubeconfig", "none", "--address", "0.0.0.0:0"]
    assert run(cli, arguments) == 2, "anyone who can reach it would have access"


def name(stage: Stage) -> None:
    def jobs_with(*options: str) -> list[str]:
        page = stage.run(first_page, *options, verticalpodautoscalers=[scenes.vpa()]).json()
        return [job["name"] for job in page["jobs"]]

    assert (jobs_with(), jobs_with("--name", "other")) == (["train"], [])


def look_period_s(stage: Stage) -> None:
    def metrics_requests(api: FakeApi) -> int:
        return sum("/metrics.k8s.io/" in path for _, path in api.requests)

    def several(_: Server, api: FakeApi) -> bool:
        return wait_until(lambda: metrics_requests(api) > 5, "requests", timeout_s=LATE_S, every_s=0.02)

    def soon(_: Server, api: FakeApi) -> int:
        time.sleep(SOON_S)
        return metrics_requests(api)

    assert stage.run(several, "--period", "0.05s")
    assert stage.run(soon) <= 2


SHARED = {
    "address": address,
    "kubeconfig": kubeconfig_,
    "context": context,
    "log_format": log_format,
    "log_level": log_level,
}
LEADING = {"leader_elect": leader_elect, "lease_namespace": lease_namespace}
CASES: Mapping[str, Mapping[str, Callable[[Stage], None]]] = {
    "serve": {
        **SHARED,
        **LEADING,
        **{case.__name__: case for case in (tls_certificate, tls_key, client_authority, request_s, max_body_mib)},
        "filter_to_best": filter_to_best,
    },
    "controller": {
        **SHARED,
        **LEADING,
        **{case.__name__: case for case in (bind_within_s, keep_after_s, period_s, retry_s, qps, burst)},
        **{case.__name__: case for case in (moves, moves_at_once, moves_at_once_in_namespace, back_within_s, rest_s)},
        **{case.__name__: case for case in (moves_policy, move_cost_s, move_margin)},
    },
    "webhook": {
        **SHARED,
        **{case.__name__: case for case in (names, namespace, secret, configuration, scheduler)},
    },
    "web": {
        **SHARED,
        **{case.__name__: case for case in (access, name, tls_certificate, tls_key)},
        "period_s": look_period_s,
    },
}


def names_of(name: str) -> list[str]:
    """A command, and those of its options that have a case here."""
    command, words = COMMANDS[name]
    return [" ".join(("phasewise", *words)), *(one.opts[0] for one in command.params if one.name in CASES[name])]


@pytest.mark.option(*names_of("serve"))
@pytest.mark.option(*names_of("controller"))
@pytest.mark.option(*names_of("webhook"))
@pytest.mark.option(*names_of("web"))
@pytest.mark.parametrize(
    ("stage", "option"),
    [(name, option) for name, cases in CASES.items() for option in cases],
    indirect=["stage"],
)
def test_another_value_of_the_option_changes_what_the_command_does(stage: Stage, option: str) -> None:
    CASES[stage.name][option](stage)
