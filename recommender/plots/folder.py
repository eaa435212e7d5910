"""Write all pictures of a dry run to one folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import networkx as nx

from recommender.errors import Misuse
from recommender.plots.graph import draw_picture
from recommender.plots.policies import draw_tradeoff
from recommender.plots.timelines import draw_timeline
from recommender.records import ReplayResult, Timeline
from recommender.report.summary import summarise


def write_plots(
    result: ReplayResult,
    timelines: Sequence[Timeline],
    folder: str | Path,
    *,
    phase_graph: nx.DiGraph[str] | None = None,
) -> list[Path]:
    """Write tradeoff.png, a picture of each timeline and, if given, the phase graph; returns the files in this order.

    `folder`: created if it does not exist, or Misuse; pictures of the same name are replaced, other files stay.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"{folder}: cannot create this folder ({error.strerror}). Name another one.") from error
    pictures: dict[str, Callable[[Path], None]] = {}
    if result.containers:
        pictures["tradeoff"] = partial(draw_tradeoff, summarise(result))
    drawn = [timeline for timeline in timelines if len(timeline.timestamps)]
    for number, timeline in enumerate(drawn, start=1):
        pictures[f"timeline-{number:02d}-{file_name_of(timeline.container)}"] = partial(draw_timeline, timeline)
    if phase_graph is not None:
        pictures["phase-graph"] = partial(draw_picture, phase_graph)
    written = [target / f"{name}.png" for name in pictures]
    for path, draw in zip(written, pictures.values(), strict=True):
        draw(path)
    return written


def file_name_of(container: str) -> str:
    """Container name as a portable part of a file name: ASCII letters, digits, dots, dashes and underscores.

    >>> file_name_of("ns/pod <1>")
    'ns-pod-1'
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", container).strip("-.")
    return plain[:60] or "container"
