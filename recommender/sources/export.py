"""Export usage from a Prometheus to one file in normal form, in parts, so that an interrupted export can resume.

The plan and the finished parts are in a folder beside the file. Parts are written atomically: one that exists is whole.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from recommender.base.errors import BadInput, Misuse, NotEnoughData
from recommender.base.files import atomic_write, atomic_write_bytes
from recommender.base.records import Progress
from recommender.base.units import counted, format_time
from recommender.sources import parquet
from recommender.sources.base import (
    FACT_COLUMNS,
    LABEL_COLUMNS,
    NAME_COLUMNS,
    REQUEST_COLUMNS,
    TEXT,
    VALUE_COLUMNS,
    listed,
)
from recommender.sources.paths import UNFINISHED_SUFFIX
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_facts import ClassOf, Facts, query_facts
from recommender.sources.prometheus_queries import UsageQueries, UsageSettings, memory_series
from recommender.sources.prometheus_usage import UsageBlock, UsageQuery

ENDINGS = (".parquet", ".csv", ".csv.gz")

PART_ROWS = 2_000_000
PART_S = 6 * 3600
"""Maximum size and time span of a part: an interruption loses the part that is being fetched."""

_PLAN, _PLAN_SCHEMA = "plan.json", 3

_SCHEMA = pa.schema(
    [
        ("timestamp", pa.int64()),
        *((name, TEXT) for name in NAME_COLUMNS),
        *((name, pa.float64()) for name in VALUE_COLUMNS),
        *((name, TEXT) for name in LABEL_COLUMNS),
    ]
)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is exported; fixed when an export starts, and reused when it resumes.

    `asked`: the command-line options that determine the content of the file, as given.
    `start_s`, `end_s`, `step_s`: first and last unix second, and the step in whole seconds.
    `rate_window_s`, `staleness_s`: as measured by the first attempt.
    """

    asked: Mapping[str, str]
    start_s: int
    end_s: int
    step_s: int
    part_points: int
    rate_window_s: float
    staleness_s: float

    @property
    def windows(self) -> list[tuple[int, int]]:
        """First and last unix second of each part."""
        span_s = self.part_points * self.step_s
        begins_s = range(self.start_s, self.end_s + 1, span_s)
        return [(begin_s, min(begin_s + span_s - self.step_s, self.end_s)) for begin_s in begins_s]


def is_done(part: Path) -> bool:
    """Whether a part exists and is readable; an unreadable one is removed."""
    if not part.exists():
        return False
    try:
        parquet.schema_of(part)
    except BadInput:
        part.unlink()
        return False
    return True


def parts_folder(output: Path) -> Path:
    return output.with_name(output.name + UNFINISHED_SUFFIX)


def unfinished_plan(output: Path, asked: Mapping[str, str]) -> ExportPlan | None:
    """The plan of an interrupted export, None without one; Misuse if it cannot be continued with these options."""
    folder = parts_folder(output)
    if not folder.exists():
        return None
    try:
        document = orjson.loads((folder / _PLAN).read_bytes())
        schema = document.pop("schema")
        plan = ExportPlan(**document) if schema == _PLAN_SCHEMA else None
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        plan = None
    if plan is None:
        if folder.is_dir() and not any(folder.iterdir()):
            return None
        raise Misuse(f"{folder} holds no export that this version can continue. Remove it, or start with --restart.")
    differing = [
        f"{name} was {plan.asked.get(name) or 'not given'}, is {asked.get(name) or 'not given'}"
        for name in sorted({*asked, *plan.asked})
        if asked.get(name) != plan.asked.get(name)
    ]
    if differing:
        raise Misuse(
            f"{folder} holds an unfinished export with other options: {', '.join(differing)}. "
            "Give the same to continue it, or --restart to start over."
        )
    return plan


