"""The processes among which a bench shares its plays."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pool
from multiprocessing.pool import Pool as Processes

ENDING = {signal.SIGINT, signal.SIGTERM}


@contextmanager
def playing_processes(number: int) -> Iterator[Processes]:
    """So many processes, ended with the block.

    Signals wait until a process knows what to do with them: in its first moments it still has the bench's handlers, and
    where one of these raises within a hook of `fork`, the interpreter drops the exception. A process that has lost its
    end like this would be waited for for ever.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        processes = Pool(number, _left_alone)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with processes:
        yield processes


def _left_alone() -> None:
    """Ctrl-C goes to all processes of a terminal: the first one ends the others, and what goes wrong it tells."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    logging.disable()
