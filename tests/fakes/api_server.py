"""A small API server on loopback with scripted answers, and kubeconfigs that lead to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import yaml

SECRET = "s3cr3t-token"  # noqa: S105  # made up; no message may contain it
Answer = tuple[int, dict[str, str], bytes]


class FakeServer:
    """Records requests, and answers with the next of `answers`; the last one is repeated."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: list[Answer | Callable[[BaseHTTPRequestHandler], None]] = [(200, {}, b"{}")]
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body leave in two writes; with a late ACK that costs 40 ms

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.requests.append((self.command, self.path, dict(self.headers), body))
                answer = fake.answers.pop(0) if len(fake.answers) > 1 else fake.answers[0]
                if callable(answer):
                    answer(self)
                    return
                status, headers, content = answer
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(content))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815  # names of http.server

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


def kubeconfig(file: Path, url: str, **user: Any) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user or {"token": SECRET}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(yaml.safe_dump(content))
    return file


def status(code: int, message: str, **headers: str) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    return code, {name.replace("_", "-"): value for name, value in headers.items()}, orjson.dumps(body)
