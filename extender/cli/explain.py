"""`phasewise extender explain`: why a pod was placed on its node, or where it would be placed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click
import orjson
import urllib3
from rich.console import Console
from rich.table import Table
from urllib3.exceptions import HTTPError

from extender.cli.options import FILE, scoring_options
from extender.errors import NotAnswered
from extender.placing.decisions import Decision, Decisions
from extender.placing.placer import Placer
from extender.pods.pod import CPU_REASON, pod_reader, profile_reader, read_node
from extender.protocol.wire import ExtenderArgs, read_args
from extender.settings import Settings
from extender.view.state import ClusterState
from recommender import __version__
from recommender.base.errors import BadInput, Misuse
from recommender.cli.common import WholeRange, say
from recommender.cli.connection import connection_options
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, NotFound
from recommender.cluster.paths import NODES, PODS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.workloads.ownership import WELL_KNOWN, Workloads, workload_reader

DecisionJson = Mapping[str, Any]  # a decision as plain data, see `Decision.as_json`
HOW_TO_DUMP = "Create one with kubectl get nodes,pods,phaseprofiles -A -o json."
MAX_NAMED_NODES = 4  # names listed in a row for several nodes
TIMEOUT_S = 10.0
SERVER_HINT = (
    "Give its URL with --server. If it only listens inside a pod, ask in the one beside the leading scheduler, which "
    "`kubectl -n ITS-NAMESPACE get lease phasewise-scheduler` names before the `_`: kubectl -n ITS-NAMESPACE exec POD "
    "-c extender -- phasewise extender explain NAMESPACE/POD"
)
UNKNOWN_POD_HINT = (
    "Decisions are kept for pods of its scheduler and pods with a label or annotation of phasewise.dev, for the last "
    "few thousand since its start, and in the replica beside the leading scheduler."
)


@click.command(name="explain", context_settings={"show_default": True})
@click.argument("what", metavar="REQUEST|NAMESPACE/POD")
@click.option(
    "--server",
    envvar="PHASEWISE_EXTENDER_SERVER",
    default="http://127.0.0.1:8943",
    help="URL of the extender to ask about NAMESPACE/POD.",
)
@click.option("--authority", type=FILE, help="Trust certificates of this authority (PEM).  [default: the system's]")
@click.option("--certificate", type=FILE, help="Client certificate (PEM), if the extender requires one.")
@click.option("--key", type=FILE, help="Its key (PEM).  [default: in the certificate's file]")
@click.option(
    "--cluster",
    "dumps",
    type=FILE,
    multiple=True,
    help="Evaluate REQUEST on a dump: kubectl get nodes,pods,phaseprofiles -A -o json. Repeatable.  "
    "[default: on the live cluster]",
)
@connection_options
@click.option("--nodes", "max_nodes", type=WholeRange(1), default=20, help="How many nodes to show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, like /explain of the server.")
@scoring_options
def command(
    what: str,
    server: str,
    authority: Path | None,
    certificate: Path | None,
    key: Path | None,
    dumps: tuple[Path, ...],
    connect: Callable[..., Api],
    max_nodes: int,
    as_json: bool,
    settings: Settings,
) -> None:
    """Show which nodes are refused for a pod, how the others are scored, and why.

    NAMESPACE/POD asks the running extender for its last decision and the outcome.

    REQUEST is a file with a scheduler's request ({"Pod": ..., "NodeNames": [...]}), or a pod as printed by `kubectl get
    pod -o json`, which is evaluated on all nodes: now, without a server, as if it were not placed yet.
    """
    namespace, _, pod = what.partition("/")
    file = Path(what).is_file()
    if file:
        decision = decide_offline(Path(what), settings, dumps, connect, max_nodes)
    elif namespace and pod and "/" not in pod and not dumps:
        decision = ask_server(
            server, namespace, pod, max_nodes, ca_certs=authority, cert_file=certificate, key_file=key
        )
    else:
        raise Misuse(f"{what}: neither a file nor NAMESPACE/POD.")
    if as_json:
        click.echo(orjson.dumps(decision, option=orjson.OPT_INDENT_2))
    else:
        show(decision, decided=not file)


def ask_server(server: str, namespace: str, pod: str, nodes: int, **files: Path | None) -> DecisionJson:
    """A running extender's last decision on a pod, with at most so many nodes, or NotAnswered; `files` are those of
    urllib3."""
    given: dict[str, Any] = {name: str(file) for name, file in files.items() if file is not None}
    pool = urllib3.PoolManager(**given)
    url = f"{server.rstrip('/')}/explain/{namespace}/{pod}?nodes={nodes}"
    try:
        answer = pool.request("GET", url, timeout=TIMEOUT_S, retries=False, redirect=False)
        decision = orjson.loads(answer.data)
    except HTTPError as error:
        raise NotAnswered(f"no extender answers at {server} ({type(error).__name__}). {SERVER_HINT}") from error
    except orjson.JSONDecodeError as error:
        raise NotAnswered(f"the server at {server} is not an extender") from error
    if answer.status != 200 or not isinstance(decision, dict) or "nodes" not in decision:
        text = str(decision.get("Error") if isinstance(decision, dict) else decision)[:200]
        raise NotAnswered(f"{text}. {UNKNOWN_POD_HINT}" if answer.status == 404 else f"{server} answers: {text}")
    return decision


def decide_offline(
    request: Path, settings: Settings, dumps: Sequence[Path], connect: Callable[..., Api], nodes: int
) -> DecisionJson:
    """The decision on a request, made now without a server."""
    if dumps:
        objects: Iterable[Json] = chain.from_iterable(map(read_dump, dumps))
    else:
        objects = list_cluster(connect(user_agent=f"phasewise-extender/{__version__}"))
    trial = Trial(settings, objects)
    for problem in trial.broken:
        say(f"ignored: {problem}")
    return trial.decide(trial.read_request(request.read_bytes(), request)).as_json(nodes)


def show(decision: DecisionJson, *, decided: bool) -> None:
    """Print a summary of the decision (`decided` by a server, or just evaluated), then nodes and reasons, the best
    first."""
    console = Console(soft_wrap=True, highlight=False)
    source = decision["demandFrom"] or "nothing"
    console.print(f"{decision['pod']}: workload {decision['workload']}, expected use from {source}")
    if decided:
        advised = f" ({decision['advised']} was advised)" if decision["advised"] not in ("", decision["bound"]) else ""
        console.print(f"{'on ' + decision['bound'] + ': ' if decision['bound'] else ''}{decision['outcome']}{advised}")
        asked = datetime.fromtimestamp(decision["askedSeconds"], UTC)
        tries = "once" if decision["attempts"] == 1 else f"{decision['attempts']} times"
        console.print(f"asked {tries}, last at {asked:%H:%M:%S} UTC, about {decision['nodesAsked']} nodes")
    else:
        console.print(f"judged now, on {decision['nodesAsked']} nodes, as if it were not placed yet")
    if not decision["nodes"]:
        if decision["advised"]:
            console.print(f"the only node left: {decision['advised']}")
        elif not decision["refused"]:
            console.print("not a pod of ours, or no node is known: all nodes are equal")
    elif weights := ", ".join(f"{name} {weight:g}" for name, weight in decision["weights"].items() if weight):
        console.print(f"weights: {weights}")
    if failed := ", ".join(decision.get("failedBefore", ())):
        console.print(f"last, as a pod of its owner could not be bound there: {failed}")
    table = Table(box=None, pad_edge=False)
    table.add_column("NODE", no_wrap=True)
    table.add_column("SCORE", justify="right")
    table.add_column("WHY", overflow="fold")
    grouped: dict[tuple[str, str], list[str]] = {}
    for node in decision["nodes"]:
        why = [f"{name} {scored['value']:.2f}: {scored['why']}" for name, scored in node["scorers"].items()]
        grouped.setdefault((str(node["score"]), "\n".join(why)), []).append(node["node"])
    for (score, text), names in grouped.items():
        _row(table, names, len(names), score, text)
    for reason, count in decision["reasons"].items():
        text = reason
        if reason.startswith(CPU_REASON):
            of = decision["cpuOverload"]
            shares = f"{of['least']:.2g}" + (f" to {of['most']:.2g}" if of["least"] != of["most"] else "")
            text = f"{CPU_REASON}: {shares} of the pod's demand, {of['tolerated']:.2g} tolerated by now"
        _row(table, [node for node, why in decision["refused"].items() if why == reason], count, "no", text)
    if table.row_count:
        console.print(table)


def _row(table: Table, names: Sequence[str], count: int, score: str, text: str) -> None:
    """Add a row for a node, or for several with the same result, some of which are named."""
    if count > 1:
        text += f"\n{', '.join(names[:MAX_NAMED_NODES])}{', ...' if count > MAX_NAMED_NODES else ''}"
    table.add_row(names[0] if count == 1 else f"{count} nodes", score, text)


Json = Mapping[str, Any]


class Trial:
    """A listed cluster, without reservations, which only last for minutes, and without malformed objects, see
    `broken`."""

    def __init__(self, settings: Settings, objects: Iterable[Json]) -> None:
        workloads = Workloads()
        self._settings, self._read_pod = settings, pod_reader(workloads.controllers_of, settings.schedulers)
        self.state = ClusterState(settings, time.time, time.monotonic)
        self.broken: list[str] = []
        by_kind: defaultdict[str, list[Json]] = defaultdict(list)
        for raw in objects:
            by_kind[str(raw.get("kind"))].append(raw)
        loaders: list[tuple[str, Callable[[Json], Any], Callable[[Any], None]]] = [
            *((kind, workload_reader(kind), partial(workloads.changed, None)) for kind in WELL_KNOWN),
            ("Node", read_node, self.state.put_node),
            ("PhaseProfile", profile_reader(settings.grid), self.state.put_profile),
            ("Pod", self._read_pod, self.state.put_pod),
        ]
        for kind, read, put in loaders:
            for raw in by_kind[kind]:
                try:
                    put(read(raw))
                except BadObject as error:
                    self.broken.append(str(error))

    def decide(self, args: ExtenderArgs) -> Decision:
        """The decision on a pod, by `filter` and `prioritize`; a bound pod is treated as if it were not."""
        decisions = Decisions()
        placer = Placer(self.state, self._settings, decisions, self._read_pod, time.time)
        pod = self._read_pod(args.pod)
        self.state.drop_pod(pod.uid)
        passed = placer.filter(args).passed
        if len(passed) > 1:
            placer.prioritize(ExtenderArgs(args.pod, passed, None))
        return decisions.of(pod.uid) or Decision(pod, time.time(), nodes_asked=len(args.names))

    def read_request(self, request: bytes, file: object) -> ExtenderArgs:
        """ExtenderArgs, or a pod as printed by kubectl, for all nodes; BadInput if it is neither."""
        raw = _parsed(request, file)
        if isinstance(raw, dict) and raw.get("kind") == "Pod":
            return ExtenderArgs(raw, sorted(self.state.snapshot().table.index), None)
        return read_args(request)


def list_cluster(api: Api) -> Iterable[Json]:
    """All relevant objects of a cluster as JSON, with their kinds."""
    resources = {"Node": NODES, "Pod": PODS, "PhaseProfile": PROFILES, **WELL_KNOWN}
    for kind, resource in resources.items():
        try:
            for page in api.list_pages(path_of(resource)):
                yield from ({**item, "kind": kind} for item in page.get("items") or ())
        except NotFound:
            continue  # the cluster has no PhaseProfiles


def read_dump(file: Path) -> Iterable[Json]:
    """The objects of `kubectl get nodes,pods,phaseprofiles -A -o json`; BadInput if it is not such a dump."""
    raw = _parsed(file.read_bytes(), file)
    items = raw.get("items") if isinstance(raw, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadInput("this is not a list of objects", remedy=HOW_TO_DUMP, file=file)
    return items


def _parsed(text: bytes, file: object) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"this is not JSON: {str(error)[:120]}", remedy="Give the whole text.", file=file) from error
