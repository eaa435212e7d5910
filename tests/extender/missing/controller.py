"""What fails in the gang controller without one of its rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from extender.cli.controller import LEASE
from extender.gangs.controller import Controller, ControllerOptions
from extender.gangs.member import GATE
from recommender.cluster.lease import LeaderElection
from tests.extender.missing.stage import Json, Stage, Symptom
from tests.rig.simulated.pods import create, template
from tests.rig.waiting import wait_until

KUBEFLOW = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
QUICK = ControllerOptions(period_s=0.3, repeat_event_s=0.5, size_ttl_s=0.5, no_size_ttl_s=0.5)


@contextlib.contextmanager
def controller(stage: Stage) -> Iterator[Controller]:
    running = Controller(stage.api, lambda: True, QUICK)
    running.watches.start()
    running.loop.start()
    try:
        yield running
    finally:
        running.loop.stop()
        running.watches.stop()


def waiting_pod(
    stage: Stage, name: str, cpu: str = "1", owner: Json | None = None, labels: Mapping[str, str] | None = None
) -> str:
    """A gated pod that no scheduler will place."""
    pod = template(
        stage.nodes.selector,
        requests={"cpu": cpu},
        labels=labels,
        schedulingGates=[{"name": GATE}],
        schedulerName="nobody",
    )
    if owner is not None:
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    return create(stage.cluster, stage.namespace, name, pod)


@contextlib.contextmanager
def acts_on_nothing(stage: Stage) -> Iterator[Symptom]:
    """It never acts, and /readyz fails."""
    with controller(stage) as running:
        waiting_pod(stage, "waits")
        yield lambda: stage.refused in running.not_ready() or (running.not_ready() and stage.gated("waits"))


@contextlib.contextmanager
def sees_no_change(stage: Stage) -> Iterator[Symptom]:
    """A metric counts a watch without contact, and the log says which."""
    with controller(stage) as running:
        yield lambda: not running.not_ready() and running.watches.failing == 1 and stage.logged


@contextlib.contextmanager
def opens_no_gate(stage: Stage) -> Iterator[Symptom]:
    """A gang that fits stays gated, and the log says why."""
    with controller(stage):
        waiting_pod(stage, "fits")
        yield lambda: stage.logged and stage.gated("fits")


@contextlib.contextmanager
def reserves_nothing(stage: Stage) -> Iterator[Symptom]:
    """No gang is admitted, and /readyz fails."""
    with controller(stage) as running:
        waiting_pod(stage, "waits")
        yield lambda: stage.refused in running.not_ready() or (running.not_ready() and stage.gated("waits"))


@contextlib.contextmanager
def writes_no_event(stage: Stage) -> Iterator[Symptom]:
    """A gang that never fits gets no event."""
    with controller(stage):
        waiting_pod(stage, "huge", cpu="1000")
        yield lambda: stage.logged and not stage.events("huge")


@contextlib.contextmanager
def size_not_known(stage: Stage) -> Iterator[Symptom]:
    """A gang whose size is known only from its job is not admitted, and its pod says so."""
    with controller(stage):
        name = member_of_job(stage) if stage.right.group == "batch" else member_of_other_job(stage)
        yield lambda: "GangInvalid" in stage.events(name) and stage.gated(name)


def member_of_job(stage: Stage) -> str:
    """The pod of a Job of one, as Kubernetes creates it."""
    pod = template(
        stage.nodes.selector, schedulingGates=[{"name": GATE}], schedulerName="nobody", restartPolicy="Never"
    )
    metadata = {"name": "one", "namespace": stage.namespace}
    stage.cluster.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}})
    pods = wait_until(lambda: stage.cluster.core.list_namespaced_pod(stage.namespace).items, "the job's pod")
    return str(pods[0].metadata.name)


def member_of_other_job(stage: Stage) -> str:
    """A pod of a JobSet or a Kubeflow job of one."""
    resource, group = stage.right.resource, stage.right.group
    if resource == "jobsets":
        version, kind, label = "v1alpha2", "JobSet", "jobset.sigs.k8s.io/jobset-name"
        spec: Json = {"replicatedJobs": [{"name": "main", "template": {"spec": {"parallelism": 1}}}]}
    else:
        version, label = "v1", "training.kubeflow.org/job-name"
        kind = next(kind for kind in KUBEFLOW if f"{kind.lower()}s" == resource)
        spec = {f"{kind[:-3].lower()}ReplicaSpecs": {"Worker": {"replicas": 1}}}
    metadata = {"name": "one", "namespace": stage.namespace}
    job = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": metadata, "spec": spec}
    created = stage.cluster.custom.create_namespaced_custom_object(group, version, stage.namespace, resource, job)
    owner = {"apiVersion": job["apiVersion"], "kind": kind, "name": "one", "uid": created["metadata"]["uid"]}
    return waiting_pod(stage, "member", owner=owner, labels={label: "one"})


@contextlib.contextmanager
def never_acts(stage: Stage) -> Iterator[Symptom]:
    """A replica with leader election never leads."""
    stage.reset_lease(LEASE)
    election = LeaderElection(stage.api, "kube-system", LEASE, "me").start()
    yield lambda: stage.refused in election.problem and not election.is_leader
    election.stop()
