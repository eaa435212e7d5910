"""Which nodes a pod may run on: node selector, required node affinity and taints. Unchecked constraints are listed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recommender.cluster.objects.node import HARD_EFFECTS, Node, Taint
from recommender.cluster.objects.pods import Toleration, tolerated
from recommender.cluster.objects.reading import BadField, Fields
from recommender.cluster.objects.requests import DEVICE_CLASSES
from recommender.cluster.objects.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, Requirement

Bools = NDArray[np.bool_]

COMPARISONS = {"Gt": np.greater, "Lt": np.less}  # of a label, parsed as an integer, with a bound
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
"""As the scheduler parses integers; Python's `int` also accepts `1_0`, which is a valid label value."""
NODE_NAME = "metadata.name"
UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
VOLUMES = "volumes"


@dataclass(frozen=True, slots=True)
class Term:
    """All conditions must be met; a term without conditions matches no node."""

    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    selector: tuple[tuple[str, str], ...] = ()  # labels that a node must have
    # terms of the required node affinity, at least one of which must match; None without such an affinity
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    unchecked: tuple[str, ...] = ()  # names of other constraints, which only the scheduler checks


class _Column(NamedTuple):
    place: NDArray[np.int64]  # (n,): place of each node's value in `values`, -1 without the label
    values: Mapping[str, int]  # value -> place
    # number, is_number: by place: the value as an integer, and whether it is one
    number: NDArray[np.int64]
    is_number: Bools

    @classmethod
    def of(cls, texts: Sequence[str | None]) -> _Column:
        values = {text: place for place, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
        is_number = np.array([bool(WHOLE_NUMBER.fullmatch(text)) for text in values], dtype=bool)
        number = np.array([int(text) if WHOLE_NUMBER.fullmatch(text) else 0 for text in values], dtype=np.int64)
        place = np.array([-1 if text is None else values[text] for text in texts], dtype=np.int64)
        return cls(place, values, number, is_number)


class _Table:
    """The labels of all nodes by column: whoever creates a pod may give it thousands of conditions, and asking every
    node about each would keep all gangs waiting."""

    def __init__(self, rows: Sequence[Mapping[str, str]]) -> None:
        self._rows, self._known, self._columns = rows, frozenset[str]().union(*rows), dict[str, _Column]()

    def matching(self, condition: Requirement) -> Bools:
        """(n,): the nodes that meet a condition. As in Kubernetes, `NotIn` is also met without the label."""
        column = self._column(condition.key)
        chosen = np.zeros(len(column.values) + 1, dtype=bool)  # by place; the last is that of nodes without the label
        if condition.operator in COMPARISONS:
            (bound,) = map(int, condition.values)
            chosen[:-1] = COMPARISONS[condition.operator](column.number, bound) & column.is_number
        elif condition.operator in (IN, NOT_IN):
            chosen[[column.values[value] for value in condition.values if value in column.values]] = True
        else:
            chosen[:-1] = True
        found: Bools = chosen[column.place]
        return ~found if condition.operator in (NOT_IN, DOES_NOT_EXIST) else found

    def _column(self, key: str) -> _Column:
        if key not in self._known:
            key = ""  # no label has this name: one column stands for all that are missing
        if key not in self._columns:
            self._columns[key] = _Column.of([row.get(key) for row in self._rows])
        return self._columns[key]


class NodeFacts:
    """What constraints ask of nodes: labels, names, taints, and whether they are ready."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._labels = _Table([node.labels for node in nodes])
        self._fields = _Table([{NODE_NAME: node.name} for node in nodes])
        self._ready = np.array([node.ready for node in nodes], dtype=bool)
        hard = [_hard_taints(node) for node in nodes]
        self._hard_taints = {taints: place for place, taints in enumerate(dict.fromkeys(hard))}
        self._taints = np.array([self._hard_taints[taints] for taints in hard], dtype=np.int64)

    def allowed(self, constraints: NodeConstraints) -> Bools:
        """(n,): the nodes that a pod may run on, regardless of free capacity."""
        among = tolerated({taint for taints in self._hard_taints for taint in taints}, constraints.tolerations)
        fine = np.array([among.issuperset(taints) for taints in self._hard_taints], dtype=bool)
        found: Bools = self._ready & fine[self._taints]
        for name, text in constraints.selector:
            found &= self._labels.matching(Requirement(name, IN, frozenset((text,))))
        if constraints.terms is not None:
            matched = np.zeros(len(found), dtype=bool)
            for term in constraints.terms:
                matched |= self._matching(term)
            found &= matched
        return found

    def _matching(self, term: Term) -> Bools:
        found = np.full(len(self._ready), bool(term.labels or term.fields))
        for table, conditions in ((self._labels, term.labels), (self._fields, term.fields)):
            for condition in conditions:
                found &= table.matching(condition)
        return found


def _hard_taints(node: Node) -> tuple[Taint, ...]:
    taints = (*node.taints, UNSCHEDULABLE) if node.unschedulable else node.taints
    return tuple(taint for taint in taints if taint.effect in HARD_EFFECTS)


def read_constraints(spec: Fields, selector: Mapping[str, str], tolerations: tuple[Toleration, ...]) -> NodeConstraints:
    """Read the constraints of a pod's spec; BadField if it is malformed."""
    affinity = spec.child("affinity")
    required = affinity.child("nodeAffinity").child("requiredDuringSchedulingIgnoredDuringExecution")
    terms = tuple(_term(entry) for entry in required.children("nodeSelectorTerms")) if required.raw else None
    return NodeConstraints(tuple(sorted(selector.items())), terms, tolerations, tuple(_unchecked(spec, affinity)))


def _unchecked(spec: Fields, affinity: Fields) -> list[str]:
    found = [
        f"pod {'anti-' * (name == 'podAntiAffinity')}affinity"
        for name in ("podAffinity", "podAntiAffinity")
        if affinity.child(name).raw.get("requiredDuringSchedulingIgnoredDuringExecution")
    ]
    if any(entry.text("whenUnsatisfiable") != "ScheduleAnyway" for entry in spec.children("topologySpreadConstraints")):
        found.append("topology spread")
    if any("persistentVolumeClaim" in entry or "ephemeral" in entry for entry in spec.children("volumes")):
        found.append(VOLUMES)
    containers = (*spec.children("initContainers"), *spec.children("containers"))
    requested = [name for each in containers for name in each.child("resources").child("requests").raw]
    if spec.raw.get("resourceClaims") or any(name.startswith(DEVICE_CLASSES) for name in requested):
        found.append("resource claims")
    if any(port.integer("hostPort") for each in spec.children("containers") for port in each.children("ports")):
        found.append("host ports")
    return found


def _term(entry: Fields) -> Term:
    """The API server accepts conditions that the scheduler cannot parse; a term with one matches no node."""
    try:
        return Term(
            tuple(_condition(each) for each in entry.children("matchExpressions")),
            tuple(_condition(each) for each in entry.children("matchFields")),
        )
    except BadField:
        return Term((), ())


def _condition(entry: Fields) -> Requirement:
    key, operator, values = entry.required("key"), entry.required("operator"), entry.texts("values")
    if operator in COMPARISONS:
        if len(values) != 1 or not WHOLE_NUMBER.fullmatch(values[0]):
            raise BadField(entry.at("values"), "is not a single integer")
    elif operator not in (IN, NOT_IN, EXISTS, DOES_NOT_EXIST):
        raise BadField(entry.at("operator"), f"is {operator[:40]!r}, not an operator of node affinity")
    return Requirement(key, operator, frozenset(values))
