"""What users of the default recommender may rely on, as data: one table, held against records and a real cluster.

Each case is one VPA of a Deployment of its own. What is expected holds as soon as there are samples, and goes on
holding: the amounts are chosen so that it does not matter whether the forecast or the history decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Range = tuple[float, float]

MIB, GIB = 2.0**20, 2.0**30
BOUNDS = ("lowerBound", "target", "upperBound", "uncappedTarget")
PROVIDED: Mapping[str, str] = {"RecommendationProvided": "True"}
NOT_PROVIDED: Mapping[str, str] = {"RecommendationProvided": "False"}
FOREIGN = "TeamPaused"
MISSING = "Cannot read targetRef. Reason: Deployment {namespace}/nobody does not exist"
LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class Container:
    """What a container asks for, its limits, what it uses (cores, bytes), and whether a resize restarts it."""

    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "1", "memory": "2Gi"})
    uses: tuple[float, float] = (0.4, GIB)
    limits: Mapping[str, str] = field(default_factory=dict)
    restarts: bool = False

    def spec(self, name: str) -> Json:
        """Its JSON in the spec of a pod."""
        resources = {"requests": dict(self.requests), **({"limits": dict(self.limits)} if self.limits else {})}
        spec: Json = {"name": name, "image": "none", "imagePullPolicy": "IfNotPresent", "resources": resources}
        if self.restarts:
            spec["resizePolicy"] = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
        return spec


@dataclass(frozen=True)
class Case:
    """A VPA, the pods it is for, and what its status is to say.

    Attributes
    ----------
    policies
        `spec.resourcePolicy.containerPolicies`.
    spec
        More of the VPA's spec.
    annotations, notes
        Of the VPA, and of its pods.
    before
        The status that stands before the recommender has seen it.
    init
        `spec.initContainers` of the pods.
    entries
        By container, by bound: resource -> the exact quantity, or the range in cores or bytes in which it must lie.
    resources
        What each entry speaks of.
    conditions
        All that there may be, by type: status, or (status, reason, message). `LowConfidence` may come and go.
    gated
        The admission controller takes it only with a feature gate of its own.
    """

    containers: Mapping[str, Container] = field(default_factory=lambda: {"main": Container()})
    policies: Sequence[Json] = ()
    spec: Json = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    before: Json = field(default_factory=dict)
    init: Sequence[Json] = ()
    replicas: int = 1
    kill: str = ""
    entries: Mapping[str, Mapping[str, Mapping[str, str | Range]]] = field(default_factory=lambda: {"main": {}})
    resources: frozenset[str] = frozenset({"cpu", "memory"})
    conditions: Mapping[str, str | tuple[str, str, str]] = field(default_factory=lambda: PROVIDED)
    gated: bool = False

    def vpa(self, name: str) -> Json:
        """The VPA's JSON, without its status."""
        spec: Json = {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "Off"},
            "recommenders": [{"name": "phasewise"}],
            **self.spec,
        }
        if self.policies:
            spec["resourcePolicy"] = {"containerPolicies": list(self.policies)}
        return {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": name, "annotations": dict(self.annotations)},
            "spec": spec,
        }


def policy(container: str = "main", **fields: Any) -> Json:
    return {"containerName": container, **fields}


def all_of(amounts: Mapping[str, str | Range], *bounds: str) -> Mapping[str, Mapping[str, str | Range]]:
    """Each of these bounds (all four without any) is this."""
    return dict.fromkeys(bounds or BOUNDS, amounts)


def standing(container: str = "main", **more: str) -> Json:
    """A status that recommends three cores and 5 GiB, and more resources."""
    amounts = {**PLENTY, **more}
    entries = [{"containerName": container, **dict.fromkeys(BOUNDS, amounts)}]
    return {"recommendation": {"containerRecommendations": entries}}


PLENTY = {"cpu": "3", "memory": "5Gi"}
MAIN, SIDE = Container(), Container(uses=(0.2, 512 * MIB))
BOTH = {"main": MAIN, "side": SIDE}
TINY = Container(requests={"cpu": "1m", "memory": "1Mi"}, uses=(0.001, MIB))
GROWING = Container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1", "memory": "1Gi"}, uses=(0.4, 1.5 * GIB))
LOW, HIGH = {"cpu": "300m", "memory": "512Mi"}, {"cpu": "1500m", "memory": "3Gi"}
GUARANTEED = Container(limits={"cpu": "1", "memory": "2Gi"})
AT_CREATION: Json = {"updatePolicy": {"updateMode": "Initial"}}
IN_PLACE: Json = {"updatePolicy": {"updateMode": "InPlace"}}
RESTARTED = "a container's resizePolicy is RestartContainer: each resize restarts it"
NOT_BEST_EFFORT = "with requests, BestEffort pods become Burstable: new pods get it, running ones stay as they are"
NOT_GUARANTEED = (
    "with limits left as they are (main: controlledValues RequestsOnly), Guaranteed pods become Burstable: "
    "new pods get it, running ones stay as they are"
)
SOME: Mapping[str, Range] = {"cpu": (0.3, 1.2), "memory": (0.99 * GIB, 2.1 * GIB)}
"""What 0.4 cores and 1 GiB of use, and a request of one core and 2 GiB, may lead to."""

