"""Memory that is not needed any more is given back: a recommender runs for months beside the pods it makes room for.

Giving back to the system is done on Linux with glibc only; elsewhere nothing is lost.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from pathlib import Path

COMPILER = "libllvmlite"
"""Needed while kernels are loaded, then never; 60 MB of its code would stay."""

EVERY_S = 15.0

MADE_BETWEEN_LOOKS = 1_000_000
"""Objects made until the garbage collector looks through them by itself: a round of a large cluster makes hundreds of
thousands that stay, and no rings, and by default it would look through each of them several times."""

LOOKED_THROUGH_EVERY_S = 3600.0
"""Rings among what lives long are made by errors and their tracebacks only: rare, and small."""

_M_ARENA_MAX, _MADV_DONTNEED = -8, 4
_MAPS = Path("/proc/self/smaps")


def use_few_arenas() -> None:
    """Let threads share two heaps: a dozen watches would each keep one as large as its first list was."""
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, 2)


def look_after_rounds() -> None:
    """Let the garbage collector look where `Memory` tells it to, and hardly ever by itself."""
    gc.set_threshold(MADE_BETWEEN_LOOKS)


class Memory:
    """Gives back now and then.

    What the garbage collector found alive it does not look at again for an hour. A large cluster is millions of
    objects, and to look through them at every other round would be a third of what a round costs.

    Parameters
    ----------
    every_s
        Not more often than this.
    """

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s, self._libc = every_s, _glibc()
        self._done_s = self._looked_s = float("-inf")

    def tidy(self, now_s: float) -> None:
        """What malloc holds without use, and the code of the compiler, at most once in a while (seconds, monotonic)."""
        if now_s - self._done_s < self._every_s:
            return
        self._done_s = now_s
        if now_s - self._looked_s >= LOOKED_THROUGH_EVERY_S:
            self._looked_s = now_s
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        if self._libc is not None:
            self._give_back(self._libc)

    def _give_back(self, libc: ctypes.CDLL) -> None:
        libc.malloc_trim(0)
        for begin, length in unchanged_mappings(_MAPS.read_text(), COMPILER):
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), _MADV_DONTNEED)


def unchanged_mappings(smaps: str, library: str) -> Iterator[tuple[int, int]]:
    """Address and length of the parts of a library that are as in its file: dropped, they are read again when needed.

    What was written to (relocations) is in no file and would be lost, so it is left out.
    """
    begin = end = 0
    rights, own_kb = "", 0
    for line in smaps.splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            begin, end = (int(part, 16) for part in words[0].split("-"))
            rights, own_kb = (words[1] if library in line else ""), 0
        elif words[0] in ("Anonymous:", "Swap:"):  # dirty is also what the disk has not got yet of a file just written
            own_kb += int(words[1])
        elif words[0] == "VmFlags:" and rights.startswith("r") and "w" not in rights and not own_kb:
            yield begin, end - begin


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL("libc.so.6")
        return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
    except OSError:
        return None
