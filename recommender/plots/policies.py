"""Policies side by side: what each wastes against what it breaks, and what each reserves."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes

from recommender.plots.style import INK, SETTINGS, SOFT, TARGET, grid, new_figure, save
from recommender.records import CPU, MEMORY, ReplayResult
from recommender.report.palette import TARGET_VIOLATION, look_of
from recommender.report.scatter import axis_top
from recommender.report.summary import PolicyRow, Summary, number, percent, summarise

_TITLES = ("CPU", "Memory")
_UNITS = ("core-hours", "GiB-hours")


def draw_tradeoff(result: ReplayResult, path: str | Path) -> None:
    """Slack against share of violations, one panel per resource; the best place is the lower left corner.

    Up to two policies far from all others are drawn at the edge, with their value and an arrow.
    """
    summary = summarise(result)
    with rc_context(SETTINGS):
        figure = new_figure(4.6)
        panels = figure.subplots(1, 2)
        for resource in (CPU, MEMORY):
            _scatter(panels[resource], summary, resource)
        handles, labels = panels[CPU].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8.5)
        save(figure, path)


def draw_allocation(result: ReplayResult, path: str | Path) -> None:
    """What each policy reserved: the part that was used, the part that lay idle, and the line of all use."""
    summary = summarise(result)
    with rc_context(SETTINGS):
        figure = new_figure(1.3 + 0.34 * len(summary.policies))
        panels = figure.subplots(1, 2, sharey=True)
        for resource in (CPU, MEMORY):
            _bars(panels[resource], summary, resource)
        figure.supxlabel(
            "full colour: reserved and used    pale: reserved and idle    dashed line: all that was used",
            fontsize=8.5,
            color=SOFT,
        )
        save(figure, path)


def _scatter(axes: Axes, summary: Summary, resource: int) -> None:
    names = [row.name for row in summary.policies]
    places = [(row, *_ratios(row, resource)) for row in summary.policies]
    right = axis_top([slack for _, slack, _ in places], at_least=0.2)
    top = axis_top([harm for _, _, harm in places], at_least=2 * TARGET_VIOLATION)
    for row, slack, harm in places:
        look = look_of(row.name, names)
        beyond = slack > right or harm > top
        axes.scatter(
            min(slack, right), min(harm, top), s=95 if row.ours else 55, marker=look.marker, zorder=3 + row.ours,
            facecolor="white" if row.oracle else look.light, edgecolor=look.light, linewidth=1.2, clip_on=False,
            label=f"{row.name} (oracle)" if row.oracle else row.name,
        )  # fmt: skip
        if beyond:
            axes.annotate(
                f"{slack:.2f} →" if slack > right else f"{percent(harm)} ↑", (min(slack, right), min(harm, top)),
                xytext=(-7, 5), textcoords="offset points", ha="right", fontsize=8,
            )  # fmt: skip
    axes.axhline(TARGET_VIOLATION, color=TARGET, linewidth=1, linestyle=(0, (5, 3)))
    axes.annotate(
        f"target {percent(TARGET_VIOLATION, 0)}", (1, TARGET_VIOLATION), xycoords=("axes fraction", "data"),
        xytext=(0, 3), textcoords="offset points", ha="right", fontsize=8, color=TARGET,
    )  # fmt: skip
    axes.set(
        xlim=(0, right),
        ylim=(0, top),
        title=f"{_TITLES[resource]}: slack against violations",
        xlabel="slack: reserved but not used ÷ used",
    )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
    if resource == CPU:
        axes.set_ylabel("samples in violation")
    grid(axes)


def _bars(axes: Axes, summary: Summary, resource: int) -> None:
    rows = summary.policies[::-1]
    names = [row.name for row in summary.policies]
    for place, row in enumerate(rows):
        usage = row.outcome.resources[resource]
        colour = look_of(row.name, names).light
        served = usage.used - usage.shortage
        axes.barh(place, served, color=colour, height=0.66)
        axes.barh(place, usage.allocated - served, left=served, color=colour, alpha=0.25, height=0.66)
        axes.annotate(
            number(usage.allocated), (max(usage.allocated, usage.used), place), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8, color=INK,
        )  # fmt: skip
    used = rows[0].outcome.resources[resource].used
    axes.axvline(used, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    labels = [f"{row.name} (oracle)" if row.oracle else row.name for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    for label, row in zip(axes.get_yticklabels(), rows, strict=False):  # the right panel shares them and has none
        label.set_color(SOFT if row.oracle else INK)
        label.set_fontweight("bold" if row.ours else "normal")
    most = max(row.outcome.resources[resource].allocated for row in rows)
    axes.set(title=f"{_TITLES[resource]} reserved", xlabel=_UNITS[resource], xlim=(0, (most or 1) * 1.15))
    axes.tick_params(axis="y", length=0)
    grid(axes, "x")


def _ratios(row: PolicyRow, resource: int) -> tuple[float, float]:
    usage = row.outcome.resources[resource]
    return usage.slack_ratio or 0.0, usage.violation_ratio or 0.0
