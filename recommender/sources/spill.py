"""Sources larger than memory: partition rows by container into temporary files, then sort each partition.

Only a partition has to fit into memory. Afterwards a container is contiguous on disk, and a replay loads one at a time.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from recommender.base.errors import PhasewiseError
from recommender.sources.base import Origins, RawSamples
from recommender.sources.table import SampleTable, build_table

MAX_PARTS = 256
"""Files open at once while partitioning; the usual limit of a process is 1024."""

_COMPRESSED = ipc.IpcWriteOptions(compression="lz4")


def available_memory_bytes() -> int:
    """Memory available on this machine and in the cgroup of this process."""
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
    batches: Iterable[RawSamples], schema: pa.Schema, origins: Origins, n_parts: int, folder: Path
) -> list[SampleTable]:
    """Partition all rows by container, then sort and check each part; one part is in memory at a time.

    `schema`: all columns; those that a batch lacks are empty.
    """
    tables = []
    try:
        for part in _part(batches, schema, folder, max(1, min(n_parts, MAX_PARTS))):
            with pa.OSFile(str(part)) as stream, ipc.open_file(stream) as reader:
                rows = RawSamples.from_tables([reader.read_all()])
            tables.append(_on_disk(build_table([rows], origins), part.with_suffix(".npy")))
            part.unlink()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise PhasewiseError(
            f"the disk is full: {folder} holds data larger than memory while they are sorted. "
            "Free some space, or point TMPDIR to a larger disk."
        ) from error
    return tables


def _part(batches: Iterable[RawSamples], schema: pa.Schema, folder: Path, n_parts: int) -> list[Path]:
    """Write each row to the part given by the hash of its container's name."""
    writers: dict[int, ipc.RecordBatchFileWriter] = {}
    with ExitStack() as stack:
        for raw in batches:
            names = raw.container.dictionary.to_pylist()
            part_of_name = np.array([zlib.crc32(name.encode()) % n_parts for name in names], dtype=np.uint16)
            part_of_row = part_of_name[raw.container.indices.to_numpy()]
            table = raw.as_table()
            empty = {field.name: pa.nulls(len(table), field.type) for field in schema}
            table = pa.table(empty | dict(zip(table.column_names, table.columns, strict=True))).cast(schema)
            for part in np.unique(part_of_row).tolist():
                if part not in writers:
                    target = str(folder / f"{part}.part")
                    writers[part] = stack.enter_context(ipc.new_file(target, schema, options=_COMPRESSED))
                writers[part].write_table(table.take(np.flatnonzero(part_of_row == part)))
    return [folder / f"{part}.part" for part in sorted(writers)]


def _on_disk(table: SampleTable, file: Path) -> SampleTable:
    """Move the numbers of a table to a memory-mapped file."""
    with pa.OSFile(str(file), "wb") as stream:  # np.save does not report a full disk for a path
        np.save(stream, np.stack([table.times_s, *table.values.values()]))
    times_s, *columns = np.asarray(np.load(file, mmap_mode="r"))
    return replace(table, times_s=times_s, values=dict(zip(table.values, columns, strict=True)))
