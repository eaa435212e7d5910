"""The table of nodes: what each row of the simulated cluster would have needed, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from recommender.base.nodes import NodeUse
from recommender.base.units import counted
from recommender.report.summary import Summary, number, two_decimals
from recommender.report.workloads import HOURS_PER_MONTH, or_none
from recommender.simulate.rows import ADVISED, PHASEWISE, STATIC


@dataclass(frozen=True, slots=True)
class NodeColumn:
    """A column of the table; `shown` says whether there is anything to show for these nodes."""

    header: str
    key: str
    cell: Callable[[NodeUse], str]
    shown: Callable[[NodeUse], bool] = lambda _: True


_COLUMNS = (
    NodeColumn("node-\nhours", "node_hours", lambda one: number(one.node_hours)),
    NodeColumn(
        "lost by\nkills",
        "lost_node_hours",
        lambda one: number(one.lost_node_hours),
        lambda one: one.lost_node_hours > 0,
    ),
    NodeColumn("mean\nnodes", "mean_nodes", lambda one: two_decimals(one.mean_nodes)),
    NodeColumn("peak\nnodes", "peak_nodes", lambda one: f"{one.peak_nodes:,}"),
    NodeColumn("pods\ndisplaced", "displaced", lambda one: f"{one.displaced:,}"),
    NodeColumn(
        "GPU-hours\nstranded",
        "stranded_device_hours",
        lambda one: number(or_none(one.stranded_device_hours)),
        lambda one: not math.isnan(one.stranded_device_hours),
    ),
    NodeColumn(
        "cost/\nmonth",
        "cost_a_month",
        lambda one: number(or_none(one.cost_per_hour * HOURS_PER_MONTH)),
        lambda one: not math.isnan(one.cost),
    ),
)


def node_columns(nodes: Iterable[NodeUse]) -> list[NodeColumn]:
    """The columns that have something to show for at least one row."""
    listed = list(nodes)
    return [column for column in _COLUMNS if any(map(column.shown, listed))]


def nodes_by_policy(summary: Summary) -> dict[str, NodeUse]:
    """Nodes in the order of the table of policies, where those that kill come last, whatever they cost."""
    nodes = summary.result.nodes
    return {name: nodes[name] for name in (*(row.name for row in summary.in_force), ADVISED) if name in nodes}


def nodes_by_request(nodes: Mapping[str, NodeUse]) -> dict[str, NodeUse]:
    """Nodes with the requests as they are, with those advised, and with those of each phase."""
    names = {STATIC: "now", ADVISED: ADVISED, PHASEWISE: "by phases"}
    return {shown: nodes[name] for name, shown in names.items() if name in nodes}


def node_figures(one: NodeUse) -> dict[str, Any]:
    """One row for JSON; None where no price is given or nothing requests devices."""
    return {
        "hours": one.hours,
        "node_hours": one.node_hours,
        "lost_node_hours": one.lost_node_hours,
        "mean_nodes": one.mean_nodes,
        "peak_nodes": one.peak_nodes,
        "displaced": one.displaced,
        "stranded_device_hours": or_none(one.stranded_device_hours),
        "cost": or_none(one.cost),
        "cost_a_month": or_none(one.cost_per_hour * HOURS_PER_MONTH),
        "pods_larger_than_a_node": list(one.larger),
        "pods_without_their_devices": list(one.without_devices),
    }


def node_words(nodes: Mapping[str, NodeUse]) -> list[str]:
    """What the columns mean, and which pods were packed in another way than the others."""
    lines = [
        "Pods are packed as they begin, end and are resized (best fit); a node is given back with its last pod. "
        "displaced: a raised request for which the node had no room. A month is 730 hours like the recorded ones."
    ]
    if ADVISED in nodes:
        lines[0] += f" {ADVISED}: with one request for whole runs, as advised."
    for name, one in nodes.items():
        if one.larger:
            lines.append(
                f"{name}: {counted(len(one.larger), 'pod')} larger than every node type, each counted as so many whole "
                f"nodes; the first is {one.larger[0]!r}."
            )
    without = next(iter(nodes.values())).without_devices if nodes else ()
    if without:
        lines.append(
            f"{counted(len(without), 'pod')} with devices that no node type has, packed by CPU and memory alone; the "
            f"first is {without[0]!r}. Name the GPUs of a node: 48x192Gi+4."
        )
    return lines
