"""Layout of the phase graph of the page, and the looks of policies and phases."""

from __future__ import annotations

import networkx as nx
import pytest

from recommender.phases.detector import CANDIDATE_PHASES
from recommender.report.graph_drawing import WIDTH, draw_graph
from recommender.report.palette import LOOKS, PHASE_COLOURS, look_of, phase_colour


def test_the_graph_of_a_typical_job_reads_from_left_to_right() -> None:
    graph: nx.DiGraph = nx.DiGraph()
    for source, target, count in (
        ("start", "2", 4), ("2", "0", 4), ("0", "1", 9), ("1", "0", 5), ("1", "end", 4), ("1 0", "0", 7),
        ("1", "open", 3),
    ):  # fmt: skip
        graph.add_edge(source, target, count=count)
    drawing = draw_graph(graph)
    names = [node.name for node in sorted(drawing.nodes, key=lambda node: node.x)]
    assert names == ["start", "2", "0", "1", "end"]
    assert all(0 < node.x < WIDTH and 0 < node.y < drawing.height for node in drawing.nodes)
    shares = {(source, target): share for source, target, share, _ in drawing.transitions}
    assert shares["1", "0"] == pytest.approx(5 / 9) and shares["1", "end"] == pytest.approx(4 / 9)
    back = next(arrow for arrow in drawing.arrows if (arrow.source, arrow.target) == ("1", "0"))
    assert back.label_y > drawing.nodes[0].y


def test_rare_transitions_are_listed_but_not_drawn() -> None:
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_edge(0, 1, count=99)
    graph.add_edge(0, 2, count=1)
    drawing = draw_graph(graph)
    assert len(drawing.transitions) == 2 and len(drawing.arrows) == 1


def test_known_policies_differ_in_their_markers_and_other_policies_in_their_looks() -> None:
    assert len({look.marker for look in LOOKS.values()}) == len(LOOKS)
    others = ["mine", "histogram", "yours"]
    assert look_of("mine", others) != look_of("yours", others)
    assert look_of("histogram", others) == LOOKS["histogram"]


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("policy", sorted(LOOKS))
def test_every_line_contrasts_with_both_backgrounds_and_every_phase(policy: str) -> None:
    look = LOOKS[policy]
    assert _contrast(look.light, "#ffffff") >= 3 and _contrast(look.dark, "#14171a") >= 3
    for phase in range(PHASE_COLOURS):
        assert _contrast(look.light, phase_colour(phase)) >= 2.9
        assert _contrast(look.dark, phase_colour(phase, dark=True)) >= 2.9


@pytest.mark.parametrize("dark", [False, True])
def test_no_two_phases_of_a_model_share_a_colour(dark: bool) -> None:
    most = max(CANDIDATE_PHASES)
    assert len({phase_colour(phase, dark=dark) for phase in range(most)}) == most
