"""Cores, bytes and seconds: the one place where units are read, converted and printed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache

from recommender.base.errors import Misuse

WallClock = Callable[[], float]  # returns unix seconds
MonotonicClock = Callable[[], float]  # returns seconds since some fixed time, for durations: it is never set

BYTES_PER_MIB = float(1 << 20)
BYTES_PER_GIB = float(1 << 30)
SECONDS_PER_HOUR = 3600.0

MAX_DURATION_S = 9e9  # 285 years, just below what Python can wait for; adding more to a time may fail

MAX_NUMBER = 2**60
"""More than any amount of bytes, millicores or requests; what is computed with it is finite and fits 64 bits."""

_TIME_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")

# Units that a foreign column may have, and their factors to cores, bytes and seconds.
CPU_UNITS = {"cores": 1.0, "m": 1e-3, "millicores": 1e-3, "n": 1e-9, "nanocores": 1e-9, "percent": 1e-2}
MEMORY_UNITS = {
    "B": 1.0, "bytes": 1.0,
    "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "Ki": 2.0**10, "KiB": 2.0**10, "Mi": 2.0**20, "MiB": 2.0**20,
    "Gi": 2.0**30, "GiB": 2.0**30, "Ti": 2.0**40, "TiB": 2.0**40,
}  # fmt: skip
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def parse_duration_s(text: str) -> float:
    """Parse a duration as Prometheus and Go write it (`15s`, `10m`, `1h30m`), or bare seconds.

    >>> parse_duration_s("10m"), parse_duration_s("1h30m"), parse_duration_s("15")
    (600.0, 5400.0, 15.0)
    """
    stripped = text.strip()
    parts = _DURATION.findall(stripped)
    seconds = math.nan
    if parts and "".join(number + unit for number, unit in parts) == stripped:
        seconds = sum(float(number) * _TIME_S[unit] for number, unit in parts)
    else:
        with suppress(ValueError):
            seconds = float(stripped)
    if not 0.0 < seconds <= MAX_DURATION_S:
        raise Misuse(f"{text!r} is not a duration. Write a positive one such as 15s, 10m or 1h30m.")
    return seconds


def parse_size(text: str) -> float:
    """Parse a size in any unit (rows, files, bytes); NaN unless it is a positive finite number.

    >>> parse_size("1.2e6"), parse_size("40000"), parse_size("large")
    (1200000.0, 40000.0, nan)
    """
    try:
        size = float(text)
    except ValueError:
        return math.nan
    return size if size > 0.0 and math.isfinite(size) else math.nan


def parse_time_s(text: str) -> float:
    """Parse a time, as unix seconds or by RFC 3339 (UTC unless it has a zone), to unix seconds.

    >>> parse_time_s("1970-01-02T00:00Z"), parse_time_s("86400")
    (86400.0, 86400.0)
    """
    for parse in (float, parse_rfc3339_s):
        with suppress(ValueError):
            if math.isfinite(seconds := parse(text)):
                return seconds
    raise Misuse(f"{text!r} is not a time. Write one such as 2026-05-01T12:00Z, or unix seconds.")


def parse_rfc3339_s(text: str) -> float:
    """Parse a time by RFC 3339, UTC unless it has a zone, to unix seconds; `ValueError` if it is none."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def format_time(unix_s: float) -> str:
    """Format a time as the Kubernetes API does: RFC 3339, whole seconds, UTC.

    >>> format_time(0.9)
    '1970-01-01T00:00:00Z'
    """
    return _format_whole_s(int(unix_s))


@lru_cache(maxsize=1024)
def _format_whole_s(whole_s: int) -> str:
    """Cached, since thousands of containers share the times of one grid."""
    return datetime.fromtimestamp(whole_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_duration(seconds: float) -> str:
    """Format a duration in at most two units.

    >>> format_duration(600), format_duration(5400), format_duration(0.5)
    ('10m', '1h30m', '500ms')
    """
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    parts: list[str] = []
    rest = seconds
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _TIME_S[unit])
        if unit == "s":
            count += rest
        if count:
            parts.append(f"{count:g}{unit}")
    return "".join(parts[:2])


def format_cpu(cpu_cores: float) -> str:
    """Format CPU: millicores below one core, else cores.

    >>> format_cpu(0.25), format_cpu(3.5), format_cpu(128)
    ('250m', '3.50', '128')
    """
    if cpu_cores < 1:
        return f"{cpu_cores * 1000:.0f}m"
    return f"{cpu_cores:.2f}" if cpu_cores < 100 else f"{cpu_cores:.0f}"


def format_memory(memory_bytes: float) -> str:
    """Format bytes in the largest binary unit that keeps the number at one or above.

    >>> format_memory(1.5 * 2**30), format_memory(300 * 2**20)
    ('1.50Gi', '300Mi')
    """
    for unit, size in (("Ti", 2.0**40), ("Gi", 2.0**30)):
        if memory_bytes >= size:
            return f"{memory_bytes / size:.2f}{unit}"
    if memory_bytes >= BYTES_PER_MIB:
        return f"{memory_bytes / BYTES_PER_MIB:.0f}Mi"
    return f"{memory_bytes / 1024:.0f}Ki"


def counted(count: int, noun: str) -> str:
    """A count with its noun in the singular or plural.

    >>> counted(1, "run"), counted(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
