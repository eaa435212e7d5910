"""What is asked of the kernel is asked for one process or thread, and nothing else of it changes."""

from __future__ import annotations

import os
import platform
from concurrent.futures import ThreadPoolExecutor

import pytest

from extender import machine


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
