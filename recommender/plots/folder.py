"""All pictures of a dry run in one folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import networkx as nx

from recommender.errors import Misuse
from recommender.phases.statistics import PhaseStatistics
from recommender.plots.graph import draw_picture
from recommender.plots.phases import draw_phases
from recommender.plots.policies import draw_allocation, draw_tradeoff
from recommender.plots.timelines import draw_timeline
from recommender.records import ReplayResult, Timeline


def write_plots(
    result: ReplayResult,
    timelines: Sequence[Timeline],
    folder: str | Path,
    *,
    phase_graph: nx.DiGraph[str] | None = None,
    phase_table: PhaseStatistics | None = None,
) -> list[Path]:
    """Write tradeoff.png, allocation.png, a picture per timeline, and, where given, graph and phases.

    Parameters
    ----------
    timelines
        Containers to draw.
    folder
        Is made when it is not there; pictures of the same name are replaced, others are left alone.
    phase_graph, phase_table
        What follows what, and what each phase looks like; None leaves its picture out.

    Returns
    -------
    The files written, in this order.

    Raises
    ------
    Misuse
        The folder cannot be made.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"{folder}: cannot make this folder ({error.strerror}). Name another one.") from error
    written: list[Path] = []
    if result.containers:
        for name, draw in (("tradeoff.png", draw_tradeoff), ("allocation.png", draw_allocation)):
            draw(result, target / name)
            written.append(target / name)
    drawn = [timeline for timeline in timelines if len(timeline.timestamps)]
    for place, timeline in enumerate(drawn, start=1):
        path = target / f"timeline-{place:02d}-{file_name_of(timeline.container)}.png"
        draw_timeline(timeline, path)
        written.append(path)
    if phase_graph is not None:
        draw_picture(phase_graph, target / "phase-graph.png")
        written.append(target / "phase-graph.png")
    if phase_table is not None:
        draw_phases(phase_table, target / "phases.png")
        written.append(target / "phases.png")
    return written


def file_name_of(container: str) -> str:
    """A container's name as part of a file name that any system takes: plain letters, digits, dots and dashes.

    Examples
    --------
    >>> file_name_of("ns/pod <1>")
    'ns-pod-1'
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", container).strip("-.")
    return plain[:60] or "container"
