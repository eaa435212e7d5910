"""Gangs: the pods that share a group name, the required size, and how many of them exist, wait or are bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from extender.gangs.member import GATE, Member
from extender.pods.pod import GANG_LABEL


class JobSize(NamedTuple):
    """How many pods of a job run at once, and how many have succeeded (deleted ones included) or failed for good."""

    pods: int
    ended: int = 0


SizeOf = Callable[[Member], JobSize | None]
"""Look up the size of the job that owns a pod; None if unknown."""

NOT_READ_YET = JobSize(-1)  # what a `SizeOf` returns for a job that it has yet to read
MAX_MEMBERS = 10_000
MAX_RESERVED = 20_000  # pods with reservations at a time: they must fit into one ConfigMap


@dataclass(frozen=True)
class Gang:
    """The members of a gang in order of creation, without finished and deleted pods."""

    namespace: str
    name: str
    members: tuple[Member, ...]
    size: int | None  # number of pods required; None if unknown, that of `NOT_READ_YET` for the present
    ended: int = 0  # pods that have ended and count towards `size`: those of the job whose other pods are still gated
    problem: str = ""  # why the gang cannot be admitted until its pods change; empty if it can

    @cached_property
    def gated(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if GATE in member.gates)

    @cached_property
    def past_gate(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if GATE not in member.gates)

    @property
    def unbound(self) -> tuple[Member, ...]:
        return tuple(member for member in self.past_gate if not member.node)

    @property
    def missing(self) -> int:
        return max(0, (self.size or 0) - len(self.members) - self.ended)

    @property
    def priority(self) -> int:
        return self.members[0].membership.priority

    @property
    def since_s(self) -> float:
        """Creation time of the oldest gated member, unix seconds; of any if none is gated. Otherwise a gang with a
        running pod would always be the oldest."""
        return (self.gated or self.members)[0].created_s

    @property
    def complete_s(self) -> float:
        return self.members[-1].created_s

    @property
    def other_gates(self) -> tuple[str, ...]:
        """Scheduling gates of other controllers on gated members."""
        return tuple(sorted({gate for member in self.gated for gate in member.gates if gate != GATE}))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Constraints of its members that only the scheduler checks."""
        return tuple(sorted({word for member in self.members for word in member.requirements.constraints.unchecked}))

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def short_name(self) -> str:
        return self.name.rpartition("=")[2]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.short_name}"


def gangs_of(pods: Iterable[Member], size_of: SizeOf) -> list[Gang]:
    """The gangs with gated members, or with members past the gate that are not bound. A gated pod without a group
    is a gang of one; Kubernetes' own PodGroups are left out."""
    groups: defaultdict[tuple[str, str], list[Member]] = defaultdict(list)
    for pod in pods:
        if not pod.native and (name := pod.membership.name or (f"pod={pod.key.name}" if GATE in pod.gates else "")):
            groups[pod.key.namespace, name].append(pod)
    return [
        _gang(namespace, name, pods, size_of)
        for (namespace, name), pods in groups.items()
        if any(pod.alive and (GATE in pod.gates or (not pod.node and pod.reserved_node)) for pod in pods)
    ]


def ungated(pods: Iterable[Member], made_since_s: float) -> list[Gang]:
    """The pods with our label that were created without our gate since `made_since_s`, by gang."""
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


def _gang(namespace: str, name: str, pods: list[Member], size_of: SizeOf) -> Gang:
    members = tuple(sorted((pod for pod in pods if pod.alive), key=lambda pod: (pod.created_s, pod.key.name)))
    owners = {pod.owner.uid for pod in members if GATE in pod.gates and pod.owner is not None}
    succeeded = sum(1 for pod in pods if pod.phase == "Succeeded" and pod.owner is not None and pod.owner.uid in owners)
    size, problem = _size(members, size_of)
    if len(members) > MAX_MEMBERS:
        problem = f"it has more than {MAX_MEMBERS} pods"
    elif len({pod.membership.priority for pod in members}) > 1:
        problem = "its pods have different priorities"
    elif len({pod.membership.scheduler for pod in members}) > 1:
        problem = "its pods name different schedulers"
    if size is None:
        return Gang(namespace, name, members, None, succeeded, problem)
    return Gang(namespace, name, members, size.pods, max(succeeded, size.ended), problem)


def _size(members: tuple[Member, ...], size_of: SizeOf) -> tuple[JobSize | None, str]:
    waiting = min(members, key=lambda member: GATE not in member.gates)
    declared = {member.membership.declared_size for member in members}
    if len(declared) > 1:
        return None, "its pods declare different sizes"
    text = next(iter(declared))
    if text:
        number = int(text) if text.isdecimal() and len(text) < 6 else 0
        if not number:
            return None, f"its size is {text[:20]!r}, not a positive integer"
        job = size_of(waiting) if number > len(members) else None  # how many have ended matters only then
        return (job or JobSize(number))._replace(pods=number), ""
    if not members[0].membership.name:
        return JobSize(1), ""
    size = size_of(waiting)
    return size, "" if size is not None else "its size is unknown: label its pods phasewise.dev/gang-size"
