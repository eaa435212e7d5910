"""Plausibility checks on whole columns; the bad row is searched for only after a check has failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recommender.base.errors import BadInput, Misuse
from recommender.base.records import BoolArray, FloatArray
from recommender.base.units import BYTES_PER_GIB, BYTES_PER_MIB, format_cpu, format_duration, format_memory
from recommender.sources.base import CPU_COLUMN, INPUT_COLUMN, MEMORY_COLUMN, VALUE_COLUMNS, Origins, RawSamples
from recommender.sources.mapping import TIME_COLUMNS
from recommender.sources.series import FINEST_STEP_S

LARGEST_NUMBER = 1e30
"""The sums and squares of larger ones may overflow. A limit of 2^64 bytes, which means none, is accepted."""

YEAR_2100_S = 4_102_444_800.0
_SUBSECOND_UNITS = (("ns", 1e17), ("us", 1e14), ("ms", 0.0))
"""Units, and the unix times above which a timestamp is taken to be in them; seconds stay below YEAR_2100_S."""

TINY_BYTES = 65536.0
"""Every working set is larger (stacks and page tables of one idle process); numbers of MiB up to 64 GiB are smaller."""
ORDINARY_BYTES = 16 * BYTES_PER_MIB
MANY_CORES = 64.0
"""Above it, fractions are taken for cores of a large machine, whole numbers for millicores."""
IMPOSSIBLE_CORES = 1024.0
MIN_SUSPECT_SAMPLES = 3
"""Samples (and distinct values) needed to suspect another unit; fewer may be a container that is starting."""

COUNTER_REMEDY = "if it counts CPU seconds, as container_cpu_usage_seconds_total does, export its rate instead"


def check_samples(raw: RawSamples, origins: Origins, raw_name: Callable[[str], str]) -> None:
    """Raise BadInput for negative, infinite and impossibly large numbers, and times outside 1970..2100."""

    def refuse(bad: BoolArray, column: str, value: FloatArray, problem: str, remedy: str) -> None:
        if bad.any():
            at = int(np.argmax(bad))
            raise origins.bad_input(int(raw.rows[at]), raw_name(column), problem.format(value[at]), remedy)

    for name, column in raw.values.items():
        remedy = "Leave the cell empty where nothing was measured."
        refuse(np.isinf(column), name, column, "{} is not a finite number", remedy)
        refuse(np.abs(column) > LARGEST_NUMBER, name, column, "{:g} is larger than anything measured", remedy)
        if name in VALUE_COLUMNS:
            refuse(column < 0, name, column, "{:g} is negative", remedy)
        if name == INPUT_COLUMN:
            refuse(column == 0.0, name, column, "{:g} is not a size", "Leave the cell empty where it is unknown.")
    for name, times_s in {"timestamp": raw.times_s, **raw.values}.items():
        if name in TIME_COLUMNS:
            latest_s = np.fmax.reduce(times_s)
            unit = next((unit for unit, least in _SUBSECOND_UNITS if latest_s > least), "s")
            remedy = f"If they are in {unit}, use `--map {name}={raw_name(name)}:{unit}`."
            refuse(times_s > YEAR_2100_S, name, times_s, "{:.0f} s lies after the year 2100", remedy)
            refuse(times_s < 0, name, times_s, "{:.0f} s lies before 1970", "Write unix seconds.")


def check_step(step_s: float, median_s: float, file: Path) -> None:
    """Refuse a grid below a second (Misuse), or finer than the data (BadInput): most cells would be gaps or copies."""
    if step_s < FINEST_STEP_S:
        raise Misuse(
            f"--step {format_duration(step_s)} is finer than timestamps, which are whole seconds. Use 1s or more."
        )
    if step_s < median_s / 2:
        raise BadInput(
            f"--step {format_duration(step_s)} is finer than the data, with a sample every {format_duration(median_s)}",
            remedy=f"The finest useful step is {format_duration(median_s)}: use it, or leave --step out.",
            file=file,
            column="timestamp",
        )


@dataclass(slots=True)
class _Suspect:
    """Samples that are plausible only in another unit, maybe all of a container; `column` is the name in the file."""

    container: str
    row: int
    column: str
    low: float
    high: float
    whole_container: bool


@dataclass(slots=True)
class UnitsCheck:
    """Detects memory in MiB or GiB instead of bytes, and cpu in millicores instead of cores.

    A source that is wholly in another unit looks like small containers, so it only gets a note. Two units in one source
    are refused: values that are implausible as bytes (or cores), but match the ordinary ones once converted.
    Containers that are small, idle or starting are accepted.
    """

    memory: list[_Suspect] = field(default_factory=list)
    cpu: list[_Suspect] = field(default_factory=list)
    small_column: str = ""  # name in the file of a column of memory with small values
    largest_bytes: float = 0.0
    least_ordinary_bytes: float = np.inf
    largest_fractional_cores: float = 0.0

    def add(self, raw: RawSamples, raw_name: Callable[[str], str]) -> None:
        """Take in the next rows; `raw_name` maps our name of a column to the name in the file."""
        memory, cpu = raw.values[MEMORY_COLUMN], raw.values[CPU_COLUMN]
        ordinary = memory[memory >= ORDINARY_BYTES]
        self.largest_bytes = max(self.largest_bytes, float(ordinary.max(initial=0.0)))
        self.least_ordinary_bytes = min(self.least_ordinary_bytes, float(ordinary.min(initial=np.inf)))
        small = (memory > 0) & (memory < ORDINARY_BYTES)
        if np.count_nonzero(small) >= MIN_SUSPECT_SAMPLES:
            self.small_column = raw_name(MEMORY_COLUMN)
        tiny = small & (memory < TINY_BYTES)
        self.memory += _suspects(raw, tiny, small & ~tiny, memory, raw_name(MEMORY_COLUMN))
        whole, many = cpu == np.floor(cpu), cpu > MANY_CORES
        fractional = cpu[~whole & (cpu <= IMPOSSIBLE_CORES)]
        self.largest_fractional_cores = max(self.largest_fractional_cores, float(fractional.max(initial=0.0)))
        odd = many & (whole | (cpu > IMPOSSIBLE_CORES))
        self.cpu += _suspects(raw, odd, many & ~odd, cpu, raw_name(CPU_COLUMN))

    def verdict(self, origins: Origins) -> list[str]:
        """Notes for the reader; raises BadInput for two units in one source."""
        notes = []
        for suspect in self.memory:
            for unit, size in (("MiB", BYTES_PER_MIB), ("GiB", BYTES_PER_GIB)):
                low_bytes, high_bytes = suspect.low * size, suspect.high * size
                if high_bytes >= self.least_ordinary_bytes / 8 and low_bytes <= self.largest_bytes * 8:
                    raise _mixed_units(suspect, origins, MEMORY_COLUMN, unit, format_memory(self.largest_bytes))
        if self.small_column and not self.largest_bytes:
            notes.append(
                f"memory is never above {format_memory(ORDINARY_BYTES)}: if it is in MiB, use "
                f"`--map {MEMORY_COLUMN}={self.small_column}:MiB` (for KiB and GiB `:KiB` and `:GiB`)"
            )
        if self.cpu and 0 < self.largest_fractional_cores <= MANY_CORES:
            ordinary = format_cpu(self.largest_fractional_cores) + " cores"
            raise _mixed_units(self.cpu[0], origins, CPU_COLUMN, "m", ordinary)
        if self.cpu:
            notes.append(
                f"cpu reaches {max(suspect.high for suspect in self.cpu):g} cores: if it is in millicores, use "
                f"`--map {CPU_COLUMN}={self.cpu[0].column}:m` (for nanocores and percent of a core `:n` and `:percent`)"
            )
        return notes


def _suspects(raw: RawSamples, odd: BoolArray, between: BoolArray, column: FloatArray, name: str) -> list[_Suspect]:
    """Containers with enough odd values and none between these and the ordinary ones, as a real rise would have."""
    if not odd.any():
        return []
    codes = raw.container.indices.to_numpy()
    names = raw.container.dictionary
    n_odd, n_between, n_positive = (
        np.bincount(codes[rows], minlength=len(names)) for rows in (odd, between, column > 0)
    )
    suspect = (n_odd >= MIN_SUSPECT_SAMPLES) & (n_between == 0) & (n_odd >= 0.05 * n_positive)
    found = []
    for code in np.flatnonzero(suspect).tolist():
        rows = np.flatnonzero(odd & (codes == code))
        values, whole_container = column[rows], bool(n_odd[code] == n_positive[code])
        if len(np.unique(values)) < MIN_SUSPECT_SAMPLES and (column is raw.values[CPU_COLUMN] or not whole_container):
            continue
        place = names[code].as_py(), int(raw.rows[rows[0]]), name
        found.append(_Suspect(*place, float(values.min()), float(values.max()), whole_container))
    return found


def _mixed_units(suspect: _Suspect, origins: Origins, column: str, unit: str, ordinary: str) -> BadInput:
    where = "others of the source" if suspect.whole_container else "others of the same container"
    counter = f" Or, {COUNTER_REMEDY}." if column == CPU_COLUMN else ""
    return origins.bad_input(
        suspect.row,
        suspect.column,
        f"mixed units: container {suspect.container!r} has values from {suspect.low:g} to {suspect.high:g}, "
        f"{where} reach {ordinary}",
        f"If these rows are in {unit}, convert them, or read them alone: `--map {column}={suspect.column}:{unit}`."
        + counter,
    )
