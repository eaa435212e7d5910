"""Types of the nodes of a cluster, from a list of its nodes and a file of prices by instance type."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import yaml

from recommender.base.errors import Misuse
from recommender.base.files import read_mapping
from recommender.base.nodes import NodeType
from recommender.base.units import MAX_NUMBER
from recommender.cluster.errors import BadObject, BadQuantity
from recommender.cluster.objects.node import read_node
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.objects.reading import Fields

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"


def read_node_types(file: Path, prices: Mapping[str, float]) -> tuple[NodeType, ...]:
    """The types of the nodes in a list as `kubectl get nodes -o json` prints it.

    Nodes of an instance type have slightly different amounts for pods: it has the least of them. Nodes without the
    label of one are of a type if they have equally much. Raises Misuse: no such list, or a type without a price where
    some have one.
    """
    found: defaultdict[object, list[tuple[float, float, float]]] = defaultdict(list)
    for raw in _nodes_in(file):
        try:
            node, allocatable = read_node(raw), Fields(raw).child("status").child("allocatable").raw
            devices = sum(parse_quantity(value) for name, value in allocatable.items() if name.endswith("/gpu"))
        except (BadObject, BadQuantity) as error:
            raise Misuse(f"--nodes {file}: {error}. Write `kubectl get nodes -o json` to it.") from error
        has = (*node.allocatable, devices)
        if not min(node.allocatable) > 0.0:
            raise Misuse(f"--nodes {file}: Node {node.name} has no CPU or memory for pods. Leave it out.")
        found[node.labels.get(INSTANCE_TYPE_LABEL, has)].append(has)
    types = []
    for name, nodes in found.items():
        cpu_cores, memory_bytes, devices = np.min(nodes, axis=0).tolist()
        types.append(NodeType(cpu_cores, memory_bytes, int(devices), prices.get(str(name), math.nan)))
        if prices and math.isnan(types[-1].price_per_hour):
            raise Misuse(f"--prices has none for {_described(name, len(nodes))} in {file}. Add the price of an hour.")
    return tuple(types)


def read_prices(file: Path) -> dict[str, float]:
    """Prices of an hour by instance type; Misuse if the file is not a mapping of names to prices."""
    prices = {}
    for name, price in read_mapping(file, "--prices", "m5.xlarge: 0.192").items():
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0.0 <= price <= MAX_NUMBER:
            raise Misuse(f"--prices {file}: {name}: {price!r} is not a price. Write a number such as 0.192.")
        prices[name] = float(price)
    return prices


def _nodes_in(file: Path) -> list[Any]:
    try:
        read = _parsed(file.read_bytes())
    except OSError as error:
        raise Misuse(f"--nodes {file}: {(error.strerror or 'cannot be read').lower()}. Check the path.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Misuse(f"--nodes {file}: neither JSON nor YAML. Write `kubectl get nodes -o json` to it.") from error
    nodes = read.get("items") if isinstance(read, dict) else None
    if not isinstance(nodes, list) or not nodes or not all(isinstance(node, dict) for node in nodes):
        raise Misuse(f"--nodes {file}: not a list of nodes. Write `kubectl get nodes -o json` to it.")
    return nodes


def _parsed(text: bytes) -> Any:
    """JSON, or YAML, whose parser takes thirty times as long: a thousand nodes are ten megabytes or more."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return yaml.load(text, yaml.CSafeLoader)


def _described(name: object, count: int) -> str:
    return f"{name} ({count} nodes)" if isinstance(name, str) else f"{count} nodes without {INSTANCE_TYPE_LABEL}"
