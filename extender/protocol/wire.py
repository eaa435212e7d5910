"""The JSON of kube-scheduler's extenders: read strictly, written exactly.

k8s.io/kube-scheduler/extender/v1. Keys are written as the scheduler writes them and read in any case: its own decoder
does not tell them apart, and older ones sent lower-case ones. Scores are whole numbers: a single `3.0` would make the
scheduler drop all of them without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson

from extender.errors import BadRequest
from extender.judging.combine import NEUTRAL
from extender.judging.preempt import Victims
from extender.pods.pod import Pod
from extender.protocol.host_lines import LATEST
from extender.view.names import AsCame, texts_of
from extender.view.snapshot import Integers

Json = dict[str, Any]


class UnreadPod(NamedTuple):
    """A pod's JSON, and what tells whether it is known: of one `resourceVersion` a pod never changes."""

    namespace: str
    name: str
    uid: str
    version: str
    told: bytes

    def is_known_as(self, pod: Pod) -> bool:
        """Whether it is this very pod, of this very version."""
        return (self.uid, self.version, self.name, self.namespace) == (pod.uid, pod.version, pod.name, pod.namespace)

    def read(self) -> Json:
        """The pod as sent; BadRequest when it is no JSON object."""
        try:
            return _object({"pod": orjson.loads(self.told)}, "pod")
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"Pod is not JSON: {str(error)[:120]}") from error


class Asked(NamedTuple):
    """ExtenderArgs.

    Attributes
    ----------
    pod
        As sent; of kube-scheduler unread, for whoever knows it already.
    names
        The nodes in their order; schedulers name each once, and whoever does not gets the same answer.
    nodes
        Name -> node as sent, by a scheduler that is not `nodeCacheCapable`; else None.
    """

    pod: Json | UnreadPod
    names: Sequence[str]
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


POD_BEGIN, NAMES_BEGIN, NAMES_END = b'{"Pod":', b',"Nodes":null,"NodeNames":[', b"]}"
"""How kube-scheduler begins, goes on behind the pod, and ends."""

TEXT = rb'"([ !#-\[\]-~]+)"'
POD_BEGINS = re.compile(
    rb'%b\{"metadata":\{"name":%b,(?:"generateName":"[^"\\]*",)?"namespace":%b,"uid":%b,"resourceVersion":%b'
    % (re.escape(POD_BEGIN), TEXT, TEXT, TEXT, TEXT)
)


def read_asked(body: bytes) -> Asked:
    """What `filter` and `prioritize` are asked.

    Raises
    ------
    BadRequest
        It is no ExtenderArgs; says where. Names that came in the form of kube-scheduler are looked at later: whoever
        does it first is told.
    """
    return _as_of_schedulers(body) or _in_any_form(body)


def _as_of_schedulers(body: bytes) -> Asked | None:
    """The names as they came, where the body has the very form of kube-scheduler; else None.

    What stands before the names is a pod, seen once someone reads it, so that the names stand at the top; and no list
    ends among them.
    """
    at = body.find(NAMES_BEGIN)
    if at < 0 or not body.endswith(NAMES_END):
        return None
    names = body[at + len(NAMES_BEGIN) : -len(NAMES_END)]
    if b"]" in names or b"[" in names:
        return None
    if (known := POD_BEGINS.match(body)) is None:
        return None
    name, namespace, uid, version = (part.decode() for part in known.groups())
    return Asked(UnreadPod(namespace, name, uid, version, body[len(POD_BEGIN) : at]), AsCame(names), None)


def _in_any_form(body: bytes) -> Asked:
    args = _arguments(body)
    pod = _object(args, "pod")
    names, nodes = args.get("nodenames"), args.get("nodes")
    if names is not None:
        return Asked(pod, texts_of(names), None)
    if nodes is None:
        raise BadRequest("neither NodeNames nor Nodes is given")
    items = nodes.get("items") if isinstance(nodes, dict) else None
    if items is not None and type(items) is not list:
        raise BadRequest("Nodes.items is not a list")
    listed = {_name_of(item): item for item in items or ()}
    return Asked(pod, list(listed), listed)


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


def left_of(asked: Asked, refused: Mapping[str, str]) -> Asked:
    """What is asked about the nodes that passed: the same where none was refused."""
    if not refused:
        return asked
    passed = [name for name in asked.names if name not in refused]
    return Asked(
        asked.pod, AsCame(orjson.dumps(passed)[1:-1]) if isinstance(asked.names, AsCame) else passed, asked.nodes
    )


def filter_answer(left: Asked, refused: Mapping[str, str]) -> bytes:
    """ExtenderFilterResult. Refused nodes are marked as such that no eviction would change it."""
    if left.nodes is None:
        names = left.names.raw if isinstance(left.names, AsCame) else orjson.dumps(left.names)[1:-1]
        return NAMES_PASSED % (names, orjson.dumps(refused))
    answer: Json = {"FailedNodes": {}, "FailedAndUnresolvableNodes": refused, "Error": ""}
    items = [left.nodes[name] for name in left.names]
    return orjson.dumps({"Nodes": {"metadata": {}, "items": items}, "NodeNames": None, **answer})


NAMES_PASSED = b'{"Nodes":null,"NodeNames":[%b],"FailedNodes":{},"FailedAndUnresolvableNodes":%b,"Error":""}'


def priority_answer(scored: Scored) -> bytes:
    """HostPriorityList: every host once, each with a whole number of 0 to 10."""
    told: list[bytes | memoryview] = [b"["]
    if len(scored.places):
        told.append(LATEST.of(scored.known).of(scored.places, scored.scores)[1:])
    if scored.neutral:
        listed = orjson.dumps(scored.neutral)[2:-2]  # between two names nothing but this can stand: quotes are escaped
        alike = listed.replace(b'","', b'","Score":%d},{"Host":"' % NEUTRAL)
        told.append(b'%b{"Host":"%b","Score":%d}' % (b"," if len(told) > 1 else b"", alike, NEUTRAL))
    told.append(b"]")
    return b"".join(told)


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
