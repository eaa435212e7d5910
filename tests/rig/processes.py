"""Server processes of a cluster: started in the background, recorded on disk, and stopped by process id."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.rig.waiting import NotInTime, wait_until

TAIL_LINES = 25
READY_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 10.0


class ServerFailed(AssertionError):
    """A server exited or did not become ready; the message names its log and holds its end."""


@dataclass(frozen=True)
class ProcessRecord:
    """Identifies a process across processes: a pid alone may have been reused."""

    pid: int
    created_s: float

    @classmethod
    def of(cls, pid: int) -> ProcessRecord:
        return cls(pid, psutil.Process(pid).create_time())

    @classmethod
    def read(cls, file: Path) -> ProcessRecord | None:
        try:
            return cls(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self)))

    def alive(self) -> psutil.Process | None:
        """The process, if it still runs and is the recorded one."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            if abs(process.create_time() - self.created_s) < 1.0 and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


GO_TUNED = {"GOGC": "300", "GODEBUG": "adaptivestackstart=1"}
"""Cores are scarcer here than memory: rarer garbage collection, and goroutine stacks that start at average size."""
GO_DEFAULTS = {"GOGC": "100", "GODEBUG": ""}
"""For programs whose memory is compared with ours."""
SESSIONS = "PYTEST_XDIST_WORKER_COUNT"
"""Variable in which pytest-xdist has the number of sessions on the machine."""


def go_environment() -> dict[str, str]:
    """Environment for Go servers.

    If several sessions share the machine, a server uses its session's share of the cores: threads that wake each other
    on contended cores cost a quarter of its time.
    """
    if (sessions := int(os.environ.get(SESSIONS, "1"))) == 1:
        return GO_TUNED
    return GO_TUNED | {"GOMAXPROCS": str(max((os.cpu_count() or 1) // sessions, 1))}


class Server:
    """One server process of a cluster.

    It runs in a session of its own, so that Ctrl-C reaches only the program that owns the cluster, which then stops its
    servers in order.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: Sequence[str | Path],
        *,
        ready: Callable[[], object] | None = None,
        environment: Mapping[str, str] | None = None,
        inside: Sequence[str | Path] = (),
    ) -> None:
        self.name = name
        self.command = [*map(str, inside), *map(str, command)]
        self.log = folder / "logs" / f"{name}.log"
        self._record_file = folder / "processes" / f"{name}.json"
        self._passing = folder / "tmp"
        self._ready = ready
        self.environment = dict(environment or {})
        """Variables in addition to the common ones."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        if self.running:
            raise ServerFailed(f"{self.name} already runs as process {self.pid}")
        for needed in (self.log.parent, self._passing):
            needed.mkdir(parents=True, exist_ok=True)
        passing = {"TMPDIR": str(self._passing)}  # keys left by killed clients are removed with the folder
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=go_environment() | os.environ | passing | self.environment,
                start_new_session=True,
            )
        ProcessRecord.of(self._process.pid).write(self._record_file)
        return self

    def wait_ready(self) -> Server:
        """Wait until it is ready; fail at once, with the end of its log, if it exits."""
        if self._ready is None:
            return self
        ready = self._ready

        def ready_or_ended() -> object:
            return not self.running or ready()

        try:
            wait_until(ready_or_ended, f"{self.name} to become ready", timeout_s=READY_TIMEOUT_S, every_s=0.05)
        except NotInTime as error:
            raise ServerFailed(f"{error}\n{self.tail()}") from error
        if not self.running:
            raise ServerFailed(f"{self.name} ended before it was ready.\n{self.tail()}")
        return self

    @property
    def pid(self) -> int | None:
        alive = (record := ProcessRecord.read(self._record_file)) and record.alive()
        return alive.pid if alive else None

    @property
    def running(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            return False
        return self.pid is not None

    @property
    def resident_bytes(self) -> int:
        return int(psutil.Process(pid).memory_info().rss) if (pid := self.pid) else 0

    @property
    def cpu_seconds(self) -> float:
        if not (pid := self.pid):
            return 0.0
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        """Send SIGKILL to all its processes, as when a container runs out of memory."""
        self._signal_all(signal.SIGKILL)
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after a timeout."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Send SIGSTOP: it stays but does not answer."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def reload(self) -> None:
        """Send SIGHUP, on which many servers reload their configuration."""
        if pid := self.pid:
            os.kill(pid, signal.SIGHUP)

    def tail(self) -> str:
        text = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:] if self.log.exists() else ["(no log)"]
        return "\n".join([f"--- {self.log}", *text])

    def _signal_all(self, number: int) -> None:
        """Send a signal to the process and those that it started, which are in its session."""
        if pid := self.pid:
            os.killpg(pid, number)

    def _end(self, number: int) -> None:
        record = ProcessRecord.read(self._record_file)
        if record:
            end_processes([record], number)
        if self._process is not None:
            self._process.wait(STOP_TIMEOUT_S)  # reaps the zombie
            self._process = None
        self._record_file.unlink(missing_ok=True)


def end_processes(records: Iterable[ProcessRecord], number: int = signal.SIGTERM) -> None:
    processes = [process for record in records if (process := record.alive())]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    _, left = psutil.wait_procs(processes, STOP_TIMEOUT_S)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
            process.kill()
    psutil.wait_procs(left, STOP_TIMEOUT_S)


@contextlib.contextmanager
def signals_ignored() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM during the block: `timeout` sends two, and the first is being handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


PORTS = range(12_000, 32_000)
"""Below the kernel's ephemeral ports: a client that keeps trying to reach a restarting server could otherwise get that
port for its own end of a connection, and block it."""


class Ports:
    """Free ports, each given only once."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def free(self, address: str = "127.0.0.1") -> int:
        """A port that nothing listens on."""
        while True:
            port = random.choice(PORTS)  # noqa: S311 - so that two sessions seldom choose the same
            if port in self._given:
                continue
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind((address, port))
                self._given.add(port)
                return port
