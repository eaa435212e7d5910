"""The table of nodes: what each row of the simulated cluster would have needed, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recommender.base.nodes import NodeUse
from recommender.base.units import counted
from recommender.report.summary import Summary, number, two_decimals
from recommender.report.workloads import HOURS_PER_MONTH, or_none
from recommender.simulate.rows import ADVISED, PHASEWISE, STATIC

_COLUMNS: Sequence[tuple[str, str, Callable[[Any], str]]] = (
    ("node-\nhours", "node_hours", number),
    ("lost by\nkills", "lost_node_hours", number),
    ("mean\nnodes", "mean_nodes", two_decimals),
    ("peak\nnodes", "peak_nodes", "{:,}".format),
    ("pods\ndisplaced", "displaced", "{:,}".format),
    ("GPU-hours\nstranded", "stranded_device_hours", number),
    ("cost/\nmonth", "cost_a_month", number),
)
"""Headers, keys of `node_figures`, and how they are written."""


def node_cells(nodes: Mapping[str, NodeUse]) -> tuple[list[str], dict[str, list[tuple[Any, str]]]]:
    """Headers, and for each row the values and texts of its cells; without columns that have nothing to show."""
    figures = {name: node_figures(one) for name, one in nodes.items()}
    columns = [column for column in _COLUMNS if any(of[column[1]] for of in figures.values())]
    cells = {name: [(of[key], text(of[key])) for _, key, text in columns] for name, of in figures.items()}
    return [header for header, _, _ in columns], cells


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
