"""What is missed of the extender when it may not do something."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from extender.web.service import LEASE, Service, ServiceOptions
from local_cluster.simulated.pods import create, read, template
from local_cluster.waiting import wait_until
from tests.extender.asgi import Client
from tests.extender.missing.stage import Json, Stage, Symptom


@contextlib.contextmanager
def service(stage: Stage, lease_namespace: str = "") -> Iterator[Service]:
    made = Service(stage.api, ServiceOptions(lease_namespace=lease_namespace)).start()
    try:
        yield made
    finally:
        made.stop()


def metric(service: Service, name: str) -> float:
    page = service.telemetry.page().decode().splitlines()
    return next(float(line.split()[-1]) for line in page if line.startswith(f"phasewise_extender_{name} "))


@contextlib.contextmanager
def not_ready(stage: Stage) -> Iterator[Symptom]:
    """It never answers a call, and /readyz says which list it waits for."""
    with service(stage) as running:
        yield lambda: stage.refused in running.not_ready()


@contextlib.contextmanager
def not_followed(stage: Stage) -> Iterator[Symptom]:
    """A metric says that a watch has no contact, and the log which."""
    with service(stage) as running:
        yield lambda: not running.not_ready() and metric(running, "watches_failing") == 1 and stage.said


@contextlib.contextmanager
def not_measured(stage: Stage) -> Iterator[Symptom]:
    """Pods that ask for nothing are guessed; the metric and the log say that what they use is not known."""
    made = template({}, schedulerName="nobody", nodeName=next(iter(stage.nodes.names)))
    made["spec"]["containers"][0].pop("resources", None)
    create(stage.cluster, stage.namespace, "silent", made)
    with service(stage) as running:
        yield lambda: not running.not_ready() and metric(running, "watches_failing") == 1 and stage.said


@contextlib.contextmanager
def history_not_known(stage: Stage) -> Iterator[Symptom]:
    """Pods are judged by their requests, though there is a profile of their class; the metric and the log say why."""
    demand = {"stepSeconds": 150, "runs": 3, "cpuCores": [1.0], "memoryBytes": [2.0**30]}
    profile = {
        "apiVersion": "phasewise.dev/v1alpha1",
        "kind": "PhaseProfile",
        "metadata": {"name": "class.known", "namespace": stage.namespace},
        "spec": {"class": True},
    }
    stage.cluster.apply(profile)
    told = {"status": {"containers": [{"name": "main", "demand": demand}]}}
    where = ("phasewise.dev", "v1alpha1", stage.namespace, "phaseprofiles", "class.known")
    stage.cluster.custom.patch_namespaced_custom_object_status(*where, told)
    with service(stage) as running:

        def judged_by_requests() -> bool:
            pod = asked_about(running, stage, "probe", labels={"phasewise.dev/workload": "known"})
            assert pod["nodes"]
            return bool(pod["demandFrom"] == "requests" and metric(running, "watches_failing") == 1 and stage.said)

        yield judged_by_requests


def asked_about(running: Service, stage: Stage, name: str, **metadata: Any) -> Json:
    """Ask as a scheduler does about a pod, and what is told of it; raises until the service is ready."""
    pod = template(stage.nodes.selector, schedulerName="phasewise")
    pod["metadata"] |= {"name": name, "namespace": stage.namespace, "uid": f"uid-{name}", **metadata}
    call = Client(running.app)
    for verb in ("filter", "prioritize"):
        answer = call.post(f"/{verb}", json={"Pod": pod, "NodeNames": list(stage.nodes.names)})
        assert answer.status_code == 200, answer.text
    told: Json = call.get(f"/explain/{stage.namespace}/{name}").get_json()
    return told


@contextlib.contextmanager
def no_explanation(stage: Stage) -> Iterator[Symptom]:
    """A pod that wants an event gets none, and a metric counts it."""
    wish = {"phasewise.dev/explain": "event"}
    with service(stage) as running:
        wait_until(lambda: not running.not_ready(), "the extender to be ready")
        number = 0

        def lost() -> bool:
            nonlocal number
            number += 1
            name = f"asks-{number}"
            before = metric(running, "events_lost")
            create(stage.cluster, stage.namespace, name, template({}, annotations=wish, schedulerName="nobody"))
            uid = read(stage.cluster, stage.namespace, name)["metadata"]["uid"]
            node = asked_about(running, stage, name, uid=uid, annotations=wish)["advised"]
            binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
            stage.cluster.core.create_namespaced_binding(stage.namespace, binding, _preload_content=False)
            outcome = wait_until(
                lambda: [*(["lost"] if metric(running, "events_lost") > before else ()), *stage.events(name)],
                "an event, or that there is none",
            )
            return "lost" in outcome and "PlacementExplained" not in outcome and stage.said

        yield lost


@contextlib.contextmanager
def never_leads(stage: Stage) -> Iterator[Symptom]:
    """A replica that shall elect a leader with others is never ready, and says why."""
    stage.forget_lease(LEASE)
    with service(stage, "kube-system") as running:
        yield lambda: stage.refused in running.not_ready()
