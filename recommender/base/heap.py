"""Returns unused memory to the system, with glibc; elsewhere only the garbage collector runs."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path

COMPILER_LIBRARY = "libllvmlite"
"""Needed only while kernels are loaded; 60 MB of its code would stay resident."""

GC_THRESHOLD = 1_000_000
"""Allocations before the garbage collector runs by itself: a round creates very many long-lived objects."""

FULL_COLLECTION_INTERVAL_S = 3600.0
"""Cycles among long-lived objects come only from errors and their tracebacks: rare, and small."""

_M_ARENA_MAX, _MADV_DONTNEED = -8, 4
_MAPS = Path("/proc/self/smaps")


def limit_malloc_arenas() -> None:
    """Let threads share two heaps: otherwise each of a dozen watches keeps one of the size of its first list."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, 2)


def raise_gc_threshold() -> None:
    """Leave garbage collection to `MemoryTrimmer`."""
    gc.set_threshold(GC_THRESHOLD)


def freeze_and_trim() -> None:
    """Collect garbage, let no collection traverse again what is left, and release free heap."""
    gc.collect()
    gc.freeze()
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


class MemoryTrimmer:
    """Releases memory, at most every `every_s` seconds.

    Objects that survive a collection are frozen for an hour: a large cluster is millions of them.
    """

    def __init__(self, every_s: float = 15.0) -> None:
        self._every_s, self._libc = every_s, _glibc()
        self._trimmed_s = self._collected_s = float("-inf")

    def trim(self, now_s: float) -> None:
        """Collect garbage, release free heap and the compiler's code, unless done recently; monotonic seconds."""
        if now_s - self._trimmed_s < self._every_s:
            return
        self._trimmed_s = now_s
        if now_s - self._collected_s >= FULL_COLLECTION_INTERVAL_S:
            self._collected_s = now_s
            gc.unfreeze()
        freeze_and_trim()
        if self._libc is not None:
            for start, length in clean_mappings(_MAPS.read_text(), COMPILER_LIBRARY):
                self._libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_DONTNEED)


def clean_mappings(smaps: str, library: str) -> Iterator[tuple[int, int]]:
    """Address and length of the clean, readable pages of a library: they can be read from its file again.

    Pages that were written to (relocations) are in no file and are left out.
    """
    start = end = 0
    permissions, private_kb = "", 0
    for line in smaps.splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            start, end = (int(part, 16) for part in words[0].split("-"))
            permissions, private_kb = (words[1] if library in line else ""), 0
        elif words[0] in ("Anonymous:", "Swap:"):  # "dirty" also counts pages of a file that is not yet on disk
            private_kb += int(words[1])
        elif words[0] == "VmFlags:" and permissions.startswith("r") and "w" not in permissions and not private_kb:
            yield start, end - start


def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL("libc.so.6")
        return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
    except OSError:
        return None
