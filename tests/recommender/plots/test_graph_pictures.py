"""Pictures of phase graphs and prototypes: odd graphs are drawn too, and what is drawn is what was counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from recommender.phases.contexts import Run
from recommender.phases.graph import PhaseGraph
from recommender.plots.graph import draw_graph, draw_on
from recommender.plots.prototypes import draw_prototypes

RING = [[(phase % 12, 3 + phase) for phase in range(start, start + 13)] for start in range(6)]


def _texts(graph: PhaseGraph) -> list[str]:
    axes = Figure().add_subplot()
    draw_on(graph, axes)
    return [text.get_text() for text in axes.texts]


def test_every_arrow_carries_its_probability() -> None:
    texts = _texts(PhaseGraph.fit([[(1, 4), (0, 6)], [(1, 4), (0, 2), (2, 4)]]))
    for expected in ("start 1.00", "1.00", "0.50", "end 0.50", "end 1.00", "40% of time", "20% of time"):
        assert expected in texts


def test_rare_arrows_are_left_out() -> None:
    often, once = [[(1, 4), (0, 6)]] * 99, [[(1, 4), (2, 6)]]
    texts = _texts(PhaseGraph.fit(often + once))
    assert "0.99" in texts
    assert "0.01" not in texts


@pytest.mark.parametrize(
    "graph",
    [
        PhaseGraph(3).update([(0, 2), (1, 3)], ended=False),
        PhaseGraph(9).update([(4, 7)]),
        PhaseGraph.fit(RING),
    ],
    ids=["a phase only seen cut off", "one phase of nine", "twelve phases"],
)
def test_odd_graphs_are_drawn(graph: PhaseGraph, tmp_path: Path) -> None:
    draw_graph(graph, tmp_path / "graph.png")
    assert (tmp_path / "graph.png").stat().st_size > 5000


@pytest.mark.parametrize("runs", [RING, [[(0, 1)]], [[], [(0, 1), (1, 1)] * 9]], ids=["long", "one", "alternating"])
def test_odd_trees_are_drawn(runs: list[list[Run]], tmp_path: Path) -> None:
    draw_prototypes(runs, tmp_path / "tree.png")
    assert (tmp_path / "tree.png").stat().st_size > 2000
