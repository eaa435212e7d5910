"""The table of workloads: what each requests, what to write instead, what that saves, and what it rests on."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recommender.base.records import CPU, MEMORY, Amounts, WorkloadAdvice
from recommender.base.units import BYTES_PER_GIB, counted, format_cpu, format_memory
from recommender.report.summary import Prices, number, percent
from recommender.report.texts import printable, shortened
from recommender.simulate.workloads import GPU_IDLE, confidence

DASH = "–"
HOURS_PER_MONTH = 730.0
_MIN_WIDTH = 97
"""Columns of a terminal below which only what to write is shown."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, and the name of the figure by which it is sorted."""

    header: str
    key: str
    cell: Callable[[WorkloadAdvice, Prices], str]
    detail: int = 1  # 0 also in narrow terminals, 2 only in the wide table


def amounts_words(amounts: Amounts) -> tuple[str, str]:
    """Cores and bytes in words; a dash where unknown."""
    cpu_cores, memory_bytes = amounts
    cpu = DASH if math.isnan(cpu_cores) else format_cpu(cpu_cores)
    return cpu, DASH if math.isnan(memory_bytes) else format_memory(memory_bytes)


def money_a_month(saved: Amounts, prices: Prices) -> float:
    """What is saved in a month with so many cores and bytes less; NaN where nothing is declared."""
    known = [0.0 if math.isnan(amount) else amount for amount in saved]
    if all(map(math.isnan, saved)):
        return math.nan
    hourly = (prices.cpu_core_hour or 0.0) * known[CPU] + (prices.memory_gib_hour or 0.0) * known[
        MEMORY
    ] / BYTES_PER_GIB
    return hourly * HOURS_PER_MONTH


def _range(advice: WorkloadAdvice, resource: int) -> str:
    low, high = amounts_words(advice.lowest)[resource], amounts_words(advice.highest)[resource]
    return DASH if low == high else f"{low}–{high}"


def kill_words(advice: WorkloadAdvice) -> str:
    """The chance of a kill; as today where memory is not lowered."""
    return f"≤ {percent(advice.kill_chance, 0)}".replace(" %", "%") if advice.lowers_memory else "as now"


def evidence_words(advice: WorkloadAdvice) -> str:
    return f"{counted(advice.runs, 'run')}, {number(advice.hours)} h"


def mark(advice: WorkloadAdvice) -> str:
    """`*` after the name of a value that is backed by little."""
    return " *" if confidence(advice) == "low" else ""


COLUMNS: Sequence[Column] = (
    Column("CPU\nnow", "now_cpu_cores", lambda one, _: amounts_words(one.now)[CPU], 0),
    Column("CPU\nnew", "recommended_cpu_cores", lambda one, _: amounts_words(one.recommended)[CPU], 0),
    Column("CPU by\nphases", "highest_cpu_cores", lambda one, _: _range(one, CPU)),
    Column("mem.\nnow", "now_memory_bytes", lambda one, _: amounts_words(one.now)[MEMORY], 0),
    Column("mem.\nnew", "recommended_memory_bytes", lambda one, _: amounts_words(one.recommended)[MEMORY], 0),
    Column("memory by\nphases", "highest_memory_bytes", lambda one, _: _range(one, MEMORY), 2),
    Column("saved/\nmonth", "saved_a_month", lambda one, at: number(or_none(money_a_month(one.saved, at))), 0),
    Column(
        "by\nphases",
        "saved_by_phases_a_month",
        lambda one, at: number(or_none(money_a_month(one.saved_by_phases, at))),
        2,
    ),
    Column("cores\nsaved", "saved_cpu_cores", lambda one, _: number(or_none(one.saved[CPU]))),
    Column("GiB\nsaved", "saved_memory_bytes", lambda one, _: number(or_none(one.saved[MEMORY] / BYTES_PER_GIB))),
    Column("time\nshort", "short_share", lambda one, _: percent(one.short_share).replace(" ", "")),
    Column("killed", "kill_chance_bound", lambda one, _: kill_words(one)),
    Column("backed\nby", "runs", lambda one, _: evidence_words(one), 2),
    Column("GPU\nidle", "gpu_idle_share", lambda one, _: percent(or_none(one.gpu_idle_share), 0).replace(" ", ""), 2),
    Column("confi-\ndence", "hours", lambda one, _: confidence(one)),
)


def columns_of(workloads: Sequence[WorkloadAdvice]) -> list[Column]:
    """The columns without that of GPUs if nothing is known of them."""
    known = _gpus_known(workloads)
    return [column for column in COLUMNS if known or column.key != "gpu_idle_share"]


def _gpus_known(workloads: Sequence[WorkloadAdvice]) -> bool:
    return any(not math.isnan(one.gpu_idle_share) for one in workloads)


