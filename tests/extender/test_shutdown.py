"""Each server as a process: on SIGTERM it ends at once, with exit status 0."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from local_cluster.waiting import wait_until
from placement_bench.worlds import node_json
from tests.fakes.served_commands import fake_api, kubeconfig


@pytest.mark.long
@pytest.mark.parametrize("command", [("extender", "serve"), ("controller",), ("webhook",)], ids=lambda words: words[-1])
def test_a_server_ends_on_sigterm_though_a_connection_is_open(command: tuple[str, ...], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = ("127.0.0.1", int(free.getsockname()[1]))
    with fake_api(nodes=[node_json("a")]) as api, socket.socket() as silent:
        options = ["--kubeconfig", str(kubeconfig(tmp_path, here=api)), "--address", "{}:{}".format(*address)]
        process = subprocess.Popen([sys.executable, "-m", "extender", *command, *options])
        try:
            wait_until(lambda: silent.connect_ex(address) == 0, "the server to listen", timeout_s=120, every_s=0.001)
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
