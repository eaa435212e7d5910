"""A parallel map over processes that keeps the order."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

from joblib.externals.loky import ProcessPoolExecutor

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> Generator[Result]:
    """Yield the function's results in order, computed by `jobs` processes on one item each; 1 is this process."""
    if jobs == 1:
        yield from map(function, items)
        return
    # Workers ignore Ctrl-C; this process ends them.
    executor = ProcessPoolExecutor(
        max_workers=jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )
    pending: deque[Any] = deque()
    finished = False
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= jobs:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        finished = True
    finally:
        # After an interruption no worker may go on in the background.
        executor.shutdown(wait=True, kill_workers=not finished)
