"""Whether a cluster's VPA has the update mode `InPlace`, which no flag and no object of it tells."""

from __future__ import annotations

from collections.abc import Callable

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Invalid
from recommender.cluster.paths import VPAS, path_of

ASKED_AGAIN_S = 300.0
"""An upgrade of the VPA is seen after so long at the latest."""

MODE = "InPlace"

PROBE = "phasewise-probe-"


class InPlaceMode:
    """Tries to make a VPA of that mode, so that nothing is stored, and remembers what came of it.

    The schema of an older VPA refuses it, and so does the admission controller while its feature gate is off. The
    updater has a gate of its own: where that one alone is off, it leaves such VPAs alone, which does no harm.

    Parameters
    ----------
    clock
        Monotonic seconds.
    """

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api, self._clock = api, clock
        self._known: tuple[bool, float] | None = None

    def available(self, namespace: str) -> bool:
        """Whether a VPA of a namespace may have it; an ApiError when the server could not say."""
        now_s = self._clock()
        if self._known is None or now_s - self._known[1] >= ASKED_AGAIN_S:
            self._known = self._ask(namespace), now_s
        return self._known[0]

    def _ask(self, namespace: str) -> bool:
        body = {
            "apiVersion": VPAS[0],
            "kind": "VerticalPodAutoscaler",
            "metadata": {"generateName": PROBE, "namespace": namespace},
            "spec": {
                "targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": PROBE},
                "updatePolicy": {"updateMode": MODE},
            },
        }
        try:
            self._api.create(path_of(VPAS, namespace), body, dry_run=True)
        except Invalid as error:
            if MODE not in str(error):  # what else speaks against the probe says nothing of other namespaces
                raise
            return False
        return True
