"""The parts of the recommender that need a right, to be run with and without it."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from recommender.base.records import CPU, ContainerRecommendation
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.errors import Forbidden
from recommender.cluster.lease import LeaderElection
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import read_pod
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.profiles import read_profile
from recommender.cluster.progress.sources import read_log
from recommender.cluster.usage.metrics_api import read_usage
from recommender.cluster.vpas.auto_created import Settings as Making
from recommender.cluster.vpas.auto_created import VpaMaker, WantedVpa
from recommender.cluster.vpas.checkpoints import Checkpoints
from recommender.cluster.vpas.writer import VpaWriter
from recommender.cluster.workloads.kinds import JOB_KINDS
from recommender.cluster.workloads.ownership import Workload, workload_reader
from recommender.cluster.workloads.scales import FAILURES, Scales
from recommender.cluster.workloads.waiting_pods import REQUESTS, Change, resize_waiting
from recommender.live.auto.view import AutoView
from recommender.live.outside.cluster_view import ClusterView
from recommender.live.view.scope import Scope
from tests.fakes.profiles import profile_store
from tests.rig.cluster import Cluster
from tests.rig.recommender import NAME
from tests.rig.rights import Account, Right
from tests.rig.workloads import create_pod, pod_spec, resources

VPA_GROUP, PHASEWISE, LEASES = "autoscaling.k8s.io", "phasewise.dev", ("coordination.k8s.io", "leases")
VPAS, CHECKPOINTS = "verticalpodautoscalers", "verticalpodautoscalercheckpoints"
LONG_AGO_S = 1e9
"""Longer than a checkpoint that is not written is kept."""

Json = dict[str, Any]
Attempt = Callable[[], object]
"""Does what needs the right; raises what the API server answers."""


@dataclass
class Stage:
    """A namespace with a Deployment `app`, which all cases share, and a VPA under the case's own name."""

    cluster: Cluster
    account: Account
    namespace: str
    name: str
    right: Right
    log: pytest.LogCaptureFixture
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self.api = connect(self.account.kubeconfig, user_agent="rights")

    @property
    def refusal(self) -> str:
        """What the API server answers without the right."""
        resource = "deployments/scale" if self.right.resource == "*/scale" else self.right.resource
        return f'cannot {self.right.verb} resource "{resource}"'

    @property
    def key(self) -> ObjectKey:
        """The VPA's key, which is also that of its profile."""
        return ObjectKey(self.namespace, self.name)

    def vpa(self, **metadata: Any) -> Vpa:
        raw = self.cluster.custom.get_namespaced_custom_object(VPA_GROUP, "v1", self.namespace, VPAS, self.name)
        raw["metadata"] |= metadata
        return read_vpa(raw)

    def workload(self) -> Workload:
        raw = client.AppsV1Api(self.cluster.client()).read_namespaced_deployment(
            "app", self.namespace, _preload_content=False
        )
        found = workload_reader("Deployment")(raw.json())
        assert found is not None
        return found


# -- watches -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def run_watches(stage: Stage) -> Iterator[Callable[[], bool]]:
    """Run all watches; the function returns whether the refusal was logged and contact is not yet restored."""
    scope = Scope(namespace=None)
    view = ClusterView(stage.api, scope, lambda _: read_usage(stage.api), observe_only=True)
    auto = AutoView(stage.api, view, scope)
    auto.start()
    view.start()
    optional = stage.right.group in {PHASEWISE, *(group for group, _ in JOB_KINDS)}
    optional = optional or stage.right.resource in ("resourcequotas", "horizontalpodautoscalers")
    blocks_start = stage.right.verb == "list" and not optional

    def refused() -> bool:
        unsynced = not (auto.synced and view.synced)
        return stage.refusal in stage.log.text and unsynced == blocks_start and "in contact again" not in stage.log.text

    try:
        yield refused
    finally:
        auto.stop()
        view.stop()


# -- single requests ---------------------------------------------------------------------------------------------------


def write_outdated_vpa(stage: Stage) -> Attempt:
    """The VPA was written since it was read, so that it is read again."""
    present = stage.vpa(resourceVersion="1")
    return lambda: VpaWriter(stage.api, time.time).publish(present, [recommendation()], {})


def recommendation() -> ContainerRecommendation:
    amount = (0.5, float(1 << 30))
    return ContainerRecommendation("main", amount, amount, amount, amount)


def write_status(stage: Stage) -> Attempt:
    return lambda: VpaWriter(stage.api, time.time).publish(stage.vpa(), [recommendation()], {})


def wanted(stage: Stage, mode: str = "Off") -> WantedVpa:
    return WantedVpa(f"{stage.name}.made", stage.workload(), "phasewise", Making(mode))


def make_vpa(stage: Stage) -> Attempt:
    return lambda: VpaMaker(stage.api).create(wanted(stage))


def change_vpa(stage: Stage) -> Attempt:
    return lambda: VpaMaker(stage.api).change(stage.vpa(), wanted(stage, "Initial"))


