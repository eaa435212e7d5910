"""Rights of roles in manifests, and accounts from which single rights can be taken."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kubernetes.client import AuthorizationV1Api, RbacAuthorizationV1Api, V1SubjectAccessReview

from tests.rig.control_plane import ALONE
from tests.rig.required import required
from tests.rig.rig import Rig
from tests.rig.waiting import wait_until

Json = dict[str, Any]


class Right(NamedTuple):
    """One verb on one resource; `name` limits it to one object, or is empty."""

    verb: str
    group: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        where = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {where}{' ' + self.name if self.name else ''}"


def roles_in(*files: Path) -> list[Json]:
    found = [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
    return [each for each in found if each["kind"] in ("Role", "ClusterRole")]


def rights_in(roles: Sequence[Json]) -> list[Right]:
    return [
        Right(verb, group, resource, name)
        for role in roles
        for rule in role["rules"]
        for group, resource, name, verb in product(
            rule["apiGroups"], rule["resources"], rule.get("resourceNames") or [""], rule["verbs"]
        )
    ]


class Account:
    """A service account with exactly the rights of some roles.

    Its name is that of the manifest with the suffix `control_plane.ALONE`; its requests are audited.
    """

    def __init__(self, rig: Rig, name: str, roles: Sequence[Json]) -> None:
        self._rig = rig
        self._name = f"{name}{ALONE}"
        self._roles = [copy.deepcopy(role) for role in roles]
        self._names = {role["metadata"]["name"] for role in roles}
        for role in self._roles:
            role["metadata"]["name"] += ALONE
        rig.apply(*self._roles, *(self._binding(role) for role in self._roles))
        self.kubeconfig = rig.service_account("kube-system", self._name)
        self.user = f"system:serviceaccount:kube-system:{self._name}"

    def _binding(self, role: Json) -> Json:
        kind, name = role["kind"], role["metadata"]["name"]
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": f"{kind}Binding",
            "metadata": {key: role["metadata"][key] for key in ("name", "namespace") if key in role["metadata"]},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": self._name, "namespace": "kube-system"}],
        }

    def bind(self, bindings: Iterable[Mapping[str, Any]]) -> None:
        """Bind it to the built-in roles of these bindings."""
        for given in bindings:
            if given["kind"].endswith("Binding") and given["roleRef"]["name"] not in self._names:
                binding = copy.deepcopy(dict(given))
                binding["metadata"]["name"] += ALONE
                binding["subjects"] = [{"kind": "ServiceAccount", "name": self._name, "namespace": "kube-system"}]
                self._rig.apply(binding)

    @contextlib.contextmanager
    def without(self, right: Right) -> Iterator[None]:
        """Take one right away during the block; returns and ends once the API server has noticed."""
        roles = [role for role in self._roles if right in rights_in([role])]
        for role in roles:
            left = [
                {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
                | ({"resourceNames": [each.name]} if each.name else {})
                for each in rights_in([role])
                if each != right
            ]
            self._put({**role, "rules": left})
        self._wait(right, allowed=False)
        try:
            yield
        finally:
            for role in roles:
                self._put(role)
            self._wait(right, allowed=True)

    def _put(self, role: Json) -> None:
        rbac, metadata = RbacAuthorizationV1Api(self._rig.client()), role["metadata"]
        if role["kind"] == "ClusterRole":
            rbac.patch_cluster_role(metadata["name"], {"rules": role["rules"]})
        else:
            rbac.patch_namespaced_role(metadata["name"], metadata["namespace"], {"rules": role["rules"]})

    def _wait(self, right: Right, *, allowed: bool) -> None:
        resource, _, part = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
        attributes |= {"name": right.name, "namespace": "kube-system"}
        spec = {"user": self.user, "groups": ["system:authenticated"], "resourceAttributes": attributes}
        review = V1SubjectAccessReview.model_validate({"spec": spec})

        def applied() -> bool:
            answer = AuthorizationV1Api(self._rig.client()).create_subject_access_review(review)
            return required(answer.status).allowed == allowed

        wait_until(applied, f"the API server to apply {right}", timeout_s=10, every_s=0.02)
