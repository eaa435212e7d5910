"""CustomResourceDefinitions for a real API server, with specs and statuses that accept anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from tests.rig.cluster import Cluster
from tests.rig.waiting import wait_until

Json = dict[str, Any]
DEFINITIONS = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")


def definition(api_version: str, kind: str, *, scalable: bool = False) -> Json:
    """The CustomResourceDefinition of a kind, with a status and, if `scalable`, a scale subresource."""
    group, _, version = api_version.partition("/")
    plural = f"{kind.lower()}s"
    subresources: Json = {"status": {}}
    if scalable:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version_entry = {
        "name": version, "served": True, "storage": True, "subresources": subresources,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }  # fmt: skip
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [version_entry],
        },
    }


def serve(cluster: Cluster, *definitions: Json) -> None:
    """Install custom kinds, and return once they are served."""
    for each in definitions:
        cluster.custom.create_cluster_custom_object(*DEFINITIONS, each)

    def established() -> bool:
        conditions = [each for kind in _installed(cluster, definitions) for each in kind["status"]["conditions"]]
        return sum((each["type"], each["status"]) == ("Established", "True") for each in conditions) == len(definitions)

    wait_until(established, "custom kinds to be served", timeout_s=60)


def stop_serving(cluster: Cluster, *definitions: Json) -> None:
    """Delete custom kinds, if they exist, and return once they are gone."""
    for each in _installed(cluster, definitions):
        cluster.custom.delete_cluster_custom_object(*DEFINITIONS, each["metadata"]["name"])
    wait_until(lambda: not _installed(cluster, definitions), "custom kinds to go", timeout_s=60)


def _installed(cluster: Cluster, definitions: Sequence[Json]) -> list[Json]:
    """Those of the definitions that are installed, by name."""
    names = {each["metadata"]["name"] for each in definitions}
    installed = cluster.custom.list_cluster_custom_object(*DEFINITIONS)["items"]
    return [each for each in installed if each["metadata"]["name"] in names]


@contextlib.contextmanager
def served(cluster: Cluster, *definitions: Json) -> Iterator[None]:
    """Serve these kinds in the context, first removing kinds of the same names, which may have another version."""
    stop_serving(cluster, *definitions)
    serve(cluster, *definitions)
    yield
    stop_serving(cluster, *definitions)
