"""Slack against violations of each policy, as PNG and for the HTML report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes

from recommender.base.records import CPU, MEMORY
from recommender.plots.style import SETTINGS, TARGET, WIDTH_INCHES, grid, new_figure, page_element, save
from recommender.report.palette import TARGET_VIOLATION, look_of
from recommender.report.summary import PolicyRow, Summary, percent

_TITLES = ("CPU", "Memory")


def draw_tradeoff(summary: Summary, path: str | Path) -> None:
    """Draw slack against the share of violations, one panel per resource; the lower left corner is best.

    Up to two outliers are drawn at the edge, with their value and an arrow.
    """
    with rc_context(SETTINGS):
        figure = new_figure(4.6)
        panels = figure.subplots(1, 2)
        for resource in (CPU, MEMORY):
            _scatter(panels[resource], summary, resource)
        figure.legend(*panels[CPU].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8.5)
        save(figure, path)


def tradeoffs_for_page(summary: Summary) -> list[str]:
    """The panels of `draw_tradeoff` as SVG elements in the colours of the page."""
    names = [row.name for row in summary.policies]
    colours = {look_of(name, names).light: f"policy-{index}" for index, name in reversed([*enumerate(names)])}
    elements = []
    for resource in (CPU, MEMORY):
        with rc_context(SETTINGS):
            figure = new_figure(4.4, WIDTH_INCHES * 0.65)
            axes = figure.add_subplot()
            _scatter(axes, summary, resource)
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)
        points = [f"{row.name}: slack {x:.2f}, {percent(y)} violations" for row, x, y in _plotted(summary, resource)]
        description = f"{_TITLES[resource]}, slack against violations. {'; '.join(points)}"
        elements.append(page_element(figure, f"tradeoff-{resource}", description, colours))
    return elements


def axis_top(values: Sequence[float], *, at_least: float) -> float:
    """Upper limit of an axis: above all values except up to two outliers that would compress the rest."""
    ordered = sorted(values)
    for _ in range(2):
        if len(ordered) > 2 and ordered[-1] > 2.5 * max(ordered[-2], at_least):
            ordered.pop()
    return max(ordered[-1] if ordered else 0.0, at_least) * 1.12


def _scatter(axes: Axes, summary: Summary, resource: int) -> None:
    names = [row.name for row in summary.policies]
    points = list(_plotted(summary, resource))
    right = axis_top([slack for _, slack, _ in points], at_least=0.2)
    top = axis_top([violations for _, _, violations in points], at_least=2 * TARGET_VIOLATION)
    for row, slack, violations in points:
        look = look_of(row.name, names)
        axes.scatter(
            min(slack, right), min(violations, top), s=95 if row.ours else 55, marker=look.marker, zorder=3 + row.ours,
            facecolor="white" if row.oracle else look.light, edgecolor=look.light, linewidth=1.2, clip_on=False,
            label=f"{row.name} (oracle)" if row.oracle else row.name,
        )  # fmt: skip
        if slack > right or violations > top:
            beside = (-7, -10) if violations > top else (-7, 5)  # the title is above
            axes.annotate(
                f"{slack:.2f} →" if slack > right else f"{percent(violations)} ↑",
                (min(slack, right), min(violations, top)), xytext=beside, textcoords="offset points", ha="right",
                fontsize=8,
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


def _plotted(summary: Summary, resource: int) -> Iterator[tuple[PolicyRow, float, float]]:
    """Yield policies with slack and share of violations; those with an undefined or infinite ratio are skipped."""
    for row in summary.policies:
        usage = row.outcome.resources[resource]
        slack, violations = usage.slack_ratio, usage.violation_ratio
        if slack is not None and violations is not None and math.isfinite(slack):
            yield row, slack, violations
