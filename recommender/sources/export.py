"""Usage of a Prometheus as one file in normal form, fetched part by part so that an interrupted export can go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from recommender.errors import NotEnoughData
from recommender.files import written_aside
from recommender.sources import parquet
from recommender.sources.base import (
    CPU_COLUMN,
    FACT_COLUMNS,
    LABEL_COLUMNS,
    MEMORY_COLUMN,
    NAME_COLUMNS,
    REQUEST_COLUMNS,
    Progress,
)
from recommender.sources.export_parts import ExportPlan, held_parts
from recommender.sources.prometheus_absence import what_is_there
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_blocks import UsageBlock
from recommender.sources.prometheus_facts import ClassOf, Facts, told_facts
from recommender.sources.prometheus_queries import UsageQueries, UsageSettings, memory_series
from recommender.sources.prometheus_usage import UsageQuery

ENDINGS = (".parquet", ".csv", ".csv.gz")

PART_ROWS = 2_000_000
PART_S = 6 * 3600
"""A part holds as many rows as an interruption may cost, and is at most so long, so that small exports have several."""

_COUNTED_AT = 60
"""At how many moments of the whole export containers are counted, to choose the length of a part."""

_TEXT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [
        ("timestamp", pa.int64()),
        *((name, _TEXT) for name in NAME_COLUMNS),
        (CPU_COLUMN, pa.float64()),
        (MEMORY_COLUMN, pa.float64()),
        *((name, pa.float64()) for name in (*REQUEST_COLUMNS, *FACT_COLUMNS)),
        *((name, _TEXT) for name in LABEL_COLUMNS),
    ]
)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: rows, containers, seconds from first to last moment, and whether requests are among it."""

    rows: int
    containers: int
    first_s: int
    last_s: int
    has_requests: bool


