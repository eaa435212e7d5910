"""Nodes and pods of gangs, read from API objects, and a simulated cluster in which gangs start and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from extender.gangs.decide import NO_TURNS, GangDecision, Timeouts, decide
from extender.gangs.member import GATE, Member, NodeCapacity, read_member, read_node_capacity
from extender.gangs.plan import FreeCapacity, NodeArrays
from extender.gangs.turns import Turns

Json = dict[str, Any]
NOON_S = 1_800_000_000.0


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(NOON_S + seconds, UTC).isoformat()


def node(name: str, cpu: str = "10", labels: Mapping[str, str] | None = None, **spec: Any) -> NodeCapacity:
    allocatable = {"cpu": cpu, "memory": "40Gi", "pods": "110", **spec.pop("resources", {})}
    annotations = spec.pop("annotations", {})
    return read_node_capacity(
        {
            "metadata": {"name": name, "labels": dict(labels or {}), "annotations": annotations},
            "spec": spec,
            "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def nodes(count: int, cpu: str = "10") -> list[NodeCapacity]:
    return [node(f"n{number}", cpu) for number in range(count)]


def pod_json(
    name: str,
    *,
    namespace: str = "team",
    gang: str = "",
    size: int | str = "",
    cpu: str = "1",
    on: str = "",
    gates: Sequence[str] | None = None,
    age_s: float = 0.0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    phase: str = "Pending",
    requests: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A pod; a member of a gang is gated unless it is on a node or `gates` is given."""
    gang_labels = {"phasewise.dev/gang": gang} if gang else {}
    gang_labels |= {"phasewise.dev/gang-size": str(size)} if size else {}
    gate_names = ((GATE,) if gang and not on else ()) if gates is None else gates
    owners = [{"kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": {**gang_labels, **(labels or {})},
            "annotations": dict(annotations or {}),
            "creationTimestamp": stamp(-age_s),
            "ownerReferences": owners,
        },
        "spec": {
            "nodeName": on,
            "schedulerName": "phasewise",
            "schedulingGates": [{"name": gate} for gate in gate_names],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, **(requests or {})}}}],
            **spec,
        },
        "status": {"phase": "Running" if on and phase == "Pending" else phase},
    }


def pod(name: str, **fields: Any) -> Member:
    return read_member(pod_json(name, **fields))


def gang(name: str, size: int, **fields: Any) -> list[Member]:
    """All members of a gang, created at the same time."""
    return [pod(f"{name}-{number}", gang=name, size=size, **fields) for number in range(size)]


def reserved(member: Member, node: str, at_s: float = 0.0) -> Member:
    """The pod with a node reserved for it."""
    return replace(member, reserved_node=node, reserved_since_s=NOON_S + at_s)


def decided(
    pods: Sequence[Member], all_nodes: Sequence[NodeCapacity], at_s: float = 0.0, **options: Any
) -> GangDecision:
    size_of = options.pop("size_of", lambda _: None)
    backed_off = {("team", name): why for name, why in options.pop("backed_off", {}).items()}
    turns = options.pop("turns", NO_TURNS)
    return decide(pods, all_nodes, size_of, NOON_S + at_s, Timeouts(**options), backed_off, turns)


def messages(decision: GangDecision) -> dict[str, str]:
    """Gang -> `reason: text`."""
    return {note.gang.name.rpartition("=")[2]: f"{note.reason}: {note.message}" for note in decision.notes}


@dataclass
class SimulatedCluster:
    """A cluster in which time passes only in `step`. Its scheduler is ours: what is reserved is kept from others."""

    nodes: Sequence[NodeCapacity]
    pods: dict[str, Member] = field(default_factory=dict)
    at_s: float = 0.0
    admitted: list[str] = field(default_factory=list)
    turns: Turns = NO_TURNS

    def put(self, *members: Member) -> None:
        self.pods |= {member.uid: member for member in members}

    def step(self, writes: int = 1 << 20, step_s: float = 1.0) -> str:
        """Decide and act; the name of the admitted gang. Its pods are bound to their reserved nodes at once.

        The controller dies after so many `writes`: one for the reservation, one for each gate.
        """
        self.at_s += step_s
        decision = decided(list(self.pods.values()), self.nodes, self.at_s, turns=self.turns)
        self.turns = decision.turns
        self.put(*(replace(member, reserved_node="") for member in decision.stale))
        if (kept := decision.kept) is not None:
            self.put(*(reserved(member, kept.nodes[member.uid], self.at_s) for member in kept.gang.gated))
        if decision.admit is None:
            return ""
        members = decision.admit.gated
        if writes:
            self.put(*(reserved(member, decision.reserved_nodes[member.uid], self.at_s) for member in members))
        for member in members[: max(0, writes - 1)]:
            with_reservation = self.pods[member.uid]
            self.put(replace(with_reservation, gates=(), node=with_reservation.reserved_node, phase="Running"))
        name = decision.admit.name.rpartition("=")[2]
        self.admitted.append(name)
        return name

    def bind(self) -> list[str]:
        """Bind the pending pods that fit, the oldest first, each to the emptiest node; their names."""
        free, bound = FreeCapacity(NodeArrays(self.nodes)), []
        for each in self.pods.values():
            free.take(each.node or each.reserved_node, each.requirements.needs)
        for each in [each for each in self.pods.values() if not (each.node or each.gates)]:
            fits = np.flatnonzero(free.pods_that_fit(each.requirements))
            if len(fits):
                emptiest = self.nodes[fits[np.argmax(free.free_share()[fits])]].node.name
                free.take(emptiest, each.requirements.needs)
                self.put(replace(each, node=emptiest, phase="Running"))
                bound.append(each.key.name)
        return bound

    def end(self, name: str) -> None:
        """Delete all pods of a gang."""
        self.pods = {uid: each for uid, each in self.pods.items() if each.membership.name.rpartition("=")[2] != name}

    def used(self) -> dict[str, float]:
        """Node -> cores in use."""
        total: dict[str, float] = {}
        for each in self.pods.values():
            if each.node and not each.finished:
                total[each.node] = total.get(each.node, 0.0) + dict(each.requirements.needs)["cpu"]
        return total
