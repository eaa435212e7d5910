"""The bench's tables and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from rich.table import Table

from placement_bench.burst import Burst
from placement_bench.choices import Tally
from placement_bench.gangs import Gangs
from placement_bench.gpu_runs import AT_CAPACITY, Gpus, by_policy
from placement_bench.jobs import Line, Result


def burst_table(bursts: Sequence[Burst], title: str) -> Table:
    """Row A."""
    table = _table(title, "overloads a node though another would have spared it", "overloads a node",
                   "nodes over capacity in the end", "went where advised", "first to last binding")  # fmt: skip
    for burst in bursts:
        table.add_row(
            burst.who.title,
            f"{burst.avoidable} ({burst.avoidable / burst.pods:.1%})",
            f"{burst.overloaded} ({burst.overloaded / burst.pods:.1%})",
            f"{burst.nodes_over}",
            "" if burst.agreed is None else f"{burst.agreed}",
            f"{burst.took_s:.1f} s",
        )
    return table


def jobs_table(lines: Sequence[Line], title: str) -> Table:
    """Row B."""
    table = Table(title=title, title_justify="left")
    for column in ("jobs come", "nodes"):
        table.add_column(column)
    table.add_column("placed by")
    for column in ("CPU above capacity, core-s (± over seeds)", "of the best other's", "OOMs", "nodes busy",
                   "wait (longest)", "all done after"):  # fmt: skip
        table.add_column(column, justify="right")
    before = None
    for line in lines:
        same = before is not None and (line.pattern, line.nodes) == (before.pattern, before.nodes)
        if not same and before is not None:
            table.add_section()
        table.add_row(
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
    return table


def gangs_table(rows: Sequence[Gangs], title: str) -> Table:
    """Row C."""
    table = _table(title, "both finished", "deadlocks", "gangs bound in part", "both bound after, median (longest)",
                   "a gang's first to last binding, longest")  # fmt: skip
    for row in rows:
        took = [each.took_s for each in row.repetitions if each.finished == 2]
        count = len(row.repetitions)
        table.add_row(
            row.who.title,
            f"{len(took)} of {count}",
            f"{row.deadlocks} of {count}",
            f"{sum(each.alone for each in row.repetitions)}",
            f"{np.median(took):.2f} s ({max(took):.2f} s)" if took else "never",
            f"{max(each.spread_s for each in row.repetitions):.2f} s" if took else "",
        )
    return table


def gpus_table(rows: Sequence[Gpus], title: str) -> Table:
    """Row E."""
    asked = [f"GPUs allocated, {share:.0%} asked for" for share in AT_CAPACITY]
    table = _table(title, *asked, "when nothing fits", "waited > 15 min", "mean wait")
    for name, runs in by_policy(rows).items():
        shares = np.array([[*run.filled.when_asked, run.filled.in_the_end] for run in runs])
        spread = shares.std(axis=0)
        table.add_row(
            name,
            *(f"{mean:.1%} ± {around:.1%}" for mean, around in zip(shares.mean(axis=0), spread, strict=True)),
            f"{sum(run.waited.long for run in runs) / sum(run.waited.pods for run in runs):.1%}",
            f"{np.mean([run.waited.mean_s for run in runs]) / 60.0:.0f} min",
        )
    return table


def choices_table(tallies: Sequence[Tally], title: str) -> Table:
    """Row D."""
    table = Table(title=title, title_justify="left")
    for column in ("clusters", "lowest peak, of those 5 points apart", "else smallest S"):
        table.add_column(column, justify="left" if column == "clusters" else "right")
    for tally in tallies:
        table.add_row(tally.title, _share(tally.lowest, tally.apart), _share(tally.smallest, tally.alike))
    return table


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else ""


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("placed by")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def write_json(
    path: Path,
    facts: Mapping[str, Any],
    bursts: Sequence[Burst],
    results: Sequence[Result],
    lines: Sequence[Line],
    gangs: Sequence[Gangs],
    offline: Sequence[Line] = (),
    choices: Sequence[Tally] = (),
    gpus: Sequence[Gpus] = (),
) -> None:
    """All figures, and where and when every job ran (but for those without servers), for programs."""
    content = {
        **facts,
        "burst": [asdict(burst) for burst in bursts],
        "jobs": [asdict(line) for line in lines],
        "offline": [asdict(line) for line in offline],
        "plays": [_play(result) for result in results],
        "gangs": [asdict(row) for row in gangs],
        "gpus": [asdict(row) for row in gpus],
        "choices": [asdict(tally) for tally in choices],
    }
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))


def _play(result: Result) -> dict[str, Any]:
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
