"""Exports of other tools, recognised by their first lines and brought into normal form.

Wide tables, such as Grafana's, have a column for each container, with its CPU or its memory; Datadog has a row for each
metric; `kubectl top` prints a table at a time. A sample may come from two files, one with CPU and one with memory.
Exports with one row per sample and other names, such as CloudWatch's, need none of this: see `mapping.ALIASES`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa

from recommender.base.errors import BadInput, Misuse
from recommender.base.units import parse_time_s
from recommender.sources.base import CPU_COLUMN, MEMORY_COLUMN, NAME_COLUMNS, VALUE_COLUMNS, Reader
from recommender.sources.columns import NULL_VALUES, Resolve, table_reader
from recommender.sources.mapping import ALIASES
from recommender.sources.paths import open_decompressed

HEAD_BYTES = 1 << 16

_TIME_NAMES = ("time", "timestamp", "date", "datetime", "")
_CPU, _MEMORY = re.compile(r"cpu|cores?\b", re.IGNORECASE), re.compile(r"mem|rss|working.?set|bytes", re.IGNORECASE)
_MEMORY_CELL, _CPU_CELL = re.compile(r"\d\s*([kKMGT]i?B|[KMGT]i|B|bytes)$"), re.compile(r"\d\s*(m|n|cores?|%)$")
_AMOUNT = re.compile(r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?\s*[A-Za-zµ%]*")
_LABEL = re.compile(r'([a-zA-Z_][\w.]*)\s*[=:]\s*"?([^",{}]*)"?')
_NAMES: Mapping[str, Sequence[str]] = {
    "namespace": ("namespace", "kube_namespace"),
    "pod": ("pod", "pod_name"),
    "container": ("container", "container_name", "kube_container_name"),
}
"""Labels of a series that name its container."""

_DATE_FORMATS = ("%a %b %d %H:%M:%S %Z %Y", "%a %d %b %Y %I:%M:%S %p %Z", "%a %d %b %H:%M:%S %Z %Y")
"""What `date` prints in several locales."""

NANOCORE_METRICS = ("kubernetes.cpu.usage.total", "container.cpu.usage")

TOP_REMEDY = "Print the time before each table: `while sleep 15; do date -Is; kubectl top pods --containers; done`."


def open_foreign(file: Path, resolve: Resolve) -> Reader | None:
    """Make the reader of a file in the form of another tool; None if it has none of these forms."""
    head: list[str] = []
    with suppress(OSError), open_decompressed(file) as stream:  # a damaged file is reported by the reader of CSV
        head = stream.read(HEAD_BYTES).decode("utf-8-sig", "replace").splitlines()
    lines = [line for line in head if line.strip()]
    first = next(iter(lines), "")
    if first.lower().startswith("sep="):  # for Excel
        lines, first = lines[1:], next(iter(lines[1:]), "")
    if any(_is_top_header(line) for line in lines[:5]):
        rows = _top_rows(file, _all_lines(file))
    else:
        delimiter = max(",;\t", key=first.count)
        header = next(csv.reader([first], delimiter=delimiter), [])
        names = [name.strip() for name in header]
        of_metrics = {"metric", "value"} <= {name.lower() for name in names}
        if (
            not names
            or names[0].lower() not in _TIME_NAMES
            or not (of_metrics or _is_wide(names, lines[1:], delimiter))
        ):
            return None
        table = _read(file, delimiter, skipped=head[0].lower().startswith("sep="))
        rows = _metric_rows(file, table) if of_metrics else _wide_rows(file, table)
    frame = pd.DataFrame(rows, columns=["timestamp", "container", CPU_COLUMN, MEMORY_COLUMN], dtype=object)
    converted = pa.table({name: pa.array(frame[name], pa.string()) for name in frame})
    return table_reader(
        file, converted.column_names, resolve, len(frame), lambda roles, _: [converted.select(roles.raw_columns)]
    )


def _is_wide(names: Sequence[str], lines: Sequence[str], delimiter: str) -> bool:
    """Whether all columns but the first are amounts, and none has a name of ours or another that we know."""
    known = {*names, *(ALIASES[name][0] for name in names if name in ALIASES)}
    if len(names) < 2 or {*NAME_COLUMNS, *VALUE_COLUMNS} & known or not lines:
        return False
    rows = list(csv.reader(lines[:5], delimiter=delimiter))
    return all(_AMOUNT.fullmatch(cell.strip()) or cell.strip() in NULL_VALUES for row in rows for cell in row[1:])


def _all_lines(file: Path) -> Iterator[str]:
    with open_decompressed(file) as stream:
        yield from stream.read().decode("utf-8-sig", "replace").splitlines()


def _read(file: Path, delimiter: str, *, skipped: bool) -> pd.DataFrame:
    """A table of texts; decimal commas, where semicolons separate, become points."""
    with open_decompressed(file) as stream:
        try:
            table = pd.read_csv(
                stream,
                sep=delimiter,
                dtype=str,
                skiprows=1 if skipped else 0,
                keep_default_na=False,
                encoding="utf-8-sig",
            )
        except (pd.errors.ParserError, UnicodeDecodeError) as error:
            problem = f"cannot be read ({' '.join(str(error).split())[:160]})"
            raise BadInput(problem, remedy="Correct it or export it again.", file=file) from error
    table.columns = [str(name).strip() for name in table.columns]
    if delimiter == ";":
        table = table.apply(lambda column: column.str.replace(r"(\d),(\d)", r"\1.\2", regex=True))
    return table


def _wide_rows(file: Path, table: pd.DataFrame) -> list[tuple[str | None, ...]]:
    """Rows of a table with a time and a column for each container."""
    time, *others = table.columns
    rows: list[tuple[str | None, ...]] = []
    for name in others:
        cells = table[name].str.strip()
        known = ~cells.isin(NULL_VALUES)
        is_cpu = _is_cpu(file, name, next(iter(cells[known]), ""))
        for at, cell in zip(table[time][known], cells[known], strict=True):
            rows.append((at, container_of(name), cell, None) if is_cpu else (at, container_of(name), None, cell))
    return rows


def _is_cpu(file: Path, name: str, cell: str) -> bool:
    """Whether a column is of CPU rather than memory: by the unit of its cells, its title, or the name of its file."""
    for cpu, memory, text in ((_CPU_CELL, _MEMORY_CELL, cell), (_CPU, _MEMORY, name), (_CPU, _MEMORY, file.name)):
        if bool(cpu.search(text)) != bool(memory.search(text)):
            return bool(cpu.search(text))
    raise BadInput(
        f"a table with a column for each container, and nothing tells whether {name!r} is CPU or memory",
        remedy="Name one file cpu.csv and the other memory.csv, and give both.",
        file=file,
        column=name,
    )


def container_of(title: str) -> str:
    """The container that a series is of, from its labels, or else its title without words for CPU and memory.

    >>> container_of('{namespace="ml", pod="bert-0", container="main"}')
    'ml/bert-0/main'
    >>> container_of("bert-0 cpu"), container_of("kube_namespace:ml,pod_name:bert-0")
    ('bert-0', 'ml/bert-0')
    """
    labels = dict(_LABEL.findall(title))
    parts = [next((labels[name] for name in names if labels.get(name)), "") for names in _NAMES.values()]
    if any(parts):
        return "/".join(part for part in parts if part)
    words = [word for word in title.split() if not (_CPU.search(word) or _MEMORY.search(word))]
    return " ".join(words) or title


def _metric_rows(file: Path, table: pd.DataFrame) -> list[tuple[str | None, ...]]:
    """Rows of a table with a time, a metric, tags and a value."""
    of = {name.lower(): name for name in table.columns}
    tags = next((of[name] for name in ("group", "tags", "scope", "series") if name in of), None)
    named = [of[name] for names in _NAMES.values() for name in names if name in of]
    if tags is None and not named:
        remedy = "Group the query by namespace, pod and container, and export it again."
        raise BadInput("no column names the containers", remedy=remedy, file=file)
    rows: list[tuple[str | None, ...]] = []
    for row in table.to_dict("records"):
        metric, value = row[of["metric"]].strip(), row[of["value"]].strip()
        container = "/".join(row[name] for name in named) if named else container_of(row[tags])
        if value in NULL_VALUES:
            continue
        is_cpu = _is_cpu(file, metric, value)
        if is_cpu and any(one in metric for one in NANOCORE_METRICS):
            value += "n"
        at = row[table.columns[0]]
        rows.append((at, container, value, None) if is_cpu else (at, container, None, value))
    return rows


def _is_top_header(line: str) -> bool:
    return "CPU(cores)" in line and "MEMORY(bytes)" in line


def _top_rows(file: Path, lines: Iterator[str]) -> list[tuple[str | None, ...]]:
    """Rows of the tables of `kubectl top pods`, with the time that is printed before each, or first in each line."""
    rows: list[tuple[str | None, ...]] = []
    columns: list[str] = []
    table_time = ""
    for line in lines:
        words = line.split()
        if _is_top_header(line):
            columns = [word for word in words if word.isupper() or "(" in word]
        elif (time := _time_of(line.strip())) is not None:
            table_time = time
        elif columns and len(words) >= len(columns):
            at = _time_of(" ".join(words[: -len(columns)])) or table_time
            if not at:
                raise BadInput("tables of `kubectl top` without their times", remedy=TOP_REMEDY, file=file)
            cells = dict(zip(columns, words[-len(columns) :], strict=True))
            name = "/".join(cells[part] for part in ("NAMESPACE", "POD", "NAME") if part in cells)
            rows.append((at, name, cells["CPU(cores)"], cells["MEMORY(bytes)"]))
    return rows


def _time_of(text: str) -> str | None:
    """Unix seconds of a time as `date` prints it; None for other text."""
    if not text or not re.search(r"\d", text):
        return None
    with suppress(Misuse):
        seconds = parse_time_s(text)
        return f"{seconds:.0f}" if seconds > 1e8 else None
    for form in _DATE_FORMATS:
        with suppress(ValueError):
            return f"{datetime.strptime(f'{text} +0000', f'{form} %z').timestamp():.0f}"
    return None
