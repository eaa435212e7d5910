"""Memory that is returned to the system, without losing anything by it."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from recommender.base.heap import (
    COMPILER_LIBRARY,
    MemoryTrimmer,
    clean_mappings,
    limit_malloc_arenas,
    raise_gc_threshold,
)
from recommender.base.records import Block
from recommender.policies.histogram import HistogramSession

SMAPS = """\
7f0000000000-7f0000002000 r--p 00000000 08:01 11  /site-packages/llvmlite/binding/libllvmlite.so
Rss:                   8 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
7f0000002000-7f0000012000 r-xp 00002000 08:01 11  /site-packages/llvmlite/binding/libllvmlite.so
Private_Dirty:        64 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f0000012000-7f0000013000 r--p 00012000 08:01 11  /site-packages/llvmlite/binding/libllvmlite.so
Private_Dirty:         4 kB
Anonymous:             4 kB
VmFlags: rd mr mw me ac
7f0000013000-7f0000014000 rw-p 00013000 08:01 11  /site-packages/llvmlite/binding/libllvmlite.so
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd wr mr mw me ac
7f0000014000-7f0000015000 r-xp 00000000 08:01 12  /usr/lib/libc.so.6
Private_Dirty:         0 kB
VmFlags: rd ex mr mw me
"""


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of earlier tests stay frozen: traversing them takes half a second each time."""
    monkeypatch.setattr(gc, "unfreeze", lambda: None)


def test_only_mappings_of_the_library_that_equal_its_file_are_dropped() -> None:
    """Pages of a file that has just been installed count as dirty until they are on disk."""
    assert list(clean_mappings(SMAPS, COMPILER_LIBRARY)) == [(0x7F0000000000, 0x2000), (0x7F0000002000, 0x10000)]


@pytest.mark.usefixtures("frozen")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is returned on Linux only")
def test_the_code_of_the_compiler_is_released_and_kernels_still_run() -> None:
    def decide() -> float:
        session = HistogramSession()
        used = np.array([[0.5, 1e9]])
        session.advance(Block(used, np.array([1_000_000]), np.empty(0, np.int64)))
        return float(session.estimate().target[0])

    def resident_kb() -> int:
        parts = Path("/proc/self/smaps").read_text().split("VmFlags:")
        mine = [part for part in parts if COMPILER_LIBRARY in part]
        return sum(int(line.split()[1]) for part in mine for line in part.splitlines() if line.startswith("Rss:"))

    decided = decide()
    for begin, length in clean_mappings(Path("/proc/self/smaps").read_text(), COMPILER_LIBRARY):
        ctypes.string_at(begin, length)  # read, so that it is resident, whatever was released before
    before = resident_kb()
    MemoryTrimmer().trim(0.0)
    assert resident_kb() < 0.5 * before
    assert decide() == decided


@pytest.mark.usefixtures("frozen")
def test_memory_is_trimmed_at_most_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    class Libc:
        trimmed = 0

        def malloc_trim(self, _: int) -> None:
            self.trimmed += 1

        def madvise(self, *_: object) -> None:
            pass

    libc = Libc()
    monkeypatch.setattr("recommender.base.heap._glibc", lambda: libc)
    memory = MemoryTrimmer(every_s=60.0)
    for now_s in (0.0, 30.0, 59.0, 61.0, 100.0):
        memory.trim(now_s)
    assert libc.trimmed == 2


@pytest.mark.long
def test_long_lived_objects_are_collected_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

    monkeypatch.setattr("recommender.base.heap._glibc", lambda: None)
    memory, old = MemoryTrimmer(every_s=60.0), Ring()
    memory.trim(0.0)
    young, old_ref = Ring(), weakref.ref(old)
    young_ref = weakref.ref(young)
    del old, young
    memory.trim(61.0)
    assert young_ref() is None and old_ref() is not None
    memory.trim(3601.0)
    assert old_ref() is None


def test_without_glibc_the_limit_of_arenas_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for = list[str]()
    monkeypatch.setattr("recommender.base.heap._glibc", lambda: looked_for.append("glibc"))
    limit_malloc_arenas()  # trimming without it: see the test above
    assert looked_for == ["glibc"]


def test_garbage_is_not_collected_while_objects_are_created() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(usual := 700)  # another test may have left the threshold of a recommender
        raise_gc_threshold()
        gc.collect(0)  # objects of earlier tests do not count
        collections = gc.get_stats()[0]["collections"]
        objects = [[] for _ in range(10 * usual)]
        assert objects and gc.get_stats()[0]["collections"] == collections
    finally:
        gc.set_threshold(*before)
