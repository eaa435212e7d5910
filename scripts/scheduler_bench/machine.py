"""Whether the machine was ours alone while something was measured."""

from __future__ import annotations

import time

import psutil

IDLE = ("idle", "iowait", "steal", "guest", "guest_nice")
"""What of the machine's time is nobody's work, or counted elsewhere already."""


class Others:
    """The cores that processes of others used since it was made; ours are this one and those it has started.

    The servers must not end in between: what they used would be taken for that of others.
    """

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._began_s = _busy_s(), _own_s(), time.monotonic()

    @property
    def cores(self) -> float:
        """In the mean from then to now."""
        used_s = (_busy_s() - self._busy_s) - (_own_s() - self._own_s)
        return max(0.0, used_s / (time.monotonic() - self._began_s))


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - sum(getattr(times, kind, 0.0) for kind in IDLE))


def _own_s() -> float:
    first = psutil.Process()
    used_s = 0.0
    for process in (first, *first.children(recursive=True)):
        try:
            used_s += sum(process.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return used_s
