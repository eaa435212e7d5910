"""gunicorn around the application: one worker, as state has one owner; threads, as calls of schedulers overlap."""

from __future__ import annotations

import gc
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from ssl import CERT_REQUIRED, SSLSocket
from typing import Any, Protocol

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import ThreadWorker

from extender.web.machine import end_with_the_master, keep_memory, take_short_turns

KEEP_ALIVE_S = 95
"""A scheduler keeps an idle connection for 90 s and does not repeat a call on one that is closed under it."""

STAY_S = 0.1
"""How long a thread waits for the next request of a connection; longer than a scheduler needs between two calls."""

SWITCH_S = 0.0005
"""How long a thread may hold the interpreter: ten times shorter than usual, since a call lasts about as long."""

GARBAGE = (10_000, 20, 100)
"""A call would be searched for cycles several times by default. The few it leaves, of the web framework, hold its body:
they are collected every dozens of calls."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Where and how to listen.

    Attributes
    ----------
    address
        `host:port`.
    certificate, key
        PEM files; with them https is spoken, and nothing else.
    client_authority
        PEM file: only clients with a certificate of this authority are let in.
    threads
        Calls answered at a time.
    """

    address: str
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None
    threads: int = 8


QUICK = "phasewise-quick"
"""Under this name Flask's `extensions` hold the `Shortcut` of an application."""


class Shortcut(Protocol):
    """Answers requests without the web server."""

    def serve(self, connection: socket.socket) -> bool | bytes:
        """Answer one, and say whether the connection may be used again; or give back what was read."""


class Worker(ThreadWorker):  # type: ignore[misc]  # it comes without types
    """gunicorn's threads, each of which stays with a connection for a moment after an answer.

    A scheduler asks again within milliseconds. Handing the connection to the main thread and back would take as long as
    a quarter of an answer; reading its request and writing the answer in general as long as another half: where the
    application has a way around that (`QUICK`) it is tried first, but for the first request of a connection.
    """

    _quick: Shortcut | None = None

    def load_wsgi(self) -> None:
        super().load_wsgi()
        self._quick = getattr(self.wsgi, "extensions", {}).get(QUICK)

    def handle(self, conn: Any) -> Any:
        if conn.initialized:
            conn.sock.setblocking(True)
        waiting = select.poll()
        waiting.register(conn.sock, select.POLLIN)
        told = self._answer(conn)
        while told is True and self.alive and _more_comes(conn, waiting):
            told = self._answer(conn)
        return told

    def _answer(self, conn: Any) -> Any:
        """One request. A worker that ends says so in its answers, which is left to gunicorn."""
        if self._quick is None or not self.alive or not conn.initialized or conn.is_http2 or _ahead(conn):
            return super().handle(conn)
        try:
            told = self._quick.serve(conn.sock)
        except OSError as error:
            self.log.debug("a connection broke: %s", error)
            return False
        if isinstance(told, bytes):
            conn.parser.unreader.unread(told)
            return super().handle(conn)
        return told


def _ahead(conn: Any) -> bytes:
    """What gunicorn has read of the next request."""
    read: bytes = conn.parser.unreader.buf.getvalue()
    return read


def _more_comes(conn: Any, waiting: select.poll) -> bool:
    """Whether the next request begins to arrive within `STAY_S`; gunicorn looks after what was read ahead."""
    if conn.is_http2 or _ahead(conn):
        return False
    if isinstance(conn.sock, SSLSocket) and conn.sock.pending():
        return True
    return bool(waiting.poll(1000 * STAY_S))


class Server(BaseApplication):  # type: ignore[misc]  # it comes without types
    """Serves until SIGTERM.

    Parameters
    ----------
    start
        Called in the worker process: makes the application, and starts what belongs to it.
    stop
        Called when the worker ends.
    """

    def __init__(self, serving: Serving, start: Callable[[], Flask], stop: Callable[[], None]) -> None:
        self._serving, self._start, self._stop = serving, start, stop
        super().__init__()

    def load_config(self) -> None:
        serving = self._serving
        options: dict[str, Any] = {
            "bind": serving.address,
            "workers": 1,
            "worker_class": Worker,
            "threads": serving.threads,
            "keepalive": KEEP_ALIVE_S,
            "graceful_timeout": 5,
            "control_socket_disable": True,
            "loglevel": "warning",
            "worker_exit": lambda _arbiter, _worker: self._stop(),
        }
        if serving.certificate is not None:
            options |= {"certfile": str(serving.certificate), "keyfile": str(serving.key or serving.certificate)}
        if serving.client_authority is not None:
            options |= {"ca_certs": str(serving.client_authority), "cert_reqs": CERT_REQUIRED}
        for name, setting in options.items():
            self.cfg.set(name, setting)

    def load(self) -> Flask:
        sys.setswitchinterval(SWITCH_S)
        gc.set_threshold(*GARBAGE)
        keep_memory()
        end_with_the_master()
        take_short_turns()
        return self._start()
