"""What users of the default recommender rely on: one table of cases, tested with plain records and on a real cluster.

Each case is the VPA of a Deployment of its own. Its expectations hold from the first samples on: the amounts are chosen
so that forecast and history lead to the same.
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
FOREIGN_CONDITION = "TeamPaused"
TARGET_MISSING = "Cannot read targetRef. Reason: Deployment {namespace}/absent does not exist"
LONG_AGO = "2020-01-01T00:00:00Z"


@dataclass(frozen=True)
class Container:
    """Requests, limits and usage (cores, bytes) of a container, and whether a memory resize restarts it."""

    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "1", "memory": "2Gi"})
    usage: tuple[float, float] = (0.4, GIB)
    limits: Mapping[str, str] = field(default_factory=dict)
    restarts: bool = False

    def spec(self, name: str) -> Json:
        resources = {"requests": dict(self.requests), **({"limits": dict(self.limits)} if self.limits else {})}
        spec: Json = {"name": name, "image": "none", "imagePullPolicy": "IfNotPresent", "resources": resources}
        if self.restarts:
            spec["resizePolicy"] = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
        return spec


@dataclass(frozen=True)
class Case:
    """A VPA, its pods, and what is expected of its status.

    Attributes
    ----------
    policies
        `spec.resourcePolicy.containerPolicies`.
    spec
        Further fields of the VPA's spec.
    annotations, pod_annotations
        Of the VPA, and of its pods.
    status_before
        The status before the recommender has seen the VPA.
    init_containers
        `spec.initContainers` of the pods.
    kill
        The container that is killed for memory.
    entries
        By container, by bound: resource -> the exact quantity, or the range in cores or bytes in which it must lie.
    resources
        The resources of each entry.
    conditions
        All of them, by type: status, or (status, reason, message). `LowConfidence` may come and go.
    gated
        The admission controller accepts the VPA only with a feature gate.
    """

    containers: Mapping[str, Container] = field(default_factory=lambda: {"main": Container()})
    policies: Sequence[Json] = ()
    spec: Json = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    status_before: Json = field(default_factory=dict)
    init_containers: Sequence[Json] = ()
    replicas: int = 1
    kill: str = ""
    entries: Mapping[str, Mapping[str, Mapping[str, str | Range]]] = field(default_factory=lambda: {"main": {}})
    resources: frozenset[str] = frozenset({"cpu", "memory"})
    conditions: Mapping[str, str | tuple[str, str, str]] = field(default_factory=lambda: PROVIDED)
    gated: bool = False

    def vpa(self, name: str) -> Json:
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


def same_bounds(amounts: Mapping[str, str | Range], *bounds: str) -> Mapping[str, Mapping[str, str | Range]]:
    """These amounts for each of these bounds, or for all four."""
    return dict.fromkeys(bounds or BOUNDS, amounts)


def published_status(container: str = "main", **further: str) -> Json:
    """A status that recommends three cores and 5 GiB, and amounts of further resources."""
    amounts = {**PLENTY, **further}
    entries = [{"containerName": container, **dict.fromkeys(BOUNDS, amounts)}]
    return {"recommendation": {"containerRecommendations": entries}}


PLENTY = {"cpu": "3", "memory": "5Gi"}
MAIN, SIDE = Container(), Container(usage=(0.2, 512 * MIB))
BOTH = {"main": MAIN, "side": SIDE}
TINY = Container(requests={"cpu": "1m", "memory": "1Mi"}, usage=(0.001, MIB))
GROWING = Container(
    requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1", "memory": "1Gi"}, usage=(0.4, 1.5 * GIB)
)
LOW, HIGH = {"cpu": "300m", "memory": "512Mi"}, {"cpu": "1500m", "memory": "3Gi"}
GUARANTEED = Container(limits={"cpu": "1", "memory": "2Gi"})
INITIAL_MODE: Json = {"updatePolicy": {"updateMode": "Initial"}}
IN_PLACE_MODE: Json = {"updatePolicy": {"updateMode": "InPlace"}}
RESTART_WARNING = "a container's resizePolicy is RestartContainer: each resize restarts it"
BEST_EFFORT_WARNING = "with requests, BestEffort pods become Burstable: new pods get it, running ones stay as they are"
GUARANTEED_WARNING = (
    "with limits left as they are (main: controlledValues RequestsOnly), Guaranteed pods become Burstable: "
    "new pods get it, running ones stay as they are"
)
PLAUSIBLE: Mapping[str, Range] = {"cpu": (0.3, 1.2), "memory": (0.99 * GIB, 2.1 * GIB)}
"""What may be recommended for 0.4 cores and 1 GiB of usage and a request of one core and 2 GiB."""

CASES: Mapping[str, Case] = {
    "a container without a policy gets both resources": Case(
        entries={"main": {"target": PLAUSIBLE}}
    ),
    "containers are sorted by name": Case(containers=BOTH, entries={"main": {}, "side": {}}),
    "a container in mode Off gets no recommendation": Case(
        containers=BOTH, policies=[policy("side", mode="Off", controlledValues="RequestsOnly")]
    ),
    "all containers but one are in mode Off": Case(
        containers=BOTH,
        policies=[policy("*", mode="Off", controlledValues="RequestsOnly"), policy("main")],
    ),
    "the wildcard policy applies to containers without a policy of their own": Case(
        containers=BOTH,
        policies=[policy("*", maxAllowed=LOW)],
        entries={"main": same_bounds(LOW, "target", "upperBound"), "side": {}},
    ),
    "a container's own policy overrides the wildcard": Case(
        policies=[policy(), policy("*", maxAllowed=LOW)],
        entries={"main": {"target": PLAUSIBLE}},
    ),
    "the last of two wildcard policies counts": Case(
        policies=[policy("*", maxAllowed=LOW), policy("*", minAllowed=HIGH)],
        entries={"main": same_bounds(HIGH, "lowerBound", "target")},
    ),
    "the first of two policies for one container counts": Case(
        policies=[policy(maxAllowed=LOW), policy(minAllowed=HIGH)],
        entries={"main": same_bounds(LOW, "target", "upperBound")},
    ),
    "maxAllowed caps all but the uncapped target": Case(
        policies=[policy(maxAllowed=LOW)],
        entries={"main": {**same_bounds(LOW, "target", "upperBound"), "uncappedTarget": PLAUSIBLE}},
    ),
    "minAllowed raises all but the uncapped target": Case(
        policies=[policy(minAllowed=PLENTY, maxAllowed=PLENTY)],
        entries={"main": {**same_bounds(PLENTY, "lowerBound", "target", "upperBound"), "uncappedTarget": PLAUSIBLE}},
    ),
    "minAllowed holds even beyond the size of every node": Case(
        policies=[policy(minAllowed={"cpu": "10000"})],
        entries={"main": {**same_bounds({"cpu": "10000"}, "lowerBound", "target"), "uncappedTarget": PLAUSIBLE}},
    ),
    "a cap on one resource does not affect the other": Case(
        policies=[policy(maxAllowed={"cpu": "300m"})],
        entries={"main": {"target": {"cpu": "300m", "memory": PLAUSIBLE["memory"]}}},
    ),
    "a cap of zero is ignored": Case(
        policies=[policy(maxAllowed={"cpu": "0", "memory": "0"})],
        entries={"main": {"target": PLAUSIBLE}},
    ),
    "only CPU is controlled": Case(
        policies=[policy(controlledResources=["cpu"])],
        resources=frozenset({"cpu"}),
        entries={"main": {"target": {"cpu": PLAUSIBLE["cpu"]}}},
    ),
    "only memory is controlled": Case(
        policies=[policy(controlledResources=["memory"])],
        resources=frozenset({"memory"}),
        entries={"main": {"target": {"memory": PLAUSIBLE["memory"]}}},
    ),
    "no resource is controlled": Case(
        policies=[policy(controlledResources=[])], entries={}, conditions=NOT_PROVIDED
    ),
    "no resource of one container is controlled": Case(
        containers=BOTH, policies=[policy("side", controlledResources=[])]
    ),
    "controlledValues does not change the recommendation": Case(
        policies=[policy(controlledValues="RequestsOnly")],
        entries={"main": {"target": PLAUSIBLE}},
    ),
    "an annotation rounds CPU up to whole cores": Case(
        containers=BOTH,
        annotations={"vpa-post-processor.kubernetes.io/main_integerCPU": "true"},
        policies=[policy("*", minAllowed={"cpu": "100m"})],
        entries={
            "main": {"target": {"cpu": "1"}, "uncappedTarget": {"cpu": "1"}},
            "side": {},
        },
    ),
    "an annotation for whole cores that is false changes nothing": Case(
        annotations={"vpa-post-processor.kubernetes.io/main_integerCPU": "false"},
        policies=[policy(maxAllowed={"cpu": "300m"})],
        entries={"main": {"target": {"cpu": "300m"}}},
    ),
    "maxAllowed applies after rounding to whole cores": Case(
        annotations={"vpa-post-processor.kubernetes.io/main_integerCPU": "true"},
        policies=[policy(maxAllowed={"cpu": "700m"})],
        entries={"main": {"target": {"cpu": "700m"}, "uncappedTarget": {"cpu": "1"}}},
    ),
    "the pod's minimum is shared among its containers": Case(
        containers={"main": TINY, "side": TINY},
        entries={name: {"target": {"memory": "125Mi"}} for name in ("main", "side")},
    ),
    "a container in mode Off has no share in the pod's minimum": Case(
        containers={"main": TINY, "side": TINY},
        policies=[policy("side", mode="Off", controlledValues="RequestsOnly")],
        entries={"main": {"target": {"cpu": "25m", "memory": "250Mi"}}},
    ),
    "a container without requests gets a recommendation": Case(
        containers={"main": Container(requests={})},
        entries={"main": {"target": PLAUSIBLE}},
    ),
    "a change of the QoS class of BestEffort pods is reported": Case(
        containers={"main": Container(requests={})},
        spec=INITIAL_MODE,
        conditions={**PROVIDED, "DisruptiveUpdates": ("True", "QosClassOrRestart", BEST_EFFORT_WARNING)},
    ),
    "a change of the QoS class of Guaranteed pods is reported": Case(
        containers={"main": GUARANTEED},
        spec=INITIAL_MODE,
        policies=[policy(controlledValues="RequestsOnly")],
        conditions={**PROVIDED, "DisruptiveUpdates": ("True", "QosClassOrRestart", GUARANTEED_WARNING)},
    ),
    "a resize policy that restarts a container is reported": Case(
        containers={"main": Container(restarts=True)},
        gated=True,
        spec=IN_PLACE_MODE,
        conditions={**PROVIDED, "DisruptiveUpdates": ("True", "QosClassOrRestart", RESTART_WARNING)},
    ),
    "limits that follow the requests keep pods Guaranteed, and nothing is reported": Case(
        containers={"main": GUARANTEED}, spec=INITIAL_MODE,
    ),
    "a VPA that only recommends reports no change of the QoS class": Case(
        containers={"main": GUARANTEED}, policies=[policy(controlledValues="RequestsOnly")],
    ),
    "init containers and native sidecars get no recommendation": Case(
        init_containers=[
            {"name": "first", "image": "none"},
            {"name": "proxy", "image": "none", "restartPolicy": "Always"},
        ],
    ),
    "a VPA without pods reports that it recommends nothing": Case(
        replicas=0,
        entries={},
        conditions={
            "NoPodsMatched": ("True", "NoPodsMatched", "No pods match this VPA object"),
            "RecommendationProvided": ("False", "NoPodsMatched", "No pods match this VPA object"),
        },
    ),
    "a VPA without pods keeps its recommendation": Case(
        replicas=0,
        status_before=published_status(),
        entries={"main": same_bounds(PLENTY)},
        conditions={"NoPodsMatched": "True", "RecommendationProvided": "True"},
    ),
    "a missing target is reported, and the recommendation is kept": Case(
        spec={"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "absent"}},
        status_before=published_status(),
        entries={"main": same_bounds(PLENTY)},
        conditions={
            "ConfigUnsupported": ("True", "", TARGET_MISSING),
            "RecommendationProvided": "True",
        },
    ),
    "conditions of others stay, and outdated ones of ours are removed": Case(
        status_before={"conditions": [
            {"type": "TeamPaused", "status": "True", "lastTransitionTime": LONG_AGO, "reason": "Holiday"},
            {"type": "ConfigUnsupported", "status": "True", "lastTransitionTime": LONG_AGO, "message": "was wrong"},
            {"type": "NoPodsMatched", "status": "True", "lastTransitionTime": LONG_AGO, "reason": "NoPodsMatched"},
            {"type": "RecommendationProvided", "status": "True", "lastTransitionTime": LONG_AGO},
        ]},
        conditions={"TeamPaused": ("True", "Holiday", ""), **PROVIDED},
    ),
    "the entry of a container that no longer exists is removed": Case(status_before=published_status("gone")),
    "amounts of other resources are removed": Case(status_before=published_status(**{"nvidia.com/gpu": "1"})),
    "a kept recommendation respects the present policy": Case(
        replicas=0,
        status_before=published_status(),
        policies=[policy(maxAllowed={"cpu": "2"}, controlledResources=["cpu"])],
        resources=frozenset({"cpu"}),
        entries={"main": {"target": {"cpu": "2"}}},
        conditions={"NoPodsMatched": "True", **PROVIDED},
    ),
    "a kill for memory raises the target by the default fifth": Case(
        containers={"main": GROWING}, kill="main", entries={"main": {"target": {"memory": (1.19 * GIB, 2 * GIB)}}}
    ),
    "a kill for memory raises the target by the ratio in the container's policy": Case(
        containers={"main": GROWING}, kill="main", gated=True, policies=[policy(oomBumpUpRatio="3")],
        entries={"main": {"target": {"memory": (2.99 * GIB, 3.8 * GIB)}}},
    ),
    "a kill for memory raises the target by the minimum in the container's policy": Case(
        containers={"main": GROWING}, kill="main", gated=True, policies=[policy("*", oomMinBumpUp="4Gi")],
        entries={"main": {"target": {"memory": (4.99 * GIB, 6.1 * GIB)}}},
    ),
    "a startup boost is ignored, and not taken for a request": Case(
        containers={"main": Container(requests={"cpu": "2", "memory": "2Gi"})},
        pod_annotations={"vpaCpuStartupBoost/main": '{"requests":{"cpu":"1","memory":"2Gi"}}'},
        gated=True,
        spec={"startupBoost": {"cpu": {"type": "Factor", "factor": 3}}},
        entries={"main": {"target": {"cpu": PLAUSIBLE["cpu"]}}},
    ),
}  # fmt: skip
