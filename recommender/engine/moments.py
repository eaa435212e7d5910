"""Moments as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def moment(unix_s: float) -> str:
    """Whole seconds, UTC.

    Examples
    --------
    >>> moment(0.9)
    '1970-01-01T00:00:00Z'
    """
    return _moment(int(unix_s))


@lru_cache(maxsize=1024)
def _moment(whole_s: int) -> str:
    """Thousands of containers are on one grid."""
    return datetime.fromtimestamp(whole_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
