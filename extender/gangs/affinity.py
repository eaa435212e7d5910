"""Which nodes a pod may run on: node selector, required node affinity and taints. Unchecked constraints are listed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recommender.cluster.objects.node import Node, Taint
from recommender.cluster.objects.pods import Toleration
from recommender.cluster.objects.reading import BadField, Fields
from recommender.cluster.objects.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, Requirement

GREATER, LESS = "Gt", "Lt"
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
"""As the scheduler parses integers; Python's `int` also accepts `1_0`, which is a valid label value."""
NODE_NAME = "metadata.name"
HARD = ("NoSchedule", "NoExecute")
UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A label, parsed as an integer, compared with a bound."""

    key: str
    operator: str
    bound: int

    def matches(self, labels: Mapping[str, str]) -> bool:
        if not WHOLE_NUMBER.fullmatch(labels.get(self.key, "")):
            return False
        value = int(labels[self.key])
        return value > self.bound if self.operator == GREATER else value < self.bound


@dataclass(frozen=True, slots=True)
class Term:
    """All conditions must be met; a term without conditions matches no node."""

    labels: tuple[Requirement | Comparison, ...]
    fields: tuple[Requirement | Comparison, ...]

    def matches(self, node: Node) -> bool:
        if not self.labels and not self.fields:
            return False
        named = {NODE_NAME: node.name}
        return all(each.matches(node.labels) for each in self.labels) and all(
            each.matches(named) for each in self.fields
        )


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """The parts of a pod's spec that rule out nodes.

    Attributes
    ----------
    selector
        Labels that a node must have.
    terms
        Terms of the required node affinity, at least one of which must match; None without such an affinity.
    unchecked
        Names of other constraints, which only the scheduler checks.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    unchecked: tuple[str, ...] = ()

    def allows(self, node: Node) -> bool:
        """Whether the pod may run on a node, regardless of free capacity."""
        if not node.ready or any(node.labels.get(name) != text for name, text in self.selector):
            return False
        if self.terms is not None and not any(term.matches(node) for term in self.terms):
            return False
        taints = (*node.taints, UNSCHEDULABLE) if node.unschedulable else node.taints
        return all(self._tolerates(taint) for taint in taints if taint.effect in HARD)

    def _tolerates(self, taint: Taint) -> bool:
        return any(
            toleration.effect in ("", taint.effect)
            and toleration.key in ("", taint.key)
            and (toleration.operator == EXISTS or (bool(toleration.key) and toleration.value == taint.value))
            for toleration in self.tolerations
        )


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
        found.append("volumes")
    if spec.raw.get("resourceClaims"):
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


def _condition(entry: Fields) -> Requirement | Comparison:
    key, operator, values = entry.required("key"), entry.required("operator"), entry.texts("values")
    if operator in (GREATER, LESS):
        if len(values) != 1 or not WHOLE_NUMBER.fullmatch(values[0]):
            raise BadField(entry.at("values"), "is not a single integer")
        return Comparison(key, operator, int(values[0]))
    if operator not in (IN, NOT_IN, EXISTS, DOES_NOT_EXIST):
        raise BadField(entry.at("operator"), f"is {operator[:40]!r}, not an operator of node affinity")
    return Requirement(key, operator, frozenset(values))
