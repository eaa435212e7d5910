"""Shared by all benchmarks: signals, progress, the facts of a run, tables and JSON."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
"""Python puts `scripts/` on the path by itself; this adds the root of the repository."""

STDERR = Console(stderr=True, width=None if sys.stderr.isatty() else 160)

Columns = Mapping[str, Callable[[Any], str]]
"""Column header -> the text of its cell, given the object of a row."""


class CommaList(click.ParamType[list[str]]):
    """A comma list of known names; gives a list of them, in the order of the user."""

    name = "comma list"

    def __init__(self, known: Iterable[str], *, may_be_empty: bool = False) -> None:
        self._known, self._may_be_empty = tuple(known), may_be_empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        chosen = [name for part in value.split(",") if (name := part.strip())]
        if unknown := [name for name in chosen if name not in self._known]:
            self.fail(f"no {', '.join(unknown)}; there are {', '.join(self._known)}", param, ctx)
        if not (chosen or self._may_be_empty):
            self.fail("the list is empty", param, ctx)
        return chosen


def interrupt_on_signals() -> None:
    """Raise `KeyboardInterrupt` on SIGINT and SIGTERM, even if the shell ignores them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


@contextmanager
def reported_errors(*expected: type[Exception]) -> Iterator[None]:
    """End the program with the message of an expected error, or with exit code 130 after an interrupt."""
    try:
        yield
    except expected as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        log_progress("stopped; all that was started is ended")
        sys.exit(130)


def run_facts() -> dict[str, str]:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def log_progress(line: str) -> None:
    STDERR.print(line, highlight=False, markup=False)


def progress_bars() -> Progress:
    """Progress bars on stderr with counts and elapsed time."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=STDERR
    )


def table_console(width: int) -> Console:
    """Console for tables: as wide as the terminal, or `width` columns if stdout is no terminal."""
    return Console(width=None if sys.stdout.isatty() else width)


def table(title: str, *headers: str, text_columns: int = 1) -> Table:
    """Empty table whose first `text_columns` columns are left-aligned and the others right-aligned."""
    empty = Table(title=title, title_justify="left")
    for number, header in enumerate(headers):
        empty.add_column(header, justify="left" if number < text_columns else "right")
    return empty


def table_of(title: str, name_header: str, rows: Mapping[str, Any], columns: Columns) -> Table:
    """Table with a row per entry of `rows`, named in the first column."""
    filled = table(title, name_header, *columns)
    for name, row in rows.items():
        filled.add_row(name, *(cell(row) for cell in columns.values()))
    return filled


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON; dataclasses become objects."""
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY))
