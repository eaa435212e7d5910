"""Waiting pods are tried again, as `phasewise controller` has it: a scheduler does not see that a forecast changed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from placement_bench.place import Place
from recommender.cluster.errors import ApiError
from recommender.cluster.paths import PODS, path_of

EVERY_S = 1.0
"""As often as the bench's schedulers try a pod again at most. The controller's 30 s would be an hour of the jobs."""
ANNOTATION = "placement-bench/woken"


@contextmanager
def woken(place: Place, namespaces: Sequence[str]) -> Iterator[None]:
    """Touch the pods of these namespaces that were found not to fit, again and again, until the block ends."""
    ended = threading.Event()

    def wake() -> None:
        number = 0
        while not ended.wait(EVERY_S):
            number += 1
            for namespace in namespaces:
                for name, pod in place.watch.pods(namespace).items():
                    if pod.unschedulable and not pod.node:
                        with contextlib.suppress(ApiError):  # it is gone by now
                            body = {"metadata": {"annotations": {ANNOTATION: str(number)}}}
                            place.api.patch(path_of(PODS, namespace, name), body)

    thread = threading.Thread(target=wake, name="wake", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
