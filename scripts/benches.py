"""What all benches begin with: they end when they are told to, and say when and on what they ran."""

from __future__ import annotations

import os
import platform
import signal
from datetime import UTC, datetime

STOPPED = 130
"""The exit code of one that was told to end."""


def end_when_told() -> None:
    """SIGINT and SIGTERM become a `KeyboardInterrupt`, also where a shell has them ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def here_and_now() -> dict[str, str]:
    """The facts `date` and `machine`."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
