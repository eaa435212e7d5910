"""T-shirt sizes: what a learner with so many GPUs of a kind needs, for pods that tell neither by history nor requests.

The table is FfDL's (table 5 of its recommendation of sizes): CPU threads that keep the GPUs busy, and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extender.pods.pod import Pair
from recommender.errors import Misuse
from recommender.units import BYTES_PER_GIB

FFDL: Mapping[str, Pair] = {
    "1-K80": (4.0, 24 * BYTES_PER_GIB),
    "2-K80": (8.0, 48 * BYTES_PER_GIB),
    "4-K80": (16.0, 96 * BYTES_PER_GIB),
    "1-P100": (8.0, 24 * BYTES_PER_GIB),
    "2-P100": (16.0, 48 * BYTES_PER_GIB),
    "1-V100": (26.0, 24 * BYTES_PER_GIB),
    "2-V100": (42.0, 48 * BYTES_PER_GIB),
}

UNTOLD: Pair = (0.1, 200.0 * (1 << 20))
"""What kube-scheduler itself counts for a container without requests when it scores nodes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The table, by `<GPUs>-<kind>`: `checked` makes one of a table from outside."""

    table: Mapping[str, Pair]

    def of(self, name: str) -> Pair | None:
        """The size of this very name."""
        return self.table.get(name)

    def for_gpus(self, gpus: float, gpu_type: str) -> Pair | None:
        """The size for so many GPUs of a kind, `gpu_type` being any text that holds its name (`Tesla-V100-SXM2-16GB`).

        Of a known kind the nearest size is scaled by the number; of an unknown one the smallest of all kinds counts,
        since too much would keep a node empty for a guess.

        Examples
        --------
        >>> Sizes(FFDL).for_gpus(4, "V100")
        (84.0, 103079215104.0)
        """
        if gpus <= 0 or not self.table:
            return None
        told = gpu_type.lower()
        named = [(name.partition("-"), need) for name, need in self.table.items()]
        alike = [(number, need) for (number, _, kind), need in named if told and kind.lower() in told]
        if alike:
            number, need = min(alike, key=lambda size: abs(float(size[0]) - gpus))
        else:
            number, need = min(((number, need) for (number, _, _), need in named), key=_per_gpu)
        return need[0] / float(number) * gpus, need[1] / float(number) * gpus


def _per_gpu(size: tuple[str, Pair]) -> tuple[float, float]:
    number, need = size
    return need[0] / float(number), need[1] / float(number)


def checked(table: Mapping[str, Pair]) -> Sizes:
    """A table whose names can be read.

    Raises
    ------
    Misuse
        A name is not `<GPUs>-<kind>`, or a need is not positive.
    """
    for name, need in table.items():
        number, dash, kind = name.partition("-")
        if not (number.isdigit() and int(number) and dash and kind) or not all(
            0 < part < float("inf") for part in need
        ):
            raise Misuse(f"T-shirt size {name!r}: name it <GPUs>-<kind>, as in 2-V100, and give it cpu and memory.")
    return Sizes(dict(table))
