"""What is asked of the kernel is asked for one process or thread, and nothing else of it changes."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from extender.web import machine


def test_a_thread_that_takes_short_turns_keeps_its_policy_and_its_niceness() -> None:
    def take() -> tuple[bool, int, int]:
        taken = machine.take_short_turns()
        return taken, os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)

    with ThreadPoolExecutor(1) as apart:
        taken, policy, nice = apart.submit(take).result()
    assert taken == (platform.machine() in machine.SCHED_SETATTR)
    assert (policy, nice) == (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))


def test_turns_are_left_as_they_are_where_the_way_to_ask_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    assert machine.take_short_turns() is False


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the C library of GNU")
def test_memory_that_was_taken_is_used_later_without_the_kernel() -> None:
    program = """
import resource
from extender.web.machine import keep_memory, take_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_memory()
take_memory(16 << 20)
before = faults()
held = [b"x" * 4096 for _ in range(2048)]
print(faults() - before)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(told.stdout) < 256, "of 2,048 pages and some more"
