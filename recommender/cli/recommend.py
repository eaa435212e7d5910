"""`phasewise recommend`."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

import click
import orjson

from recommender.base.errors import NotEnoughData
from recommender.base.files import write_or_print
from recommender.base.nodes import NodeType
from recommender.base.records import WorkloadAdvice
from recommender.base.units import counted
from recommender.cli.common import map_option, say, shows, source_argument
from recommender.cli.fetching import FETCH_OPTIONS, FIND_OPTIONS, Fetch, make_fetch, usage_files
from recommender.cli.grouped import grouped, settings_of
from recommender.cli.prices import NODE_OPTIONS, PRICE_OPTIONS, make_node_types
from recommender.cli.replaying import HISTORY_OPTION, MODEL_OPTION, DataOptions, Wanted, replay_source
from recommender.cli.simulated_cluster import AS_INSTALLED
from recommender.learning.model import BUNDLED
from recommender.report.manifests import FORMATS, KINDS
from recommender.report.nodes import node_figures, nodes_by_request
from recommender.report.summary import USUAL_PRICES, Prices
from recommender.report.terminal import node_table, report_console
from recommender.report.workloads import figures, to_csv, workload_table
from recommender.simulate.rows import PHASEWISE, STATIC
from recommender.simulate.workloads import confidence

TABLES = ("table", "wide")
OUTPUTS = (*TABLES, "json", "csv", *FORMATS)
WIDE = 200

_option = grouped()


@shows(
    "--prometheus",
    "--since",
    "-n",
    "--workload",
    "-o",
    "--low-confidence",
    "--node-type",
    "--cpu-price",
    "--memory-price",
    "--map",
)
@click.command("recommend", context_settings={"show_default": True})
@source_argument(required=False)
@_option("--workload workloads", str, "Only workloads of this name; may have * and ?. Repeatable.", multiple=True)
@_option("-o --output output", click.Choice(OUTPUTS), "Format of the answer.", default="table")
@_option("--low-confidence", bool, "Also write values backed by little (marked *) to manifests.")
@settings_of("nodes", NODE_OPTIONS, make_node_types)
@settings_of("prices", PRICE_OPTIONS, Prices)
@settings_of("data", (MODEL_OPTION, map_option, HISTORY_OPTION), DataOptions)
@settings_of("fetch", (*FETCH_OPTIONS, *FIND_OPTIONS), make_fetch)
def command(
    source: tuple[Path, ...],
    workloads: tuple[str, ...],
    output: str,
    low_confidence: bool,
    nodes: tuple[NodeType, ...],
    prices: Prices,
    data: DataOptions,
    fetch: Fetch,
) -> None:
    """Say what each workload should request, what that saves a month, and how sure that is.

    Usage comes from the cluster's Prometheus, which is found by the labels of its Service, or from --prometheus, or
    from SOURCE: files as for `phasewise dry-run`, or the word `bundled` for the recordings that ship with Phasewise.
    Nothing is changed in the cluster.

    \b
      phasewise recommend -n training
      phasewise recommend --prometheus http://localhost:9090 --since 14d -o wide
      phasewise recommend usage.csv -o yaml
      phasewise recommend --node-type 16x64Gi@0.80
      phasewise recommend -o patch | kubectl apply --server-side --force-conflicts -f -
    """
    bundled = [str(path) for path in source] == [BUNDLED]
    with usage_files(() if bundled else source, fetch, finds=not bundled) as files:
        replayed = replay_source(files, data, AS_INSTALLED, Wanted((STATIC, PHASEWISE), node_types=nodes))
    advice = chosen(replayed.result.workloads, workloads)
    prices = prices if prices.any_given else USUAL_PRICES
    for note in replayed.result.notes:
        say(f"note: {note}")
    if workloads and nodes:
        say("note: nodes are counted for all workloads together.")
    if output in TABLES:
        console = report_console()
        wide = output == "wide"
        console.width = max(console.width, WIDE) if wide else console.width
        console.print(workload_table(advice, prices, console.width, wide=wide))
        if of_all := nodes_by_request(replayed.result.nodes):
            console.print()
            console.print(node_table(of_all))
    elif output == "json":
        rows = [figures(one, prices) for one in advice]
        nodes_of_all = {name: node_figures(one) for name, one in nodes_by_request(replayed.result.nodes).items()}
        report = {"schema": 1, "workloads": rows, "nodes": nodes_of_all}
        write_or_print("-", orjson.dumps(report, option=orjson.OPT_INDENT_2) + b"\n")
    elif output == "csv":
        write_or_print("-", to_csv(advice, prices).encode())
    else:
        write_or_print("-", FORMATS[output](_writable(advice, output, low_confidence=low_confidence)).encode())


def chosen(advice: Sequence[WorkloadAdvice], names: Sequence[str]) -> list[WorkloadAdvice]:
    """Those that match one of the names, all without names; `NotEnoughData` if none does."""
    found = [
        one
        for one in advice
        if not names or any(fnmatch.fnmatchcase(text, name) for name in names for text in (one.workload, one.name))
    ]
    if not found and names:
        known = ", ".join(sorted({one.name for one in advice})[:12])
        raise NotEnoughData(f"no workload is called {' or '.join(names)}. There are: {known}.")
    return found


def _writable(advice: Sequence[WorkloadAdvice], output: str, *, low_confidence: bool) -> list[WorkloadAdvice]:
    """What goes into a manifest; what does not is said."""
    kept = [one for one in advice if low_confidence or confidence(one) != "low"]
    if len(kept) < len(advice):
        say(f"left out: {counted(len(advice) - len(kept), 'value')} backed by little; --low-confidence writes them too")
    if output not in KINDS:
        return kept
    changed = [one for one in kept if one.owner.partition("/")[0] in KINDS[output]]
    if len(changed) < len(kept):
        say(
            f"left out: {counted(len(kept) - len(changed), 'workload')} whose kind is unknown or not one of "
            f"{', '.join(KINDS[output])}: a column owner (Deployment/web) names it; -o yaml has them all"
        )
    return changed
