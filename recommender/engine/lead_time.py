"""How long before a phase its target must be published, so that the resize is done when the phase begins.

Between publishing and having there are the updater's interval (`--updater-interval`, unknown to us) and the resize
itself. Both together are what we can see: when a target was published, and when its container was first seen with it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Hashable, Sequence

from recommender.records import CPU

DEFAULT_DELAY_S = 70.0
"""Taken until resizes were seen: the updater's default interval of a minute, and a resize."""

LONGEST_DELAY_S = 600.0
"""A longer wait tells of something else: updates switched off, too few replicas, limits of which we do not know."""

QUANTILE = 0.9
"""Of the delays seen: the wait for the updater is spread over its interval, and most rises must be done in time."""

ENOUGH = 3
"""As long as fewer were seen, the default is taken."""

REMEMBERED = 200
"""Older ones are forgotten: an updater that was set up anew is believed after as many resizes."""

_OF_A_TARGET = 0.01
_CORES = 1e-3
"""Published are whole millicores and bytes; what is nearer than that, or than a hundredth, is had."""


class LeadTime:
    """The time to publish ahead, as measured from the resizes so far.

    Parameters
    ----------
    configured_s
        Taken as it is; None measures.
    sample_s
        Time between two samples: a phase is seen to begin so much late.
    """

    def __init__(self, configured_s: float | None, sample_s: float) -> None:
        self.configured_s, self.sample_s = configured_s, sample_s
        self._awaited: dict[Hashable, tuple[tuple[float, ...], float]] = {}
        """Targets on their way, and since when; minus infinity where that must not be measured."""
        self._delays_s: deque[float] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        """How many resizes the measure rests on."""
        return len(self._delays_s)

    @property
    def seconds(self) -> float:
        """How long ahead to publish."""
        if self.configured_s is not None:
            return self.configured_s
        if (seen := len(self._delays_s)) < ENOUGH:
            return DEFAULT_DELAY_S + self.sample_s
        place = math.ceil(QUANTILE * (seen - 1))
        long_s = sorted(self._delays_s)[place]
        # Of n waits spread over the updater's interval, the longest falls short of it by an n-th of itself.
        missed_s = long_s / seen if place == seen - 1 else 0.0
        return min(long_s + missed_s, LONGEST_DELAY_S) + self.sample_s

    def published(self, key: Hashable, target: Sequence[float], requests: Sequence[float], now_s: float) -> None:
        """A target stands published for a container.

        Told at each round, the first time counts. Of a target that the container has already, nothing is measured.

        Parameters
        ----------
        key
            One live container.
        target, requests
            Cores and bytes, published and had; NaN for a resource of which nothing is said, or that is not requested.
        now_s
            Unix seconds.
        """
        wanted = tuple(map(float, target))
        if _has(requests, wanted):
            self._awaited.pop(key, None)
            return
        if key not in self._awaited or not _has(self._awaited[key][0], wanted):
            self._awaited[key] = wanted, now_s

    def seen(self, key: Hashable, requests: Sequence[float], now_s: float, *, deferred: bool = False) -> float | None:
        """What a container has now, by its status; the seconds since its target was published once it has it.

        Parameters
        ----------
        deferred
            The kubelet has put its resize off because the node is full: the wait for room is not measured.
        """
        if key not in self._awaited:
            return None
        target, since_s = self._awaited[key]
        if _has(requests, target):
            del self._awaited[key]
            delay_s = max(0.0, now_s - since_s)
            if delay_s <= LONGEST_DELAY_S:
                self._delays_s.append(delay_s)
            return delay_s
        if deferred:
            self._awaited[key] = target, -math.inf
        return None

    def keep_only(self, present: Container[Hashable]) -> None:
        """Containers that are gone are waited for no longer."""
        for key in [key for key in self._awaited if key not in present]:
            del self._awaited[key]


def _has(requests: Sequence[float], target: Sequence[float]) -> bool:
    """Whether a container has what is wanted; a resource of which nothing is said does not count."""
    for resource, (had, wanted) in enumerate(zip(requests, target, strict=True)):
        near = abs(had - wanted) <= max(_OF_A_TARGET * wanted, _CORES if resource == CPU else 0.0)
        if not near and not math.isnan(wanted):
            return False
    return True
