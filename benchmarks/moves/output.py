"""Results of batches on real nodes: table, JSON, and a chart of which job ran where and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from rich.table import Table

from benchmarks import benches
from benchmarks.moves.jobs import KINDS
from benchmarks.moves.real import NODES, ROWS, JobRecord
from benchmarks.moves.validate import Comparison, ObservedJob
from recommender.plots.style import INK, SETTINGS, TARGET, grid, new_figure, save

Batches = Mapping[str, Mapping[int, Sequence[JobRecord]]]
"""Row -> seed -> jobs."""

SLOWDOWN_TOLERANCE = 0.10
COLOURS = dict(zip(KINDS, ("#56b4e9", "#0072b2", "#d55e00"), strict=True))
PANEL_INCHES = 1.5


def table(batches: Batches) -> Table:
    """A row per policy, relative to the default scheduler on the same jobs."""
    headers = (
        "mean completion", "relative to default, by seed (mean)", "makespan, relative", "node time, relative",
        "slower by more than 10 %", "moves", "late",
    )  # fmt: skip
    rows = benches.table("jobs on three real nodes of half a core", "who", *headers)
    default = batches.get("default", {})
    for key, seeds in batches.items():
        mean_s = np.mean([[each.duration_s for each in ran] for ran in seeds.values()])
        both = [(ran, default[seed]) for seed, ran in seeds.items() if seed in default]
        of_default = [_mean(ran) / _mean(theirs) for ran, theirs in both]
        makespans = [_last(ran) / _last(theirs) for ran, theirs in both]
        node_times = [_node_time_s(ran) / _node_time_s(theirs) for ran, theirs in both]
        slower = [
            mine.duration_s > (1.0 + SLOWDOWN_TOLERANCE) * other.duration_s
            for ran, theirs in both
            for mine, other in zip(ran, theirs, strict=True)
        ]
        moves = [move for ran in seeds.values() for each in ran for move in each.moves]
        rows.add_row(
            ROWS[key].title,
            f"{mean_s:.0f} s",
            ", ".join(f"{share:.2f}" for share in of_default) + (f" ({np.mean(of_default):.2f})" if both else ""),
            f"{np.mean(makespans):.2f}" if both else "",
            f"{np.mean(node_times):.2f}" if both else "",
            f"{sum(slower)} of {len(slower)}",
            str(len(moves)),
            str(sum(move["outcome"] == "late" for move in moves)),
        )
    return rows


def _mean(ran: Sequence[JobRecord]) -> float:
    return float(np.mean([each.duration_s for each in ran]))


def _last(ran: Sequence[JobRecord]) -> float:
    return max(each.ended_s for each in ran)


def _node_time_s(ran: Sequence[JobRecord]) -> float:
    """Sum over the nodes of the time in which any job ran.

    The jobs of a batch are the same for all policies and keep a node busy, so this shows whether the machine was as
    fast as before.
    """
    total_s, node_of_last, end_s = 0.0, "", 0.0
    for node, from_s, to_s in sorted(stay for each in ran for stay in each.stays):
        begin_s = max(from_s, end_s) if node == node_of_last else from_s
        total_s, node_of_last, end_s = total_s + max(0.0, to_s - begin_s), node, max(begin_s, to_s)
    return total_s


def write_json(path: Path, facts: Mapping[str, Any], batches: Batches) -> None:
    rows = {key: {str(seed): ran for seed, ran in seeds.items()} for key, seeds in batches.items()}
    benches.write_json(path, {**facts, "rows": rows})


def validation(
    rows: Sequence[Comparison], overheads: Mapping[str, float], alone_s: Mapping[str, Sequence[float]]
) -> list[str]:
    """Jobs that ran together, measured and simulated; `alone_s` (CPU seconds of each alone) shows the variation."""
    columns = ("real", "simulated", "error", "CPU vs. alone", "simulated with it", "error")
    lines = [f"| together | job | {' | '.join(columns)} |", "| --- | --- " + "| ---: " * len(columns) + "|"]
    last = ""
    for row in rows:
        together, last = row.batch if row.batch != last else "", row.batch
        first, second = (f"{100.0 * error:+.1f} %" for error in row.errors)
        with_cpu = f"{row.predicted_with_cpu_s:.1f} s | {second}"
        predicted = f"{row.predicted_s:.1f} s | {first} | {row.cpu_of_alone:.2f} | {with_cpu}"
        lines.append(f"| {together} | {row.name} | {row.measured_s:.1f} s | {predicted} |")
    for several, of in ((2, "pairs"), (4, "fours")):
        if errors := [row.errors for row in rows if row.jobs == several]:
            (mean, mean_given), (most, most_given) = (100.0 * f(np.abs(errors), axis=0) for f in (np.mean, np.max))
            lines += [
                "",
                f"error in {of}: {mean:.1f} % on average, {most:.1f} % at most; "
                f"given the CPU time of each job {mean_given:.1f} % and {most_given:.1f} %",
            ]
    if overheads:
        of_each = ", ".join(f"{workload} {100.0 * share:.1f} %" for workload, share in overheads.items())
        lines += ["", f"speed lost per further running job, learned from pairs: {of_each}"]
    if again := [max(each) / min(each) - 1.0 for each in alone_s.values() if len(each) > 1]:
        mean, most = 100.0 * np.mean(again), 100.0 * max(again)
        lines += ["", f"CPU time alone: longest run {mean:.1f} % above the shortest on average, {most:.1f} % at most"]
    return lines


def write_validation(
    path: Path, facts: Mapping[str, Any], batches: Sequence[Sequence[ObservedJob]], rows: Sequence[Comparison]
) -> None:
    benches.write_json(path, {**facts, "batches": batches, "compared": [row._asdict() for row in rows]})


def draw(path: Path, batches: Batches) -> None:
    """Draw the first seed: a panel per policy, a band per node, a bar per stay; lines join the stays of a job."""
    with rc_context(SETTINGS):
        figure = new_figure(PANEL_INCHES * len(batches) + 0.7)
        panels = figure.subplots(len(batches), 1, squeeze=False, sharex=True)[:, 0]
        longest_s = 0.0
        for axes, (key, seeds) in zip(panels, batches.items(), strict=True):
            ran = next(iter(seeds.values()))
            lanes = _lanes(ran)
            for each in ran:
                places = []
                for stay, (node, from_s, to_s) in enumerate(each.stays):
                    lane = int(node.rpartition("-")[2]) + lanes[each.name, stay]
                    axes.barh(lane, to_s - from_s, 0.8 * LANE, from_s, color=COLOURS[each.kind], linewidth=0)
                    places += [(from_s, lane), (to_s, lane)]
                for (left_s, before), (arrived_s, after) in zip(places[1::2], places[2::2], strict=False):
                    axes.plot([left_s, arrived_s], [before, after], color=INK, linewidth=0.9)
                axes.plot(each.ended_s, places[-1][1] if places else 0, "|", color=TARGET, markersize=5)
            longest_s = max(longest_s, _last(ran))
            axes.set(yticks=np.arange(NODES) + 0.5, yticklabels=[f"node {n}" for n in range(NODES)], ylim=(NODES, 0))
            axes.set_title(f"{ROWS[key].title}: mean completion {_mean(ran):.0f} s, finished after {_last(ran):.0f} s")
            for number in range(1, NODES):
                axes.axhline(number, color=INK, linewidth=0.5)
            grid(axes, "x")
        panels[-1].set(xlabel="seconds since the start of the batch", xlim=(0, 1.02 * longest_s))
        handles = [panels[0].barh(-9, 0, color=COLOURS[kind], label=f"{kind} job") for kind in KINDS]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)
        save(figure, path)


LANE = 1.0 / 7.0
"""Height of a lane as a share of a node's band: seven jobs at a time have lanes of their own."""


def _lanes(ran: Sequence[JobRecord]) -> dict[tuple[str, int], float]:
    """Position of each stay in its node's band: the first lane that is free when it begins."""
    stays = sorted(
        (from_s, to_s, node, each.name, number)
        for each in ran
        for number, (node, from_s, to_s) in enumerate(each.stays)
    )
    free_s: dict[str, list[float]] = {}
    lanes = {}
    for from_s, to_s, node, name, number in stays:
        taken = free_s.setdefault(node, [])
        lane = next((lane for lane, end_s in enumerate(taken) if end_s < from_s), len(taken))
        taken[lane : lane + 1] = [to_s]
        lanes[name, number] = (lane + 0.7) * LANE
    return lanes
