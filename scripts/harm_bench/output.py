"""Tables of bench_harm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

import benches
from harm_bench.outcome import Comparison, figures_of, total

COUNTS = {"evictions": "evicted", "kills": "killed", "restarts": "restarted", "failed_jobs": "jobs failed"}
SHARES = {
    "cpu_below_use": "CPU below use",
    "memory_below_use": "memory below use",
    "cpu_slack": "CPU slack",
    "memory_slack": "memory slack",
}


def table(compared: Sequence[Comparison], facts: dict[str, Any]) -> Table:
    """A row per world and mode: default / ours; red if ours is worse in a cell."""
    headers = ("world", "mode", *COUNTS.values(), "resized in place", *SHARES.values(), "cells worse")
    rows = benches.table(f"default / ours; {facts['date']}, {facts['machine']}", *headers, text_columns=2)
    last = None
    for world, mode in dict.fromkeys((one.world.name, one.cell.mode) for one in compared):
        cells = [one for one in compared if (one.world.name, one.cell.mode) == (world, mode)]
        if last not in (None, world):
            rows.add_section()
        default, ours = _both(cells)
        worse = {words for one in cells for words in one.worse()}
        row = [pair(str(default[name]), str(ours[name]), name.replace("_", " ") in worse) for name in COUNTS]
        row.append(f"{default['updates']} / {ours['updates']}")
        row += [pair(f"{default[name]:.1%}", f"{ours[name]:.1%}", name.replace("_", " ") in worse) for name in SHARES]
        rows.add_row(
            "" if world == last else world, mode, *row, f"{sum(any(one.worse()) for one in cells)} of {len(cells)}"
        )
        last = world
    return rows


def markdown(compared: Sequence[Comparison]) -> str:
    """A row per world, all its cells together, for the documents."""
    headers = ["world", *COUNTS.values(), *SHARES.values(), "cells worse"]
    lines = [headers, ["---", *["---:"] * (len(headers) - 1)]]
    for world in dict.fromkeys(one.world.name for one in compared):
        cells = [one for one in compared if one.world.name == world]
        default, ours = _both(cells)
        counts = [f"{default[name]} / {ours[name]}" for name in COUNTS]
        shares = [f"{default[name]:.1%} / {ours[name]:.1%}" for name in SHARES]
        lines.append([world, *counts, *shares, f"{sum(any(one.worse()) for one in cells)} of {len(cells)}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def worse_cells(compared: Sequence[Comparison]) -> list[str]:
    """A line per cell in which ours is worse."""
    return [
        f"{one.world.name}: {one.cell}: " + ", ".join(_words(one, name) for name in worse)
        for one in compared
        if (worse := list(one.worse()))
    ]


def _both(cells: Sequence[Comparison]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of all cells together: the default's, ours."""
    return figures_of(total([one.default.total for one in cells])), figures_of(total([one.ours.total for one in cells]))


def _words(one: Comparison, name: str) -> str:
    key, slack = name.replace(" ", "_"), name.endswith("slack")
    both = (one.default, one.ours)
    default, ours = (figures_of(one.slack_tally(outcome) if slack else outcome.total)[key] for outcome in both)
    return f"{name} {default:.0%} / {ours:.0%}" if slack else f"{name} {default} / {ours}"


def pair(default: str, ours: str, worse: bool) -> str:
    """A cell of a table; red if ours is worse."""
    return f"{default} / [red]{ours}[/red]" if worse else f"{default} / {ours}"
