"""The JSON of kube-scheduler's extenders: read strictly, written exactly.

k8s.io/kube-scheduler/extender/v1. Keys are written as the scheduler writes them and read in any case: its own decoder
does not tell them apart, and older ones sent lower-case ones. Scores are whole numbers: a single `3.0` would make the
scheduler drop all of them without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from extender.combine import NEUTRAL
from extender.errors import BadRequest
from extender.preempt import Victims
from extender.snapshot import Integers

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """ExtenderArgs.

    Attributes
    ----------
    pod
        As sent.
    names
        The nodes in their order; schedulers name each once, and whoever does not gets the same answer.
    nodes
        Name -> node as sent, by a scheduler that is not `nodeCacheCapable`; else None.
    """

    pod: Json
    names: list[str]
    nodes: Mapping[str, Json] | None


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores for every node asked about, once.

    Attributes
    ----------
    known
        All nodes by their places.
    places, scores
        (m,): those that were judged, and their scores of 0 to 10.
    neutral
        Those of which nothing can be said; their score is `NEUTRAL`.
    """

    known: Sequence[str] = ()
    places: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    scores: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    neutral: Sequence[str] = ()

    def by_name(self) -> dict[str, int]:
        """Node -> score."""
        judged = zip(self.places.tolist(), self.scores.tolist(), strict=True)
        return dict.fromkeys(self.neutral, NEUTRAL) | {self.known[place]: score for place, score in judged}


@dataclass(frozen=True, slots=True)
class AskedVictims:
    """ExtenderPreemptionArgs: whom the scheduler would evict; `disruptions` are the budgets violated on each node."""

    pod: Json
    victims: Victims
    disruptions: Mapping[str, int]


def read_asked(body: bytes) -> Asked:
    """What `filter` and `prioritize` are asked.

    Raises
    ------
    BadRequest
        It is no ExtenderArgs; says where.
    """
    args = _arguments(body)
    pod = _object(args, "pod")
    names, nodes = args.get("nodenames"), args.get("nodes")
    if names is not None:
        if type(names) is not list or not _texts(names):
            raise BadRequest("NodeNames is not a list of texts")
        return Asked(pod, names, None)
    if nodes is None:
        raise BadRequest("neither NodeNames nor Nodes is given")
    items = nodes.get("items") if isinstance(nodes, dict) else None
    if items is not None and type(items) is not list:
        raise BadRequest("Nodes.items is not a list")
    listed = {_name_of(item): item for item in items or ()}
    return Asked(pod, list(listed), listed)


class LatestAsked:
    """Reads what is asked; most of `prioritize` are the very bytes of the `filter` before, which are read only once."""

    def __init__(self) -> None:
        self._latest: tuple[bytes, Asked] | None = None

    def read(self, body: bytes) -> Asked:
        """As `read_asked`; what is read may be the object that was given before, which nobody changes."""
        latest = self._latest
        if latest is None or latest[0] != body:
            latest = self._latest = (body, read_asked(body))
        return latest[1]


def read_victims(body: bytes) -> AskedVictims:
    """What `preempt` is asked: full pods or their UIDs; no victims may be written as null.

    Raises
    ------
    BadRequest
        It is no ExtenderPreemptionArgs; says where.
    """
    args = _arguments(body)
    pod = _object(args, "pod")
    by_node = args.get("nodenametometavictims")
    full = by_node is None
    if full:
        by_node = args.get("nodenametovictims")
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
    return AskedVictims(pod, victims, disruptions)


def filter_answer(asked: Asked, refused: Mapping[str, str]) -> bytes:
    """ExtenderFilterResult. Refused nodes are marked as such that no eviction would change it."""
    passed = [name for name in asked.names if name not in refused] if refused else asked.names
    answer: Json = {"FailedNodes": {}, "FailedAndUnresolvableNodes": refused, "Error": ""}
    if asked.nodes is None:
        return orjson.dumps({"Nodes": None, "NodeNames": passed, **answer})
    items = [asked.nodes[name] for name in passed]
    return orjson.dumps({"Nodes": {"metadata": {}, "items": items}, "NodeNames": None, **answer})


def priority_answer(scored: Scored) -> bytes:
    """HostPriorityList: every host once, each with a whole number of 0 to 10."""
    told = _LATEST.of(scored.known).of(scored.places, scored.scores) if len(scored.places) else b""
    if scored.neutral:
        listed = orjson.dumps(scored.neutral)[2:-2]  # between two names nothing but this can stand: quotes are escaped
        also = b'{"Host":"%b","Score":%d}' % (listed.replace(b'","', b'","Score":%d},{"Host":"' % NEUTRAL), NEUTRAL)
        told = told + b"," + also if told else also
    return b"[" + told + b"]"


class _Lines:
    """The lines of all nodes as bytes of one length, so that an answer is put together by copying alone.

    Shorter names are followed by spaces. The score stands first, where it is at the same place in every line.
    """

    SCORE = slice(10, 12)
    SCORES = np.array([list(b"%2d" % score) for score in range(11)], dtype=np.uint8)

    def __init__(self, names: Sequence[str]) -> None:
        lines = [b',{"Score":  ,"Host":%b}' % orjson.dumps(name) for name in names]
        width = max(map(len, lines))
        self._lines = np.frombuffer(b"".join(line.ljust(width) for line in lines), dtype=np.uint8).reshape(-1, width)

    def of(self, places: Integers, scores: Integers) -> bytes:
        """The lines of some nodes, at least one, with commas between them."""
        told = self._lines.take(places, axis=0)
        told[:, self.SCORE] = self.SCORES.take(scores, axis=0)
        return told.tobytes()[1:]


class _LatestLines:
    """The lines of the nodes that were answered about last; they change when nodes come or go."""

    def __init__(self) -> None:
        self._held: tuple[Sequence[str], _Lines] | None = None

    def of(self, names: Sequence[str]) -> _Lines:
        held = self._held
        if held is None or held[0] is not names:
            held = self._held = (names, _Lines(names))
        return held[1]


_LATEST = _LatestLines()


def preemption_answer(asked: AskedVictims, kept: Iterable[str]) -> bytes:
    """ExtenderPreemptionResult: the candidates that are left, victims by UID whatever the form of the question."""
    return orjson.dumps(
        {
            "NodeNameToMetaVictims": {
                node: {
                    "Pods": [{"UID": uid} for uid in asked.victims[node]],
                    "NumPDBViolations": asked.disruptions[node],
                }
                for node in kept
            }
        }
    )


def error_answer(problem: str) -> bytes:
    """The one body of all failures. The scheduler reads none of it: the status alone is what counts for it."""
    return orjson.dumps({"Error": problem[:500]})


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
    found = args.get(name)
    if not isinstance(found, dict):
        raise BadRequest(f"{name.capitalize()} is not an object")
    return found


def _texts(values: list[Any]) -> bool:
    try:
        "".join(values)  # the quickest that looks at each
    except TypeError:
        return False
    return True


def _name_of(node: object) -> str:
    metadata = node.get("metadata") if isinstance(node, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if type(name) is not str or not name:
        raise BadRequest("one of Nodes.items has no name")
    return name


def _uid_of(victim: object, full: bool) -> str:
    about: Sequence[object] | object = victim
    if full and isinstance(victim, dict):
        about = victim.get("metadata")
    uid = _lowered(about, "a victim").get("uid")
    if type(uid) is not str or not uid:
        raise BadRequest("a victim has no UID")
    return uid
