"""What fails in the extender without one of its rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from prometheus_client import generate_latest

from extender.settings import Settings
from extender.web.service import LEASE, Service
from tests.extender.asgi import Client
from tests.extender.missing.stage import Json, Stage, Symptom
from tests.rig.simulated.pods import create, read, template
from tests.rig.waiting import wait_until


@contextlib.contextmanager
def service(stage: Stage, lease_namespace: str = "") -> Iterator[Service]:
    running = Service(stage.api, Settings(), lease_namespace=lease_namespace)
    parts = [part for part in running.app.parts if part is not None]
    for part in parts:
        part.start()
    try:
        yield running
    finally:
        for part in parts:
            part.stop()


def metric(service: Service, name: str) -> float:
    page = generate_latest(service.telemetry.registry).decode().splitlines()
    return next(float(line.split()[-1]) for line in page if line.startswith(f"phasewise_extender_{name} "))


@contextlib.contextmanager
def not_ready(stage: Stage) -> Iterator[Symptom]:
    """It never answers a call, and /readyz says which list it waits for."""
    with service(stage) as running:
        yield lambda: stage.refused in running.not_ready()


@contextlib.contextmanager
def not_watched(stage: Stage) -> Iterator[Symptom]:
    """A metric counts a watch without contact, and the log says which."""
    with service(stage) as running:
        yield lambda: not running.not_ready() and metric(running, "watches_failing") == 1 and stage.logged


@contextlib.contextmanager
def not_measured(stage: Stage) -> Iterator[Symptom]:
    """The use of pods without requests is guessed; the metric and the log say that it is not measured."""
    pod = template({}, schedulerName="nobody", nodeName=next(iter(stage.nodes.names)))
    pod["spec"]["containers"][0].pop("resources", None)
    create(stage.cluster, stage.namespace, "silent", pod)
    with service(stage) as running:
        yield lambda: not running.not_ready() and metric(running, "watches_failing") == 1 and stage.logged


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
    status = {"status": {"containers": [{"name": "main", "demand": demand}]}}
    profile_path = ("phasewise.dev", "v1alpha1", stage.namespace, "phaseprofiles", "class.known")
    stage.cluster.custom.patch_namespaced_custom_object_status(*profile_path, status)
    with service(stage) as running:

        def judged_by_requests() -> bool:
            answer = decision_on(running, stage, "probe", labels={"phasewise.dev/workload": "known"})
            assert answer["nodes"]
            return bool(answer["demandFrom"] == "requests" and metric(running, "watches_failing") == 1 and stage.logged)

        yield judged_by_requests


def decision_on(running: Service, stage: Stage, name: str, **metadata: Any) -> Json:
    """The decision on a pod after calls as a scheduler makes them; raises until the service is ready."""
    pod = template(stage.nodes.selector, schedulerName="phasewise")
    pod["metadata"] |= {"name": name, "namespace": stage.namespace, "uid": f"uid-{name}", **metadata}
    client = Client(running.app)
    for verb in ("filter", "prioritize"):
        answer = client.post(f"/{verb}", json={"Pod": pod, "NodeNames": list(stage.nodes.names)})
        assert answer.status_code == 200, answer.text
    decision: Json = client.get(f"/explain/{stage.namespace}/{name}").get_json()
    return decision


@contextlib.contextmanager
def no_explanation(stage: Stage) -> Iterator[Symptom]:
    """A pod whose annotation requests an event gets none, and a metric counts it."""
    annotations = {"phasewise.dev/explain": "event"}
    with service(stage) as running:
        wait_until(lambda: not running.not_ready(), "the extender to be ready")
        number = 0

        def lost() -> bool:
            nonlocal number
            number += 1
            name = f"asks-{number}"
            before = metric(running, "events_lost")
            create(stage.cluster, stage.namespace, name, template({}, annotations=annotations, schedulerName="nobody"))
            uid = read(stage.cluster, stage.namespace, name)["metadata"]["uid"]
            node = decision_on(running, stage, name, uid=uid, annotations=annotations)["advised"]
            binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
            stage.cluster.core.create_namespaced_binding(stage.namespace, binding, _preload_content=False)
            outcome = wait_until(
                lambda: [*(["lost"] if metric(running, "events_lost") > before else ()), *stage.events(name)],
                "an event, or that there is none",
            )
            return "lost" in outcome and "PlacementExplained" not in outcome and stage.logged

        yield lost


@contextlib.contextmanager
def never_leads(stage: Stage) -> Iterator[Symptom]:
    """A replica with leader election is never ready, and says why."""
    stage.reset_lease(LEASE)
    with service(stage, "kube-system") as running:
        yield lambda: stage.refused in running.not_ready()
