"""Each server as processes: a master, and workers that it stops and replaces."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

import orjson
import psutil
import pytest

from tests.fakes.served_commands import running
from tests.rig.waiting import wait_until

pytestmark = pytest.mark.long
COMMANDS = [("extender", "serve"), ("controller",), ("webhook",), ("web",)]


def workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children()


def answers(address: tuple[str, int], path: str = "/healthz", *, tls: bool = False) -> str:
    """What is answered with status 200; empty if nothing is."""
    context = ssl._create_unverified_context()  # noqa: S323  as of the monitors
    connection = (
        HTTPSConnection(*address, timeout=30.0, context=context) if tls else HTTPConnection(*address, timeout=30.0)
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.read().decode() if answer.status == 200 else ""
    except (OSError, HTTPException):
        return ""
    finally:
        connection.close()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[-1])
def test_a_server_ends_on_sigterm_though_a_connection_is_open(command: tuple[str, ...], tmp_path: Path) -> None:
    with running(tmp_path, *command) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_worker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, "controller") as (process, address):
        wait_until(lambda: answers(address), "an answer")
        (killed,) = workers(process)
        killed.kill()
        wait_until(lambda: [each for each in workers(process) if each != killed], "another worker")
        wait_until(lambda: answers(address), "an answer of the new one")


STATEFUL = """
import logging, os
from extender.web.app import App, Telemetry
from extender.web.server import Server
from recommender.cli.logs import set_up_logging

class Part:
    def start(self):
        logging.info("start %d", os.getpid())

    def stop(self):
        logging.info("stop %d", os.getpid())

def build():
    logging.info("build %d", os.getpid())
    app = App(Telemetry("stub"), {}, lambda: "")
    app.parts = [Part()]
    return app

set_up_logging("json", "info")
Server(build, "127.0.0.1:0").run()
"""


def test_on_sighup_a_worker_is_replaced_and_the_new_one_has_no_state_before_the_former_has_stopped() -> None:
    """Two would hold a Lease under one name, or answer from different views. Everything is still logged once."""
    with subprocess.Popen([sys.executable, "-c", STATEFUL], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        logged = (orjson.loads(line)["message"].split() for line in process.stderr)
        try:
            built, started = next(logged), next(logged)
            process.send_signal(signal.SIGHUP)
            stopped, built_again, started_again = next(logged), next(logged), next(logged)
        finally:
            process.terminate()
    assert (built[0], started, stopped) == ("build", ["start", built[1]], ["stop", built[1]])
    assert (built_again[0], started_again[0]) == ("build", "start")
    assert built_again[1] == started_again[1] != built[1]


def test_workers_do_not_outlive_their_master(tmp_path: Path) -> None:
    with running(tmp_path, "controller") as (process, address):
        wait_until(lambda: answers(address), "an answer")
        left = workers(process)
        process.kill()
        assert psutil.wait_procs(left, timeout=30)[1] == []


def test_a_scrape_of_the_webhook_has_the_calls_of_both_workers(tmp_path: Path) -> None:
    counters = tmp_path / "counters"
    counters.mkdir()
    with running(tmp_path, "webhook", PROMETHEUS_MULTIPROC_DIR=str(counters)) as (process, address):
        wait_until(lambda: answers(address, tls=True), "an answer")
        wait_until(lambda: len(workers(process)) == 2, "two workers")
        for _ in range(20):  # of a connection each, so that both get some
            answers(address, "/nowhere", tls=True)
        wait_until(lambda: len(list(counters.glob("counter_*"))) == 2, "both to count")
        page = answers(address, "/metrics", tls=True)
        assert re.findall(r'phasewise_webhook_calls_total\{status="404",verb="page"\} (\S+)', page) == ["20.0"]
