"""Options of all commands that count in money."""

from __future__ import annotations

from pathlib import Path

from recommender.base.errors import Misuse
from recommender.base.nodes import NodeType, check_prices, parse_node_type
from recommender.cli.common import FILE, FiniteRange, Parsed
from recommender.cli.grouped import grouped
from recommender.cluster.node_types import read_node_types, read_prices
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
    _option(
        "--nodes file",
        FILE,
        "Count nodes of the types in this file, which `kubectl get nodes -o json` writes, instead of --node-type.",
    ),
    _option(
        "--prices prices_file",
        FILE,
        "Prices per hour of the instance types in --nodes: a YAML file of lines such as `m5.xlarge: 0.192`.",
    ),
)


def make_node_types(types: tuple[NodeType, ...], file: Path | None, prices_file: Path | None) -> tuple[NodeType, ...]:
    if file is not None and types:
        raise Misuse("--nodes and --node-type say the same. Leave one of them out.")
    if prices_file is not None and file is None:
        raise Misuse("--prices are of the nodes in --nodes. Give that file, or write --node-type 16x64Gi@0.80.")
    if file is not None:
        return read_node_types(file, {} if prices_file is None else read_prices(prices_file))
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
