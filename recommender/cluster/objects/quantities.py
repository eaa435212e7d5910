"""Kubernetes quantities of cores and bytes, and pairs of both.

Grammar: a signed decimal number, then one of n u m (nothing) k M G T P E, Ki..Ei, or a decimal exponent
(k8s.io/apimachinery, pkg/api/resource/quantity.go). The parser of the client library accepts `1K`, raises other errors,
and there is no formatter.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from recommender.base.records import RESOURCES
from recommender.cluster.errors import BadQuantity

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([num]|[kMGTPE]|[KMGTPE]i)|([eE][+-]?[0-9]+))?")
_DIVISORS = {"n": 1e9, "u": 1e6, "m": 1e3}
_FACTORS = {
    **{suffix: 1000.0**power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

Pair = tuple[float, float]
"""(cpu_cores, memory_bytes), NaN where absent. Always `math.nan` itself, so that equal pairs compare equal."""

NOTHING: Pair = (math.nan, math.nan)

LARGEST = 1e300
"""A larger quantity counts as this. The API server accepts `1e402`: the pod that has it must not be ignored for it, and
sums must stay finite."""


@lru_cache(maxsize=8192, typed=True)
def parse_quantity(text: str | int | float) -> float:
    """The value of a quantity: cores, bytes or a bare number. `BadQuantity` if it is none.

    Equal values give equal floats however written: `1`, `1000m` and `1e0`; `0.587` and `587m`. Always finite.

    Examples
    --------
    >>> parse_quantity("250m"), parse_quantity("1Ki"), parse_quantity("1e3"), parse_quantity(2)
    (0.25, 1024.0, 1000.0, 2.0)
    """
    found = _QUANTITY.fullmatch(str(text)) if isinstance(text, str | int | float) else None
    if found is None:
        raise BadQuantity(f"{text!r} is not a quantity")
    number, suffix, exponent = found.groups()
    if exponent:
        value = float(number + exponent)
    elif suffix in _DIVISORS:
        value = float(number) / _DIVISORS[suffix]
    else:
        value = float(number) * _FACTORS.get(suffix, 1.0)
    return max(-LARGEST, min(value, LARGEST))


@lru_cache(maxsize=4096)
def shared_pair(cpu_cores: float, memory_bytes: float) -> Pair:
    """Cached, since thousands of containers have equal requests."""
    return cpu_cores, memory_bytes


def millicores(cpu_cores: float) -> int:
    """Whole millicores, rounded up except for floating-point error."""
    return math.ceil(round(cpu_cores * 1000.0, 6))


def whole_bytes(memory_bytes: float) -> int:
    """Whole bytes, rounded up except for floating-point error."""
    return math.ceil(round(memory_bytes, 3))


def cpu_quantity(cpu_cores: float) -> str:
    """Format cores as the recommender publishes them, in whole millicores rounded up.

    Examples
    --------
    >>> cpu_quantity(0.5871), cpu_quantity(1.0), cpu_quantity(1.5)
    ('588m', '1', '1500m')
    """
    milli = millicores(cpu_cores)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def memory_quantity(memory_bytes: float) -> str:
    """Format bytes as the recommender publishes them: whole, rounded up, with a binary suffix where that is exact.

    Examples
    --------
    >>> memory_quantity(262144000), memory_quantity(628694953), memory_quantity(2**31)
    ('250Mi', '628694953', '2Gi')
    """
    value, power = whole_bytes(memory_bytes), 0
    while value and value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value, power = value // 1024, power + 1
    return f"{value}{_BINARY_SUFFIXES[power]}"


FORMATS = (cpu_quantity, memory_quantity)
"""By resource."""


def quantities_of(amounts: tuple[float | None, float | None]) -> dict[str, str]:
    """(cpu_cores, memory_bytes) as a resource map, without what is None or not finite."""
    given = zip(RESOURCES, FORMATS, amounts, strict=True)
    return {name: shown(amount) for name, shown, amount in given if amount is not None and math.isfinite(amount)}