def plan_export(
    client: PrometheusClient,
    settings: UsageSettings,
    asked: Mapping[str, str],
    start_s: float,
    end_s: float,
    step_s: int,
    note: Callable[[str], None],
) -> ExportPlan:
    """Look at what there is, and plan.

    Parameters
    ----------
    asked
        See Plan.
    start_s, end_s
        Unix seconds; moments are whole steps between them, so that exports of one Prometheus fit together.
    note
        Told what the reader of the file should know.

    Raises
    ------
    NotEnoughData
        No container in that time; the message says what Prometheus has instead.
    PrometheusError, Misuse
        No answer; a rate window too short.
    """
    first_s, last_s = math.ceil(start_s / step_s) * step_s, math.floor(end_s / step_s) * step_s
    usage = UsageQuery(client, settings)
    queries = usage.queries(first_s, last_s)
    coarse_s = max(step_s, math.ceil((last_s - first_s) / _COUNTED_AT))
    counted = sum(usage.containers(first_s, last_s, coarse_s).values())
    if not counted and not client.label_values(settings.labels.namespace, memory_series(settings), first_s, last_s):
        raise NotEnoughData(what_is_there(client, settings, first_s, last_s))
    doubled = client.range(queries.doubled(), first_s, last_s, coarse_s).values
    if len(doubled):
        note(
            f"{doubled.max():.0f} containers are scraped more than once (by two jobs?): the largest value is taken. "
            "Choose one by --usage-selector 'job=\"...\"'"
        )
    points = min(PART_ROWS // max(1, round(counted)), PART_S // step_s)
    return ExportPlan(asked, first_s, last_s, step_s, max(1, points), queries.rate_window_s, queries.staleness_s)


def export(
    client: PrometheusClient,
    settings: UsageSettings,
    plan: ExportPlan,
    output: Path,
    progress: Progress,
    class_of: ClassOf,
) -> Exported:
    """Fetch what is not there yet, put all parts together, and remove them.

    Rows are sorted by time, then by container. Whatever ends it, the parts that are done stay for the next attempt.

    Parameters
    ----------
    class_of
        Names the workload class of pods whose labels tell none.

    Raises
    ------
    NotEnoughData
        There was not one sample.
    PrometheusError
        No answer.
    Misuse
        The folder may not be written to, or another process exports to this file.
    """
    usage = UsageQuery(client, settings, UsageQueries(settings, plan.rate_window_s, plan.staleness_s))
    with held_parts(output, plan) as parts:
        windows = plan.windows
        done = set(parts.done())
        progress("parts", len(done), len(windows))
        for number, (begin_s, until_s) in enumerate(windows):
            if number not in done:
                facts = told_facts(client, settings, begin_s, until_s)
                _fetch(usage.blocks(begin_s, until_s, plan.step_s), facts, class_of, parts.file(number))
                done.add(number)
                progress("parts", len(done), len(windows))
        files = [parts.file(number) for number in range(len(windows))]
        columns = _columns_with_values(files)
        if columns is None:
            parts.remove()
            raise NotEnoughData(what_is_there(client, settings, plan.start_s, plan.end_s))
        exported = _assemble(files, columns, output, progress)
        parts.remove()
    return exported


def _fetch(blocks: Iterable[UsageBlock], facts: Facts, class_of: ClassOf, file: Path) -> None:
    with written_aside(file) as aside, pq.ParquetWriter(aside, _SCHEMA, compression="zstd") as writer:
        for block in blocks:
            if len(block):
                writer.write_table(_table(block, facts, class_of))


def _table(block: UsageBlock, facts: Facts, class_of: ClassOf) -> pa.Table:
    owner = pa.array(block.owner, pa.int32())

    def text(of_container: Sequence[str | None]) -> pa.DictionaryArray:
        words = pa.array(of_container, pa.string()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(words.indices.take(owner), words.dictionary)

    of_runs = facts.of(block.containers, block.nodes)
    by_owners = facts.classes(block.containers, class_of)
    classes = [told or owned for told, owned in zip(block.workloads, by_owners, strict=True)]
    return pa.table(
        [
            pa.array(block.timestamps),
            *(text([name[at] for name in block.containers]) for at in range(len(NAME_COLUMNS))),
            *(pa.array(block.usage[:, at]) for at in range(2)),
            *(pa.array(block.requests[:, at], from_pandas=True) for at in range(2)),
            *(pa.array(of_runs[name][block.owner], from_pandas=True) for name in FACT_COLUMNS),
            text(classes),
            text(block.nodes),
        ],
        schema=_SCHEMA,
    )


def _columns_with_values(files: Sequence[Path]) -> list[str] | None:
    """The columns to write: of those that may be empty, the ones that are not; None when there is no row at all."""
    known: set[str] = set()
    rows = 0
    for file in files:
        metadata = pq.read_metadata(file)
        rows += metadata.num_rows
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.statistics.null_count < group.num_rows:
                    known.add(column.path_in_schema)
    return [name for name in _SCHEMA.names if name in known] if rows else None


def _assemble(files: Sequence[Path], columns: list[str], output: Path, progress: Progress) -> Exported:
    """All parts in one file, which appears whole."""
    schema = pa.schema([_SCHEMA.field(name) for name in columns])
    containers: set[tuple[str, ...]] = set()
    rows, first_s, last_s = 0, 0, 0
    with written_aside(output) as aside, _writer(aside, schema) as write:
        for number, file in enumerate(files, start=1):
            for table in parquet.read(file, columns, batched=True):
                write(table)
                names = table.select(list(NAME_COLUMNS)).group_by(list(NAME_COLUMNS)).aggregate([])
                containers.update(zip(*(column.to_pylist() for column in names.columns), strict=True))
                timestamps = table.column("timestamp")
                first_s = first_s if rows else timestamps[0].as_py()
                last_s = timestamps[-1].as_py()
                rows += len(table)
            progress("joining parts", number, len(files))
    return Exported(rows, len(containers), first_s, last_s, REQUEST_COLUMNS[0] in columns)


@contextmanager
def _writer(file: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Writes tables to a file of the kind that its name says."""
    if file.name.endswith(".parquet"):
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer.write_table
        return
    plain = pa.schema([(field.name, pa.string() if field.type == _TEXT else field.type) for field in schema])
    compression = "gzip" if file.name.endswith(".gz") else None
    with pa.output_stream(file, compression=compression) as sink, pacsv.CSVWriter(sink, plain) as writer:
        yield lambda table: writer.write_table(table.cast(plain))
