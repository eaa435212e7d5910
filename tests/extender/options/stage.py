"""Runs one command completely, against a fake API server."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import urllib3

from extender.cli import controller, serve, web, webhook
from extender.web.server import Server
from tests.fakes.served_commands import FakeApi, fake_api, kubeconfig, run_until
from tests.rig.waiting import wait_until

COMMANDS = {
    "serve": (serve.command, ("extender", "serve")),
    "controller": (controller.command, ("controller",)),
    "webhook": (webhook.command, ("webhook",)),
    "web": (web.command, ("web",)),
}
SOON_S = 0.5
"""Time in which everything that happens at once has happened."""

LATE_S = 10.0
"""What happens within this time, on a machine that is not overloaded, has not waited for a default interval."""


class Stage:
    """One command, run with the options of a test and those that it always gets."""

    def __init__(self, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.folder, self._monkeypatch = name, folder, monkeypatch
        self.authority = trustme.CA()

    def run(self, probe: Callable[[Server, FakeApi], Any], *options: str | Path, **objects: Any) -> Any:
        """What the probe returns while the command runs; the API server has these objects."""
        found: list[Any] = []
        with fake_api(**objects) as api:
            given = ["--kubeconfig", kubeconfig(self.folder, here=api)] if "--kubeconfig" not in options else []
            address = ["--address", "127.0.0.1:0"] if "--address" not in options else []
            command = (*COMMANDS[self.name][1], *given, *address, *options)
            run_until(self._monkeypatch, lambda server: found.append(probe(server, api)), *command)
        return found[0]

    def certificate(self, name: str = "127.0.0.1") -> tuple[Path, Path]:
        issued = self.authority.issue_cert(name)
        chain, key = self.folder / "chain.pem", self.folder / "key.pem"
        issued.cert_chain_pems[0].write_to_path(chain)
        issued.private_key_pem.write_to_path(key)
        return chain, key

    def get(self, server: Server, path: str = "/healthz", *, client: str = "", tls: bool = False) -> int:
        """The HTTP status; 0 without an answer."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if client:
            self.authority.issue_cert(client).configure_cert(context)
        url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}{path}"
        try:
            with urllib3.PoolManager(ssl_context=context) as pool:
                return pool.request("GET", url, timeout=5.0, retries=False).status
        except urllib3.exceptions.HTTPError:
            return 0


def requested(method: str, part: str) -> Callable[[Server, FakeApi], bool]:
    """A probe that waits until the API server gets a request."""
    return lambda _, api: wait_until(
        lambda: api.has_request(method, part), f"{method} {part}", timeout_s=LATE_S, every_s=0.02
    )


def requested_soon(method: str, part: str) -> Callable[[Server, FakeApi], bool]:
    """A probe whether the API server gets a request that would be among the first."""

    def probe(_: Server, api: FakeApi) -> bool:
        time.sleep(SOON_S)
        return api.has_request(method, part)

    return probe


def servers_called(stage: Stage, *options: str) -> tuple[bool, bool]:
    """Whether the first and the second API server of a kubeconfig were called."""
    with fake_api() as one, fake_api() as two:
        file = kubeconfig(stage.folder, one=one, two=two)

        def probe(_: Server, __: FakeApi) -> tuple[bool, bool]:
            wait_until(lambda: one.requests or two.requests, "a request", every_s=0.02)
            return bool(one.requests), bool(two.requests)

        found: tuple[bool, bool] = stage.run(probe, "--kubeconfig", file, *options)
    return found
