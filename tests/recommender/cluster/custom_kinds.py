"""Custom kinds for a real API server, as their projects' definitions serve them: anything in spec and status."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from local_cluster.cluster import Cluster
from local_cluster.waiting import wait_until

Json = dict[str, Any]
DEFINITIONS = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")


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


def serve(cluster: Cluster, *definitions: Json) -> None:
    """Install custom kinds that are not there, and return once they are served."""
    for each in definitions:
        cluster.custom.create_cluster_custom_object(*DEFINITIONS, each)

    def established() -> bool:
        told = [condition for each in _there(cluster, definitions) for condition in each["status"]["conditions"]]
        return sum((each["type"], each["status"]) == ("Established", "True") for each in told) == len(definitions)

    wait_until(established, "custom kinds to be served", timeout_s=60)


def serve_no_longer(cluster: Cluster, *definitions: Json) -> None:
    """Take custom kinds away, if they are there, and return once they are gone."""
    for each in _there(cluster, definitions):
        cluster.custom.delete_cluster_custom_object(*DEFINITIONS, each["metadata"]["name"])
    wait_until(lambda: not _there(cluster, definitions), "custom kinds to go", timeout_s=60)


def _there(cluster: Cluster, definitions: Sequence[Json]) -> list[Json]:
    """What is installed under the names of these."""
    names = {each["metadata"]["name"] for each in definitions}
    installed = cluster.custom.list_cluster_custom_object(*DEFINITIONS)["items"]
    return [each for each in installed if each["metadata"]["name"] in names]


@contextlib.contextmanager
def served(cluster: Cluster, *definitions: Json) -> Iterator[None]:
    """While these are served, and no others of their names: a kind of another version would be in the way."""
    serve_no_longer(cluster, *definitions)
    serve(cluster, *definitions)
    yield
    serve_no_longer(cluster, *definitions)
