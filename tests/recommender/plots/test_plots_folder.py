"""The pictures of a dry run: complete, as wide as a page, and the same each time."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from recommender.base.errors import Misuse
from recommender.base.records import UNKNOWN_PHASE, ReplayResult, UsageSeries
from recommender.phases.graph import PhaseGraph
from recommender.phases.graph_io import to_networkx
from recommender.plots.folder import file_name_of, write_plots
from recommender.plots.policies import axis_top, draw_tradeoff, tradeoffs_for_page
from recommender.plots.timelines import draw_timeline, draw_variance
from recommender.report.summary import summarise
from recommender.report.timeline_data import timeline_data
from tests.recommender.report.simulation import runs_of, simulated_run

RUN = simulated_run(containers=4)


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its header."""
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.mark.long
def test_a_dry_run_writes_every_picture_at_the_width_of_a_page(tmp_path: Path) -> None:
    sequences = [runs_of(timeline) for timeline in RUN.timelines]
    graph = to_networkx(PhaseGraph.fit(sequences, 5))
    write_plots(RUN.result, RUN.timelines[:1], tmp_path / "new" / "plots", phase_graph=graph)
    written = sorted((tmp_path / "new" / "plots").iterdir())
    assert [path.name for path in written] == [
        "phase-graph.png", "timeline-01-team-a-script-alert-x-script-red.png", "tradeoff.png",
    ]  # fmt: skip
    assert all(size_of(path)[0] >= 1200 for path in written)


def test_the_usage_of_a_container_of_unknown_phase_is_drawn(tmp_path: Path) -> None:
    series = UsageSeries("a", np.arange(8) * 15, 15.0, np.ones((8, 2)))
    draw_variance([(series, np.full(8, UNKNOWN_PHASE))], tmp_path / "v.png")
    assert size_of(tmp_path / "v.png")[0] >= 1200


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_tradeoff(summarise(RUN.result), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    "unusual",
    [
        {"container": "$\\frac{$ 日本 \x1b[31m", "labels": None},
        {"decisions": {"custom": RUN.timelines[0].decisions["prev.step.max"]}},
    ],
    ids=["a name with a formula and missing letters", "another policy"],
)
def test_an_unusual_timeline_is_drawn_at_the_width_of_a_page(unusual: dict[str, Any], tmp_path: Path) -> None:
    draw_timeline(replace(RUN.timelines[0], **unusual), tmp_path / "unusual.png")
    assert size_of(tmp_path / "unusual.png")[0] >= 1200


def test_the_usage_is_not_drawn_once_more_as_the_allocation_of_an_oracle(tmp_path: Path) -> None:
    decisions = RUN.timelines[0].decisions
    for names in (("ground.truth", "prev.step.max"), ("prev.step.max",)):
        one = replace(RUN.timelines[0], decisions={name: decisions[name] for name in names})
        draw_timeline(one, tmp_path / f"{len(names)}.png")
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes()
    drawn = timeline_data(RUN.timelines[0], ("ground.truth", "prev.step.max"))["allocations"]
    assert drawn.keys() == {"1"}


def test_samples_with_a_gap_on_either_side_are_drawn_as_dots(tmp_path: Path) -> None:
    timeline = RUN.timelines[0]
    usage = timeline.usage.copy()
    usage[::2] = np.nan
    draw_timeline(replace(timeline, usage=usage, labels=None, decisions={}), tmp_path / "sparse.png")
    inside_cpu_panel = imread(tmp_path / "sparse.png")[80:320, 100:-20, :3]
    assert (inside_cpu_panel.mean(axis=2) < 0.5).any()


def test_an_outlier_does_not_compress_the_other_values() -> None:
    assert axis_top([0.1, 0.3, 0.4], at_least=0.2) == pytest.approx(0.448)
    assert axis_top([0.1, 0.3, 0.4, 12.0], at_least=0.2) == pytest.approx(0.448)
    assert axis_top([], at_least=0.2) == pytest.approx(0.224)


def test_the_label_of_an_outlier_does_not_cover_the_title() -> None:
    summary = summarise(RUN.result)
    row = summary.policies[-1]
    outlier = replace(row, outcome=replace(row.outcome, cpu=replace(row.outcome.cpu, violation_ratio=0.9)))
    cpu, _ = tradeoffs_for_page(replace(summary, policies=(outlier, row, row)))
    label_y, title_y = (re.search(rf' y="([\d.]+)"[^>]*>{text}', cpu) for text in ("90.0 % ↑", "CPU: slack"))
    assert label_y and title_y and float(label_y[1]) > float(title_y[1]) + 10  # y grows downwards


def test_the_page_has_a_panel_per_resource_with_every_policy_in_the_colours_of_the_page() -> None:
    cpu, memory = tradeoffs_for_page(summarise(RUN.result))
    assert "CPU, slack against violations. static: slack" in cpu and "Memory, slack against violations" in memory
    for policy in RUN.result.policies:
        assert f">{policy}{' (oracle)' * (policy in RUN.result.oracles)}</text>" in cpu
    assert "fill: var(--policy-0)" in cpu and "fill: var(--ground)" in cpu
    assert not re.search("#[0-9a-f]{6};", cpu), "a colour that would not change in dark mode"


def test_an_infinite_slack_is_not_drawn() -> None:
    summary = summarise(RUN.result)
    first, *others = summary.policies
    cpu = replace(first.outcome.cpu, slack_ratio=math.inf)
    policies = (replace(first, outcome=replace(first.outcome, cpu=cpu)), *others)
    drawn, _ = tradeoffs_for_page(replace(summary, policies=policies))
    assert f">{first.name}</text>" not in drawn
    assert f">{others[0].name}</text>" in drawn


def test_without_a_judged_container_no_picture_is_written(tmp_path: Path) -> None:
    empty = ReplayResult(15, 600, ("static",), frozenset(), (), (), {})
    write_plots(empty, (), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misuse, match="cannot create this folder"):
        write_plots(RUN.result, (), tmp_path / "file")


@pytest.mark.parametrize(("name", "plain"), [("ns/pod <1>", "ns-pod-1"), ("../..", "container"), ("a" * 99, "a" * 60)])
def test_container_names_become_plain_file_names(name: str, plain: str) -> None:
    assert file_name_of(name) == plain
