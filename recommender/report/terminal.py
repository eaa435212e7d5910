"""The dry run as tables for a terminal, or as plain text for a pipe."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from recommender.base.nodes import NodeUse
from recommender.base.records import CPU, MEMORY, ReplayResult
from recommender.base.units import counted, format_duration
from recommender.replaying.timelines import BASELINES
from recommender.report.nodes import node_cells, node_words, nodes_by_policy
from recommender.report.summary import (
    USUAL_PRICES,
    PolicyRow,
    Prices,
    Summary,
    headline,
    number,
    percent,
    summarise,
    two_decimals,
)
from recommender.report.texts import printable
from recommender.report.workloads import workload_table

PLAIN_WIDTH = 100  # columns when the output is no terminal
MIN_WIDTH = 60  # in fewer columns tables would lose names and numbers; a narrower terminal wraps their lines instead
_MIN_WIDTH_OF_ONE_TABLE = 92
_TOP_WORKLOADS = 20
_MAX_NOTES = 12
_MAX_REASONS = 3

_Columns = Sequence[tuple[str, Callable[[PolicyRow], str]]]  # headers, and the text of the cell of a policy

_VIOLATION_COLUMNS: _Columns = (
    ("slack\nCPU", lambda row: two_decimals(row.outcome.cpu.slack_ratio)),
    ("slack\nmem.", lambda row: two_decimals(row.outcome.memory.slack_ratio)),
    ("viol.\nCPU", lambda row: _short_percent(row.outcome.cpu.violation_ratio)),
    ("viol.\nmem.", lambda row: _short_percent(row.outcome.memory.violation_ratio)),
    ("OOM\nkills", lambda row: f"{row.outcome.oom_kills:,}"),
    ("runs\nkilled", lambda row: _short_percent(row.outcome.kills.killed_run_share if row.outcome.kills else None)),
)
_AMOUNT_COLUMNS: _Columns = (
    ("core-\nhours", lambda row: number(row.outcome.cpu.allocated)),
    ("GiB-\nhours", lambda row: number(row.outcome.memory.allocated)),
    ("saved\nCPU", lambda row: _share(row, CPU)),
    ("saved\nmem.", lambda row: _share(row, MEMORY)),
)
_RESIZE_COLUMNS: _Columns = (("resizes\nper h", lambda row: number(row.outcome.resizes_per_hour)),)
_MONEY_COLUMNS: _Columns = (
    ("reserved", lambda row: two_decimals(row.bill.reserved if row.bill else None)),
    ("violations", lambda row: two_decimals(row.bill.violations if row.bill else None)),
    ("OOM kills", lambda row: two_decimals(row.bill.ooms if row.bill else None)),
    ("total", lambda row: two_decimals(row.bill.total if row.bill else None)),
    ("net saving", lambda row: "(baseline)" if row.baseline else two_decimals(row.net_saving)),
)


def report_console(file: TextIO | None = None) -> Console:
    """A console as wide as the terminal, at least `MIN_WIDTH`; a pipe is plain. Rich honours `NO_COLOR`."""
    console = Console(file=file, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PLAIN_WIDTH
    console.width = max(MIN_WIDTH, console.width)
    return console


def render_table(
    result: ReplayResult,
    *,
    console: Console,
    prices: Prices | None = None,
    written: Sequence[tuple[str, str]] = (),
) -> None:
    """Print the policies, the containers that would save or suffer most, notes, and kinds and paths `written`."""
    if not result.containers:
        console.print(Text("No container could be judged.", style="bold"))
        _print_remarks(result, console, written)
        return
    summary = summarise(result, prices)
    console.print(_opening(summary))
    console.print()
    if result.workloads:
        usual = prices if prices is not None and prices.any_given else USUAL_PRICES
        console.print(workload_table(result.workloads, usual, console.width, most=_TOP_WORKLOADS))
        console.print()
    for table in _policy_tables(summary, console.width):
        console.print(table)
        console.print()
    console.print(_legend(summary))
    if nodes := nodes_by_policy(summary):
        console.print()
        console.print(node_table(nodes))
    _print_remarks(result, console, written)


def _opening(summary: Summary) -> RenderableType:
    result = summary.result
    step = format_duration(result.step_s) if result.step_s else "any length"
    origin, phases = result.model.get("origin"), result.model.get("phases")
    model = f"{origin}, {phases} phases" if isinstance(phases, int) else origin
    facts = (
        f"{counted(len(result.containers), 'container')}, {counted(summary.samples, 'sample')} of {step} "
        f"({number(summary.hours)} container-hours), "
        f"one decision every {format_duration(result.cycle_s)}."
    )
    return Text.assemble((headline(summary), "bold"), "\n", facts, printable(f" Model: {model}.") if model else "")


def _policy_tables(summary: Summary, width: int) -> list[Table]:
    groups: list[_Columns] = [[*_VIOLATION_COLUMNS, *_RESIZE_COLUMNS], _AMOUNT_COLUMNS]
    if width >= _MIN_WIDTH_OF_ONE_TABLE:
        groups = [[*_VIOLATION_COLUMNS, *_AMOUNT_COLUMNS, *_RESIZE_COLUMNS]]
    in_force, of_papers = summary.in_force, summary.of_papers
    tables = [_policy_table("Policies", in_force, columns) for columns in groups if in_force]
    if summary.prices.any_given and in_force:
        tables.append(_policy_table("In money", in_force, _MONEY_COLUMNS))
    return tables + [_policy_table("Research policies", of_papers, columns) for columns in groups if of_papers]


def node_table(nodes: Mapping[str, NodeUse]) -> RenderableType:
    """The nodes that each row needs, by name, and what the columns mean."""
    headers, rows = node_cells(nodes)
    table = _table("Nodes", "\nrequests", headers, min_width=5)
    for name, cells in rows.items():
        table.add_row(printable(name), *(text for _, text in cells))
    return Group(table, *(Text(printable(line), "dim") for line in node_words(nodes)))


def _table(title: str, first: str, headers: Iterable[str], min_width: int) -> Table:
    """An empty table: a column of names, then columns of numbers."""
    table = Table(
        title=Text(title, style="bold") if title else None, title_justify="left", box=box.SIMPLE_HEAD, padding=0,
        pad_edge=False, show_edge=False, header_style="bold",
    )  # fmt: skip
    table.add_column(first, overflow="fold")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True, min_width=min_width)
    return table


def _policy_table(title: str, rows: Sequence[PolicyRow], columns: _Columns) -> Table:
    first = "\npolicy" if any("\n" in header for header, _ in columns) else "policy"
    table = _table(title, first, (header for header, _ in columns), min_width=5)
    for index, row in enumerate(rows):
        before_oracles = not row.oracle and rows[min(index + 1, len(rows) - 1)].oracle
        style = "bold green" if row.ours else "dim" if row.oracle else ""
        mark = " (oracle)" if row.oracle else " (ours)" if row.ours else ""
        cells = [Text(cell(row)) for _, cell in columns]
        table.add_row(Text(printable(row.name) + mark), *cells, style=style, end_section=before_oracles)
    return table


def _legend(summary: Summary) -> Text:
    text = "slack = reserved but not used / used. viol. = samples whose use is above 1.05 × the allocation."
    if summary.baseline:
        text += f" saved: of what {summary.baseline}, {BASELINES[summary.baseline]}, reserved or lost by kills."
    if summary.of_papers:
        text += " Research policies are those of papers: they apply at once, and their kills cost nothing."
    if any(row.oracle for row in summary.policies):
        text += " An oracle knows the future: a bound for comparison, not a real policy."
    return Text(text, style="dim")


def _print_remarks(result: ReplayResult, console: Console, written: Sequence[tuple[str, str]]) -> None:
    if result.left_out or result.notes or written:
        console.print()
    if result.left_out:
        commonest = Counter(reason for _, reason in result.left_out).most_common()
        reasons = "; ".join(f"{count:,} × {printable(reason)}" for reason, count in commonest[:_MAX_REASONS])
        reasons += "; and others" if len(commonest) > _MAX_REASONS else ""
        console.print(Text(f"Left out: {counted(len(result.left_out), 'container')} ({reasons})."))
    for note in result.notes[:_MAX_NOTES]:
        console.print(Text(f"Note: {printable(note)}"))
    if len(result.notes) > _MAX_NOTES:
        console.print(Text(f"… and {counted(len(result.notes) - _MAX_NOTES, 'more note')} (see --json)."))
    for what, where in written:
        console.print(Text(f"Wrote {what}: {printable(where)}"), soft_wrap=True)


def _short_percent(share: float | None) -> str:
    return percent(share).replace(" ", "")


def _share(row: PolicyRow, resource: int) -> str:
    if row.baseline:
        return "base"
    share = row.saved_share[resource] if row.saved_share else None
    return percent(share, 0).replace(" ", "")
