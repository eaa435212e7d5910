"""Server processes: they become ready or fail naming their log, and none is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.rig import cluster as facade
from tests.rig import rig
from tests.rig.processes import (
    SESSIONS,
    Ports,
    ProcessRecord,
    Server,
    ServerFailed,
    end_processes,
    go_environment,
    signals_ignored,
)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, "sleeper", ["sleep", "600"])
    yield server
    server.kill()


def test_a_server_that_ends_before_it_is_ready_fails_at_once_and_shows_its_log(tmp_path: Path) -> None:
    server = Server(tmp_path, "bad", ["sh", "-c", "echo no such flag >&2; exit 3"], ready=lambda: False)
    with pytest.raises(ServerFailed, match=rf"ended before it was ready(.|\n)*{tmp_path}/logs/bad.log\nno such flag"):
        server.start().wait_ready()


def test_a_killed_server_is_gone_and_can_be_started_again(sleeper: Server) -> None:
    first = sleeper.start().pid
    assert first is not None
    assert sleeper.resident_bytes > 0
    sleeper.kill()
    assert not sleeper.running
    assert not psutil.pid_exists(first)
    assert sleeper.start().pid not in {None, first}


def test_signals_are_ignored_within_the_block_and_handled_after_it() -> None:
    handler = signal.getsignal(signal.SIGINT)
    ended = False
    with signals_ignored():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        ended = True
    assert ended and signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_temporary_files_of_a_killed_server_are_in_the_folder_of_its_cluster(tmp_path: Path) -> None:
    script = "import tempfile, time; print(tempfile.mkstemp()[1], flush=True); time.sleep(600)"
    log = tmp_path / "logs" / "careless.log"
    server = Server(tmp_path, "careless", [sys.executable, "-c", script], ready=lambda: "/" in log.read_text())
    server.start().wait_ready().kill()
    left = Path(log.read_text().strip())
    assert left.exists() and left.is_relative_to(tmp_path)


def test_a_server_does_not_start_twice(sleeper: Server) -> None:
    sleeper.start()
    with pytest.raises(ServerFailed, match="already runs as process"):
        sleeper.start()


def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.rig.processes.STOP_TIMEOUT_S", 0.3)
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    log = tmp_path / "logs" / "deaf.log"
    server = Server(tmp_path, "deaf", [sys.executable, "-c", script], ready=lambda: "deaf" in log.read_text())
    server.start().wait_ready()
    server.stop()
    assert not server.running


def test_a_process_that_reuses_a_recorded_id_is_left_alone() -> None:
    alive = ProcessRecord.of(os.getpid())
    assert alive.alive() is not None
    another = ProcessRecord(os.getpid(), alive.created_s - 100)
    assert another.alive() is None
    end_processes([another], signal.SIGKILL)  # would end this test process


def test_go_servers_use_the_cores_divided_by_the_number_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setenv(SESSIONS, "3")
    assert go_environment()["GOMAXPROCS"] == "1"
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert go_environment()["GOMAXPROCS"] == "5"
    monkeypatch.delenv(SESSIONS)
    assert "GOMAXPROCS" not in go_environment(), "alone it uses all cores"


def test_each_free_port_is_given_out_once() -> None:
    ports = Ports()
    given = [ports.free() for _ in range(50)]
    assert len(set(given)) == 50
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", given[0]))


OWNER = """
import os, sys
sys.path.insert(0, {root!r})
from tests.rig.processes import ProcessRecord, Server
from pathlib import Path
folder = Path({folder!r})
ProcessRecord.of(os.getpid()).write(folder / "owner.json")
print(Server(folder, "sleeper", ["sleep", "600"]).start().pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("kept", [False, True], ids=["test run", "kept cluster"])
def test_the_next_start_clears_what_a_killed_owner_left_unless_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(rig.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = rig.clusters_folder() / "crashed"
    folder.mkdir(parents=True)
    if kept:
        (folder / facade.KEPT).touch()
    root = str(Path(__file__).parents[2])
    owner = [sys.executable, "-c", OWNER.format(root=root, folder=str(folder))]
    pid = int(subprocess.run(owner, capture_output=True, text=True, check=False).stdout)
    assert psutil.pid_exists(pid)
    facade.clear_leftovers()
    assert folder.exists() == kept
    assert psutil.pid_exists(pid) == kept
    facade.clear(folder)
    assert not psutil.pid_exists(pid)


def test_the_cluster_of_a_running_test_run_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = rig.clusters_folder() / "running"
    ProcessRecord.of(os.getpid()).write(folder / "owner.json")
    facade.clear_leftovers()
    assert folder.exists()
