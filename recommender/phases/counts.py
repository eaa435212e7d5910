"""Counts on the edges of a graph, as plain dictionaries; as a `networkx.DiGraph` for whoever draws or exports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import networkx as nx


class Counts:
    """Named nodes with facts, and edges with a count.

    networkx is loaded only when its graph is asked for: it takes more memory than all that the recommender needs of it.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self._following: dict[str, dict[str, int]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def add_node(self, name: str, **facts: Any) -> None:
        """Know a node; facts that it has already are replaced."""
        self.nodes.setdefault(name, {}).update(facts)

    def add(self, source: str, target: str, times: int) -> None:
        """Count an edge; both ends must be known."""
        edges = self._following.setdefault(source, {})
        edges[target] = edges.get(target, 0) + times

    def following(self, source: str) -> Mapping[str, int]:
        """The targets of a node and how often each came, by name."""
        return dict(sorted(self._following.get(source, {}).items()))

    def digraph(self) -> nx.DiGraph:
        """A copy: nodes with their facts, edges with `count`."""
        import networkx as nx  # noqa: PLC0415

        made = nx.DiGraph()
        made.add_nodes_from(self.nodes.items())
        made.add_edges_from(
            (source, target, {"count": times})
            for source, edges in self._following.items()
            for target, times in edges.items()
        )
        return made
