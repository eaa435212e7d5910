"""Custom kinds for a real API server, as their projects' definitions serve them: anything in spec and status."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tests.cluster.cluster import Cluster

Json = dict[str, Any]


def definition(api_version: str, kind: str, *, scalable: bool = False) -> Json:
    """The CustomResourceDefinition of a kind, with a status, and a scale where it is scalable."""
    group, _, version = api_version.partition("/")
    plural = f"{kind.lower()}s"
    subresources: Json = {"status": {}}
    if scalable:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version, "served": True, "storage": True, "subresources": subresources,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [served],
        },
    }


@contextlib.contextmanager
def served(cluster: Cluster, *definitions: Json) -> Iterator[None]:
    """While these are served, and no others of their names: a kind of another version would be in the way."""
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    cluster.kubectl("delete", "--ignore-not-found", *names)
    cluster.apply(*definitions)
    cluster.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
    yield
    cluster.kubectl("delete", "--ignore-not-found", *names)
