"""`phasewise extender explain`: why a pod went where it went, or where it would go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import orjson
import urllib3
from rich.console import Console
from rich.table import Table
from urllib3.exceptions import HTTPError

from extender.cli.options import scoring_options
from extender.errors import NotAnswered
from extender.placing.trial import Trial, list_cluster, read_dump
from extender.reasons import CPU_REASON
from extender.settings import Settings
from recommender import __version__
from recommender.cli.common import say
from recommender.cluster.access.connection import connect
from recommender.errors import Misuse

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

DecisionJson = Mapping[str, Any]
"""A decision as plain data, see `Decision.told`."""

MAX_NAMED_NODES = 4
"""Of nodes that have the same said of them."""

TIMEOUT_S = 10.0
SERVER_HINT = (
    "Name it by --server; one that listens in a pod is asked there: kubectl -n ITS-NAMESPACE exec "
    "deploy/phasewise-scheduler -c extender -- phasewise extender explain NAMESPACE/POD"
)
UNKNOWN_POD_HINT = (
    "It judges pods of its scheduler and those with a label or annotation of phasewise.dev, and keeps what it said of "
    "the last few thousand since its start; of several replicas, the one beside the scheduler that leads keeps it."
)


@click.command(name="explain", context_settings={"show_default": True})
@click.argument("what", metavar="REQUEST|NAMESPACE/POD")
@click.option(
    "--server",
    envvar="PHASEWISE_EXTENDER_SERVER",
    default="http://127.0.0.1:8943",
    help="Where the extender answers that is asked about NAMESPACE/POD.",
)
@click.option("--authority", type=FILE, help="Its certificate is of this authority (PEM).  [default: the system's]")
@click.option("--certificate", type=FILE, help="Our certificate (PEM), where it asks for one.")
@click.option("--key", type=FILE, help="Its key (PEM).  [default: in the certificate's file]")
@click.option(
    "--cluster",
    "dumps",
    type=FILE,
    multiple=True,
    help="Judge REQUEST on a dump: kubectl get nodes,pods,phaseprofiles -A -o json. Repeatable.  "
    "[default: on what the API server says]",
)
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]")
@click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
@click.option("--nodes", "most", type=click.IntRange(1), default=20, help="How many nodes to tell of.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, like /explain of the server.")
@scoring_options
def command(
    what: str,
    server: str,
    authority: Path | None,
    certificate: Path | None,
    key: Path | None,
    dumps: tuple[Path, ...],
    kubeconfig: Path | None,
    context: str | None,
    most: int,
    as_json: bool,
    settings: Settings,
) -> None:
    """Say which nodes a pod is refused, how the others are scored, and why.

    NAMESPACE/POD asks the running extender what it decided, and what the scheduler made of it.

    REQUEST is a file with what a scheduler sends ({"Pod": ..., "NodeNames": [...]}), or with a pod as `kubectl get pod
    -o json` prints it, which is judged on all nodes: now, without a server, as if it were not placed yet.
    """
    namespace, _, pod = what.partition("/")
    file = Path(what).is_file()
    if file:
        told = decide_offline(Path(what), settings, dumps, kubeconfig, context, most)
    elif namespace and pod and "/" not in pod and not dumps:
        told = ask_server(server, namespace, pod, most, authority=authority, certificate=certificate, key=key)
    else:
        raise Misuse(f"{what}: there is no such file, and a pod is written NAMESPACE/POD.")
    if as_json:
        click.echo(orjson.dumps(told, option=orjson.OPT_INDENT_2))
    else:
        show(told, decided=not file)


def ask_server(
    server: str,
    namespace: str,
    pod: str,
    nodes: int,
    *,
    authority: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
) -> DecisionJson:
    """What a running extender decided on a pod, as `Decision.told` tells it, with so many nodes at most.

    Parameters
    ----------
    server
        Its URL, `http://127.0.0.1:8943`.
    authority
        PEM file: its certificate is one of this authority; otherwise the system's are trusted.
    certificate, key
        PEM files: what we show where it asks for a client's certificate.

    Raises
    ------
    NotAnswered
        Nobody answers there, or no decision is kept of this pod.
    """
    given = {"ca_certs": authority, "cert_file": certificate, "key_file": key}
    files: dict[str, Any] = {name: str(file) for name, file in given.items() if file is not None}
    pool = urllib3.PoolManager(**files)
    url = f"{server.rstrip('/')}/explain/{namespace}/{pod}?nodes={nodes}"
    try:
        answer = pool.request("GET", url, timeout=TIMEOUT_S, retries=False, redirect=False)
        told = orjson.loads(answer.data)
    except HTTPError as error:
        raise NotAnswered(f"no extender answers at {server} ({type(error).__name__}). {SERVER_HINT}") from error
    except orjson.JSONDecodeError as error:
        raise NotAnswered(f"what answers at {server} is no extender") from error
    if answer.status != 200 or not isinstance(told, dict) or "nodes" not in told:
        said = str(told.get("Error") if isinstance(told, dict) else told)[:200]
        raise NotAnswered(f"{said}. {UNKNOWN_POD_HINT}" if answer.status == 404 else f"{server} answers: {said}")
    return told


def decide_offline(
    request: Path, settings: Settings, dumps: Sequence[Path], kubeconfig: Path | None, context: str | None, most: int
) -> DecisionJson:
    """What would be decided on a request now."""
    trial = Trial(settings)
    if dumps:
        for file in dumps:
            trial.load(read_dump(file))
    else:
        trial.load(list_cluster(connect(kubeconfig, context, user_agent=f"phasewise-extender/{__version__}")))
    for problem in trial.broken:
        say(f"left out: {problem}")
    return trial.decide(trial.read_request(request.read_bytes(), request)).as_json(most)


def show(told: DecisionJson, *, decided: bool) -> None:
    """What was decided in a few lines, then a table of nodes and reasons, the best first.

    `decided` by a server for a scheduler; otherwise it is only what would be.
    """
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{told['pod']}: workload {told['workload']}, expected use from {told['demandFrom'] or 'nothing'}")
    if decided:
        advised = f" ({told['advised']} was advised)" if told["advised"] not in ("", told["bound"]) else ""
        console.print(f"{'on ' + told['bound'] + ': ' if told['bound'] else ''}{told['outcome']}{advised}")
        ask_server = datetime.fromtimestamp(told["askedSeconds"], UTC)
        tries = "once" if told["attempts"] == 1 else f"{told['attempts']} times"
        console.print(f"asked {tries}, last at {ask_server:%H:%M:%S} UTC, about {told['nodesAsked']} nodes")
    else:
        console.print(f"judged now, on {told['nodesAsked']} nodes, as if it were not placed yet")
    if not told["nodes"]:
        if told["advised"]:
            console.print(f"the only node left: {told['advised']}")
        elif not told["refused"]:
            console.print("none of ours, or no node is known: all nodes are equal")
    elif weights := ", ".join(f"{name} {weight:g}" for name, weight in told["weights"].items() if weight):
        console.print(f"weights: {weights}")
    table = Table(box=None, pad_edge=False)
    table.add_column("NODE", no_wrap=True)
    table.add_column("SCORE", justify="right")
    table.add_column("WHY", overflow="fold")
    alike: dict[tuple[str, str], list[str]] = {}
    for node in told["nodes"]:
        why = [f"{name} {said['value']:.2f}: {said['why']}" for name, said in node["scorers"].items()]
        alike.setdefault((str(node["score"]), "\n".join(why)), []).append(node["node"])
    for (score, words), names in alike.items():
        _row(table, names, len(names), score, words)
    for reason, count in told["reasons"].items():
        words = f"{CPU_REASON}: {shortfall(told['cpuOverload'])}" if reason.startswith(CPU_REASON) else reason
        _row(table, [node for node, why in told["refused"].items() if why == reason], count, "no", words)
    if table.row_count:
        console.print(table)


def shortfall(overload: DecisionJson) -> str:
    """Such as `by 0.024 to 0.3 of it, 0.01 is tolerated by now`."""
    least, most = overload["least"], overload["most"]
    shares = f"by {least:.2g}" if least == most else f"by {least:.2g} to {most:.2g}"
    return f"{shares} of it, {overload['tolerated']:.2g} is tolerated by now"


def _row(table: Table, names: Sequence[str], count: int, score: str, words: str) -> None:
    """One for a node, or for all nodes of which the same is said: some of them are named."""
    if count > 1:
        words += f"\n{', '.join(names[:MAX_NAMED_NODES])}{', ...' if count > MAX_NAMED_NODES else ''}"
    table.add_row(names[0] if count == 1 else f"{count} nodes", score, words)
