"""Where a right is taken away and something is missed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from local_cluster.cluster import Cluster
from local_cluster.rights import Account, Right
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.pods import read
from recommender.cluster.access.connection import Api, connect

Json = dict[str, Any]
Symptom = Callable[[], object]
"""True while something is wrong for want of the right."""


@dataclass
class Stage:
    """Where a case plays."""

    cluster: Cluster
    account: Account
    a_namespace: Callable[[], str]
    nodes: SimulatedNodes
    log: pytest.LogCaptureFixture
    tmp_path: Path
    right: Right
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self.api = connect(self.account.kubeconfig, user_agent="rights")

    @cached_property
    def namespace(self) -> str:
        """Made when something is put into it: most cases need none."""
        return self.a_namespace()

    @property
    def refused(self) -> str:
        """What the API server says, and whoever asked repeats."""
        return f'cannot {self.right.verb} resource "{self.right.resource}" in API group "{self.right.group}"'

    @property
    def said(self) -> bool:
        """Whether the log says what was refused."""
        return self.refused in self.log.text

    def forget_lease(self, name: str) -> None:
        """No Lease of that name; for a right to change one, one that nobody holds."""
        coordination = client.CoordinationV1Api(self.cluster.client())
        with contextlib.suppress(ApiException):
            coordination.delete_namespaced_lease(name, "kube-system")
        if self.right.verb == "update":
            lease = {"metadata": {"name": name}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
            coordination.create_namespaced_lease("kube-system", lease)

    def events(self, pod: str) -> list[str]:
        """The reasons of the events on a pod."""
        selector = f"involvedObject.name={pod}"
        answer = self.cluster.core.list_namespaced_event(
            self.namespace, field_selector=selector, _preload_content=False
        )
        return [event["reason"] for event in json.loads(answer.data)["items"]]

    def gated(self, pod: str) -> bool:
        return bool(read(self.cluster, self.namespace, pod)["spec"].get("schedulingGates"))


Scenario = Callable[[Stage], contextlib.AbstractContextManager[Symptom]]
"""Sets the scene, and says what is missed in it."""
