"""Geometry of the page's pictures: scatter and phase graph."""

from __future__ import annotations

from importlib import resources

import networkx as nx
import pytest

from recommender.records import CPU, MEMORY
from recommender.report.graph_drawing import WIDTH, draw_graph
from recommender.report.palette import _LOOKS, look_of, phase_colour
from recommender.report.scatter import BOTTOM, HEIGHT, LEFT, MARKERS, TOP, axis_top, round_steps, scatter_of
from recommender.report.summary import summarise
from tests.recommender.report.simulation import Simulated


def test_a_value_far_from_all_others_does_not_squeeze_them_into_a_corner() -> None:
    assert axis_top([0.1, 0.3, 0.4], at_least=0.2) == pytest.approx(0.448)
    assert axis_top([0.1, 0.3, 0.4, 12.0], at_least=0.2) == pytest.approx(0.448)
    assert axis_top([], at_least=0.2) == pytest.approx(0.224)


@pytest.mark.parametrize(("top", "steps"), [(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (23, [0, 5, 10, 15, 20])])
def test_ticks_are_round(top: float, steps: list[float]) -> None:
    assert round_steps(top) == pytest.approx(steps)


def test_every_policy_lies_inside_the_axes_and_less_slack_lies_further_left(run: Simulated) -> None:
    rows = summarise(run.result).policies
    for resource in (CPU, MEMORY):
        points = {point.policy: point for point in scatter_of(rows, resource).points}
        assert set(points) == set(run.result.policies)
        assert all(point.x >= LEFT and TOP - 1 <= point.y <= HEIGHT - BOTTOM for point in points.values())
        assert points["ground.truth"].x < points["current.step.max"].x < points["histogram"].x
        assert points["static"].label.endswith("→")


def test_no_label_of_a_policy_covers_another_ones(run: Simulated) -> None:
    points = scatter_of(summarise(run.result).policies, CPU).points
    boxes = []
    for point in points:
        width = 6.6 * len(point.label)
        left = point.label_x if point.anchor == "start" else point.label_x - width
        boxes.append((left, point.label_y - 11, left + width, point.label_y + 4))
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert min(a[2], b[2]) <= max(a[0], b[0]) or min(a[3], b[3]) <= max(a[1], b[1])


def test_the_graph_of_a_usual_job_reads_from_left_to_right() -> None:
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


def test_rare_transitions_are_told_and_not_drawn() -> None:
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_edge(0, 1, count=99)
    graph.add_edge(0, 2, count=1)
    drawing = draw_graph(graph)
    assert len(drawing.transitions) == 2 and len(drawing.arrows) == 1


def test_every_look_has_a_marker_that_the_page_can_draw_and_known_policies_differ() -> None:
    assert {look.marker for look in _LOOKS.values()} <= set(MARKERS)
    assert len({look.marker for look in _LOOKS.values()}) == len(_LOOKS)
    strangers = ["mine", "histogram", "yours"]
    assert look_of("mine", strangers) != look_of("yours", strangers)
    assert look_of("histogram", strangers) == _LOOKS["histogram"]


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(a: str, b: str) -> float:
    light, dark = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_page_fills_the_markers_of_choices_and_leaves_those_of_oracles_hollow() -> None:
    style = (resources.files("recommender.report") / "page.css").read_text(encoding="utf-8")
    assert "\n.dot { fill: var(--c);" in style and ".oracle .dot, tr.oracle .dot { fill: var(--ground);" in style


@pytest.mark.parametrize("policy", sorted(_LOOKS))
def test_every_line_stands_out_from_both_grounds_and_from_every_phase(policy: str) -> None:
    look = _LOOKS[policy]
    assert _contrast(look.light, "#ffffff") >= 3 and _contrast(look.dark, "#14171a") >= 3
    for phase in range(10):
        assert _contrast(look.light, phase_colour(phase)) >= 2.9
        assert _contrast(look.dark, phase_colour(phase, dark=True)) >= 2.9
