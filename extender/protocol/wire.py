"""JSON of the kube-scheduler extender protocol (k8s.io/kube-scheduler/extender/v1).

Keys are read case-insensitively, like in the scheduler's own decoder, as older schedulers sent them in lower case.
Scores are written as integers: a single `3.0` would make the scheduler silently drop all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from extender.errors import BadRequest
from extender.scoring.scorers import MAX_SCORE, NEUTRAL
from extender.view.snapshot import Integers, NameTable

Json = dict[str, Any]
Victims = Mapping[str, Sequence[str]]  # node -> UIDs of the pods to evict there


class ExtenderArgs(NamedTuple):
    pod: Json  # as sent
    names: Sequence[str]  # names of the nodes, in the order sent, possibly with duplicates
    # name -> node as sent, if the scheduler is not configured with `nodeCacheCapable`; else None
    nodes: Mapping[str, Json] | None


class FilterResult(NamedTuple):
    """The nodes that passed, in order; refused node -> reason; and the refused node to try preemption on, or empty."""

    passed: Sequence[str]
    refused: Mapping[str, str]
    resolvable: str = ""


class HostPriorities(NamedTuple):
    """Scores of all nodes, without duplicates: (m,) `places` in `known` with (m,) `scores` from 0 to 10, and unknown
    nodes in `neutral`, which get `NEUTRAL`."""

    known: NameTable
    places: Integers
    scores: Integers
    neutral: Sequence[str] = ()


class PreemptionArgs(NamedTuple):
    """ExtenderPreemptionArgs: proposed victims, and `disruptions`, the number of budgets violated on each node."""

    pod: Json
    victims: Victims
    disruptions: Mapping[str, int]


class ArgsReader:
    """Reads like `read_args`, and equal bodies once, as `filter` and `prioritize` usually get the same bytes. Comparing
    them takes a tenth of the time of the hash that an `lru_cache` would need."""

    def __init__(self) -> None:
        self._latest: tuple[bytes, ExtenderArgs] | None = None

    def __call__(self, body: bytes) -> ExtenderArgs:
        latest = self._latest
        if latest is None or latest[0] != body:
            latest = self._latest = (body, read_args(body))
        return latest[1]


def read_args(body: bytes) -> ExtenderArgs:
    """Read the body of `filter` and `prioritize`; BadRequest if it is not an ExtenderArgs."""
    pod, args = _arguments(body)
    names, nodes = args.get("nodenames"), args.get("nodes")
    if names is not None:
        if type(names) is not list:
            raise BadRequest("NodeNames is not a list")
        try:
            "".join(names)  # the fastest type check of all elements
        except TypeError as error:
            raise BadRequest("NodeNames is not a list of strings") from error
        return ExtenderArgs(pod, names, None)
    if nodes is None:
        raise BadRequest("neither NodeNames nor Nodes is given")
    items = nodes.get("items") if isinstance(nodes, dict) else None
    if items is not None and type(items) is not list:
        raise BadRequest("Nodes.items is not a list")
    listed = {_name_of(item): item for item in items or ()}
    return ExtenderArgs(pod, list(listed), listed)


def read_preemption_args(body: bytes) -> PreemptionArgs:
    """Read the body of `preempt`: victims are full pods or UIDs, null for none; BadRequest if it is something else."""
    pod, args = _arguments(body)
    full = (by_node := args.get("nodenametometavictims")) is None
    by_node = args.get("nodenametovictims") if full else by_node
    if not isinstance(by_node, dict):
        raise BadRequest("neither NodeNameToMetaVictims nor NodeNameToVictims is an object")
    victims, disruptions = {}, {}
    for node, proposed in by_node.items():
        entry = _lowered(proposed, f"the victims on {node[:80]!r}")
        pods = entry.get("pods")
        if pods is not None and type(pods) is not list:
            raise BadRequest(f"the victims on {node[:80]!r} are not a list")
        victims[node] = tuple(_uid_of(victim, full) for victim in pods or ())
        number = entry.get("numpdbviolations")
        if number is not None and type(number) is not int:
            raise BadRequest("NumPDBViolations is not an integer")
        disruptions[node] = number or 0
    return PreemptionArgs(pod, victims, disruptions)


def filter_answer(args: ExtenderArgs, filtered: FilterResult) -> bytes:
    """ExtenderFilterResult. All refused nodes but `resolvable` are marked as not resolvable by preemption."""
    final = dict(filtered.refused)
    failed = {filtered.resolvable: final.pop(filtered.resolvable)} if filtered.resolvable else {}
    nodes = None if args.nodes is None else _node_list([args.nodes[name] for name in filtered.passed])
    answer = {"Nodes": nodes, "NodeNames": filtered.passed if nodes is None else None, "FailedNodes": failed}
    return orjson.dumps(answer | {"FailedAndUnresolvableNodes": final, "Error": ""})


def _node_list(nodes: Sequence[Json]) -> orjson.Fragment:
    try:
        return orjson.Fragment(orjson.dumps({"metadata": {}, "items": nodes}))
    except orjson.JSONEncodeError as error:  # fewer levels can be written than read
        raise BadRequest("one of Nodes.items is nested too deeply") from error


def priority_answer(scored: HostPriorities) -> bytes:
    """HostPriorityList: every host once, as rows padded to the same width."""
    rows = _rows(scored.known).take(scored.places)
    rows["score"] = SCORE_SUFFIXES.take(scored.scores)
    neutral = orjson.dumps([{"Host": name, "Score": NEUTRAL} for name in scored.neutral])[1:-1]
    return b"[%b]" % (rows.tobytes() + neutral).removesuffix(b",")


SCORE_SUFFIXES = np.array([b"%2d}," % score for score in range(MAX_SCORE + 1)])


@lru_cache(maxsize=1)
def _rows(known: NameTable) -> NDArray[np.void]:
    """The JSON of each node, still without its score; ten times faster than serialising objects."""
    prefixes = [b'{"Host":%b,"Score":' % orjson.dumps(name) for name in known.names]
    width = max(map(len, prefixes), default=1)
    rows = np.zeros(len(prefixes), dtype=[("host", f"S{width}"), ("score", SCORE_SUFFIXES.dtype)])
    rows["host"] = [each.ljust(width) for each in prefixes]
    return rows


def preemption_answer(args: PreemptionArgs, chosen: Victims) -> bytes:
    """ExtenderPreemptionResult: the remaining candidates, with victims always by UID."""
    victims = {node: [{"UID": uid} for uid in uids] for node, uids in chosen.items()}
    by_node = {node: {"Pods": pods, "NumPDBViolations": args.disruptions[node]} for node, pods in victims.items()}
    return orjson.dumps({"NodeNameToMetaVictims": by_node})


def _arguments(body: bytes) -> tuple[Json, Json]:
    """The pod, and all arguments by their names in lower case."""
    try:
        args = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {str(error)[:120]}") from error
    lowered = _lowered(args, "the body")
    if not isinstance(pod := lowered.get("pod"), dict):
        raise BadRequest("Pod is not an object")
    return pod, lowered


def _lowered(given: object, what: str) -> Json:
    if not isinstance(given, dict):
        raise BadRequest(f"{what} is not a JSON object")
    return {key.lower(): value for key, value in given.items()}


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
