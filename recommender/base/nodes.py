"""Types of nodes, and how many of them pods need: what a cluster is paid by."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from recommender.base.errors import Misuse
from recommender.base.units import MAX_NUMBER, MEMORY_UNITS

_NUMBER = r"\d+(?:\.\d+)?"
_NODE_TYPE = re.compile(rf"({_NUMBER})x({_NUMBER})([A-Za-z]+)(?:\+(\d+))?(?:@({_NUMBER}))?")


@dataclass(frozen=True, slots=True)
class NodeType:
    """What a node of one type has for pods: cores, bytes, and devices such as GPUs; and its price, NaN if unknown."""

    cpu_cores: float
    memory_bytes: float
    devices: int = 0
    price_per_hour: float = math.nan


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The nodes that pods needed in `hours` of recorded time."""

    hours: float
    node_hours: float
    peak_nodes: int
    lost_node_hours: float  # of repeated work and restarts after kills, as shares of a node
    cost: float  # of both, in the currency of the prices; NaN without prices
    displaced: int  # raised requests for which the node of the pod had no room
    # Hours of devices on nodes that only CPU and memory made necessary; NaN where no pod has devices.
    stranded_device_hours: float
    larger: tuple[str, ...]  # pods larger than a node: each counts as so many whole nodes
    without_devices: tuple[str, ...]  # pods whose devices no type has: packed by CPU and memory alone

    @property
    def mean_nodes(self) -> float:
        return self.node_hours / self.hours if self.hours else 0.0

    @property
    def cost_per_hour(self) -> float:
        return self.cost / self.hours if self.hours else 0.0


def parse_node_type(text: str) -> NodeType:
    """Parse cores, memory, devices and price per hour of a node; `Misuse` says how to write them.

    >>> parse_node_type("16x64Gi@0.80")
    NodeType(cpu_cores=16.0, memory_bytes=68719476736.0, devices=0, price_per_hour=0.8)
    >>> parse_node_type("48x192GiB+4").devices
    4
    """
    found = _NODE_TYPE.fullmatch(text.strip())
    unit = MEMORY_UNITS.get(found[3]) if found else None
    if found is None or unit is None:
        raise Misuse(
            f"{text!r} is not a node type. Write cores x memory, GPUs if it has some, and the price of an hour if "
            "known: 16x64Gi, 16x64Gi@0.80 or 48x192Gi+4@2.50."
        )
    cpu_cores, memory_bytes = float(found[1]), float(found[2]) * unit
    devices, price_per_hour = int(found[4] or 0), float(found[5]) if found[5] else math.nan
    if not (cpu_cores > 0.0 and memory_bytes > 0.0):
        raise Misuse(f"{text!r} is a node without CPU or memory. Write what it has for pods, such as 16x64Gi.")
    if max(cpu_cores, memory_bytes, devices, 0.0 if math.isnan(price_per_hour) else price_per_hour) > MAX_NUMBER:
        raise Misuse(f"{text!r} has a number above {MAX_NUMBER}. Write what a node has for pods, such as 16x64Gi.")
    return NodeType(cpu_cores, memory_bytes, devices, price_per_hour)


def check_prices(types: Sequence[NodeType]) -> None:
    """Refuse types of which some have a price and some have none: the cheapest could not be told."""
    if len({math.isnan(one.price_per_hour) for one in types}) > 1:
        raise Misuse(
            "--node-type: some types have a price and others have none. Give all of them one (@0.80), or none."
        )