def or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def workload_table(
    workloads: Sequence[WorkloadAdvice], prices: Prices, width: int, *, wide: bool = False, most: int | None = None
) -> RenderableType:
    """The table in so many columns of a terminal, and what it means; `most`: so many rows, and a line on the others."""
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold",
    )  # fmt: skip
    table.add_column("\nworkload", overflow="fold")
    detail = 2 if wide else int(width >= _MIN_WIDTH)
    columns = [column for column in columns_of(workloads) if column.detail <= detail]
    for column in columns:
        table.add_column(column.header, justify="right", no_wrap=True)
    shown = workloads[:most]
    cells = [[column.cell(one, prices) for column in columns] for one in shown]
    widths = [max(map(len, (*column.header.split("\n"), *of))) for column, *of in zip(columns, *cells, strict=True)]
    room = max(12, width - sum(widths) - len(widths) - 1)
    for one, of_one in zip(shown, cells, strict=True):
        name = shortened(printable(one.name), room - len(mark(one))) + mark(one)
        table.add_row(Text(name, no_wrap=True), *map(Text, of_one))
    lines: list[RenderableType] = [table]
    if len(workloads) > len(shown):
        lines.append(Text(f"… and {counted(len(workloads) - len(shown), 'more workload')} (`phasewise recommend`)."))
    lines += [Text(totals_words(workloads, prices), style="bold"), Text(legend(workloads, prices), "dim")]
    if any(confidence(one) == "low" for one in workloads):
        lines.append(Text("* fewer than three runs and less than a day are recorded: look again later.", "dim"))
    return Group(*lines)


LEGEND = (
    "new: one request for the whole run. by phases: what Phasewise has in force in turn. time short: samples above "
    "1.05 x the new CPU, in all recorded runs. killed: bound of the chance that the next run outgrows the memory. "
    "In money at {cpu} per core-hour and {memory} per GiB-hour."
)


def legend(workloads: Sequence[WorkloadAdvice], prices: Prices) -> str:
    """What the columns mean, and the prices."""
    text = LEGEND.format(cpu=f"{prices.cpu_core_hour or 0.0:g}", memory=f"{prices.memory_gib_hour or 0.0:g}")
    gpus = f" GPU idle: share of the time that its GPUs are used less than {percent(GPU_IDLE, 0)}."
    return text + gpus if _gpus_known(workloads) else text


def totals_words(workloads: Sequence[WorkloadAdvice], prices: Prices) -> str:
    """What all of them save together, with one request for the whole run and by phases."""

    def total(saved: Sequence[Amounts]) -> tuple[float, float, float]:
        sums = [sum(amounts[at] for amounts in saved if not math.isnan(amounts[at])) for at in (CPU, MEMORY)]
        return money_a_month((sums[CPU], sums[MEMORY]), prices), sums[CPU], sums[MEMORY] / BYTES_PER_GIB

    money, cores, gib = total([one.saved for one in workloads])
    by_phases, cores_by_phases, gib_by_phases = total([one.saved_by_phases for one in workloads])
    return (
        f"{counted(len(workloads), 'workload')}: {number(money)} a month saved with these requests "
        f"({number(cores)} cores, {number(gib)} GiB at a time); {number(by_phases)} by phases "
        f"({number(cores_by_phases)} cores, {number(gib_by_phases)} GiB)."
    )


def figures(advice: WorkloadAdvice, prices: Prices) -> dict[str, Any]:
    """One workload for JSON and CSV; None where nothing is declared."""
    pairs = {
        "now": advice.now,
        "recommended": advice.recommended,
        "lowest": advice.lowest,
        "highest": advice.highest,
        "saved": advice.saved,
        "saved_by_phases": advice.saved_by_phases,
    }
    return {
        "namespace": advice.namespace,
        "workload": advice.workload,
        "container": advice.container,
        "owner": advice.owner,
        **{
            f"{name}_{unit}": or_none(amounts[at])
            for name, amounts in pairs.items()
            for at, unit in ((CPU, "cpu_cores"), (MEMORY, "memory_bytes"))
        },
        "saved_a_month": or_none(money_a_month(advice.saved, prices)),
        "saved_by_phases_a_month": or_none(money_a_month(advice.saved_by_phases, prices)),
        "short_share": advice.short_share,
        "gpu_idle_share": or_none(advice.gpu_idle_share),
        "killed_runs": advice.killed_runs,
        "kill_chance_bound": advice.kill_chance if advice.lowers_memory else None,
        "runs": advice.runs,
        "hours": advice.hours,
        "confidence": confidence(advice),
    }


def to_csv(workloads: Sequence[WorkloadAdvice], prices: Prices) -> str:
    rows = [figures(one, prices) for one in workloads]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
