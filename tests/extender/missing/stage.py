"""What a case without one right needs: cluster, account, nodes and log."""

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

from recommender.cluster.access.connection import Api, connect
from tests.rig.cluster import Cluster
from tests.rig.rights import Account, Right
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.pods import read

Json = dict[str, Any]
Symptom = Callable[[], object]
"""True while something fails for lack of the right."""


@dataclass
class Stage:
    """The surroundings of one case."""

    cluster: Cluster
    account: Account
    make_namespace: Callable[[], str]
    nodes: SimulatedNodes
    log: pytest.LogCaptureFixture
    tmp_path: Path
    right: Right
    api: Api = field(init=False)

    def __post_init__(self) -> None:
        self.api = connect(self.account.kubeconfig, user_agent="rights")

    @cached_property
    def namespace(self) -> str:
        """Created on first use, as most cases need none."""
        return self.make_namespace()

    @property
    def refused(self) -> str:
        """The message of the API server, which programs repeat."""
        return f'cannot {self.right.verb} resource "{self.right.resource}" in API group "{self.right.group}"'

    @property
    def logged(self) -> bool:
        """Whether the refusal is in the log."""
        return self.refused in self.log.text

    def reset_lease(self, name: str) -> None:
        """Delete a Lease; if the right is to update it, create one without a holder."""
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
"""Sets up a case, and yields what fails in it."""
