"""`phasewise research phases`."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recommender.base.files import atomic_write, check_target
from recommender.base.records import IntArray, UsageSeries
from recommender.base.units import counted
from recommender.cli.common import (
    FILE,
    STEP,
    check_parquet_target,
    map_option,
    progress_bar,
    refuse_overwriting,
    say,
    source_argument,
)
from recommender.learning import model as models
from recommender.phases.features import source_columns
from recommender.replaying.planning import mismatch_notes
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import ColumnMap

SCHEMA = pa.schema([("container", pa.string()), ("timestamp", pa.int64()), ("phase", pa.int64())])

MAX_TRACES = 6
"""Containers drawn by --traces; more would not be readable in one picture."""


@click.command("phases")
@source_argument(required=True)
@click.option("--model", "model_name", required=True, help="Model folder or `bundled`.")
@click.option("-o", "--output", required=True, type=FILE, help="Parquet file to write.")
@click.option("--step", "step_s", type=STEP, help="Grid step; `none`: samples as they are, without grid and gaps.")
@click.option("--traces", type=FILE, help="Write a PNG of the first containers with their phases.")
@click.option("--variance", type=FILE, help="Write a PNG of the usage distribution of each phase.")
@map_option
def command(
    source: tuple[Path, ...],
    model_name: str,
    output: Path,
    step_s: float | None,
    traces: Path | None,
    variance: Path | None,
    columns: tuple[ColumnMap, ...],
) -> None:
    """Detect the phase of each sample of SOURCE.

    Writes the columns container, timestamp (unix seconds) and phase, sorted by container and time, without rows for
    gaps. Phase -1 is unknown: a window far from all phases. `phasewise research graph` reads the file.
    """
    check_parquet_target(output)
    pictures = [path for path in (traces, variance) if path is not None]
    for path in pictures:
        check_target(path)
    model = models.load(model_name)
    detector = model.detector
    reading = ReadOptions(columns=columns, features=source_columns(detector.features), step_s=step_s)
    drawn: list[tuple[UsageSeries, IntArray]] = []
    samples = unknown = 0
    with progress_bar() as progress, open_source(source, reading, progress=progress) as opened:
        refuse_overwriting((output, *pictures), opened.files)
        with atomic_write(output) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
            for done, series in enumerate(opened, start=1):
                trace = detector.trace(series)
                labels = trace[series.present]
                names = pa.array(np.full(len(labels), series.container))
                writer.write_table(pa.table([names, series.timestamps[series.present], labels], schema=SCHEMA))
                samples, unknown = samples + len(labels), unknown + int((labels < 0).sum())
                if len(drawn) < MAX_TRACES or variance is not None:
                    drawn.append((series, trace))
                progress("containers", done, len(opened.containers))
        for note in (*opened.notes, *mismatch_notes(model, opened.step_s)):
            say(f"note: {note}")
    if traces is not None:
        from recommender.plots.style import save  # noqa: PLC0415  matplotlib takes a second to import
        from recommender.plots.timelines import traces_figure  # noqa: PLC0415

        save(traces_figure(drawn[:MAX_TRACES]), traces)
    if variance is not None:
        from recommender.plots.timelines import draw_variance  # noqa: PLC0415

        draw_variance(drawn, variance)
    say(f"{output}: {counted(samples, 'sample')}, {unknown:,} of unknown phase")
