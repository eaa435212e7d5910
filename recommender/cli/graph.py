"""`phasewise research graph`: fit, score, explain and draw the graph of phase transitions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import orjson
from rich.table import Column, Table

from recommender.base.errors import BadArtifact, Misuse
from recommender.base.files import atomic_write_bytes, write_or_print
from recommender.base.units import counted
from recommender.cli.common import FILE, refuse_overwriting, say
from recommender.phases import graph_io
from recommender.phases.graph import PhaseGraph, Run, runs_of
from recommender.phases.graph_answers import GraphPredictor
from recommender.phases.prototypes import prototypes
from recommender.report.terminal import report_console
from recommender.sources.sequences import read_sequences

SEQUENCES = click.argument("sequences", type=FILE)
GRAPH = click.argument("graph", metavar="GRAPH.json", type=FILE)
JSON = click.option("--json", "json_path", metavar="FILE|-", help="Write JSON to this file; `-` is stdout.")

DRAWN = (".png", ".dot", ".graphml")
"""Suffixes of what `phasewise research graph draw` writes."""

SHOWN_PROTOTYPES = 20
"""Rows of the table; the paper counts 20 to 25 distinct paths. JSON has all."""


@click.group("graph")
def command() -> None:
    """Fit, score, explain and draw the graph of phase transitions.

    SEQUENCES is a file of `phasewise research phases`, or other Parquet or CSV (also .gz) with the columns container,
    step (or timestamp) and phase, rows in any order. Only the order of the steps matters. The unknown phase -1 counts
    as the phase before it.

    \b
      phasewise research phases runs.parquet --model model -o phases.parquet
      phasewise research graph fit phases.parquet -o graph.json
      phasewise research graph draw graph.json -o graph.png
    """


@command.command("fit")
@SEQUENCES
@click.option("-o", "--output", required=True, type=FILE, help="The JSON file to write.")
def fit(sequences: Path, output: Path) -> None:
    """Count the phase transitions in SEQUENCES and write the graph.

    Each container counts as ended with its last row.
    """
    if output.suffix.lower() in DRAWN:
        raise Misuse(
            f"{output}: this is written as JSON. Name a .json file, and draw that with `phasewise research graph draw`."
        )
    refuse_overwriting((output,), (sequences,))
    graph = PhaseGraph.fit(_read(sequences))
    atomic_write_bytes(output, graph_io.to_json(graph))
    phases = {context.phases[0] for context in graph.contexts}
    found = (graph.containers, "container"), (len(phases), "phase"), (len(graph.contexts), "context")
    say(f"{', '.join(counted(*one) for one in found)}: {output}")


@command.command("score")
@GRAPH
@SEQUENCES
@JSON
def score_command(graph: Path, sequences: Path, json_path: str | None) -> None:
    """Predict the next different phase after each run in SEQUENCES, and score the predictions.

    top1 is the share of correct predictions, log_loss the mean of -ln p of the actual phase, where the probabilities of
    all phases but the present one sum to one. A phase that the graph has never seen counts as p = 0.001.
    """
    refuse_overwriting((json_path,), (graph, sequences))
    result = GraphPredictor(_load(graph)).score(_read(sequences))
    if json_path is not None:
        return _write_json(asdict(result), json_path)
    table = Table(*map(_numbers, ("transitions", "correct (top 1)", "log-loss")), title="next different phase")
    table.add_row(str(result.transitions), f"{result.top1:.1%}", f"{result.log_loss:.3f}")
    return report_console().print(table)


@command.command("draw")
@GRAPH
@click.option("-o", "--output", required=True, type=FILE, help="A .png, .dot or .graphml file.")
def draw(graph: Path, output: Path) -> None:
    """Draw the graph: a picture (.png), Graphviz (.dot), or all contexts and counts (.graphml)."""
    kind = output.suffix.lower()
    if kind not in DRAWN:
        raise Misuse(f"{output}: unknown format. Use the suffix .png, .dot or .graphml.")
    loaded = _load(graph)
    if kind == ".png":
        from recommender.plots.graph import draw_picture  # noqa: PLC0415  matplotlib takes a second to import

        draw_picture(graph_io.to_networkx(loaded), output)
    else:
        atomic_write_bytes(output, graph_io.to_dot(loaded) if kind == ".dot" else graph_io.to_graphml(loaded))


@command.command("prototypes")
@SEQUENCES
@JSON
def prototypes_command(sequences: Path, json_path: str | None) -> None:
    """Show the paths of executions through the phases, repeats and alternations collapsed."""
    refuse_overwriting((json_path,), (sequences,))
    runs = _read(sequences)
    found = prototypes(runs)
    if json_path is not None:
        listed = [{**asdict(one), "path": list(one.path)} for one in found]
        return _write_json({"executions": len(runs), "prototypes": listed}, json_path)
    title = f"{counted(len(found), 'prototype')} of {counted(len(runs), 'execution')}"
    table = Table("path", *map(_numbers, ("executions", "share", "cumulative")), title=title)
    for one in found[:SHOWN_PROTOTYPES]:
        table.add_row(" ".join(one.path), str(one.count), f"{one.share:.1%}", f"{one.cumulative_share:.1%}")
    report_console().print(table)
    if len(found) > SHOWN_PROTOTYPES:
        say(f"{len(found) - SHOWN_PROTOTYPES} rarer prototypes are not shown; --json lists all")
    return None


@command.command("explain")
@GRAPH
@SEQUENCES
@click.option("--container", help="Container to explain.  [default: the only one in SEQUENCES]")
@JSON
def explain_command(graph: Path, sequences: Path, container: str | None, json_path: str | None) -> None:
    """Show what the graph expects after the last run of a container in SEQUENCES, and why.

    Each row matches more of the present context than the row above: how many runs of the graph match, and which phase
    followed. A row counts by its weight, the rest goes to the row above; the last rows are the container's own runs.
    """
    refuse_overwriting((json_path,), (graph, sequences))
    loaded, runs = _load(graph), _runs_of_one(sequences, container)
    explanation = GraphPredictor(loaded).explain(runs)
    if json_path is not None:
        return _write_json(explanation, json_path)
    console, (phase, samples) = report_console(), runs[-1]
    remaining = explanation["expected_remaining_samples"]
    more = "a phase that the graph has never seen" if remaining is None else f"about {remaining:.1f} more expected"
    following = ", ".join(f"phase {phase} {share:.1%}" for phase, share in _likeliest(explanation["next_phase"]))
    console.print(f"phase {phase} for {counted(samples, 'sample')}; {more}")
    console.print(f"if it ends now, the container ends with probability {explanation['end_if_over']:.1%}")
    console.print(f"otherwise next: {following}")
    columns = ("matching context", _numbers("runs"), _numbers("weight"), "next phase: runs")
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for step in explanation["steps"]:
        followed = ", ".join(f"{phase}: {count:.0f}" for phase, count in _likeliest(step["next"]))
        table.add_row(step["agrees"], f"{step['seen']:.0f}", f"{step['own_weight']:.0%}", followed)
    return console.print(table)


def _numbers(header: str) -> Column:
    return Column(header, justify="right")


def _runs_of_one(sequences: Path, container: str | None) -> list[Run]:
    """The runs of the named container, or of the only one."""
    found = read_sequences(sequences)
    if container is None and len(found) > 1:
        raise Misuse(f"{sequences} has {len(found)} containers. Choose one: --container {next(iter(found))}")
    name = next(iter(found)) if container is None else container
    if name not in found:
        raise Misuse(f"{sequences}: no container {name}. The first of {len(found)} is {next(iter(found))}.")
    return runs_of(found[name])


def _likeliest(followers: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(followers.items(), key=lambda item: -item[1])[:4]


def _read(path: Path) -> list[list[Run]]:
    return [runs_of(phases) for phases in read_sequences(path).values()]


def _load(path: Path) -> PhaseGraph:
    graph = graph_io.load(path)
    if not graph.containers:
        raise BadArtifact(f"{path}: the graph is empty. Fit it on sequences first.")
    return graph


def _write_json(result: Any, path: str) -> None:
    write_or_print(path, orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
