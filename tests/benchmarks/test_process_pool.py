"""process_pool: work is shared among processes, and they end with the block."""

from __future__ import annotations

import os
import signal
from types import FrameType

import pytest

from benchmarks.process_pool import process_pool


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def test_a_function_is_mapped_over_items_by_other_processes_that_end_with_the_block() -> None:
    with process_pool(2) as processes:
        doubled, workers = zip(*processes.map(double, [1, 2, 3]), strict=True)
    assert doubled == (2, 4, 6)
    assert os.getpid() not in workers
    processes.join()
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


@pytest.mark.timeout(30)
def test_a_process_that_is_terminated_while_it_starts_is_not_waited_for_forever() -> None:
    """The signal arrives within a fork hook, where the exception of a handler is dropped."""
    parent, armed = os.getpid(), True

    def end() -> None:
        if armed and os.getpid() != parent:
            signal.raise_signal(signal.SIGTERM)

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    os.register_at_fork(after_in_child=end)
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with process_pool(1):
            pass
    finally:
        armed = False
        signal.signal(signal.SIGTERM, before)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM}
