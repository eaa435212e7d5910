"""How long before a phase its target must be published, so that the resize is done when the phase begins.

The delay from publishing to the resize is the updater's interval (`--updater-interval`, unknown to us) plus the resize
itself. Only the sum is observed: when a target was published, and when its container was first seen with it. All
containers have one lead time, so neither a Deployment of many pods nor a namespace of many resizes may decide it alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Hashable
from typing import NamedTuple

from recommender.base.records import Amounts

DEFAULT_DELAY_S = 70.0
"""Until resizes were observed: the updater's default interval of a minute, and a resize."""

MAX_DELAY_S = 600.0
"""A longer delay has another cause: updates disabled, too few replicas, unknown limits."""

QUANTILE = 0.9
"""Quantile of the observed delays: they spread over the updater's interval, and most increases must be in time."""

MIN_DELAYS = 3
"""With fewer observed delays the default is used."""

MAX_DELAYS = 200
"""Beyond them the oldest delay of the namespace with most is dropped, so that a reconfigured updater is learned."""

_RELATIVE_TOLERANCE = 0.01
_CORES_TOLERANCE = 1e-3
"""Published are whole millicores and bytes; a request within either tolerance has the target."""


Owner = tuple[str, str]
"""Namespace and name of a VPA."""


class _Awaited(NamedTuple):
    """A published target not yet applied, since when (minus infinity if not to be measured), and its VPA."""

    target: Amounts
    since_s: float
    owner: Owner


class LeadTime:
    """The time to publish ahead, estimated from observed resizes, or fixed to `configured_s`.

    `sample_s` is the time between two samples: the start of a phase is seen this much late.
    """

    def __init__(self, configured_s: float | None, sample_s: float) -> None:
        self.configured_s, self.sample_s = configured_s, sample_s
        self._awaited: dict[Hashable, _Awaited] = {}
        self._delays_s: dict[tuple[Owner, float], float] = {}
        """By VPA and time of publication: its pods get the target one after the other, and the last of them counts."""

    def __len__(self) -> int:
        """Number of observed resizes."""
        return len(self._delays_s)

    @property
    def seconds(self) -> float:
        if self.configured_s is not None:
            return self.configured_s
        if (seen := len(self._delays_s)) < MIN_DELAYS:
            return DEFAULT_DELAY_S + self.sample_s
        rank = math.ceil(QUANTILE * (seen - 1))
        delay_s = sorted(self._delays_s.values())[rank]
        # The maximum of n delays, uniform over the updater's interval, falls short of it by about an n-th of itself.
        bias_s = delay_s / seen if rank == seen - 1 else 0.0
        return min(delay_s + bias_s, MAX_DELAY_S) + self.sample_s

    def published(self, key: Hashable, target: Amounts, requests: Amounts, now_s: float, vpa: Owner) -> None:
        """Record that a target is published for a container, where it requests something else.

        Called in each round, the first time counts. `key` is one live container; amounts are cores and bytes, NaN for
        none. Targets of one `vpa` that are published together count once.
        """
        if _matches(requests, target):
            self._awaited.pop(key, None)
        elif key not in self._awaited or not _matches(self._awaited[key].target, target):
            self._awaited[key] = _Awaited(target, now_s, vpa)

    def observe(self, key: Hashable, requests: Amounts, now_s: float, *, deferred: bool = False) -> float | None:
        """Take in the requests of a container; returns the seconds since its target was published once it has it.

        `deferred`: the kubelet has deferred its resize because the node is full, and that delay is not measured.
        """
        if (awaited := self._awaited.get(key)) is None:
            return None
        if _matches(requests, awaited.target):
            del self._awaited[key]
            delay_s = max(0.0, now_s - awaited.since_s)
            if delay_s <= MAX_DELAY_S and self.configured_s is None:
                self._count((awaited.owner, awaited.since_s), delay_s)
            return delay_s
        if deferred:
            self._awaited[key] = awaited._replace(since_s=-math.inf)
        return None

    def _count(self, batch: tuple[Owner, float], delay_s: float) -> None:
        self._delays_s[batch] = max(delay_s, self._delays_s.get(batch, 0.0))
        if len(self._delays_s) > MAX_DELAYS:
            (most, _), *_ = Counter(namespace for (namespace, _), _ in self._delays_s).most_common(1)
            del self._delays_s[next(each for each in self._delays_s if each[0][0] == most)]

    def keep_only(self, present: Container[Hashable]) -> None:
        for key in [key for key in self._awaited if key not in present]:
            del self._awaited[key]


def _matches(requests: Amounts, target: Amounts) -> bool:
    """Whether requests match a target; a resource without a target does not count."""
    (cpu_cores, memory_bytes), (wanted_cores, wanted_bytes) = requests, target
    near = abs(cpu_cores - wanted_cores) <= max(_RELATIVE_TOLERANCE * wanted_cores, _CORES_TOLERANCE)
    near_bytes = abs(memory_bytes - wanted_bytes) <= _RELATIVE_TOLERANCE * wanted_bytes
    return (near or math.isnan(wanted_cores)) and (near_bytes or math.isnan(wanted_bytes))
