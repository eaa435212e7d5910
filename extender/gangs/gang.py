"""What is a gang: the pods that share its name, how many it takes, and how far it has come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from extender.gangs.member import GATE, Member
from extender.pods.pod import GANG_LABEL

SizeOf = Callable[[Member], int | None]
"""Asks the job that owns a pod how many there will be; None when that cannot be told."""

MAX_MEMBERS = 10_000
"""What is reserved for a gang has to fit into one object beside that for another."""


@dataclass(frozen=True)
class Gang:
    """Members in the order they were made, the finished and the leaving ones left out.

    Attributes
    ----------
    size
        How many it takes; None when nobody tells.
    done
        How many have succeeded and count as there: those of the job that still has members at the gate.
    problem
        Why it cannot be admitted before somebody changes its pods; empty while it can.
    """

    namespace: str
    name: str
    members: tuple[Member, ...]
    size: int | None
    succeeded: int = 0
    problem: str = ""

    @cached_property
    def gated(self) -> tuple[Member, ...]:
        """Those that wait at our gate."""
        return tuple(member for member in self.members if GATE in member.gates)

    @cached_property
    def free(self) -> tuple[Member, ...]:
        """Those past our gate."""
        return tuple(member for member in self.members if GATE not in member.gates)

    @property
    def unbound(self) -> tuple[Member, ...]:
        """Those past the gate that have no node yet."""
        return tuple(member for member in self.free if not member.node)

    @property
    def missing(self) -> int:
        """How many have yet to be made."""
        return max(0, (self.size or 0) - len(self.members) - self.succeeded)

    @property
    def priority(self) -> int:
        return self.members[0].membership.priority

    @property
    def since_s(self) -> float:
        """When the first of those at the gate was made, unix seconds; of all where none is. Those past the gate make no
        gang older: else whoever has a pod running would come before all others with whatever is made later."""
        return (self.gated or self.members)[0].created_s

    @property
    def complete_s(self) -> float:
        """When its last member was made, unix seconds."""
        return self.members[-1].created_s

    @property
    def with_reservation(self) -> tuple[Member, ...]:
        """Those for which a node is reserved."""
        return tuple(member for member in self.members if member.reserved_node)

    @property
    def other_gates(self) -> tuple[str, ...]:
        """The gates of others that hold its members."""
        return tuple(sorted({gate for member in self.gated for gate in member.gates if gate != GATE}))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What of its members' wishes is left to the scheduler."""
        return tuple(sorted({word for member in self.members for word in member.requirements.constraints.unchecked}))

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def order(self) -> tuple[float, float, str, str]:
        """The higher priority first, then the elder."""
        return (-self.priority, self.since_s, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name.rpartition('=')[2]}"


def gangs_of(pods: Iterable[Member], size_of: SizeOf) -> list[Gang]:
    """The gangs that still concern us, in their order: those with members at the gate, or past it and not bound.

    A single pod at the gate that names no group is a gang of one. Groups of Kubernetes itself are left out.
    """
    groups: defaultdict[tuple[str, str], list[Member]] = defaultdict(list)
    for pod in pods:
        if not pod.native and (name := pod.membership.name or (f"pod={pod.key.name}" if GATE in pod.gates else "")):
            groups[pod.key.namespace, name].append(pod)
    made = (_gang(namespace, name, pods, size_of) for (namespace, name), pods in groups.items() if _is_pending(pods))
    return sorted(made, key=lambda gang: gang.order)


def ungated(pods: Iterable[Member], made_since_s: float) -> list[Gang]:
    """By gang, the pods that carry our label and were made without our gate, lately: they wait for nobody."""
    groups: defaultdict[tuple[str, str], list[Member]] = defaultdict(list)
    for pod in pods:
        labelled = pod.membership.name.startswith(f"{GANG_LABEL}=") and pod.alive and not pod.native
        if (
            labelled
            and GATE not in pod.gates
            and not pod.reserved_node
            and not pod.annotated_node
            and pod.created_s >= made_since_s
        ):
            groups[pod.key.namespace, pod.membership.name].append(pod)
    return [Gang(namespace, name, tuple(members), None) for (namespace, name), members in groups.items()]


def _is_pending(pods: list[Member]) -> bool:
    return any(pod.alive and (GATE in pod.gates or (not pod.node and pod.reserved_node)) for pod in pods)


def _gang(namespace: str, name: str, pods: list[Member], size_of: SizeOf) -> Gang:
    members = tuple(sorted((pod for pod in pods if pod.alive), key=lambda pod: (pod.created_s, pod.key.name)))
    owners = {pod.owner.uid for pod in members if GATE in pod.gates and pod.owner is not None}
    succeeded = sum(1 for pod in pods if pod.phase == "Succeeded" and pod.owner is not None and pod.owner.uid in owners)
    size, problem = _size(members, size_of)
    if len(members) > MAX_MEMBERS:
        problem = f"it has more than {MAX_MEMBERS} pods"
    elif len({pod.membership.priority for pod in members}) > 1:
        problem = "its pods differ in priority"
    elif len({pod.membership.scheduler for pod in members}) > 1:
        problem = "its pods name different schedulers"
    return Gang(namespace, name, members, size, succeeded, problem)


def _size(members: tuple[Member, ...], size_of: SizeOf) -> tuple[int | None, str]:
    told = {member.membership.declared_size for member in members}
    if len(told) > 1:
        return None, "its pods tell different sizes"
    text = next(iter(told))
    if text:
        number = int(text) if text.isdecimal() and len(text) < 6 else 0
        return (number, "") if number else (None, f"its size is {text[:20]!r}, not a whole number above 0")
    if not members[0].membership.name:
        return 1, ""
    size = size_of(members[0])
    return size, "" if size else "nobody tells its size: label its pods phasewise.dev/gang-size"
