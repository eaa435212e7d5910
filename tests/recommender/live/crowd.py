"""Fills a scene with workloads of all kinds and their VPAs."""

from __future__ import annotations

from dataclasses import replace

from tests.recommender.cluster.custom_kinds import definition
from tests.recommender.live.behaviours import CASES, INITIAL_MODE, Case, Container, policy
from tests.recommender.live.scene import Json, Scene

GROUP = "targets.test"
CUSTOM = {
    "Gang": (f"{GROUP}/v1", "gangs", True),
    "Lump": (f"{GROUP}/v1", "lumps", False),
    "PyTorchJob": ("kubeflow.org/v1", "pytorchjobs", False),
    "TFJob": ("kubeflow.org/v1", "tfjobs", False),
    "MPIJob": ("kubeflow.org/v1", "mpijobs", False),
    "JobSet": ("jobset.x-k8s.io/v1", "jobsets", False),
}
"""Custom kinds: API version, plural, and whether they have a scale subresource."""

JOB_LABELS = {
    "PyTorchJob": "training.kubeflow.org/job-name",
    "TFJob": "training.kubeflow.org/job-name",
    "MPIJob": "training.kubeflow.org/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
}
CORE = {
    "StatefulSet": ("apps/v1", {"replicas": 1, "serviceName": "none"}),
    "DaemonSet": ("apps/v1", {}),
    "ReplicaSet": ("apps/v1", {"replicas": 1}),
    "ReplicationController": ("v1", {"replicas": 1}),
}
KINDS = [*CORE, "Job", "CronJob", *CUSTOM]
NAMES = {name: f"case-{number}" for number, name in enumerate(CASES)}
WARNED = Case({"main": Container(requests={})}, spec=INITIAL_MODE)
"""Its VPA has a condition of ours while it is ours."""

STEADY = {"clockwork": Case(), "moved": WARNED}
"""Deployments for changes over time."""

HALF = {"cpu": "500m", "memory": "3Gi"}
FIXED = {"minAllowed": HALF, "maxAllowed": HALF}
"""Fixes the target, whatever is forecast."""

LIMITED = Case({"main": Container(limits={"cpu": "2", "memory": "4Gi"})})
RESIZED = {
    "requests-only": ({"controlledValues": "RequestsOnly"}, {"cpu": "2", "memory": "4Gi"}),
    "with-limits": ({"controlledValues": "RequestsAndLimits"}, {"cpu": "1", "memory": "6Gi"}),
}
"""Workloads that the updater resizes to `HALF`: their policy, and the limits that result."""


def applied_by_updater(case: Case) -> Case:
    """The case with a VPA that the updater applies."""
    return replace(case, spec={**case.spec, "updatePolicy": {"updateMode": "InPlaceOrRecreate", "minReplicas": 1}})


def make_workloads(scene: Scene) -> None:
    """Create the Deployments of all cases, of changes over time, and for the updater."""
    cases = {NAMES[name]: case for name, case in CASES.items()}
    resized = dict.fromkeys(RESIZED, LIMITED)
    scene.cluster.apply(*(scene.deployment(name, case) for name, case in (cases | STEADY | resized).items()))


def make_vpas(scene: Scene) -> None:
    """Create the VPAs of those Deployments."""
    for name, case in CASES.items():
        if not case.gated:
            scene.create_vpa(case.vpa(NAMES[name]), case.status_before)
    for name, case in STEADY.items():
        scene.create_vpa(case.vpa(name))
    for name, (values, _) in RESIZED.items():
        scene.create_vpa(applied_by_updater(Case(policies=[policy(**FIXED, **values)])).vpa(name))
    with scene.cluster.without("vpa-admission-controller"):  # it refuses what its feature gates do not allow
        for name, case in CASES.items():
            if case.gated:
                scene.create_vpa(case.vpa(NAMES[name]), case.status_before)


def make_custom_kinds(scene: Scene) -> None:
    scene.cluster.apply(
        *(definition(version, kind, scalable=scalable) for kind, (version, _, scalable) in CUSTOM.items())
    )
    for version, plural, _ in CUSTOM.values():
        group = version.split("/")[0]
        scene.wait(
            lambda group=group, plural=plural: scene.cluster.custom.list_cluster_custom_object(group, "v1", plural),
            f"{plural} to be served",
        )


def make_kinds(scene: Scene) -> None:
    """Create a workload of each kind with one pod (a DaemonSet: one on each node), and its VPA."""
    objects = [scene.controller(version, kind, kind.lower(), Case(), **spec) for kind, (version, spec) in CORE.items()]
    pods = scene.template("job", Case())
    pods["spec"]["restartPolicy"] = "Never"
    job: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": scene.namespace}}
    nightly: Json = {**job, "kind": "CronJob", "metadata": {**job["metadata"], "name": "cronjob"}}
    at_night = {**pods, "metadata": {**pods["metadata"], "labels": {"app": "cronjob"}}}
    objects += [
        {**job, "spec": {"template": pods}},
        {**nightly, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": at_night}}}},
    ]
    scene.cluster.apply(*objects)
    scene.cluster.kubectl("-n", scene.namespace, "create", "job", "cronjob-1", "--from=cronjob/cronjob")
    for kind, (version, _) in CORE.items():
        scene.create_vpa(scene.vpa_of(kind, kind.lower(), version))
    for kind in ("Job", "CronJob"):
        scene.create_vpa(scene.vpa_of(kind, kind.lower(), "batch/v1"))
    for kind in CUSTOM:
        make_custom(scene, kind)


def make_custom(scene: Scene, kind: str) -> None:
    """Create an object of a custom kind, a pod as its controller would create it, and its VPA."""
    version, plural, scalable = CUSTOM[kind]
    group, name = version.split("/")[0], kind.lower()
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {"replicas": 1}}
    made = scene.cluster.custom.create_namespaced_custom_object(group, "v1", scene.namespace, plural, body)
    if scalable:
        status = {"status": {"selector": f"app={name}", "replicas": 1}}
        scene.cluster.custom.patch_namespaced_custom_object_status(group, "v1", scene.namespace, plural, name, status)
    pod = scene.template(name, Case())
    pod["metadata"]["name"] = f"{name}-0"
    if kind in JOB_LABELS:
        pod["metadata"]["labels"] = {JOB_LABELS[kind]: name}
    elif not scalable:
        owner = {"apiVersion": version, "kind": kind, "name": name, "uid": made["metadata"]["uid"], "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    scene.cluster.core.create_namespaced_pod(scene.namespace, pod)
    scene.create_vpa(scene.vpa_of(kind, name, version))


def make_vpas_of_others(scene: Scene, ignored: str) -> None:
    """Create VPAs that are not ours: of the default recommender, of another one, in an ignored namespace."""
    default_vpa = Case().vpa("of-the-default-one")
    del default_vpa["spec"]["recommenders"]
    scene.create_vpa(default_vpa)
    scene.create_vpa(Case(spec={"recommenders": [{"name": "another"}]}).vpa("of-another"))
    scene.cluster.apply(Case().vpa("in-an-ignored-namespace") | {"metadata": {"name": "ours", "namespace": ignored}})