CASES: Mapping[str, Case] = {
    "a container without a policy gets both resources": Case(
        entries={"main": {"target": SOME}}
    ),
    "containers come in the order of their names": Case(containers=BOTH, entries={"main": {}, "side": {}}),
    "a container with mode Off gets nothing": Case(
        containers=BOTH, policies=[policy("side", mode="Off", controlledValues="RequestsOnly")]
    ),
    "mode Off for all but one": Case(
        containers=BOTH,
        policies=[policy("*", mode="Off", controlledValues="RequestsOnly"), policy("main")],
    ),
    "the wildcard holds for whom nothing else does": Case(
        containers=BOTH,
        policies=[policy("*", maxAllowed=LOW)],
        entries={"main": all_of(LOW, "target", "upperBound"), "side": {}},
    ),
    "a policy of its own hides the wildcard": Case(
        policies=[policy(), policy("*", maxAllowed=LOW)],
        entries={"main": {"target": SOME}},
    ),
    "of two wildcards the last counts": Case(
        policies=[policy("*", maxAllowed=LOW), policy("*", minAllowed=HIGH)],
        entries={"main": all_of(HIGH, "lowerBound", "target")},
    ),
    "of two policies of a name the first counts": Case(
        policies=[policy(maxAllowed=LOW), policy(minAllowed=HIGH)],
        entries={"main": all_of(LOW, "target", "upperBound")},
    ),
    "maxAllowed caps all but the uncapped target": Case(
        policies=[policy(maxAllowed=LOW)],
        entries={"main": {**all_of(LOW, "target", "upperBound"), "uncappedTarget": SOME}},
    ),
    "minAllowed lifts all but the uncapped target": Case(
        policies=[policy(minAllowed=PLENTY, maxAllowed=PLENTY)],
        entries={"main": {**all_of(PLENTY, "lowerBound", "target", "upperBound"), "uncappedTarget": SOME}},
    ),
    "a minimum is respected whatever nodes there are": Case(
        policies=[policy(minAllowed={"cpu": "10000"})],
        entries={"main": {**all_of({"cpu": "10000"}, "lowerBound", "target"), "uncappedTarget": SOME}},
    ),
    "a cap of one resource leaves the other alone": Case(
        policies=[policy(maxAllowed={"cpu": "300m"})],
        entries={"main": {"target": {"cpu": "300m", "memory": SOME["memory"]}}},
    ),
    "a cap of zero is none": Case(
        policies=[policy(maxAllowed={"cpu": "0", "memory": "0"})],
        entries={"main": {"target": SOME}},
    ),
    "only CPU is controlled": Case(
        policies=[policy(controlledResources=["cpu"])],
        resources=frozenset({"cpu"}),
        entries={"main": {"target": {"cpu": SOME["cpu"]}}},
    ),
    "only memory is controlled": Case(
        policies=[policy(controlledResources=["memory"])],
        resources=frozenset({"memory"}),
        entries={"main": {"target": {"memory": SOME["memory"]}}},
    ),
    "nothing is controlled": Case(
        policies=[policy(controlledResources=[])], entries={}, conditions=NOT_PROVIDED
    ),
    "nothing of one container is controlled": Case(
        containers=BOTH, policies=[policy("side", controlledResources=[])]
    ),
    "controlledValues are the updater's business": Case(
        policies=[policy(controlledValues="RequestsOnly")],
        entries={"main": {"target": SOME}},
    ),
    "whole cores by annotation": Case(
        containers=BOTH,
        annotations={"vpa-post-processor.kubernetes.io/main_integerCPU": "true"},
        policies=[policy("*", minAllowed={"cpu": "100m"})],
        entries={
            "main": {"target": {"cpu": "1"}, "uncappedTarget": {"cpu": "1"}},
            "side": {},
        },
    ),
    "an annotation that says no": Case(
        annotations={"vpa-post-processor.kubernetes.io/main_integerCPU": "false"},
        policies=[policy(maxAllowed={"cpu": "300m"})],
        entries={"main": {"target": {"cpu": "300m"}}},
    ),
    "maxAllowed comes after whole cores": Case(
        annotations={"vpa-post-processor.kubernetes.io/main_integerCPU": "true"},
        policies=[policy(maxAllowed={"cpu": "700m"})],
        entries={"main": {"target": {"cpu": "700m"}, "uncappedTarget": {"cpu": "1"}}},
    ),
    "the pod's minimum is shared among its containers": Case(
        containers={"main": TINY, "side": TINY},
        entries={name: {"target": {"memory": "125Mi"}} for name in ("main", "side")},
    ),
    "who is left out has no share in the pod's minimum": Case(
        containers={"main": TINY, "side": TINY},
        policies=[policy("side", mode="Off", controlledValues="RequestsOnly")],
        entries={"main": {"target": {"cpu": "25m", "memory": "250Mi"}}},
    ),
    "a container that asks for nothing gets something": Case(
        containers={"main": Container(requests={})},
        entries={"main": {"target": SOME}},
    ),
    "that BestEffort pods would be of another QoS class is said": Case(
        containers={"main": Container(requests={})},
        spec=AT_CREATION,
        conditions={**PROVIDED, "DisruptiveUpdates": ("True", "QosClassOrRestart", NOT_BEST_EFFORT)},
    ),
    "that Guaranteed pods would be of another QoS class is said": Case(
        containers={"main": GUARANTEED},
        spec=AT_CREATION,
        policies=[policy(controlledValues="RequestsOnly")],
        conditions={**PROVIDED, "DisruptiveUpdates": ("True", "QosClassOrRestart", NOT_GUARANTEED)},
    ),
    "that each resize restarts a container is said": Case(
        containers={"main": Container(restarts=True)},
        gated=True,
        spec=IN_PLACE,
        conditions={**PROVIDED, "DisruptiveUpdates": ("True", "QosClassOrRestart", RESTARTED)},
    ),
    "limits that go along keep Guaranteed pods so, and nothing is said": Case(
        containers={"main": GUARANTEED}, spec=AT_CREATION,
    ),
    "of what is only recommended no such thing is said": Case(
        containers={"main": GUARANTEED}, policies=[policy(controlledValues="RequestsOnly")],
    ),
    "init containers and native sidecars get nothing": Case(
        init=[{"name": "first", "image": "none"}, {"name": "proxy", "image": "none", "restartPolicy": "Always"}],
    ),
    "without pods nothing is recommended, and that is said": Case(
        replicas=0,
        entries={},
        conditions={
            "NoPodsMatched": ("True", "NoPodsMatched", "No pods match this VPA object"),
            "RecommendationProvided": ("False", "NoPodsMatched", "No pods match this VPA object"),
        },
    ),
    "without pods what stands is kept": Case(
        replicas=0,
        before=standing(),
        entries={"main": all_of(PLENTY)},
        conditions={"NoPodsMatched": "True", "RecommendationProvided": "True"},
    ),
    "a target that is not there is said to be missing, and what stands is kept": Case(
        spec={"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"}},
        before=standing(),
        entries={"main": all_of(PLENTY)},
        conditions={
            "ConfigUnsupported": ("True", "", MISSING),
            "RecommendationProvided": "True",
        },
    ),
    "conditions of others stay as they are, ours that are over go": Case(
        before={"conditions": [
            {"type": "TeamPaused", "status": "True", "lastTransitionTime": LONG_AGO, "reason": "Holiday"},
            {"type": "ConfigUnsupported", "status": "True", "lastTransitionTime": LONG_AGO, "message": "was wrong"},
            {"type": "NoPodsMatched", "status": "True", "lastTransitionTime": LONG_AGO, "reason": "NoPodsMatched"},
            {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": LONG_AGO},
        ]},
        conditions={"TeamPaused": ("True", "Holiday", ""), **PROVIDED},
    ),
    "what stands of a container that is no more goes": Case(before=standing("gone")),
    "what stands of other resources than ours goes": Case(before=standing(**{"nvidia.com/gpu": "1"})),
    "what stands is kept within what the policy says now": Case(
        replicas=0,
        before=standing(),
        policies=[policy(maxAllowed={"cpu": "2"}, controlledResources=["cpu"])],
        resources=frozenset({"cpu"}),
        entries={"main": {"target": {"cpu": "2"}}},
        conditions={"NoPodsMatched": "True", **PROVIDED},
    ),
    "a kill for memory bumps by the usual fifth": Case(
        containers={"main": GROWING}, kill="main", entries={"main": {"target": {"memory": (1.19 * GIB, 2 * GIB)}}}
    ),
    "a kill for memory bumps by the ratio of the container's policy": Case(
        containers={"main": GROWING}, kill="main", gated=True, policies=[policy(oomBumpUpRatio="3")],
        entries={"main": {"target": {"memory": (2.99 * GIB, 3.8 * GIB)}}},
    ),
    "a kill for memory bumps by the least amount of the container's policy": Case(
        containers={"main": GROWING}, kill="main", gated=True, policies=[policy("*", oomMinBumpUp="4Gi")],
        entries={"main": {"target": {"memory": (4.99 * GIB, 6.1 * GIB)}}},
    ),
    "a boost at the start is not the recommender's business, nor taken for what was asked for": Case(
        containers={"main": Container(requests={"cpu": "2", "memory": "2Gi"})},
        notes={"vpaCpuStartupBoost/main": '{"requests":{"cpu":"1","memory":"2Gi"}}'},
        gated=True,
        spec={"startupBoost": {"cpu": {"type": "Factor", "factor": 3}}},
        entries={"main": {"target": {"cpu": SOME["cpu"]}}},
    ),
}  # fmt: skip
