"""Tables and JSON of bench_placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isnan
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.benches import Columns, table, table_of
from benchmarks.placement.burst import Burst
from benchmarks.placement.choices import Tally
from benchmarks.placement.gangs import BesideStream, Gangs
from benchmarks.placement.gpu_runs import SHARES, GpuResult, by_policy
from benchmarks.placement.images import Pulls
from benchmarks.placement.jobs import Line, Result
from benchmarks.placement.late_peaks import LatePeaks
from benchmarks.placement.unequal_nodes import UnequalNodes

PLACED_BY = "placed by"

OF_A_BURST: Columns = {
    "overload a node although another had room": lambda of: f"{of.avoidable} ({of.avoidable / of.pods:.1%})",
    "overload a node": lambda of: f"{of.overloaded} ({of.overloaded / of.pods:.1%})",
    "nodes over capacity at the end": lambda of: f"{of.nodes_over}",
    "bound where advised": lambda of: "" if of.agreed is None else f"{of.agreed}",
    "first to last binding": lambda of: f"{of.took_s:.1f} s",
}


OF_LATE_PEAKS: Columns = {
    "jobs killed": lambda of: f"{of.kills}",
    "done": lambda of: f"{of.done}",
    "mean wait (longest)": lambda of: f"{of.wait_min:.0f} min ({of.longest_min} min)",
}
OF_UNEQUAL_NODES: Columns = {
    "requested of small nodes": lambda of: f"{of.small:.0%}",
    "of large nodes": lambda of: f"{of.large:.0%}",
    "of the fullest node": lambda of: f"{of.fullest:.0%}",
}


OF_IMAGES: Columns = {
    "jobs": lambda of: f"{of.jobs}",
    "images pulled": lambda of: f"{of.pulls} ({of.pulls / of.jobs:.0%})",
    "fullest minus emptiest node": lambda of: f"{of.spread:.1f} jobs",
}


def images_table(rows: Sequence[Pulls], title: str) -> Table:
    return table_of(title, "weight", {f"{row.weight:g}": row for row in rows}, OF_IMAGES)


def late_peaks_table(rows: Sequence[LatePeaks], title: str) -> Table:
    return table_of(title, PLACED_BY, {row.title: row for row in rows}, OF_LATE_PEAKS)


def unequal_nodes_table(rows: Sequence[UnequalNodes], title: str) -> Table:
    return table_of(title, PLACED_BY, {row.title: row for row in rows}, OF_UNEQUAL_NODES)


def burst_table(bursts: Sequence[Burst], title: str) -> Table:
    return table_of(title, PLACED_BY, {burst.who.title: burst for burst in bursts}, OF_A_BURST)


def jobs_table(lines: Sequence[Line], title: str) -> Table:
    headers = (
        "CPU above capacity, core-s ± standard deviation", "relative to the best baseline", "OOMs", "nodes busy",
        "mean wait (longest)", "makespan",
    )  # fmt: skip
    rows = table(title, "arrivals", "nodes", PLACED_BY, *headers, text_columns=3)
    before = None
    for line in lines:
        same = before is not None and (line.pattern, line.nodes) == (before.pattern, before.nodes)
        if not same and before is not None:
            rows.add_section()
        rows.add_row(
            "" if same else line.pattern,
            "" if same else str(line.nodes),
            line.who.title,
            f"{line.cpu_core_s:.1f} ± {line.spread:.1f}",
            f"{line.ratio:.2f}",
            f"{line.ooms:.1f}",
            f"{line.nodes_busy:.1f}",
            f"{line.waited_s:.1f} s ({line.longest_wait_s:.0f} s)",
            f"{line.makespan_s:.0f} s",
        )
        before = line
    return rows


def gangs_table(rows: Sequence[Gangs], title: str) -> Table:
    headers = ("both finished", "deadlocks", "gangs bound in part", "both bound after, median (longest)")
    made = table(title, PLACED_BY, *headers, "longest time from first to last binding of a gang")
    for row in rows:
        took = [each.took_s for each in row.repetitions if each.finished == 2]
        count = len(row.repetitions)
        made.add_row(
            row.who.title,
            f"{len(took)} of {count}",
            f"{row.deadlocks} of {count}",
            f"{sum(each.bound_in_part for each in row.repetitions)}",
            f"{np.median(took):.2f} s ({max(took):.2f} s)" if took else "never",
            f"{max(each.spread_s for each in row.repetitions):.2f} s" if took else "",
        )
    return made


def stream_table(rows: Sequence[BesideStream], title: str) -> Table:
    made = table(title, PLACED_BY, "large gang bound after", "small gang bound after", "pods of the stream a minute")
    for row in rows:
        waits = ("not bound" if isnan(each) else f"{each:.1f} s" for each in (row.large_s, row.small_s))
        made.add_row(row.title, *waits, f"{row.pods_per_minute:.0f}")
    return made


def gpus_table(rows: Sequence[GpuResult], title: str) -> Table:
    allocated = [f"GPUs allocated, {share:.0%} requested" for share in SHARES]
    made = table(title, PLACED_BY, *allocated, "when nothing fits", "waited > 15 min", "mean wait")
    for name, runs in by_policy(rows).items():
        shares = np.array([[*run.filled.when_requested, run.filled.in_the_end] for run in runs])
        spread = shares.std(axis=0)
        made.add_row(
            name,
            *(f"{mean:.1%} ± {around:.1%}" for mean, around in zip(shares.mean(axis=0), spread, strict=True)),
            f"{sum(run.waited.long for run in runs) / sum(run.waited.pods for run in runs):.1%}",
            f"{np.mean([run.waited.mean_s for run in runs]) / 60.0:.0f} min",
        )
    return made


OF_CHOICES: Columns = {
    "lowest peak, where peaks differ by 5 points": lambda of: _share(of.lowest, of.distinct_peaks),
    "otherwise the smallest S": lambda of: _share(of.smallest, of.similar_peaks),
}


def choices_table(tallies: Sequence[Tally], title: str) -> Table:
    return table_of(title, "clusters", {tally.title: tally for tally in tallies}, OF_CHOICES)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else ""


def play(result: Result) -> dict[str, Any]:
    """Where and when every job ran, for JSON."""
    runs = result.played.runs
    return {
        "pattern": result.pattern,
        "seed": result.seed,
        "who": result.who.title,
        "nodes": result.nodes,
        **asdict(result.overload),
        "waited_s": result.waited_s,
        "runs": [[run.name, run.recording.name, run.node, round(run.start_s, 2)] for run in runs],
    }