@contextmanager
def locked_parts(output: Path, plan: ExportPlan) -> Iterator[None]:
    """Create the folder of an export if needed, and lock it; raises Misuse if another process holds the lock."""
    folder = parts_folder(output)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        problem = f"{output}: cannot write here ({(error.strerror or str(error)).lower()})"
        raise Misuse(f"{problem}. Name a file in a folder that you may write to.") from error
    with _locked(folder):
        for stray in folder.glob(".*"):
            stray.unlink()
        document = {"schema": _PLAN_SCHEMA, **asdict(plan)}
        atomic_write_bytes(folder / _PLAN, orjson.dumps(document, option=orjson.OPT_INDENT_2))
        yield


def discard(output: Path) -> None:
    """Remove the parts of an earlier export; Misuse if one is running."""
    folder = parts_folder(output)
    if folder.exists():
        with _locked(folder):
            shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Misuse(f"{folder}: another export is writing here. Wait for it, or name another file.") from error
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class Exported:
    """Summary of an export: rows, containers, first and last unix second, and whether it has requests."""

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
    """Look at the data that are there and plan an export of them; `note` is called with notes for the user.

    Start and end (unix seconds) are rounded inwards to whole steps, so that exports of one Prometheus fit together.

    Raises NotEnoughData: no container in that time; the message says what Prometheus has instead.
    """
    first_s, last_s = math.ceil(start_s / step_s) * step_s, math.floor(end_s / step_s) * step_s
    usage = UsageQuery(client, settings)
    queries = usage.queries(first_s, last_s)
    coarse_s = max(step_s, math.ceil((last_s - first_s) / 60))  # containers are counted at 60 times
    found = sum(usage.containers(first_s, last_s, coarse_s).values())
    if not found and not client.label_values(settings.labels.namespace, memory_series(settings), first_s, last_s):
        raise NotEnoughData(explain_no_data(client, settings, first_s, last_s))
    scraped_twice = client.range(queries.scraped_twice(), first_s, last_s, coarse_s).values
    if len(scraped_twice):
        note(
            f"scraped more than once (by two jobs?): {counted(round(scraped_twice.max()), 'container')}; the largest "
            "value is taken. Choose one by --usage-selector 'job=\"...\"'"
        )
    points = min(PART_ROWS // max(1, round(found)), PART_S // step_s)
    return ExportPlan(asked, first_s, last_s, step_s, max(1, points), queries.rate_window_s, queries.staleness_s)


def export(
    client: PrometheusClient,
    settings: UsageSettings,
    plan: ExportPlan,
    output: Path,
    progress: Progress,
    class_of: ClassOf,
) -> Exported:
    """Fetch the missing parts, join all parts into one file, and remove them.

    Rows are sorted by time, then by container. After an error the finished parts are kept for the next attempt.
    `class_of` names the workload class of pods without a class label.

    Raises NotEnoughData: there is no sample.
    """
    usage = UsageQuery(client, settings, UsageQueries(settings, plan.rate_window_s, plan.staleness_s))
    windows = plan.windows
    files = [parts_folder(output) / f"{number:06d}.parquet" for number in range(len(windows))]
    with locked_parts(output, plan):
        missing = [number for number, file in enumerate(files) if not is_done(file)]
        for done, number in enumerate(missing, start=len(files) - len(missing)):
            progress("parts", done, len(files))
            begin_s, until_s = windows[number]
            facts = query_facts(client, settings, begin_s, until_s)
            _write_part(usage.blocks(begin_s, until_s, plan.step_s), facts, class_of, files[number])
        progress("parts", len(files), len(files))
        columns = _columns_with_values(files)
        exported = _assemble(files, columns, output, progress) if columns else None
        shutil.rmtree(parts_folder(output))
    if exported is None:
        raise NotEnoughData(explain_no_data(client, settings, plan.start_s, plan.end_s))
    return exported


def _write_part(blocks: Iterable[UsageBlock], facts: Facts, class_of: ClassOf, file: Path) -> None:
    with atomic_write(file) as temporary, pq.ParquetWriter(temporary, _SCHEMA, compression="zstd") as writer:
        for block in (whole.without(facts.init_containers) for whole in blocks):
            if len(block):
                writer.write_table(_table(block, facts, class_of))


def _table(block: UsageBlock, facts: Facts, class_of: ClassOf) -> pa.Table:
    owner = pa.array(block.owner, pa.int32())

    def text(by_container: Sequence[str | None]) -> pa.DictionaryArray:
        words = pa.array(by_container, pa.string()).dictionary_encode()
        return pa.DictionaryArray.from_arrays(words.indices.take(owner), words.dictionary)

    run_facts = facts.of(block.containers, block.nodes)
    owner_classes = facts.classes(block.containers, class_of)
    classes = [label or owner_class for label, owner_class in zip(block.workloads, owner_classes, strict=True)]
    return pa.table(
        [
            pa.array(block.timestamps),
            *(text([name[at] for name in block.containers]) for at in range(len(NAME_COLUMNS))),
            *(pa.array(column) for column in block.usage.T),
            *(pa.array(column, from_pandas=True) for column in (*block.requests.T, block.gpu_use)),
            *(pa.array(run_facts[name][block.owner], from_pandas=True) for name in FACT_COLUMNS),
            text(classes),
            text(block.nodes),
            text(facts.owners_of(block.containers)),
        ],
        schema=_SCHEMA,
    )


def _columns_with_values(files: Sequence[Path]) -> list[str]:
    """Columns that have at least one value; none if there is no row."""
    known: set[str] = set()
    for metadata in map(pq.read_metadata, files):
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.statistics.null_count < group.num_rows:
                    known.add(column.path_in_schema)
    return [name for name in _SCHEMA.names if name in known]


def _assemble(files: Sequence[Path], columns: list[str], output: Path, progress: Progress) -> Exported:
    """Join all parts into one file, written atomically."""
    schema = pa.schema([_SCHEMA.field(name) for name in columns])
    containers: set[tuple[str, ...]] = set()
    rows, first_s, last_s = 0, 0, 0
    with atomic_write(output) as temporary, _writer(temporary, schema) as write:
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
    has_requests = not {*REQUEST_COLUMNS}.isdisjoint(columns)
    return Exported(rows, len(containers), first_s, last_s, has_requests)


@contextmanager
def _writer(file: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """A function that writes tables to a file in the format of its extension."""
    if file.name.endswith(".parquet"):
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer.write_table
        return
    plain = pa.schema([(field.name, pa.string() if field.type == TEXT else field.type) for field in schema])
    compression = "gzip" if file.name.endswith(".gz") else None
    with pa.output_stream(file, compression=compression) as sink, pacsv.CSVWriter(sink, plain) as writer:
        yield lambda table: writer.write_table(table.cast(plain))


def explain_no_data(client: PrometheusClient, settings: UsageSettings, start_s: float, end_s: float) -> str:
    """Explain that no container was found: the likeliest reason, and what to change."""
    metric, labels = settings.memory_metric, settings.labels
    nothing = (
        f"no usage of containers between {format_time(start_s)} and {format_time(end_s)}: "
        f"{memory_series(settings)} has no sample that matches one of {settings.cpu_metric}."
    )
    metrics = client.label_values("__name__", '{__name__=~"container_.*"}', start_s, end_s)
    if metric not in metrics and not client.label_names(metric, start_s, end_s):
        if not metrics:
            return f"{nothing} No metric here begins with container_: is /metrics/cadvisor of the kubelets scraped?"
        return f"{nothing} Metrics here are {listed(metrics)}; choose by --memory-metric, --cpu-metric."
    if settings.cpu_metric not in metrics and not client.label_names(settings.cpu_metric, start_s, end_s):
        return (
            f"{nothing} There is no {settings.cpu_metric}. Metrics here are {listed(metrics)}; choose by --cpu-metric."
        )
    names = client.label_names(metric, start_s, end_s)
    missing = [ours for ours, theirs in zip(NAME_COLUMNS, labels.key, strict=True) if theirs not in names]
    if missing:
        return f"{nothing} Its labels are {listed(names)}; map them: --label {missing[0]}=LABEL."
    namespaces = client.label_values(labels.namespace, metric, start_s, end_s)
    if settings.namespaces and not set(settings.namespaces) & set(namespaces):
        return f"{nothing} Namespaces here are {listed(namespaces)}."
    return f"{nothing} The metrics exist: check --selector and --usage-selector, and the time (--since, --until)."
