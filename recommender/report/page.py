"""The dry run as one self-contained HTML page that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib import resources
from itertools import islice
from typing import Any

import jinja2
import networkx as nx
import orjson
from markupsafe import Markup

from recommender.base.nodes import NodeUse
from recommender.base.records import ReplayResult, Timeline, WorkloadAdvice
from recommender.base.units import counted
from recommender.phases.graph import Run
from recommender.phases.prototypes import prototypes
from recommender.phases.statistics import PhaseStatistics
from recommender.replaying.timelines import BASELINES
from recommender.report.graph_drawing import MIN_SHARE, draw_graph
from recommender.report.nodes import node_cells, node_words, nodes_by_policy
from recommender.report.page_words import POLICY_WORDS, duration_words, fact_pairs, feature_rows, path_steps
from recommender.report.palette import OURS, PHASE_COLOURS, TARGET_VIOLATION, look_of, phase_colour
from recommender.report.summary import (
    FORMULA,
    USUAL_PRICES,
    ContainerRow,
    Prices,
    Summary,
    comparison,
    headline,
    number,
    percent,
    summarise,
    two_decimals,
)
from recommender.report.timeline_data import MAX_CHANGES, MAX_POINTS, timeline_data
from recommender.report.workloads import columns_of, figures, legend, totals_words
from recommender.simulate.workloads import confidence

MAX_CONTAINERS = 2000
MAX_LEFT_OUT = 500
MAX_PROTOTYPES = 12


def render_page(
    result: ReplayResult,
    timelines: Sequence[Timeline],
    *,
    generated_at: datetime,
    version: str,
    prices: Prices | None = None,
    phase_graph: nx.DiGraph[str] | None = None,
    sequences: Iterable[Sequence[Run]] = (),
    phase_table: PhaseStatistics | None = None,
    tradeoffs: Sequence[str] = (),
) -> str:
    """Render the page as HTML text.

    `timelines`: containers to draw, the most interesting first.
    `sequences`: the phase runs of each container, for the prototypes; at most `MAX_PROTOTYPES` are shown.
    `tradeoffs`: SVG elements of `plots.policies.tradeoffs_for_page`.
    """
    summary = summarise(result, prices) if result.containers else None
    shown = [timeline for timeline in timelines if len(timeline.timestamps)]
    paths = prototypes(sequence for sequence in sequences if sequence)[:MAX_PROTOTYPES]
    drawing = draw_graph(phase_graph) if phase_graph is not None else None
    numbered_per_fold = str(result.model.get("origin", "")).startswith("cross-fitted")
    script, style = _read_text("page.js"), _read_text("page.css")
    names = [row.name for row in summary.policies] if summary else []
    return _environment().get_template("page.html.j2").render(
        result=result,
        summary=summary,
        headline=no_break_percent(headline(summary)) if summary else "No container could be judged.",
        comparison=no_break_percent(comparison(summary)) if summary else "",
        baseline_words=BASELINES.get(summary.baseline or "", "") if summary else "",
        generated_at=generated_at.strftime("%Y-%m-%d %H:%M %Z").strip(),
        version=version,
        script=Markup(script),  # noqa: S704  # a file of this package
        style=Markup(style),  # noqa: S704  # a file of this package
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=script_json(_data(summary, shown, None if numbered_per_fold else phase_table) if summary else {}),
        numbered_per_fold=numbered_per_fold,
        names=names,
        looks=[look_of(name, names) for name in names],
        phase_colours=[(phase_colour(n), phase_colour(n, dark=True)) for n in range(PHASE_COLOURS)],
        tradeoffs=[Markup(drawn) for drawn in tradeoffs],  # noqa: S704  # Matplotlib escapes what is written in it
        containers=_container_rows(summary) if summary else [],
        **_workloads(result.workloads, prices if prices is not None and prices.any_given else USUAL_PRICES),
        **_nodes(nodes_by_policy(summary) if summary else {}),
        timelines=shown,
        graph=drawing,
        prototypes=[(one, path_steps(one.path)) for one in paths],
        phase_table=phase_table,
        features=feature_rows(phase_table) if phase_table is not None else [],
        left_out=result.left_out[:MAX_LEFT_OUT],
        facts=fact_pairs(result.model),
        policy_words={name: POLICY_WORDS[name] for name in result.policies if name in POLICY_WORDS},
        limits={"containers": MAX_CONTAINERS, "points": MAX_POINTS, "changes": MAX_CHANGES, "share": MIN_SHARE},
        formula=FORMULA,
        target=TARGET_VIOLATION,
        ours=OURS,
    )  # fmt: skip


def _workloads(workloads: Sequence[WorkloadAdvice], prices: Prices) -> Mapping[str, Any]:
    """The table of workloads: headers, and for each name, whether little backs it, and sort key and text of cells."""
    columns = columns_of(workloads)
    keys = [tuple(figures(one, prices).get(column.key) for column in columns) for one in workloads[:MAX_CONTAINERS]]
    rows = [
        (
            one.name,
            confidence(one) == "low",
            [(key, column.cell(one, prices)) for key, column in zip(of, columns, strict=True)],
        )
        for one, of in zip(workloads, keys, strict=False)
    ]
    return {
        "workloads": rows,
        "workload_headers": [column.header.partition("\n")[::2] for column in columns],
        "workload_totals": totals_words(workloads, prices) if workloads else "",
        "workload_legend": legend(workloads, prices),
    }


def _nodes(nodes: Mapping[str, NodeUse]) -> Mapping[str, Any]:
    """The table of nodes: headers, and for each row its name, and sort key and text of cells."""
    headers, rows = node_cells(nodes)
    return {
        "nodes": rows,
        "node_headers": [header.partition("\n")[::2] for header in headers],
        "node_words": node_words(nodes),
    }


def script_json(data: object) -> Markup:
    """JSON that is safe inside a script element: without `<`, `>`, `&` and line separators."""
    text = orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)  # noqa: S704  # all characters that could end the element are escaped above


def no_break_percent(text: str) -> str:
    """Put no-break spaces between numbers and per cent signs."""
    return text.replace(" %", "\u00a0%")


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("recommender", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "ratio": two_decimals,
        "percent": lambda share, digits=1: no_break_percent(percent(share, digits)),
        "span": duration_words,
        "counted": counted,
    }
    return environment


def _read_text(name: str) -> str:
    return (resources.files("recommender.report") / name).read_text(encoding="utf-8")


def _data(summary: Summary, timelines: Sequence[Timeline], table: PhaseStatistics | None) -> Mapping[str, Any]:
    names = [row.name for row in summary.policies]
    explained = sorted((row.name for row in summary.policies if not row.oracle), key=lambda name: name != summary.focus)
    checked = {summary.focus, summary.baseline, "vpa" if "vpa" in names else "histogram"}
    return {
        "phase_colours": PHASE_COLOURS,
        "policies": [
            {"name": name, "dash": " ".join(map(str, look_of(name, names).dash)), "checked": name in checked}
            for name in names
        ],
        "phases": [table.describe(phase) for phase in range(table.n_phases)] if table is not None else [],
        "timelines": [timeline_data(timeline, names, explained) for timeline in timelines],
    }


def _container_rows(summary: Summary) -> list[ContainerRow]:
    """At most `MAX_CONTAINERS` rows: half of them the most harmed, the rest those with the largest difference."""
    by_rank = sorted(summary.containers, key=lambda row: -abs(row.rank))
    if len(by_rank) <= MAX_CONTAINERS:
        return sorted(by_rank, key=lambda row: -row.rank)
    first = {row.container: row for row in (*summary.most_harmed(MAX_CONTAINERS // 2), *by_rank)}
    return sorted(islice(first.values(), MAX_CONTAINERS), key=lambda row: -row.rank)
