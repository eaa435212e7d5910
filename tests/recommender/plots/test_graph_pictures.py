"""Pictures of phase graphs, also of unusual ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from recommender.phases.graph import PhaseGraph
from recommender.phases.graph_io import to_networkx
from recommender.plots.graph import draw_on, draw_picture
from recommender.report.graph_drawing import draw_graph

RING = [[(phase % 12, 3 + phase) for phase in range(start, start + 13)] for start in range(6)]


UNFINISHED = PhaseGraph(3)
UNFINISHED.learn([(0, 2), (1, 3)], ended=False)


def _texts(graph: PhaseGraph) -> list[str]:
    axes, drawn = Figure().add_subplot(), to_networkx(graph)
    draw_on(drawn, draw_graph(drawn), axes)
    return [text.get_text() for text in axes.texts]


def test_every_arrow_is_labelled_with_its_probability() -> None:
    texts = _texts(PhaseGraph.fit([[(1, 4), (0, 6)], [(1, 4), (0, 2), (2, 4)]]))
    for expected in ("start", "end", "100%", "50%", "1", "40% of time\n4 per run", "20% of time\n4 per run"):
        assert expected in texts


def test_rare_arrows_are_left_out() -> None:
    often, once = [[(1, 4), (0, 6)]] * 99, [[(1, 4), (2, 6)]]
    texts = _texts(PhaseGraph.fit(often + once))
    assert "99%" in texts
    assert "1%" not in texts


@pytest.mark.parametrize(
    "graph",
    [
        UNFINISHED,
        PhaseGraph.fit([[(4, 7)]], 9),
        PhaseGraph.fit(RING),
    ],
    ids=["an unfinished run only", "one phase of nine", "twelve phases"],
)
def test_unusual_graphs_are_drawn(graph: PhaseGraph, tmp_path: Path) -> None:
    draw_picture(to_networkx(graph), tmp_path / "graph.png")
    assert (tmp_path / "graph.png").stat().st_size > 5000