def remove_vpa(stage: Stage) -> Attempt:
    present = stage.vpa()
    return lambda: VpaMaker(stage.api).remove(present)


def checkpoints(stage: Stage) -> Checkpoints:
    return Checkpoints(stage.api, time.monotonic)


def list_checkpoints(stage: Stage) -> Attempt:
    return lambda: checkpoints(stage).load([stage.key])


def write_checkpoint(stage: Stage) -> Attempt:
    status = {"version": "v3", "lastUpdateTime": "2026-01-01T00:00:00Z"}

    def write() -> None:
        report = checkpoints(stage).write({stage.key: lambda: {"main": status}}, time.monotonic() + 5.0)
        if report.problems:
            raise Forbidden("; ".join(report.problems))

    return write


def overwrite_checkpoint(stage: Stage) -> Attempt:
    """The checkpoint was created after all were listed."""
    raw = checkpoint(stage)
    stage.cluster.custom.create_namespaced_custom_object(VPA_GROUP, "v1", stage.namespace, CHECKPOINTS, raw)
    return write_checkpoint(stage)


def checkpoint(stage: Stage) -> Json:
    return {
        "apiVersion": f"{VPA_GROUP}/v1",
        "kind": "VerticalPodAutoscalerCheckpoint",
        "metadata": {"name": f"{stage.name}-main", "namespace": stage.namespace},
        "spec": {"vpaObjectName": stage.name, "containerName": "main"},
        "status": {"version": "v3", "lastUpdateTime": "2020-01-01T00:00:00Z"},
    }


def delete_checkpoint(stage: Stage) -> Attempt:
    raw = checkpoint(stage)
    stage.cluster.custom.create_namespaced_custom_object(VPA_GROUP, "v1", stage.namespace, CHECKPOINTS, raw)

    def delete() -> None:
        stage.log.clear()
        ours = {stage.key}
        checkpoints(stage).collect(ours, ours, LONG_AGO_S * 2, lambda _: True)
        if stage.refusal in stage.log.text:
            raise Forbidden(stage.log.text)

    return delete


def write_profile(stage: Stage) -> Attempt:
    return lambda: profile_store(stage.api).write(stage.vpa(), {"phase": "1"})


def take_over_profile(stage: Stage) -> Attempt:
    """An earlier VPA of this name left a profile."""
    metadata = {"name": stage.name, "namespace": stage.namespace}
    raw = {"apiVersion": "phasewise.dev/v1alpha1", "kind": "PhaseProfile", "metadata": metadata, "spec": {}}
    where = (PHASEWISE, "v1alpha1", stage.namespace, "phaseprofiles")
    present = read_profile(stage.cluster.custom.create_namespaced_custom_object(*where, raw))
    return lambda: profile_store(stage.api, present).write(stage.vpa(), {"phase": "1"})


def delete_class_profile(stage: Stage) -> Attempt:
    return lambda: profile_store(stage.api).write_class(ObjectKey(stage.namespace, "seldom"), None)


def read_pod_log(stage: Stage) -> Attempt:
    create_pod(stage.cluster, stage.namespace, "talks", pod_spec({"no": "node"}, resources({"cpu": "1"})))
    return lambda: read_log(stage.api, ObjectKey(stage.namespace, "talks"), "main", None, 5.0)


def resize_waiting_pod(stage: Stage) -> Attempt:
    spec = pod_spec({"no": "node"}, resources({"cpu": "1"}))
    create_pod(stage.cluster, stage.namespace, stage.name, spec)
    pod = read_pod(stage.cluster.core.read_namespaced_pod(stage.name, stage.namespace, _preload_content=False).json())
    return lambda: resize_waiting(stage.api, pod, [Change(0, REQUESTS, CPU, 0.5)])


def look_up_scale(stage: Stage) -> Attempt:
    def look() -> None:
        scales = Scales(stage.api, time.monotonic, random.Random(1))  # noqa: S311  # jitter
        answer = scales.look_up(stage.namespace, "apps/v1", "Deployment", "app")
        if answer.outcome in FAILURES:
            raise Forbidden(answer.error)

    return look


def read_metrics(stage: Stage) -> Attempt:
    return lambda: read_usage(stage.api)


def acquire_lease(stage: Stage) -> Attempt:
    coordination = client.CoordinationV1Api(stage.cluster.client())
    with contextlib.suppress(ApiException):
        coordination.delete_namespaced_lease(NAME, "kube-system")
    if stage.right.verb == "update":
        spec = {"holderIdentity": "", "leaseDurationSeconds": 1}
        coordination.create_namespaced_lease("kube-system", {"metadata": {"name": NAME}, "spec": spec})
    return LeaderElection(stage.api, "kube-system", NAME, "me").try_acquire_or_renew


Act = Callable[[Stage], Attempt]
"""Prepares a case, and returns the attempt that needs the right."""
