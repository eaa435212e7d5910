"""Sources larger than memory: rows are parted by container into temporary files, then sorted part by part.

Afterwards every container lies in one piece on disk, so that a replay holds one at a time. A single container must fit
into memory; nothing else must.
"""

from __future__ import annotations

import errno
import os
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from recommender.errors import PhasewiseError
from recommender.records import FloatArray, IntArray
from recommender.series import ContainerSamples
from recommender.sources.base import Origins, RawSamples
from recommender.sources.table import SampleTable, build

MOST_PARTS = 256
"""Files open at once while parting; the usual limit of a process is 1024."""

_VALUE = "value "
_COMPRESSED = ipc.IpcWriteOptions(compression="lz4")


def available_memory_bytes() -> int:
    """What the machine, and the control group this process is in, still have to give."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    sizes = dict(line.split(":") for line in meminfo.read_text().splitlines() if ":" in line)
    free = int(sizes["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        if (group / limit).exists():
            text = (group / limit).read_text().strip()
            if text.isdigit():
                free = min(free, max(int(text) - int((group / used).read_text()), 0))
    return free


def spill(
    batches: Iterable[RawSamples],
    values: Sequence[str],
    labels: Sequence[str],
    origins: Origins,
    n_parts: int,
) -> SpilledTable:
    """Part all rows by container, then sort and check each part; only one part is in memory at a time.

    Parameters
    ----------
    values, labels
        Every column that may come; what a batch lacks is empty.
    n_parts
        How many parts; capped at MOST_PARTS.

    Raises
    ------
    BadInput
        As `build` does.
    PhasewiseError
        The disk is full.
    """
    folder = tempfile.TemporaryDirectory(prefix="phasewise-")
    try:
        parts = _part(batches, values, labels, Path(folder.name), max(1, min(n_parts, MOST_PARTS)))
        table = SpilledTable(folder)
        for part in parts:
            table.add(build([_read_part(part, values, labels)], origins), part.with_suffix(".sorted"))
            part.unlink()
    except BaseException as error:
        folder.cleanup()
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise PhasewiseError(
                f"the disk is full: {folder.name} holds data larger than memory while they are sorted. "
                "Make room, or point TMPDIR to a larger disk."
            ) from error
        raise
    return table


def _column(name: str) -> str:
    return _VALUE + name


def _schema(values: Sequence[str], labels: Sequence[str]) -> pa.Schema:
    """Rows on their way; columns are told apart by a prefix, since a feature may be called anything."""
    fields = [("container", pa.string()), ("time_s", pa.float64()), ("row", pa.int64())]
    fields += [(_column(name), pa.float64()) for name in values]
    fields += [(f"label {name}", pa.string()) for name in labels]
    return pa.schema(fields)


def _part(
    batches: Iterable[RawSamples], values: Sequence[str], labels: Sequence[str], folder: Path, n_parts: int
) -> list[Path]:
    """Write each row to the part that its container's name falls into."""
    schema = _schema(values, labels)
    writers: dict[int, ipc.RecordBatchFileWriter] = {}
    with ExitStack() as stack:
        for raw in batches:
            names = raw.container.dictionary.to_pylist()
            part_of_name = np.array([zlib.crc32(name.encode()) % n_parts for name in names], dtype=np.uint16)
            part_of_row = part_of_name[raw.container.indices.to_numpy()]
            order = np.argsort(part_of_row, kind="stable")
            table = _as_table(raw, values, labels, schema).take(pa.array(order))
            ends = np.searchsorted(part_of_row[order], np.arange(n_parts + 1))
            for part, (begin, end) in enumerate(pairwise(ends.tolist())):
                if begin == end:
                    continue
                if part not in writers:
                    target = str(folder / f"{part}.part")
                    writers[part] = stack.enter_context(ipc.new_file(target, schema, options=_COMPRESSED))
                writers[part].write_table(table.slice(begin, end - begin))
    return [folder / f"{part}.part" for part in sorted(writers)]


