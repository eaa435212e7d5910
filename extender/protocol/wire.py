"""The JSON of kube-scheduler's extenders: read strictly, written exactly.

k8s.io/kube-scheduler/extender/v1. Keys are written as the scheduler writes them and read in any case: its own decoder
does not tell them apart, and older ones sent lower-case ones. Scores are whole numbers: a single `3.0` would make the
scheduler drop all of them without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from extender.errors import BadRequest
from extender.scoring.combine import MAX_SCORE, NEUTRAL
from extender.view.snapshot import Integers

Json = dict[str, Any]

Victims = Mapping[str, Sequence[str]]
"""Node -> UIDs of the pods to be evicted there."""


class ExtenderArgs(NamedTuple):
    """ExtenderArgs.

    Attributes
    ----------
    pod
        As sent.
    names
        The nodes in their order as they were sent: one may stand there twice.
    nodes
        Name -> node as sent, by a scheduler that is not `nodeCacheCapable`; else None.
    """

    pod: Json
    names: Sequence[str]
    nodes: Mapping[str, Json] | None


class FilterResult(NamedTuple):
    """The nodes that passed, in their order, and node -> why the pod must not go there, each node once; and the one of
    these that evictions would open to it, or an empty name."""

    passed: Sequence[str]
    refused: Mapping[str, str]
    resolvable: str = ""


@dataclass(frozen=True, slots=True)
class HostPriorities:
    """Every node asked about, once: those of `known` at (m,) `places` with (m,) `scores` of 0 to 10, and `neutral`, of
    which nothing can be said, with `NEUTRAL`."""

    known: Sequence[str] = ()
    places: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    scores: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    neutral: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PreemptionArgs:
    """ExtenderPreemptionArgs: whom the scheduler would evict; `disruptions` are the budgets violated on each node."""

    pod: Json
    victims: Victims
    disruptions: Mapping[str, int]


@lru_cache(maxsize=1)
def read_args(body: bytes) -> ExtenderArgs:
    """What `filter` and `prioritize` are asked. Nearly always the latter gets the very bytes that the former got.

    Raises
    ------
    BadRequest
        It is no ExtenderArgs; says where.
    """
    args = _arguments(body)
    pod = _object(args, "pod")
    names, nodes = args.get("nodenames"), args.get("nodes")
    if names is not None:
        return ExtenderArgs(pod, _names(names), None)
    if nodes is None:
        raise BadRequest("neither NodeNames nor Nodes is given")
    items = nodes.get("items") if isinstance(nodes, dict) else None
    if items is not None and type(items) is not list:
        raise BadRequest("Nodes.items is not a list")
    listed = {_name_of(item): item for item in items or ()}
    return ExtenderArgs(pod, list(listed), listed)


def _names(values: object) -> list[str]:
    if type(values) is not list:
        raise BadRequest("NodeNames is not a list")
    try:
        "".join(values)  # the quickest that looks at each
    except TypeError as error:
        raise BadRequest("NodeNames is not a list of texts") from error
    return values


def read_preemption_args(body: bytes) -> PreemptionArgs:
    """What `preempt` is asked: full pods or their UIDs; no victims may be written as null.

    Raises
    ------
    BadRequest
        It is no ExtenderPreemptionArgs; says where.
    """
    args = _arguments(body)
    pod = _object(args, "pod")
    full = (by_node := args.get("nodenametometavictims")) is None
    by_node = args.get("nodenametovictims") if full else by_node
    if not isinstance(by_node, dict):
        raise BadRequest("neither NodeNameToMetaVictims nor NodeNameToVictims is an object")
    victims, disruptions = {}, {}
    for node, proposed in by_node.items():
        told = _lowered(proposed, f"the victims on {node[:80]!r}")
        pods = told.get("pods")
        if pods is not None and type(pods) is not list:
            raise BadRequest(f"the victims on {node[:80]!r} are not a list")
        victims[node] = tuple(_uid_of(victim, full) for victim in pods or ())
        number = told.get("numpdbviolations")
        if number is not None and type(number) is not int:
            raise BadRequest("NumPDBViolations is not a whole number")
        disruptions[node] = number or 0
    return PreemptionArgs(pod, victims, disruptions)


def filter_answer(args: ExtenderArgs, filtered: FilterResult) -> bytes:
    """ExtenderFilterResult. Refused nodes are marked as such that no eviction would change it, but for one."""
    final = dict(filtered.refused)
    failed = {filtered.resolvable: final.pop(filtered.resolvable)} if filtered.resolvable else {}
    nodes = None if args.nodes is None else {"metadata": {}, "items": [args.nodes[name] for name in filtered.passed]}
    answer = {"Nodes": nodes, "NodeNames": filtered.passed if nodes is None else None, "FailedNodes": failed}
    return orjson.dumps(answer | {"FailedAndUnresolvableNodes": final, "Error": ""})


def priority_answer(scored: HostPriorities) -> bytes:
    """HostPriorityList: every host once, each with a whole number of 0 to 10; as rows of one width, by blanks."""
    hosts = _hosts(tuple(scored.known))
    told = np.empty(len(scored.places), dtype=[("host", hosts.dtype), ("score", ENDS.dtype)])
    told["host"], told["score"] = hosts.take(scored.places), ENDS.take(scored.scores)
    neutral = orjson.dumps([{"Host": name, "Score": NEUTRAL} for name in scored.neutral])[1:-1]
    return b"[%b]" % (told.tobytes() + neutral).removesuffix(b",")


ENDS = np.array([b"%2d}," % score for score in range(MAX_SCORE + 1)])


@lru_cache(maxsize=1)
def _hosts(known: tuple[str, ...]) -> NDArray[np.bytes_]:
    """All that is said of each node but its score: as objects for JSON they would take ten times as long."""
    said = [b'{"Host":%b,"Score":' % orjson.dumps(name) for name in known]
    width = max(map(len, said), default=1)
    return np.array([each.ljust(width) for each in said], dtype=f"S{width}")


def preemption_answer(args: PreemptionArgs, chosen: Victims) -> bytes:
    """ExtenderPreemptionResult: the candidates that are left, victims by UID whatever the form of the question."""
    victims = {node: [{"UID": uid} for uid in uids] for node, uids in chosen.items()}
    told = {node: {"Pods": pods, "NumPDBViolations": args.disruptions[node]} for node, pods in victims.items()}
    return orjson.dumps({"NodeNameToMetaVictims": told})


def _arguments(body: bytes) -> Json:
    try:
        args = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {str(error)[:120]}") from error
    return _lowered(args, "the body")


def _lowered(given: object, what: str) -> Json:
    if not isinstance(given, dict):
        raise BadRequest(f"{what} is not a JSON object")
    return {key.lower(): value for key, value in given.items()}


def _object(args: Json, name: str) -> Json:
    if not isinstance(found := args.get(name), dict):
        raise BadRequest(f"{name.capitalize()} is not an object")
    return found


def _name_of(node: object) -> str:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if type(name) is not str or not name:
        raise BadRequest("one of Nodes.items has no name")
    return name


def _uid_of(victim: object, full: bool) -> str:
    about = victim.get("metadata") if full and isinstance(victim, dict) else victim
    uid = _lowered(about, "a victim").get("uid")
    if type(uid) is not str or not uid:
        raise BadRequest("a victim has no UID")
    return uid
