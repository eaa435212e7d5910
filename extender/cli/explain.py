"""`phasewise extender explain`: one request answered without a server."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from extender.cli.options import judging_options
from extender.decisions import Decision
from extender.settings import Settings
from extender.trial import Trial, dumped, listed
from recommender import __version__
from recommender.cli.common import say
from recommender.cluster.connection import connect

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(name="explain", context_settings={"show_default": True})
@click.argument("request", type=FILE)
@click.option(
    "--cluster",
    "dumps",
    type=FILE,
    multiple=True,
    help="A dump: kubectl get nodes,pods,phaseprofiles -A -o json. Repeatable.  [default: ask the API server]",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]")
@click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
@click.option("--nodes", "most", type=click.IntRange(1), default=20, help="How many nodes to tell of.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, like /explain of the server.")
@judging_options
def command(
    request: Path,
    dumps: tuple[Path, ...],
    kubeconfig: Path | None,
    context: str | None,
    most: int,
    as_json: bool,
    settings: Settings,
) -> None:
    """Say which nodes a pod would be refused, how the others are scored, and why.

    REQUEST is what a scheduler sends ({"Pod": ..., "NodeNames": [...]}), or a pod as `kubectl get pod -o json` prints
    it, which is judged on all nodes.
    """
    trial = Trial(settings)
    if dumps:
        for file in dumps:
            trial.take(dumped(file))
    else:
        trial.take(listed(connect(kubeconfig, context, user_agent=f"phasewise-extender/{__version__}")))
    for problem in trial.broken:
        say(f"left out: {problem}")
    decision = trial.decide(trial.question_of(request.read_bytes(), request))
    if as_json:
        click.echo(orjson.dumps(decision.told(most), option=orjson.OPT_INDENT_2))
    else:
        show(decision, most)


def show(decision: Decision, most: int) -> None:
    """A table of nodes and reasons, the best first."""
    told = decision.told(most)
    console = Console(soft_wrap=True)
    weights = ", ".join(f"{name} {weight:g}" for name, weight in told["weights"].items() if weight)
    console.print(f"{told['pod']}: workload {told['workload']}, expected use from {told['demandFrom'] or 'nothing'}")
    if not told["nodes"] and not told["refused"]:
        favourite = f"the only node left: {told['advised']}" if told["advised"] else "none of ours: all nodes are equal"
        console.print(favourite)
        return
    if weights:
        console.print(f"weights: {weights}")
    table = Table(box=None, pad_edge=False)
    table.add_column("NODE", no_wrap=True)
    table.add_column("SCORE", justify="right")
    table.add_column("WHY", overflow="fold")
    for node in told["nodes"]:
        why = [f"{name} {said['value']:.2f}: {said['why']}" for name, said in node["scorers"].items()]
        table.add_row(node["node"], str(node["score"]), "\n".join(why))
    for name, reason in told["refused"].items():
        table.add_row(name, "-", reason)
    console.print(table)
