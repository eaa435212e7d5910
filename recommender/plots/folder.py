"""Write all pictures of a dry run to one folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import networkx as nx

from recommender.base.errors import Misuse
from recommender.base.records import ReplayResult, Timeline
from recommender.plots.graph import draw_picture
from recommender.plots.policies import draw_tradeoff
from recommender.plots.timelines import draw_timeline
from recommender.report.summary import summarise


def write_plots(
    result: ReplayResult,
    timelines: Sequence[Timeline],
    folder: str | Path,
    *,
    phase_graph: nx.DiGraph[str] | None = None,
) -> None:
    """Write tradeoff.png, a picture of each timeline and, if given, the phase graph.

    `folder`: created if it does not exist, or Misuse; pictures of the same name are replaced, other files stay.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"{folder}: cannot create this folder ({error.strerror}). Name another one.") from error
    if result.containers:
        draw_tradeoff(summarise(result), target / "tradeoff.png")
    drawn = [timeline for timeline in timelines if len(timeline.timestamps)]
    for number, timeline in enumerate(drawn, start=1):
        draw_timeline(timeline, target / f"timeline-{number:02d}-{file_name_of(timeline.container)}.png")
    if phase_graph is not None:
        draw_picture(phase_graph, target / "phase-graph.png")


def file_name_of(container: str) -> str:
    """Container name as a portable part of a file name: ASCII letters, digits, dots, dashes and underscores.

    >>> file_name_of("ns/pod <1>")
    'ns-pod-1'
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", container).strip("-.")
    return plain[:60] or "container"
