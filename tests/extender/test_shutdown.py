"""Each server as a process: on SIGTERM it ends at once, with exit status 0."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.fakes.served_commands import running


@pytest.mark.long
@pytest.mark.parametrize("command", [("extender", "serve"), ("controller",), ("webhook",)], ids=lambda words: words[-1])
def test_a_server_ends_on_sigterm_though_a_connection_is_open(command: tuple[str, ...], tmp_path: Path) -> None:
    with running(tmp_path, *command) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
