"""Policies side by side: what each wastes against what it breaks, for a file and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes

from recommender.plots.style import SETTINGS, TARGET, WIDE, grid, new_figure, page_element, save
from recommender.records import CPU, MEMORY
from recommender.report.palette import TARGET_VIOLATION, look_of
from recommender.report.summary import PolicyRow, Summary, percent

_TITLES = ("CPU", "Memory")


def draw_tradeoff(summary: Summary, path: str | Path) -> None:
    """Slack against share of violations, one panel per resource; the best place is the lower left corner.

    Up to two policies far from all others are drawn at the edge, with their value and an arrow.
    """
    with rc_context(SETTINGS):
        figure = new_figure(4.6)
        panels = figure.subplots(1, 2)
        for resource in (CPU, MEMORY):
            _scatter(panels[resource], summary, resource)
        figure.legend(*panels[CPU].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8.5)
        save(figure, path)


def tradeoffs_for_page(summary: Summary) -> list[str]:
    """The same panels as elements of the page, in its colours."""
    names = [row.name for row in summary.policies]
    colours = {look_of(name, names).light: f"policy-{place}" for place, name in reversed([*enumerate(names)])}
    elements = []
    for resource in (CPU, MEMORY):
        with rc_context(SETTINGS):
            figure = new_figure(4.4, WIDE * 0.65)
            axes = figure.add_subplot()
            _scatter(axes, summary, resource)
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)
        told = [f"{row.name}: slack {x:.2f}, {percent(y)} violations" for row, x, y in _placed(summary, resource)]
        words = f"{_TITLES[resource]}, slack against violations. {'; '.join(told)}"
        elements.append(page_element(figure, f"tradeoff-{resource}", words, colours))
    return elements


def axis_top(values: Sequence[float], *, at_least: float) -> float:
    """The end of an axis: above all values, except for up to two that would squeeze the rest into a corner."""
    ordered = sorted(values)
    for _ in range(2):
        if len(ordered) > 2 and ordered[-1] > 2.5 * max(ordered[-2], at_least):
            ordered.pop()
    return max(ordered[-1] if ordered else 0.0, at_least) * 1.12


def _scatter(axes: Axes, summary: Summary, resource: int) -> None:
    names = [row.name for row in summary.policies]
    places = list(_placed(summary, resource))
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


def _placed(summary: Summary, resource: int) -> Iterator[tuple[PolicyRow, float, float]]:
    """Policies with their slack and share of violations; those without a ratio have no place."""
    for row in summary.policies:
        usage = row.outcome.resources[resource]
        if usage.slack_ratio is not None and usage.violation_ratio is not None:
            yield row, usage.slack_ratio, usage.violation_ratio
