"""Work shared out among processes; what comes of it comes in order."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from joblib.externals.loky import ProcessPoolExecutor

Given = TypeVar("Given")
Made = TypeVar("Made")


def ordered_map(make: Callable[[Given], Made], of: Iterable[Given], jobs: int) -> Generator[Made]:
    """What is made of these, in their order.

    Parameters
    ----------
    jobs
        Processes; one is this one. Each of several has one thing to do at a time.
    """
    if jobs == 1:
        yield from map(make, of)
        return
    # Ctrl-C is for this process, which ends the others itself.
    executor = ProcessPoolExecutor(
        max_workers=jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
    pending: deque[Any] = deque()
    finished = False
    try:
        for one in of:
            pending.append(executor.submit(make, one))
            if len(pending) >= jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        finished = True
    finally:
        # Whoever is interrupted must not go on in the background.
        executor.shutdown(wait=True, kill_workers=not finished)
