"""A fake API server, and commands that run against it while a probe checks them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from extender.cli.main import cli
from extender.web.server import Server
from recommender.cli.common import run
from tests.extender.asgi import worker
from tests.rig.waiting import wait_until
from tests.worlds.placement import node_json

Json = Mapping[str, Any]
Probe = Callable[[Server], None]
"""Called while a command serves; the command is stopped when it returns."""


class FakeApi(ThreadingHTTPServer):
    """Lists the given objects, accepts all writes, and records requests and writes.

    Usage of pods is given as `podmetrics`. While `silent`, it does not answer.
    """

    daemon_threads = True
    request_queue_size = 128  # all resources are listed at once; with a queue of 5, some connections wait a second

    def __init__(self, **objects: list[Json]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects, self.requests = objects, list[tuple[str, str]]()
        self.written: list[tuple[str, str, Json]] = []
        self.silent, self.max_concurrent_writes, self._writes, self._counting = False, 0, 0, threading.Lock()
        self.ended = threading.Event()

    def handle_error(self, *_: object) -> None:
        """Clients may disconnect during a watch."""

    def take_time_to_write(self) -> None:
        """Take the time of a write, and count the writes in progress; the answer comes afterwards."""
        with self._counting:
            self._writes += 1
            self.max_concurrent_writes = max(self.max_concurrent_writes, self._writes)
        time.sleep(0.02)
        with self._counting:
            self._writes -= 1

    def has_request(self, method: str, part: str) -> bool:
        return any(each[0] == method and part in each[1] for each in self.requests)


class _Handler(BaseHTTPRequestHandler):
    server: FakeApi

    def do_GET(self) -> None:
        self.server.requests.append(("GET", self.path))
        path, _, query = self.path.partition("?")
        resource = "podmetrics" if "/metrics.k8s.io/" in path else path.rpartition("/")[2]
        if "watch=" in query:
            self.send_response(200)
            self.end_headers()
            self.wfile.flush()
            self.server.ended.wait()
        elif "leases/" in path:
            self._answer(404, {"kind": "Status", "code": 404, "message": "not found"})
        elif "secrets/" in path:
            self._answer(200, {"metadata": {"name": "secret"}})
        elif "webhookconfigurations/" in path:
            hooks = [{"name": "gangs", "clientConfig": {}}]
            self._answer(200, {"metadata": {"name": "hook"}, "webhooks": hooks})
        else:
            items = self.server.objects.get(resource, [])
            self._answer(200, {"metadata": {"resourceVersion": "1"}, "items": items})

    def _write(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.written.append((self.command, self.path, body))  # first: probes that see the request look for it
        self.server.requests.append((self.command, self.path))
        self.server.take_time_to_write()
        self._answer(200, body if self.command != "PATCH" else {})

    do_POST = do_PUT = do_PATCH = _write  # noqa: N815  the names of http.server

    def do_DELETE(self) -> None:
        self.server.requests.append(("DELETE", self.path))
        self._answer(200, {"kind": "Status"})

    def _answer(self, status: int, body: Json) -> None:
        if self.server.silent:
            return  # close the connection without an answer
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextlib.contextmanager
def fake_api(**objects: list[Json]) -> Iterator[FakeApi]:
    api = FakeApi(**objects)
    thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        api.ended.set()
        api.shutdown()
        thread.join()
        api.server_close()


def kubeconfig(folder: Path, **servers: FakeApi) -> Path:
    """A kubeconfig with a context for each server, of which the first is current."""
    named = [(name, f"http://127.0.0.1:{api.server_address[1]}") for name, api in servers.items()]
    config = {
        "current-context": named[0][0],
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in named],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "us"}} for name, _ in named],
        "users": [{"name": "us", "user": {}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


@contextlib.contextmanager
def running(
    folder: Path, *command: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], tuple[str, int]]]:
    """A command as a process beside a fake API server with one node, and the address that it listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = ("127.0.0.1", int(free.getsockname()[1]))
    with fake_api(nodes=[node_json("a")]) as api, socket.socket() as silent:
        options = ["--kubeconfig", str(kubeconfig(folder, here=api)), "--address", "{}:{}".format(*address)]
        process = subprocess.Popen(
            [sys.executable, "-m", "extender", *command, *options], env={**os.environ, **environment}
        )
        try:
            wait_until(lambda: silent.connect_ex(address) == 0, "the server to listen", timeout_s=120, every_s=0.001)
            yield process, address
        finally:
            process.terminate()
            process.wait(20)


def listens(server: Server) -> bool:
    with socket.create_connection(("127.0.0.1", server.port)):
        return True


def run_until(monkeypatch: pytest.MonkeyPatch, probe: Probe, *arguments: str | Path) -> None:
    """Run a command until its probe, which is called once its server listens, returns."""

    def serve(server: Server) -> None:
        with worker(server):
            wait_until(lambda: listens(server), "the server to listen")
            probe(server)

    with monkeypatch.context() as patch:
        patch.setattr(Server, "run", serve)
        assert run(cli, [str(each) for each in arguments]) == 0
