"""HorizontalPodAutoscalers by utilization: what they measure is left alone.

They scale by use as a share of requests. A VPA for the same resource would drive them: lower requests mean a higher
utilization, so more pods, each with less use, so still lower requests. KEDA makes such an autoscaler for each
ScaledObject with a trigger `cpu` or `memory`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from recommender.base.records import RESOURCES, ContainerPolicy
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.objects.vpa import Vpa, read_target
from recommender.cluster.workloads.ownership import Ref, Workloads

HPAS = ("autoscaling/v2", "horizontalpodautoscalers")

ALL = ""
"""Instead of the name of a container: the metric is that of the whole pod."""


@dataclass(frozen=True, slots=True)
class Scaler:
    """An autoscaler by utilization: what it scales, and the containers and resources that it measures for that."""

    key: ObjectKey
    target: Ref
    measured: frozenset[tuple[str, str]]


@reads("HorizontalPodAutoscaler")
def read_scaler(raw: Fields) -> Scaler | None:
    """Read a HorizontalPodAutoscaler; None if none of its metrics is the utilization of CPU or memory."""
    spec = raw.child("spec")
    metrics = [
        metric.child(source) for metric in spec.children("metrics") for source in ("resource", "containerResource")
    ]
    measured = frozenset(
        (one.text("container") or ALL, one.text("name"))
        for one in metrics
        if one.text("name") in RESOURCES and "averageUtilization" in one.child("target")
    )
    if not measured:
        return None
    return Scaler(read_key(raw.child("metadata")), Ref.of(read_target(spec.child("scaleTargetRef"))), measured)


def left_alone(vpa: Vpa, scalers: Iterable[Scaler]) -> Vpa:
    """The VPA as if it did not control what these autoscalers of its pods measure; the same one if it does not."""
    by_name = sorted(scalers, key=lambda one: one.key)
    measured = {one for scaler in by_name for one in scaler.measured}
    names = {policy.container for policy in vpa.policies} | {container for container, _ in measured} | {"*"}
    before = {name: vpa.policy_for(ALL if name == "*" else name) for name in sorted(names - {ALL})}
    policies = {name: _without(policy, name, measured) for name, policy in before.items()}
    if all(policies[name].controlled == before[name].controlled for name in before):
        return vpa
    words = (
        f"{resource}{f' of {container}' if container else ''} is left as requested: "
        f"HorizontalPodAutoscaler {scaler.key.name} scales by its utilization"
        for scaler in by_name
        for container, resource in sorted(scaler.measured)
    )
    return replace(vpa, policies=tuple(policies.values()), left_alone="; ".join(words))


def _without(policy: ContainerPolicy, name: str, measured: Collection[tuple[str, str]]) -> ContainerPolicy:
    theirs = {resource for container, resource in measured if container in (ALL, name)}
    return replace(policy, container=name, controlled=policy.controlled - theirs)


_Place = tuple[str, Ref]
"""A namespace, and a controller in it."""


class ScaledVpas:
    """VPAs without what autoscalers of their pods measure: those of their target, above it or below it."""

    def __init__(self, workloads: Workloads) -> None:
        self._workloads = workloads
        self._made: dict[ObjectKey, tuple[Vpa, Set[Scaler], Vpa]] = {}

    def of(self, vpas: Iterable[Vpa], scalers: Iterable[Scaler]) -> list[Vpa]:
        """These VPAs; an unchanged one is the same object as before."""
        by_target, by_upper = defaultdict[_Place, set[Scaler]](set), defaultdict[_Place, set[Scaler]](set)
        for scaler in scalers:
            place = scaler.key.namespace, scaler.target
            by_target[place].add(scaler)
            for upper in self._up_from(*place):
                by_upper[upper].add(scaler)
        before, self._made = self._made, {}
        return [self._made_of(vpa, by_target, by_upper, before) for vpa in vpas] if by_target else list(vpas)

    def _made_of(
        self,
        vpa: Vpa,
        by_target: Mapping[_Place, Set[Scaler]],
        by_upper: Mapping[_Place, Set[Scaler]],
        before: Mapping[ObjectKey, tuple[Vpa, Set[Scaler], Vpa]],
    ) -> Vpa:
        place = vpa.key.namespace, Ref.of(vpa.target)
        theirs = frozenset(by_upper.get(place, ())).union(
            *(by_target.get(upper, ()) for upper in self._up_from(*place))
        )
        if not theirs:
            return vpa
        made = before.get(vpa.key)
        if made is None or made[0] is not vpa or made[1] != theirs:
            made = vpa, theirs, left_alone(vpa, theirs)
        self._made[vpa.key] = made
        return made[2]

    def _up_from(self, namespace: str, ref: Ref) -> Iterator[_Place]:
        """A controller, and the known ones above it."""
        workload = self._workloads.get(namespace, ref)
        yield namespace, ref
        for upper, _ in self._workloads.chain(namespace, None if workload is None else workload.owner):
            yield namespace, upper
