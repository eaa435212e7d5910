"""Parse `--map`: which foreign column stands for which of ours, and in what unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recommender.errors import Misuse
from recommender.units import CPU_UNITS, MEMORY_UNITS, TIME_UNITS

TIME_COLUMNS = ("timestamp", "started_at", "finished_at", "oom_killed_at")

UNITS_OF: dict[str, Mapping[str, float]] = {
    **dict.fromkeys(TIME_COLUMNS, TIME_UNITS),
    **dict.fromkeys(("cpu_cores", "cpu_request_cores", "cpu_limit_cores", "node_cpu_cores"), CPU_UNITS),
    **dict.fromkeys(("memory_bytes", "memory_request_bytes", "memory_limit_bytes", "node_memory_bytes"), MEMORY_UNITS),
}
"""Known units and their factors, of the columns that have one."""


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """The column `new` is the foreign column `old` times `factor`; the old name remains usable."""

    new: str
    old: str
    factor: float = 1.0
    unit: str | None = None

    def __str__(self) -> str:
        return f"{self.new}={self.old}" + (f":{self.unit}" if self.unit else "")


def parse_map(text: str) -> ColumnMap:
    """Parse one `new=old[:unit]`.

    If the foreign name itself contains a colon, append one more colon.

    Raises Misuse: no equals sign, an empty name, or an unknown unit; lists the known ones.

    Examples
    --------
    >>> parse_map("memory_bytes=mem:MiB").factor
    1048576.0
    >>> parse_map("cpu_cores=namespace:cpu:rate5m:").old
    'namespace:cpu:rate5m'
    """
    new, equals, foreign = (part.strip() for part in text.partition("="))
    old, colon, unit = (part.strip() for part in foreign.rpartition(":"))
    if not (equals and new and foreign and (old or not colon)):
        raise Misuse(f"{text!r} is not a column mapping. Write `--map new=old` or `--map new=old:unit`.")
    if not colon:
        return ColumnMap(new, foreign)
    if not unit:
        return ColumnMap(new, old)
    known = UNITS_OF.get(new)
    if known is None:
        raise Misuse(
            f"in --map {text!r}, column {new!r} has no unit. Write `--map {new}={old}`, "
            f"or append a colon if the colon belongs to the name: `--map {text}:`."
        )
    if unit not in known:
        raise Misuse(
            f"in --map {text!r}, {unit!r} is not a unit of {new}. Known: {', '.join(known)}. "
            f"Append a colon if the colon belongs to the name: `--map {text}:`."
        )
    return ColumnMap(new, old, known[unit], unit)
