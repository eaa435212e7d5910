"""A stand-in for a scheduler extender: it speaks the protocol, answers as a test says, remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request of a scheduler: the verb of its path, and its body as sent."""

    verb: str
    body: Json

    @property
    def pod(self) -> str:
        """The pod's name."""
        return str(self.body["Pod"]["metadata"]["name"])


@dataclass
class Answers:
    """What the stand-in answers: all nodes pass, all are equal, all victims are accepted, unless a test says otherwise.

    Attributes
    ----------
    refused
        Node -> reason why `filter` refuses it.
    scores
        Node -> points (0 to 10) in `prioritize`; 0 for nodes not named.
    victims
        What `preempt` makes of the proposed victims by node.
    hangs
        Verbs that get no answer, for as long as they are named here.
    """

    refused: dict[str, str] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    victims: Callable[[Json], Json] = lambda proposed: proposed
    hangs: Collection[str] = ()

    def of(self, call: Call) -> Json | list[Json]:
        names = call.body.get("NodeNames") or []
        if call.verb == "filter":
            passed = [name for name in names if name not in self.refused]
            refused = {name: reason for name, reason in self.refused.items() if name in names}
            return {"NodeNames": passed, "FailedNodes": refused}
        if call.verb == "prioritize":
            return [{"Host": name, "Score": self.scores.get(name, 0)} for name in names]
        if call.verb == "preempt":
            return {"NodeNameToMetaVictims": self.victims(call.body["NodeNameToMetaVictims"])}
        raise ValueError(f"no such verb: {call.verb}")


class RecordingExtender:
    """Serves on a loopback port between `start` and `stop`, and may be started again on the same port.

    It leaves out everything but the protocol: no knowledge of the cluster, no state between calls, no limits, no
    metrics. Connections stay open, as a real extender's should: schedulers do not repeat a call on a broken one.

    Parameters
    ----------
    certificate
        Certificate, key and authority files for https; callers without a certificate of the authority are refused then.
    """

    def __init__(self, port: int, certificate: tuple[Path, Path, Path] | None = None) -> None:
        self.port = port
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        self.calls: list[Call] = []
        self.answers = Answers()
        self._certificate = certificate
        self._server: _Server | None = None

    def start(self) -> RecordingExtender:
        self._server = _Server(("127.0.0.1", self.port), self)
        if self._certificate:
            certificate, key, authority = self._certificate
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(certificate, key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port and every open connection, as the end of its process would."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def hangs(self, call: Call) -> bool:
        return self._server is not None and call.verb in self.answers.hangs

    def calls_for(self, pod: str, verb: str | None = None) -> list[Call]:
        """What was asked about a pod, in order."""
        return [call for call in self.calls if call.pod == pod and verb in (None, call.verb)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], extender: RecordingExtender) -> None:
        self.extender = extender
        self._open: set[Any] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for request in list(self._open):
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)  # wakes its thread, which then closes it


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body leave in two writes; together with a late ACK that costs 40 ms
    server: _Server

    def do_POST(self) -> None:  # the name that http.server looks for
        extender = self.server.extender
        call = Call(self.path.strip("/"), json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        extender.calls.append(call)
        if extender.hangs(call):
            while extender.hangs(call):
                time.sleep(0.02)
            self.close_connection = True  # who asked has given up long since
            return
        answer = json.dumps(extender.answers.of(call)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the calls are kept."""
