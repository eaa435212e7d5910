"""Options of all commands that count in money."""

from __future__ import annotations

from recommender.base.nodes import NodeType, check_prices, parse_node_type
from recommender.cli.common import FiniteRange, Parsed
from recommender.cli.grouped import grouped
from recommender.report.summary import USUAL_PRICES

_option = grouped()

PRICE_OPTIONS = (
    _option(
        "--cpu-price cpu_core_hour",
        FiniteRange(0),
        f"Price per core-hour reserved. Default, if no price is given: {USUAL_PRICES.cpu_core_hour:g}.",
    ),
    _option(
        "--memory-price memory_gib_hour",
        FiniteRange(0),
        f"Price per GiB-hour reserved. Default, if no price is given: {USUAL_PRICES.memory_gib_hour:g}.",
    ),
)

NODE_OPTIONS = (
    _option(
        "--node-type types",
        Parsed("node type", parse_node_type),
        "Count nodes of this type, and their cost at a price per hour: 16x64Gi@0.80, 48x192Gi+4@2.50 with four GPUs. "
        "Name what a node has for pods. Repeatable: a new node is of the cheapest type that a pod fits on.",
        metavar="CORESxMEMORY[+GPUS][@PRICE]",
        multiple=True,
    ),
)


def make_node_types(types: tuple[NodeType, ...]) -> tuple[NodeType, ...]:
    check_prices(types)
    return types


HARM_OPTIONS = (
    _option(
        "--violation-price violation_hour",
        FiniteRange(0),
        "Price per container-hour in violation; deducted from savings.",
    ),
    _option(
        "--oom-price oom_event",
        FiniteRange(0),
        "Price per OOM kill besides the work that it loses; replaces the price of memory violations.",
    ),
)
