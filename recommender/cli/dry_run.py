"""`phasewise dry-run`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from recommender import __version__
from recommender.base.files import atomic_write_bytes, check_target, write_or_print
from recommender.base.nodes import NodeType
from recommender.cli.common import FILE, check_parquet_target, comma_list, shows, source_argument
from recommender.cli.fetching import FETCH_OPTIONS, Fetch, make_fetch, usage_files
from recommender.cli.grouped import grouped, settings_from, settings_of
from recommender.cli.prices import HARM_OPTIONS, NODE_OPTIONS, PRICE_OPTIONS, make_node_types
from recommender.cli.replaying import DATA_OPTIONS, DataOptions, Replayed, Wanted, replay_source
from recommender.cli.simulated_cluster import ClusterOptions
from recommender.learning.model import PhaseModel
from recommender.phases import graph_io
from recommender.phases.graph import runs_of
from recommender.policies.registry import POLICIES, check_names
from recommender.report.figures import to_json, write_csv
from recommender.report.summary import USUAL_PRICES, Prices, summarise
from recommender.report.terminal import render_table, report_console
from recommender.simulate.flowcon import LOSS
from recommender.simulate.rows import ALL_ROWS, ENGINE_ROWS, FLOWCON, KRR, PHASEWISE, ROWS

DEFAULT_POLICIES = ", ".join(dict.fromkeys((*ROWS, *POLICIES)))
ALONE = [name for name in ENGINE_ROWS if name != PHASEWISE]
POLICIES_HELP = (
    f"Comma-separated; default: {DEFAULT_POLICIES}. Also: {', '.join(ALONE)} (what phasewise chooses from, alone), "
    f"{KRR} (requests as KRR recommends them), {FLOWCON} (needs a column {LOSS})."
)

_option = grouped()

OUTPUT_OPTIONS = (
    _option("--json", str, "Write the results as JSON; `-` is stdout, without the table.", metavar="FILE|-"),
    _option("--csv", FILE, "Write CSV, one row per container and policy."),
    _option("--html", FILE, "Write a self-contained HTML page."),
    _option("--plots", FILE, "Write pictures (PNG) to this folder."),
    _option("--decisions", FILE, "Write all decisions as Parquet."),
)

Outputs = Mapping[str, str | Path]
"""Path of each output asked for."""


def make_outputs(
    decisions: Path | None, json: str | None, csv: Path | None, html: Path | None, plots: Path | None
) -> Outputs:
    given = {"decisions": decisions, "JSON": json, "CSV": csv, "page": html, "plots": plots}
    return {what: path for what, path in given.items() if path is not None}


@shows(
    "--prometheus", "--since", "-n", "--map", "--model", "--history", "--policies", "--html", "--json", "--node-type"
)
@click.command("dry-run", context_settings={"show_default": True})
@source_argument(required=False)
@settings_of("data", DATA_OPTIONS, DataOptions)
@_option("--policies", str, POLICIES_HELP)
@settings_of("outputs", OUTPUT_OPTIONS, make_outputs)
@settings_of("nodes", NODE_OPTIONS, make_node_types)
@settings_of("prices", (*PRICE_OPTIONS, *HARM_OPTIONS), Prices)
@settings_of("fetch", FETCH_OPTIONS, make_fetch)
@settings_from("cluster", ClusterOptions)
def command(
    source: tuple[Path, ...],
    data: DataOptions,
    policies: str | None,
    outputs: Outputs,
    nodes: tuple[NodeType, ...],
    prices: Prices,
    fetch: Fetch,
    cluster: ClusterOptions,
) -> None:
    """Replay recorded metrics and report the savings, violations and OOM kills of each policy.

    SOURCE is CSV (also .gz), Parquet or a saved Prometheus query_range response, or a folder or glob of them, with the
    columns timestamp, container, cpu_cores, memory_bytes. Default: the bundled recordings and model.

    Without --model each container is judged by a model trained on other containers (5-fold cross-fitting). With --model
    the report says how many of the containers it was trained on.

    \b
      phasewise dry-run --html report.html
      phasewise dry-run --prometheus http://localhost:9090 --since 7d
      phasewise dry-run export/ --cycle 5m --node-type 16x64Gi@0.80
      phasewise dry-run export.csv --map cpu_cores=cpu:millicores --map memory_bytes=rss:MiB --json - | jq .policies
    """
    asked = comma_list(policies)
    check_names(asked, ALL_ROWS)
    _check_targets(outputs)
    wanted = Wanted(
        asked,
        timelines=8 if "page" in outputs or "plots" in outputs else 0,
        explains="page" in outputs,
        decisions=Path(outputs["decisions"]) if "decisions" in outputs else None,
        node_types=nodes,
        outputs=tuple(outputs.values()),
    )
    with usage_files(source, fetch) as files:
        _report(replay_source(files, data, cluster, wanted), outputs, prices)


def _check_targets(outputs: Outputs) -> None:
    """Refuse paths that cannot be written, before anything is read."""
    for what, path in outputs.items():
        if what == "plots":
            existing = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
            check_target(existing / "plot.png")
        elif what == "decisions":
            check_parquet_target(path)
        elif path != "-":
            check_target(path)


def _report(replayed: Replayed, outputs: Outputs, prices: Prices) -> None:
    """Write all requested files, and print the table, even if a file cannot be written."""
    result = replayed.result
    written: list[tuple[str, str]] = []
    try:
        for what, path in outputs.items():
            if what == "JSON":
                write_or_print(path, to_json(result, prices if prices.any_given else USUAL_PRICES))
            elif what == "CSV":
                write_csv(result, path)
            elif what == "page":
                _write_page(replayed, path, prices)
            elif what == "plots":
                from recommender.plots.folder import write_plots  # noqa: PLC0415  matplotlib takes a second to import

                write_plots(result, result.timelines, path, phase_graph=_graph(replayed.model))
            written.append((what, str(path)))
    finally:
        if outputs.get("JSON") != "-":
            render_table(result, console=report_console(), prices=prices, written=written)


def _write_page(replayed: Replayed, path: str | Path, prices: Prices) -> None:
    from recommender.plots.policies import tradeoffs_for_page  # noqa: PLC0415
    from recommender.report.page import render_page  # noqa: PLC0415

    result, model = replayed.result, replayed.model
    page = render_page(
        result,
        result.timelines,
        generated_at=datetime.now(UTC),
        version=__version__,
        prices=prices,
        phase_graph=_graph(model),
        sequences=[runs_of(model.detector.trace(one)[one.present]) for one in replayed.series] if model else [],
        phase_table=None if model is None else model.statistics,
        tradeoffs=tradeoffs_for_page(summarise(result)) if result.containers else [],
    )
    atomic_write_bytes(path, page.encode())


def _graph(model: PhaseModel | None) -> Any:
    """The model's phase graph for networkx; None if it is empty."""
    if model is None or model.graph is None or not model.graph.containers:
        return None
    return graph_io.to_networkx(model.graph, unknown=model.detector.n_phases)
