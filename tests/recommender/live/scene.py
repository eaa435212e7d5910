"""A namespace of workloads and VPAs with the recommender running: shared by the tests of behaviours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recommender.cluster.objects.quantities import parse_quantity
from tests.recommender.live.behaviours import Case
from tests.rig.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS
from tests.rig.cluster import Cluster
from tests.rig.processes import Server
from tests.rig.recommender import start_recommender
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace

Json = dict[str, Any]
APPEARS_WITHIN_S = 90.0
"""metrics-server reports a pod some twenty seconds after its start; the rest is for a busy machine."""
KILLED_AFTER_S = 6.0
"""Before metrics-server, which polls every ten seconds, can report the usage."""


@dataclass
class Scene:
    """A namespace, and the recommender.

    Attributes
    ----------
    selector
        Selects the simulated nodes.
    """

    cluster: Cluster
    namespace: str
    selector: Mapping[str, str]
    account: Path
    server: Server | None = None

    def start(self, *options: str) -> None:
        self.server = start_recommender(self.cluster, self.account, *options)

    def stop(self) -> None:
        """Kill the recommender, so that it publishes no safe values, and clear the namespace."""
        if self.server is not None:
            self.server.kill()
        clear_namespace(self.cluster, self.namespace)

    # -- workloads -------------------------------------------------------------------------------------------------

    def template(self, name: str, case: Case, **annotations: str) -> Json:
        """The pod template of a case; its containers have the usage of the case as soon as they run.

        A container that is to be killed uses that much only some seconds after each start: a kill every second would
        make half of all events here.
        """
        pod_annotations = {**annotations, **case.pod_annotations}
        for container, details in case.containers.items():
            pod_annotations[f"phasewise.dev/cpu.{container}"] = f"{round(details.usage[0] * 1e6)}u"
            if container == case.kill:
                series = {"step_s": KILLED_AFTER_S, "bytes": [0, round(details.usage[1])]}
                pod_annotations[f"phasewise.dev/memory-series.{container}"] = json.dumps(series)
            else:
                pod_annotations[f"phasewise.dev/memory.{container}"] = str(round(details.usage[1]))
        spec: Json = {
            "nodeSelector": dict(self.selector),
            "terminationGracePeriodSeconds": 1,
            "containers": [details.spec(container) for container, details in case.containers.items()],
        }
        if case.init_containers:
            spec["initContainers"] = list(case.init_containers)
        return {"metadata": {"labels": {"app": name}, "annotations": pod_annotations}, "spec": spec}

    def deployment(self, name: str, case: Case) -> Json:
        return self.controller("apps/v1", "Deployment", name, case, replicas=case.replicas)

    def controller(self, api_version: str, kind: str, name: str, case: Case, **spec: Any) -> Json:
        """The JSON of a controller that selects a case's pods by `app: <name>`."""
        labels = {"app": name}
        selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
        content = {"selector": selector, "template": self.template(name, case), **spec}
        return {
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace}, "spec": content,
        }  # fmt: skip

    # -- VPAs ------------------------------------------------------------------------------------------------------

    def create_vpa(self, body: Json, before: Json | None = None) -> None:
        self.cluster.custom.create_namespaced_custom_object(API_GROUP, API_VERSION, self.namespace, AUTOSCALERS, body)
        if before:
            self.patch_vpa(body["metadata"]["name"], {"status": before}, status=True)

    def vpa_of(self, kind: str, name: str, api_version: str = "apps/v1", **spec: Any) -> Json:
        """A VPA for a controller that is no Deployment, under the controller's name."""
        target = {"apiVersion": api_version, "kind": kind, "name": name}
        return Case(spec={"targetRef": target, **spec}).vpa(name)

    def vpa(self, name: str) -> Json:
        found: Json = self.cluster.custom.get_namespaced_custom_object(
            API_GROUP, API_VERSION, self.namespace, AUTOSCALERS, name
        )
        return found

    def patch_vpa(self, name: str, patch: Json, *, status: bool = False) -> None:
        custom = self.cluster.custom
        patched = custom.patch_namespaced_custom_object_status if status else custom.patch_namespaced_custom_object
        patched(API_GROUP, API_VERSION, self.namespace, AUTOSCALERS, name, patch)

    # -- results ---------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], object], what: str) -> Any:
        return wait_until(condition, what, timeout_s=APPEARS_WITHIN_S, every_s=0.25)

    def conditions(self, name: str) -> dict[str, Json]:
        return {found["type"]: found for found in self.vpa(name)["status"]["conditions"]}

    def target(self, name: str, container: str = "main", bound: str = "target") -> dict[str, float]:
        """Cores and bytes; empty while there is no recommendation."""
        return target_in(self.vpa(name).get("status", {}), container, bound)

    def provided(self, name: str) -> bool:
        """Whether it has a recommendation, and a supported configuration."""
        conditions = self.conditions(name)
        assert "ConfigUnsupported" not in conditions, conditions
        return conditions["RecommendationProvided"]["status"] == "True" and bool(self.target(name))

    def wait_for_a_full_round(self) -> None:
        """Wait until two changes of a VPA's spec have been answered: everything before them has been handled."""
        name = "clockwork"
        for replicas in (int(time.time()) % 1000 + 2, 1):
            self.patch_vpa(name, {"spec": {"updatePolicy": {"updateMode": "Off", "minReplicas": replicas}}})
            generation = self.vpa(name)["metadata"]["generation"]
            self.wait(
                lambda generation=generation: self.vpa(name)["status"]["observedGeneration"] == generation,
                "a round of the recommender",
            )


def target_in(status: Json, container: str = "main", bound: str = "target") -> dict[str, float]:
    """What the status of a VPA recommends, in cores and bytes; empty without a recommendation."""
    entries = status.get("recommendation", {}).get("containerRecommendations", [])
    found = next((entry[bound] for entry in entries if entry["containerName"] == container), {})
    return {resource: parse_quantity(amount) for resource, amount in found.items()}
