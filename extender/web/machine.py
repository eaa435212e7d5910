"""What the process asks of the kernel and the C library it runs on; each does nothing where they do not know it."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct

MALLOC = {-3: 64 << 20, -1: 64 << 20, -8: 1}
"""glibc's M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_ARENA_MAX: the arrays of a call (a megabyte at 5,000 nodes) come
from memory that was used before, not from the kernel page by page, and threads do not each keep some of their own."""

PR_SET_PDEATHSIG = 1
"""Linux's name for: send me this signal when my parent dies."""

SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Linux's numbers of the call; the C library has a name for it only since lately."""

SCHED_ATTR = "=IIQiIQQQ"
"""`struct sched_attr`: size, policy, flags, nice, priority, runtime, deadline, period."""

TURN_NS = 1_000_000
"""What a thread asks to run at a time: less than the 1.4 ms and more of others, and about as long as a call takes where
processors are busy, together with what is done ahead of the next one: with half of it others would run in between.
"""


def keep_memory() -> None:
    """Set `MALLOC`; without it calls are a little slower."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, setting in MALLOC.items():
            mallopt(parameter, setting)


def give_memory_back() -> None:
    """What reading whole lists took goes back to the kernel."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def take_memory(size_bytes: int) -> None:
    """Have memory come from the kernel now that is used later: page by page it would take a twentieth of a call's time.

    Kept by the C library, see `MALLOC`.
    """
    _ = b"\x01" * size_bytes


def end_with_the_master() -> None:
    """Have the kernel end this worker when its master is killed.

    By itself it would hold the port for the seconds in which it lets connections go, and nothing could take its place.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def take_short_turns() -> bool:
    """Have this thread, and all that it starts, run for `TURN_NS` at a time, but begin sooner; whether they will.

    Linux from 6.12 on lets whoever wakes up for a short turn go before those who are in the midst of a long one, and
    needs no right for it, since nobody gets more time. A call is short, and a scheduler waits for it; where processors
    are busy it would begin milliseconds late.
    """
    syscall, number = getattr(ctypes.CDLL(None), "syscall", None), SCHED_SETATTR.get(platform.machine())
    if syscall is None or number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    size = struct.calcsize(SCHED_ATTR)
    told = struct.pack(SCHED_ATTR, size, os.SCHED_OTHER, 0, nice, 0, TURN_NS, 0, 0)
    return bool(syscall(number, 0, told, 0) == 0)
