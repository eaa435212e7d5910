"""The tables of the thesis beside ours, with confidence intervals over the seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import fmean, stdev
from typing import Any

from rich.table import Table
from scipy.stats import t as student

from benchmarks.benches import table
from benchmarks.thesis.playing import BASELINE, Result, Task
from benchmarks.thesis.settings import LAST, ROWS, Setting

Played = Mapping[tuple[str, int], Sequence[Mapping[str, Result]]]
"""(row, number of its setting) -> results of each seed."""


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % confidence interval; NaN of a single value.

    Examples
    --------
    >>> interval([1.0, 2.0, 3.0])
    (2.0, 2.484...)
    """
    if len(values) < 2:
        return fmean(values), math.nan
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return fmean(values), half


def tables(played: Played) -> list[Table]:
    found = []
    for row in ROWS:
        settings = [(ROWS[row][number], plays) for (name, number), plays in sorted(played.items()) if name == row]
        if settings:
            on = f"{min(len(plays) for _, plays in settings)} seeds, 95 % intervals"
            kinds = (_sensitivity,) if row.endswith("sensitivity") else (_compared, _winners_and_losers)
            found += [kind(settings, f"{settings[0][0].system}: {on}") for kind in kinds]
    return found


def _compared(settings: Sequence[tuple[Setting, Sequence[Mapping[str, Result]]]], title: str) -> Table:
    rows = table(
        title, "setting", "who", "mean s", "mean completion", "thesis", f"vs. {settings[0][0].system}", "makespan s",
        "makespan", "thesis", "best job", "thesis", "worst job", "jobs faster", "> 10 % slower",
        "> 10 % slower than usual", "moves", text_columns=2,
    )  # fmt: skip
    for setting, plays in settings:
        reported = setting.reported
        for who in plays[0]:
            results = [play[who] for play in plays]
            base, theirs = who == BASELINE, who == setting.system
            over = [100.0 * (play[who].mean - play[setting.system].mean) for play in plays]
            rows.add_row(
                setting.name if base else "",
                who,
                f"{_mean(results, 'mean_s', 1.0):.1f}"
                + (f" ({reported.mean_s:g})" if base and reported.mean_s else ""),
                "" if base else percent(results, "mean"),
                _reported(reported.mean) if theirs else "",
                "" if base or theirs else _plus_minus(*interval(over)),
                f"{_mean(results, 'makespan_s', 1.0):.0f}"
                + (f" ({reported.makespan_s:g})" if base and reported.makespan_s else ""),
                "" if base else percent(results, "makespan"),
                _reported(reported.makespan) if theirs else "",
                "" if base else f"{_mean(results, 'best'):+.1f} %",
                _reported(reported.best) if theirs else "",
                "" if base else f"{_mean(results, 'worst'):+.1f} %",
                "" if base else f"{_mean(results, 'faster'):.0f} %",
                "" if base else f"{_mean(results, 'slower'):.1f} %",
                f"{_mean(results, 'slower_than_usual'):.1f} %",
                f"{_mean(results, 'moves', 1.0):.1f}",
            )
        rows.add_section()
    return rows


def _winners_and_losers(settings: Sequence[tuple[Setting, Sequence[Mapping[str, Result]]]], title: str) -> Table:
    """Share of the jobs that end earlier, their mean gain, and the mean loss of the others."""
    headers = ("faster", "thesis", "win", "thesis", "lose", "thesis", "worst job", "thesis", "first job", "last job")
    rows = table(f"{title}; winners and losers", "setting", "who", *headers, "thesis", text_columns=2)
    for setting, plays in settings:
        reported = setting.reported
        for who in list(plays[0])[1:]:
            results, theirs = [play[who] for play in plays], who == setting.system
            rows.add_row(
                setting.name if theirs else "",
                who,
                f"{_mean(results, 'faster'):.0f} %",
                f"{reported.faster:.0f} %" if theirs and reported.faster else "",
                f"{_mean(results, 'won_s', 1.0):.0f} s",
                f"{reported.won_s:g} s" if theirs and reported.won_s else "",
                f"{_mean(results, 'lost_s', 1.0):.0f} s",
                f"{reported.lost_s:g} s" if theirs and reported.lost_s else "",
                f"{_mean(results, 'worst'):+.1f} %",
                _reported(reported.worst) if theirs else "",
                f"{_mean(results, 'first'):+.1f} %",
                f"{_mean(results, 'last'):+.1f} %",
                _reported(reported.last) if theirs else "",
            )
        rows.add_section()
    return rows


def _sensitivity(settings: Sequence[tuple[Setting, Sequence[Mapping[str, Result]]]], title: str) -> Table:
    """Alpha and interval: completion of the last job (FlowCon, table 6.2), or of all and of the first (SpeCon)."""
    system = settings[0][0].system
    judged, *further = ("last",) if system == "FlowCon" else ("mean", "first")
    names = {"last": LAST, "mean": "mean completion", "first": "first job"}
    headers = [head for name in (judged, *further, "makespan") for head in (names.get(name, name), "thesis")]
    title += "; alpha and interval"
    rows = table(title, "setting", "alpha", "interval", *headers, "ours", "ours: makespan")
    for setting, plays in settings:
        theirs, ours = [play[system] for play in plays], [play["phasewise"] for play in plays]
        beside = [
            cell
            for name in (judged, *further, "makespan")
            for cell in (percent(theirs, name), _reported(getattr(setting.reported, name)))
        ]
        alpha, interval_s = f"{setting.alpha:g}", f"{setting.interval_s:g} s"
        rows.add_row(setting.name, alpha, interval_s, *beside, percent(ours, judged), percent(ours, "makespan"))
    return rows


def percent(results: Sequence[Result], name: str) -> str:
    """Mean and interval, for example `-7.2 ± 1.3 %`."""
    return _plus_minus(*interval([100.0 * getattr(result, name) for result in results]))


def _plus_minus(mean: float, half: float) -> str:
    return f"{mean:+.1f} ± {half:.1f} %" if math.isfinite(half) else f"{mean:+.1f} %"


def _reported(change: float | None) -> str:
    return "" if change is None else f"{change:+g} %"


def _mean(results: Sequence[Result], name: str, scale: float = 100.0) -> float:
    return scale * fmean(getattr(result, name) for result in results)


def as_json(played: Played) -> list[dict[str, Any]]:
    settings = []
    for (row, number), plays in sorted(played.items()):
        setting = ROWS[row][number]
        summary: dict[str, dict[str, Any]] = {who: {} for who in plays[0]}
        for who, figures in summary.items():
            for field in fields(Result):
                mean, half_interval = interval([getattr(play[who], field.name) for play in plays])
                figures[field.name] = {"mean": mean, "half_interval": half_interval}
        settings.append(
            {
                "row": row,
                "setting": setting.name,
                "alpha": setting.alpha,
                "interval_s": setting.interval_s,
                "thesis_percent": setting.reported._asdict(),
                "summary": summary,
                "plays": plays,
            }
        )
    return settings


def gathered(done: Sequence[tuple[Task, Mapping[str, Result]]]) -> Played:
    """Group results by setting, with seeds in order."""
    found: dict[tuple[str, int], list[Mapping[str, Result]]] = {}
    for task, results in sorted(done, key=lambda one: one[0].seed):
        found.setdefault((task.row, task.number), []).append(results)
    return found
