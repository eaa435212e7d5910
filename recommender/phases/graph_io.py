"""The transition graph as JSON, GraphML and DOT. JSON holds all of it and is read back strictly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import orjson

from recommender.errors import BadArtifact
from recommender.phases.contexts import MAX_PHASE, Context
from recommender.phases.graph import PhaseGraph
from recommender.phases.shrinkage import CHAINS, Learned

SCHEMA, KIND = 1, "phasewise.graph"


def to_document(graph: PhaseGraph) -> dict[str, Any]:
    """The graph as plain JSON values; equal graphs give equal documents.

    Schema 1: `n_phases`; `containers` counted; `start`, how many began with each phase; `contexts`, for each full
    context by name (runs in time order, `phase:first length of its dwell bucket`, the oldest without dwell; after `~`
    what followed the present phase before) `next`, how often each phase, `end` or `open` came, and `samples` spent in
    its last run; `learned`, chosen from these counts.
    """
    learned = graph.learned if graph.containers else Learned()
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "n_phases": graph.n_phases,
        "containers": graph.containers,
        "start": graph.starts(),
        "contexts": {
            context.name: {"next": following, "samples": samples} for context, following, samples in graph.counted()
        },
        "learned": {
            "strength": learned.strength,
            "bandwidth": learned.bandwidth,
            "weights": dict(zip(CHAINS, learned.weights, strict=True)),
        },
    }


def from_document(document: object) -> PhaseGraph:
    """Read what `to_document` gave.

    Raises
    ------
    BadArtifact
        Another schema or kind, a field missing, surplus or of the wrong type, counts that do not add up.
    """
    fields = _object(
        document, "the document", ("schema", "kind", "n_phases", "containers", "start", "contexts", "learned")
    )
    if fields["kind"] != KIND:
        raise _bad("kind", f"is {fields['kind']!r}, not {KIND!r}")
    n_phases = _count(fields["n_phases"], "n_phases", 0, MAX_PHASE + 1)
    containers = _count(fields["containers"], "containers", 0)
    start = {
        _phase(name, n_phases, "start"): _count(times, f"start.{name}", 1)
        for name, times in _object(fields["start"], "start").items()
    }
    graph = PhaseGraph()
    graph.reserve(n_phases)
    over = 0
    for name, entry in _object(fields["contexts"], "contexts").items():
        over += _fill_context(graph, name, entry, n_phases)
    if sum(start.values()) != containers:
        raise _bad("start", f"sums to {sum(start.values())}, but there are {containers} containers")
    if over != containers:
        raise _bad("contexts", f"hold {over} ends, but there are {containers} containers")
    graph.count_starts(start)
    learned = _learned(fields["learned"])
    if containers:
        graph.learned = learned
    return graph


def _fill_context(graph: PhaseGraph, name: str, entry: object, n_phases: int) -> int:
    """Count one context; returns how many containers ended or were cut in it."""
    place = f"contexts.{name}"
    context = Context.parse(name)
    if context is None or max(*context.phases, context.follower) >= n_phases:
        raise _bad(place, f"is no context of {n_phases} phases")
    fields = _object(entry, place, ("next", "samples"))
    following = _object(fields["next"], f"{place}.next")
    for target, times in following.items():
        if target not in ("end", "open") and _phase(target, n_phases, place) == context.phases[0]:
            raise _bad(f"{place}.next", "leads from a phase to itself")
        _count(times, f"{place}.next.{target}", 1)
    if not following:
        raise _bad(f"{place}.next", "is empty")
    samples = _count(fields["samples"], f"{place}.samples", sum(following.values()))
    graph.count(context, following, samples)
    return int(following.get("end", 0)) + int(following.get("open", 0))


def load(path: str | Path) -> object:
    """Parse a JSON file.

    Raises
    ------
    BadArtifact
        No such file, not readable, or no JSON.
    """
    try:
        document: object = orjson.loads(Path(path).read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadArtifact(f"{path}: {reason}. Name a graph written by `phasewise graph fit`.") from error
    except orjson.JSONDecodeError as error:
        raise BadArtifact(f"{path}: not JSON ({error}). It is truncated or damaged: fit the graph again.") from error
    return document


def to_json(graph: PhaseGraph) -> bytes:
    """The whole graph as readable JSON, keys in a fixed order, ending in a line feed."""
    return orjson.dumps(
        to_document(graph), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    )


def to_graphml(graph: PhaseGraph) -> bytes:
    """All nodes and counts as GraphML, for Gephi, yEd, Cytoscape and networkx."""
    import networkx as nx  # noqa: PLC0415 - see Counts

    return "\n".join(nx.generate_graphml(graph.digraph)).encode() + b"\n"


def to_dot(graph: PhaseGraph) -> bytes:
    """The first-order graph for Graphviz: arrows carry probabilities, `end` included, those below 1 % left out."""
    lines = ["digraph phases {", "  rankdir=LR;", '  node [shape=circle, fontname="Helvetica"];']
    samples = graph.samples_in_phase()
    total = max(1, sum(samples.values()))
    for phase, spent in samples.items():
        lines.append(f'  "{phase}" [label="{phase}\\n{spent / total:.0%}"];')
    lines.append('  "end" [shape=doublecircle];')
    for phase, shares in graph.first_order().items():
        for target, share in shares.items():
            if share >= 0.01:
                lines.append(f'  "{phase}" -> "{target}" [label="{share:.2f}", penwidth={0.5 + 4 * share:.2f}];')
    return "\n".join([*lines, "}", ""]).encode()


def _bad(place: str, problem: str) -> BadArtifact:
    return BadArtifact(f"phase graph: {place} {problem}. Fit the graph again.")


def _object(value: object, place: str, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise _bad(place, "is no JSON object")
    if names and "schema" in names:
        schema = value.get("schema")
        if type(schema) is int and schema > SCHEMA:
            raise BadArtifact(
                f"phase graph: schema {schema} is newer than {SCHEMA}, the newest that this version reads. Upgrade it."
            )
        if type(schema) is not int or schema != SCHEMA:
            raise _bad("schema", f"is {schema!r}, not {SCHEMA}")
    if names and set(value) != set(names):
        missing, surplus = sorted(set(names) - set(value)), sorted(set(value) - set(names))
        raise _bad(place, f"lacks {', '.join(missing)}" if missing else f"has the unknown field {surplus[0]}")
    return value


def _count(value: object, place: str, lowest: int, highest: int = 2**53) -> int:
    if type(value) is not int or not lowest <= value <= highest:
        raise _bad(place, f"is {value!r}, not an integer of at least {lowest}")
    return value


def _phase(name: str, n_phases: int, place: str) -> int:
    if not (name.isascii() and name.isdigit() and str(int(name)) == name and int(name) < n_phases):
        raise _bad(place, f"names {name!r}, which is none of the {n_phases} phases")
    return int(name)


def _learned(value: object) -> Learned:
    fields = _object(value, "learned", ("strength", "bandwidth", "weights"))
    weights = _object(fields["weights"], "learned.weights", tuple(CHAINS))
    numbers = [fields["strength"], fields["bandwidth"], *weights.values()]
    if not all(type(number) in (int, float) and math.isfinite(number) and number >= 0 for number in numbers):
        raise _bad("learned", "holds something else than numbers of zero and more")
    if min(numbers[:2]) <= 0 or not math.isclose(sum(weights.values()), 1.0, abs_tol=1e-9):
        raise _bad("learned", "has no positive strength and bandwidth, or weights that do not sum to one")
    return Learned(
        float(fields["strength"]), float(fields["bandwidth"]), tuple(float(weights[name]) for name in CHAINS)
    )
