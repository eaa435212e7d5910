"""Moments as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(unix_s: float) -> str:
    """Whole seconds, UTC.

    Examples
    --------
    >>> moment(0.9)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
