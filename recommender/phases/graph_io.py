"""Convert the transition graph to and from JSON, validated strictly, and to networkx, GraphML and Graphviz."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from recommender.base.errors import BadArtifact
from recommender.phases.graph import (
    CENSORED,
    CONTEXT_PHASES,
    ENDED,
    MAX_PHASE,
    Context,
    PhaseGraph,
    half_bucket_of,
    min_steps,
)

if TYPE_CHECKING:
    import networkx as nx

SCHEMA, KIND = 2, "phasewise.graph"

START, END, OPEN = "start", "end", "open"
UNKNOWN = "unknown"

_LONGEST_NAME = 80
_NAME = re.compile(rf"(?:\d+ ){{0,{CONTEXT_PHASES - 2}}}(?:\d+(?::\d+)? )?\d+:\d+", re.ASCII)


def name_of(context: Context) -> str:
    """The name of a context: its phases in time order, with the minimum dwells of those that have one.

    >>> name_of(Context.of([(2, 1), (1, 4), (3, 5), (0, 21)]))
    '1 3:4 0:16'
    """
    dwells = [f":{min_steps(dwell)}" for dwell in context.dwells]
    dwells += [""] * (len(context.phases) - len(dwells))
    return " ".join(f"{phase}{steps}" for phase, steps in reversed([*zip(context.phases, dwells, strict=True)]))


def to_document(graph: PhaseGraph) -> dict[str, Any]:
    """Convert a graph to JSON values; equal graphs give equal documents.

    Schema 2: `n_phases`, and `contexts` by name, each with `next` (counts of each phase, `end` or `open`) and `samples`
    (of all these visits).
    """
    contexts = {
        name_of(context): {
            "next": {_target(following): times for following, times in sorted(visits.following.items())},
            "samples": visits.samples,
        }
        for context, visits in sorted(graph.contexts.items())
    }
    return {"schema": SCHEMA, "kind": KIND, "n_phases": graph.n_phases, "contexts": contexts}


def from_document(document: object) -> PhaseGraph:
    """Read the result of `to_document`; BadArtifact for any missing, unknown or invalid field, or impossible counts."""
    fields = _object(document, "the document")
    if (schema := fields.get("schema")) != SCHEMA or type(schema) is not int:
        raise _bad("schema", f"is {schema!r}, not {SCHEMA}")
    _only(fields, "the document", {"schema", "kind", "n_phases", "contexts"})
    if fields["kind"] != KIND:
        raise _bad("kind", f"is {fields['kind']!r}, not {KIND!r}")
    graph = PhaseGraph(_count(fields["n_phases"], "n_phases", 0, MAX_PHASE + 1))
    for name, entry in _object(fields["contexts"], "contexts").items():
        _add_context(graph, name, entry)
    return graph


def _add_context(graph: PhaseGraph, name: str, entry: object) -> None:
    place = f"contexts.{name}"
    if (context := _parsed(name)) is None or max(context.phases) >= graph.n_phases:
        raise _bad(place, f"is not a context of {graph.n_phases} phases")
    fields = _object(entry, place)
    _only(fields, place, {"next", "samples"})
    following = {}
    for target, times in _object(fields["next"], f"{place}.next").items():
        phase = _phase_of(target, graph.n_phases, place)
        if phase == context.phases[0]:
            raise _bad(f"{place}.next", "leads from a phase to itself")
        following[phase] = _count(times, f"{place}.next.{target}", 1)
    if not following:
        raise _bad(f"{place}.next", "is empty")
    min_samples = sum(following.values()) * min_steps(context.dwells[0])
    graph.add(context, following, _count(fields["samples"], f"{place}.samples", min_samples))


def load(path: str | Path) -> PhaseGraph:
    """Read a JSON file; BadArtifact if it is missing, unreadable, or not a graph."""
    try:
        return from_document(orjson.loads(Path(path).read_bytes()))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadArtifact(f"{path}: {reason}. Name a graph written by `phasewise research graph fit`.") from error
    except orjson.JSONDecodeError as error:
        raise BadArtifact(f"{path}: not JSON ({error}). It is truncated or damaged: fit the graph again.") from error
    except BadArtifact as error:
        raise BadArtifact(f"{path}: {error}") from error


def to_json(graph: PhaseGraph) -> bytes:
    """The graph as indented JSON with a final newline."""
    return orjson.dumps(to_document(graph), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def to_networkx(graph: PhaseGraph, unknown: int | None = None) -> nx.DiGraph[str]:
    """Convert a graph for networkx; `unknown` is the number of the unknown phase, if there is one.

    Nodes are phases with their `samples`, pairs of phases, contexts by name, and `start`, `end` (the container ended)
    and `open` (its recording stopped). An edge leads to the next phase; it has a `count`, and its `share` of all
    outcomes but `open`.
    """
    import networkx as nx  # noqa: PLC0415  not needed by live processes

    names = {phase: str(phase) for phase in range(graph.n_phases)} | {ENDED: END, CENSORED: OPEN}
    if unknown is not None:
        names[unknown] = UNKNOWN
    result: nx.DiGraph[str] = nx.DiGraph()
    result.add_nodes_from([START, END, OPEN], samples=0)
    result.add_nodes_from([names[phase] for phase in range(graph.n_phases)], samples=0)

    def count(source: str, target: str, times: int) -> None:
        previous = result.get_edge_data(source, target, {"count": 0})["count"]
        result.add_edge(source, target, count=previous + times)

    for phase, times in sorted(graph.starts().items()):
        count(START, names[phase], times)
    for context, visits in sorted(graph.contexts.items()):
        result.nodes[names[context.phases[0]]]["samples"] += visits.samples
        pair = [" ".join(names[phase] for phase in reversed(context.phases[:2]))] if len(context.phases) > 1 else []
        for following, times in sorted(visits.following.items()):
            for source in (names[context.phases[0]], *pair, name_of(context)):
                count(source, names[following], times)
    for _, edges in result.adjacency():
        known = sum(edge["count"] for target, edge in edges.items() if target != OPEN)
        for target, edge in edges.items():
            edge["share"] = edge["count"] / known if target != OPEN else 0.0
    return result


def to_graphml(graph: PhaseGraph) -> bytes:
    """All nodes and counts as GraphML, for Gephi, yEd, Cytoscape and networkx."""
    import networkx as nx  # noqa: PLC0415  see to_networkx

    return "\n".join(nx.generate_graphml(to_networkx(graph))).encode() + b"\n"


def to_dot(graph: PhaseGraph) -> bytes:
    """Convert transitions between phases for Graphviz; edges have probabilities and are omitted below 1 %."""
    lines = ["digraph phases {", "  rankdir=LR;", '  node [shape=circle, fontname="Helvetica"];']
    drawn = to_networkx(graph)
    phases = [str(phase) for phase in range(graph.n_phases)]
    total = max(1, sum(drawn.nodes[phase]["samples"] for phase in phases))
    lines += [f'  "{phase}" [label="{phase}\\n{drawn.nodes[phase]["samples"] / total:.0%}"];' for phase in phases]
    lines.append('  "end" [shape=doublecircle];')
    for phase, target, share in drawn.edges(phases, data="share"):
        if share >= 0.01:
            lines.append(f'  "{phase}" -> "{target}" [label="{share:.2f}", penwidth={0.5 + 4 * share:.2f}];')
    return "\n".join([*lines, "}", ""]).encode()


def _target(following: int) -> str:
    return {ENDED: END, CENSORED: OPEN}.get(following, str(following))


def _phase_of(target: str, n_phases: int, place: str) -> int:
    if target in (END, OPEN):
        return ENDED if target == END else CENSORED
    if not (target.isascii() and target.isdigit() and str(int(target)) == target and int(target) < n_phases):
        raise _bad(place, f"names {target!r}, which is not one of the {n_phases} phases")
    return int(target)


def _parsed(name: str) -> Context | None:
    """Parse the name of a context; None if it is invalid."""
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        return None
    parts = [part.partition(":") for part in reversed(name.split(" "))]
    dwells = [int(steps) for _, _, steps in parts if steps]
    if min(dwells) < 1:
        return None
    phases = tuple(int(phase) for phase, _, _ in parts)
    context = Context(phases, tuple(half_bucket_of(steps) for steps in dwells))
    repeats = any(older == younger for older, younger in zip(phases[1:], phases, strict=False))
    return None if repeats or name_of(context) != name else context


def _bad(place: str, problem: str) -> BadArtifact:
    return BadArtifact(f"phase graph: {place} {problem}. Fit the graph again.")


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _bad(place, "is not a JSON object")
    return value


def _only(fields: dict[str, Any], place: str, names: set[str]) -> None:
    if missing := sorted(names - set(fields)):
        raise _bad(place, f"lacks {', '.join(missing)}")
    if surplus := sorted(set(fields) - names):
        raise _bad(place, f"has the unknown field {surplus[0]}")


def _count(value: object, place: str, lowest: int, highest: int = 2**53) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise _bad(place, f"is {value!r}, not an integer of at least {lowest}")
    return value
