"""What benches have in common: how they end, when and on what they ran, their tables and their JSON."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
"""A script finds what lies beside it; what lies above `scripts/` it finds from here on."""

STOPPED = 130
"""The exit code of one that was told to end."""

STDERR = Console(stderr=True, width=None if sys.stderr.isatty() else 160)

Columns = Mapping[str, Callable[[Any], str]]
"""The head of each column, and what stands in it of what its row is about."""


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


def tell(words: str) -> None:
    """One line of progress."""
    STDERR.print(words, highlight=False, markup=False)


def counting() -> Progress:
    """Bars of what is counted, and how long it takes."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=STDERR
    )


def wide(width: int) -> Console:
    """Where tables are printed: so wide where nobody looks at a terminal."""
    return Console(width=None if sys.stdout.isatty() else width)


def table(title: str, *heads: str, words: int = 1) -> Table:
    """A table of which so many columns hold words, and those behind them figures."""
    made = Table(title=title, title_justify="left")
    for place, head in enumerate(heads):
        made.add_column(head, justify="left" if place < words else "right")
    return made


def table_of(title: str, what: str, rows: Mapping[str, Any], columns: Columns) -> Table:
    """A row for each of these, its name under the head `what`."""
    made = table(title, what, *columns)
    for name, row in rows.items():
        made.add_row(name, *(cell(row) for cell in columns.values()))
    return made


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """For programs; dataclasses become objects."""
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