def _as_table(raw: RawSamples, values: Sequence[str], labels: Sequence[str], schema: pa.Schema) -> pa.Table:
    nothing = np.full(len(raw), np.nan)
    columns: list[pa.Array] = [raw.container.dictionary_decode(), pa.array(raw.times_s), pa.array(raw.rows)]
    columns += [pa.array(raw.values.get(name, nothing)) for name in values]
    columns += [
        raw.labels[name].dictionary_decode() if name in raw.labels else pa.nulls(len(raw), pa.string())
        for name in labels
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _read_part(part: Path, values: Sequence[str], labels: Sequence[str]) -> RawSamples:
    with pa.OSFile(str(part)) as stream, ipc.open_file(stream) as reader:
        table = reader.read_all().combine_chunks()

    def texts(name: str) -> pa.DictionaryArray:
        return table.column(name).chunk(0).dictionary_encode()

    def numbers(name: str) -> NDArray[Any]:
        return np.asarray(table.column(name).to_numpy())

    return RawSamples(
        texts("container"),
        numbers("time_s"),
        {name: numbers(_column(name)) for name in values},
        {name: texts(f"label {name}") for name in labels},
        numbers("row"),
    )


class SpilledTable:
    """The counterpart of SampleTable on disk: the same facts, samples read back one container at a time."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str]) -> None:
        self._folder = folder
        self._places: dict[str, tuple[Path, int]] = {}
        self._labels: dict[str, dict[str, tuple[str | None, ...]]] = {}
        self._digests: dict[str, bytes] = {}
        self._intervals: list[tuple[IntArray, IntArray]] = []
        self._extents: dict[str, tuple[float, float, int, float]] = {}
        self.duplicates = 0
        self.relabelled: tuple[tuple[str, str], ...] = ()

    def add(self, table: SampleTable, file: Path) -> None:
        """Write one sorted part, a record batch per container."""
        schema = pa.schema([("time_s", pa.float64()), *((name, pa.float64()) for name in map(_column, table.values))])
        with ipc.new_file(str(file), schema, options=_COMPRESSED) as writer:
            for at, name in enumerate(table.names):
                rows = slice(int(table.starts[at]), int(table.starts[at + 1]))
                columns = [table.times_s[rows], *(column[rows] for column in table.values.values())]
                writer.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=schema))
                self._places[name] = (file, at)
                self._labels[name] = {label: (texts[at],) for label, texts in table.labels.items()}
        parts = (part.tolist() for part in table.extents())
        self._extents.update(zip(table.names, zip(*parts, strict=True), strict=True))
        self._digests.update(table.digests())
        self._intervals += table.intervals()
        self.duplicates += table.duplicates
        self.relabelled += table.relabelled

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Sorted container names."""
        return tuple(sorted(self._places))

    def intervals(self) -> list[tuple[IntArray, IntArray]]:
        """Interval counts of each part, as `median_interval_s` takes them."""
        return self._intervals

    def extents(self) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """As SampleTable's."""
        first, last, count, interval_s = zip(*(self._extents[name] for name in self.names), strict=True)
        return np.array(first), np.array(last), np.array(count), np.array(interval_s)

    def digests(self) -> list[tuple[str, bytes]]:
        """As SampleTable's."""
        return sorted(self._digests.items())

    def samples(self, at: int, features: Sequence[str]) -> ContainerSamples:
        """Container number `at` in the order of names."""
        name = self.names[at]
        file, number = self._places[name]
        with pa.OSFile(str(file)) as stream, ipc.open_file(stream) as reader:
            batch = reader.get_batch(number)
        times_s, *columns = (column.to_numpy() for column in batch.columns)
        values = {
            field.name.removeprefix(_VALUE): column
            for field, column in zip(list(batch.schema)[1:], columns, strict=True)
        }
        starts = np.array([0, len(times_s)], dtype=np.int64)
        return SampleTable((name,), starts, times_s, values, self._labels[name]).samples(0, features)

    def close(self) -> None:
        """Remove the temporary files."""
        self._folder.cleanup()
