"""gunicorn and uvicorn around a program: a master that binds the address, and workers that serve on an event loop.

The master restarts a worker that has ended or hangs. SIGTERM and SIGINT end all, within the time that calls in progress
may take; SIGHUP replaces the workers.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from uvicorn_worker import UvicornWorker

from extender.web.app import App
from extender.web.connections import Connection, Connections, Loop
from recommender.base.errors import Misuse
from recommender.base.listening import bound_socket

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 95  # a scheduler keeps idle connections for 90 s, and does not retry a call if we close one meanwhile

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that parses watch events may hold the GIL: a tenth of Python's default, as a call takes about as
long."""

SHUTDOWN_GRACE_S = 5  # grace period of calls in progress at shutdown
HANG_S = 120  # a worker that is silent for so long is replaced; on a busy node its start may take half a minute
BACKLOG = 2048  # connections waiting to be accepted
MAX_CONNECTIONS = 2_000  # at a time; with TLS each takes some 40 KiB
RESERVED_FILES = 500  # file descriptors kept free for watches, logs and handshakes
TEMPORARY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108  other folders of a pod may be read-only


class Server:
    """Serves what `build` makes, which is called in each worker: threads and connections do not survive a fork.

    The address is bound on construction, which raises Misuse if that or the certificate is invalid.
    """

    def __init__(
        self,
        build: Callable[[], App],
        address: str,  # `host:port`
        certificate: Path | None = None,  # PEM like the other files; for https only; reloaded when it changes
        key: Path | None = None,
        client_authority: Path | None = None,  # only clients with a certificate of this authority are accepted
        request_s: float = 5.0,  # timeout for a request head to arrive and for an answer to be read
        max_connections: int = MAX_CONNECTIONS,
        workers: int = 1,  # more than one only without state
    ) -> None:
        self._build, self.workers = build, workers
        self._request_s, self._most = request_s, min(max_connections, _files_limit() - RESERVED_FILES)
        self.options: dict[str, Any] = {
            "loop": f"{Loop.__module__}:{Loop.__name__}",
            "http": self._connection,
            "ws": "none",
            "interface": "asgi3",
            "lifespan": "on",
            "log_config": None,
            "log_level": "error",
            "access_log": False,
            "proxy_headers": False,
            "server_header": False,
            "backlog": BACKLOG,
            "timeout_keep_alive": KEEP_ALIVE_S,
            "timeout_graceful_shutdown": SHUTDOWN_GRACE_S,
            "timeout_notify": 1,
        }
        if certificate is not None:
            context = renewed_context(certificate, key, client_authority)
            self.options["ssl_context_factory"] = lambda *_: context
        self.socket = bound_socket(address)
        # Without it the second of two writes waits 40 ms. Accepted sockets inherit the option.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self.socket.getsockname()[1]

    def load(self) -> Connections:
        """What a worker serves."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._connections = Connections(self._build(), self._request_s, self._most)
        return self._connections

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        master = os.getpid()
        gc.freeze()  # a collection would copy what a worker shares with the master
        try:
            with tempfile.TemporaryFile(dir=TEMPORARY) as owner:
                _Managed(self, owner.fileno()).run()
        except SystemExit as ended:
            if os.getpid() != master:
                os._exit(int(ended.code or 0))  # of a worker: what the master has opened is not its own to close
            raise

    def _connection(self, **given: Any) -> Connection:
        return Connection(self._connections, **given)


class _Worker(UvicornWorker):  # type: ignore[misc]  # gunicorn has no types
    async def callback_notify(self) -> None:
        await super().callback_notify()
        if os.getppid() != self.ppid:  # nobody would end it
            os.kill(os.getpid(), signal.SIGTERM)


class _Log(Logger):  # type: ignore[misc]
    """Logs as everything else does."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers = [*logging.getLogger().handlers]


class _Managed(BaseApplication):  # type: ignore[misc]
    """The settings of gunicorn."""

    def __init__(self, server: Server, owner: int) -> None:
        self._server, self._owner = server, owner
        super().__init__()

    def load_config(self) -> None:
        settings = {
            "bind": f"fd://{self._server.socket.fileno()}",
            "workers": self._server.workers,
            "worker_class": type("Worker", (_Worker,), {"CONFIG_KWARGS": self._server.options}),
            "worker_tmp_dir": TEMPORARY,
            "timeout": HANG_S,
            "backlog": BACKLOG,
            "control_socket_disable": True,
            "logger_class": _Log,
            "loglevel": "warning",
        }
        for name, setting in settings.items():
            self.cfg.set(name, setting)

    def load(self) -> Connections:
        if self._server.workers == 1:  # it owns the state once the worker that it replaces has ended
            fcntl.lockf(self._owner, fcntl.LOCK_EX)
        return self._server.load()


def _files_limit() -> int:
    """Raise the limit of open files to the maximum, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most if most != resource.RLIM_INFINITY else sys.maxsize


def renewed_context(certificate: Path, key: Path | None, client_authority: Path | None) -> ssl.SSLContext:
    """The context of a server; Misuse if the certificate or its key is invalid."""
    load = partial(_context, certificate, key, client_authority)
    try:
        context = load()
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"--tls-certificate: not a valid certificate with its key ({error}).") from error
    context.sni_callback = _Renewal(certificate, load, context)  # called in every handshake
    return context


def _context(certificate: Path, key: Path | None, client_authority: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Renewal:
    """Loads a certificate again, for the handshakes that follow, once its file was replaced."""

    def __init__(self, certificate: Path, load: Callable[[], ssl.SSLContext], first: ssl.SSLContext) -> None:
        self._certificate, self._load, self._context = certificate, load, first
        self._loaded_mtime_ns = certificate.stat().st_mtime_ns

    def __call__(self, handshake: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        try:
            if (mtime_ns := self._certificate.stat().st_mtime_ns) != self._loaded_mtime_ns:
                self._context, self._loaded_mtime_ns = self._load(), mtime_ns
        except (OSError, ssl.SSLError) as error:  # also while the key has not been replaced yet
            log.warning("the new certificate cannot be loaded: %s", error)
        handshake.context = self._context
