"""A namespace full of workloads and VPAs, with the recommender at work on them: what the tests of behaviours share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS
from local_cluster.clearing import clear_namespace
from local_cluster.cluster import Cluster
from local_cluster.processes import Server
from local_cluster.recommender import start_recommender
from local_cluster.waiting import wait_until
from recommender.cluster.objects.quantities import parse_quantity
from tests.recommender.live.behaviours import Case

Json = dict[str, Any]
APPEARS_WITHIN_S = 90.0
"""metrics-server tells of a pod some twenty seconds after its start; the rest is for a busy machine."""
KILLED_AFTER_S = 6.0
"""Before metrics-server, which looks each ten seconds, could tell what it used."""


@dataclass
class Scene:
    """One namespace.

    Attributes
    ----------
    selector
        Chooses the simulated nodes.
    """

    cluster: Cluster
    namespace: str
    selector: Mapping[str, str]
    account: Path
    server: Server | None = None

    def start(self, *options: str) -> None:
        """Start the recommender."""
        self.server = start_recommender(self.cluster, self.account, *options)

    def stop(self) -> None:
        """End the recommender at once, before it leaves safe values to all, and whatever acts in the namespace."""
        if self.server is not None:
            self.server.kill()
        clear_namespace(self.cluster, self.namespace)

    # -- workloads -------------------------------------------------------------------------------------------------

    def template(self, name: str, case: Case, **annotations: str) -> Json:
        """A pod template of a case's containers, which use what the case says as soon as they run.

        One that is to be killed uses as much only after a while, and so whenever it was started again: that it were
        killed each second would be half of all that happens here.
        """
        uses = {**annotations, **case.notes}
        for container, made in case.containers.items():
            uses[f"phasewise.dev/cpu.{container}"] = f"{round(made.uses[0] * 1e6)}u"
            if container == case.kill:
                series = {"step_s": KILLED_AFTER_S, "bytes": [0, round(made.uses[1])]}
                uses[f"phasewise.dev/memory-series.{container}"] = json.dumps(series)
            else:
                uses[f"phasewise.dev/memory.{container}"] = str(round(made.uses[1]))
        spec: Json = {
            "nodeSelector": dict(self.selector),
            "terminationGracePeriodSeconds": 1,
            "containers": [made.spec(container) for container, made in case.containers.items()],
        }
        if case.init:
            spec["initContainers"] = list(case.init)
        return {"metadata": {"labels": {"app": name}, "annotations": uses}, "spec": spec}

    def deployment(self, name: str, case: Case) -> Json:
        return self.controller("apps/v1", "Deployment", name, case, replicas=case.replicas)

    def controller(self, api_version: str, kind: str, name: str, case: Case, **spec: Any) -> Json:
        """The JSON of a controller of a case's pods, which it selects by `app: <name>`."""
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
        """A VPA of another controller than a Deployment, under its name."""
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

    def delete_vpa(self, name: str) -> None:
        self.cluster.custom.delete_namespaced_custom_object(API_GROUP, API_VERSION, self.namespace, AUTOSCALERS, name)

    # -- what comes of it ------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], object], what: str) -> Any:
        return wait_until(condition, what, timeout_s=APPEARS_WITHIN_S, every_s=0.25)

    def conditions(self, name: str) -> dict[str, Json]:
        return {found["type"]: found for found in self.vpa(name)["status"]["conditions"]}

    def target(self, name: str, container: str = "main", bound: str = "target") -> dict[str, float]:
        """Cores and bytes; empty while nothing is recommended."""
        return target_in(self.vpa(name).get("status", {}), container, bound)

    def provided(self, name: str) -> bool:
        """Whether it has a recommendation, and nothing is wrong with it."""
        told = self.conditions(name)
        assert "ConfigUnsupported" not in told, told
        return told["RecommendationProvided"]["status"] == "True" and bool(self.target(name))

    def a_whole_round_passes(self) -> None:
        """Wait until a change of a VPA's spec was seen and answered twice: what was there before is dealt with."""
        name = "clockwork"
        for replicas in (int(time.time()) % 1000 + 2, 1):
            self.patch_vpa(name, {"spec": {"updatePolicy": {"updateMode": "Off", "minReplicas": replicas}}})
            generation = self.vpa(name)["metadata"]["generation"]
            self.wait(
                lambda generation=generation: self.vpa(name)["status"]["observedGeneration"] == generation,
                "a round of the recommender",
            )


def target_in(status: Json, container: str = "main", bound: str = "target") -> dict[str, float]:
    """What the status of a VPA recommends, in cores and bytes; empty where it recommends nothing."""
    entries = status.get("recommendation", {}).get("containerRecommendations", [])
    found = next((entry[bound] for entry in entries if entry["containerName"] == container), {})
    return {resource: parse_quantity(amount) for resource, amount in found.items()}
