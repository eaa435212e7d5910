"""A pool of worker processes that can be interrupted safely."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pool
from multiprocessing.pool import Pool as Processes

STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}


@contextmanager
def process_pool(number: int) -> Iterator[Processes]:
    """Pool of `number` processes, ended with the block.

    Signals are blocked until a worker has set its own handlers. Until then it has those of the benchmark, and the
    interpreter drops an exception that such a handler raises within a hook of `fork`: the worker would never end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        processes = Pool(number, _reset_signals)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with processes:
        yield processes


def _reset_signals() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the parent ends the workers and reports errors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    logging.disable()
