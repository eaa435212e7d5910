"""All pictures of a dry run in one folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from recommender.errors import Misuse
from recommender.files import written_aside
from recommender.phases.contexts import Run
from recommender.phases.graph import PhaseGraph
from recommender.plots.graph import draw_graph
from recommender.plots.policies import draw_tradeoff
from recommender.plots.prototypes import draw_prototypes
from recommender.plots.timelines import draw_timeline
from recommender.records import ReplayResult, Timeline
from recommender.report.summary import summarise


def write_plots(
    result: ReplayResult,
    timelines: Sequence[Timeline],
    folder: str | Path,
    *,
    phase_graph: PhaseGraph | None = None,
    sequences: Iterable[Sequence[Run]] = (),
) -> list[Path]:
    """Write tradeoff.png, a picture per timeline, and, where given, graph and prototypes.

    Parameters
    ----------
    timelines
        Containers to draw.
    folder
        Is made when it is not there; pictures of the same name are replaced, others are left alone.
    phase_graph, sequences
        What follows what, and the runs of each container for the prototypes; what is empty or None leaves its picture
        out.

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
        draw_tradeoff(summarise(result), target / "tradeoff.png")
        written.append(target / "tradeoff.png")
    drawn = [timeline for timeline in timelines if len(timeline.timestamps)]
    for place, timeline in enumerate(drawn, start=1):
        path = target / f"timeline-{place:02d}-{file_name_of(timeline.container)}.png"
        draw_timeline(timeline, path)
        written.append(path)
    if phase_graph is not None and phase_graph.containers:
        with written_aside(target / "phase-graph.png") as aside:
            draw_graph(phase_graph, aside)
        written.append(target / "phase-graph.png")
    runs = [list(sequence) for sequence in sequences if sequence]
    if runs:
        with written_aside(target / "prototypes.png") as aside:
            draw_prototypes(runs, aside)
        written.append(target / "prototypes.png")
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
