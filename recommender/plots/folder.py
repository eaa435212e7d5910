"""All pictures of a dry run in one folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
    pictures: dict[str, Callable[[Path], None]] = {}
    if result.containers:
        pictures["tradeoff"] = partial(draw_tradeoff, summarise(result))
    drawn = [timeline for timeline in timelines if len(timeline.timestamps)]
    for place, timeline in enumerate(drawn, start=1):
        pictures[f"timeline-{place:02d}-{file_name_of(timeline.container)}"] = partial(draw_timeline, timeline)
    if phase_graph is not None and phase_graph.containers:
        pictures["phase-graph"] = partial(draw_graph, phase_graph)
    if runs := [list(sequence) for sequence in sequences if sequence]:
        pictures["prototypes"] = partial(draw_prototypes, runs)
    written = [target / f"{name}.png" for name in pictures]
    for path, draw in zip(written, pictures.values(), strict=True):
        with written_aside(path) as aside:
            draw(aside)
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
