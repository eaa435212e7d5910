"""Types of nodes, from what kubectl prints and a file of prices."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from recommender.base.errors import Misuse
from recommender.base.nodes import NodeType
from recommender.cluster.node_types import INSTANCE_TYPE_LABEL, read_node_types, read_prices

GIB = 2.0**30


def node(name: str, instance: str = "", **allocatable: str) -> dict[str, Any]:
    labels = {INSTANCE_TYPE_LABEL: instance} if instance else {}
    has = {"cpu": "4", "memory": "16Gi", **allocatable}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": has}}


def file_of(folder: Path, *nodes: object) -> Path:
    path = folder / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "items": nodes}))
    return path


def test_nodes_of_an_instance_type_are_one_type_with_the_least_that_they_have_for_pods(tmp_path: Path) -> None:
    """Two m5.xlarge, of which one has 15 GiB, and one with four GPUs."""
    gpus = node("c", "p3.8xlarge", cpu="31850m", memory="240Gi", **{"nvidia.com/gpu": "4"})
    file = file_of(tmp_path, node("a", "m5.xlarge", cpu="3920m"), node("b", "m5.xlarge", memory="15Gi"), gpus)
    prices = tmp_path / "prices.yaml"
    prices.write_text("m5.xlarge: 0.192\np3.8xlarge: 12.24\nm5.large: 0.096\n")
    assert read_node_types(file, read_prices(prices)) == (
        NodeType(3.92, 15 * GIB, 0, 0.192),
        NodeType(31.85, 240 * GIB, 4, 12.24),
    )


def test_nodes_without_an_instance_type_are_told_apart_by_what_they_have(tmp_path: Path) -> None:
    found = read_node_types(file_of(tmp_path, node("a"), node("b"), node("c", cpu="8")), {})
    assert [(one.cpu_cores, math.isnan(one.price_per_hour)) for one in found] == [(4.0, True), (8.0, True)]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ('{"items": []}', "not a list of nodes"),
        ("[1]", "not a list of nodes"),
        ('{"items": [3]}', "not a list of nodes"),
        ("{", "neither JSON nor YAML"),
        (json.dumps({"items": [node("a", cpu="many")]}), "Node a: status.allocatable.cpu"),
        (json.dumps({"items": [node("a", cpu="0")]}), "Node a has no CPU or memory"),
        (json.dumps({"items": [{"metadata": {"name": "a"}}]}), "Node a has no CPU or memory"),
        (json.dumps({"items": [node("a") | {"metadata": {}}]}), "metadata.name is missing"),
        (json.dumps({"items": [node("a", **{"x.y/gpu": "q"})]}), "not a quantity"),
    ],
)
def test_what_is_no_list_of_nodes_is_refused_with_a_remedy(tmp_path: Path, contents: str, message: str) -> None:
    (tmp_path / "nodes.json").write_text(contents)
    with pytest.raises(Misuse, match=message) as refused:
        read_node_types(tmp_path / "nodes.json", {})
    assert str(refused.value).startswith("--nodes ")


def test_a_type_without_a_price_is_named(tmp_path: Path) -> None:
    file = file_of(tmp_path, node("a", "m5.xlarge"), node("b", "m5.large"), node("c", "m5.large"))
    with pytest.raises(Misuse, match=r"--prices has none for m5\.large \(2 nodes\)"):
        read_node_types(file, {"m5.xlarge": 0.192})


@pytest.mark.parametrize("price", ["free", "true", "-1", ".nan", ".inf", "1e300", "[1]"])
def test_a_price_is_a_finite_number(tmp_path: Path, price: str) -> None:
    (tmp_path / "prices.yaml").write_text(f"m5.xlarge: {price}\n")
    with pytest.raises(Misuse, match=r"m5\.xlarge: .* is not a price"):
        read_prices(tmp_path / "prices.yaml")


def test_a_file_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no such file"):
        read_node_types(tmp_path / "absent.json", {})
    with pytest.raises(Misuse, match=r"--prices .*: no such file"):
        read_prices(tmp_path / "absent.yaml")
