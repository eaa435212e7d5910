"""Renders the manifests, and lists objects of ours that a cluster still has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tests.manifests.reading import MANIFESTS
from tests.rig.rig import Rig

OPERATOR = {"ServiceMonitor": "servicemonitors", "PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}


def operator_resource(kind: str, plural: str) -> Mapping[str, Any]:
    """A stand-in for a custom resource definition of the Prometheus operator, which accepts any object of its kind."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    group = "monitoring.coreos.com"
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    metadata = {"name": f"{plural}.{group}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def rendered(cluster: Rig, *below: str) -> list[dict[str, Any]]:
    """The objects that kustomize renders from a folder of the manifests."""
    text = cluster.kubectl("kustomize", MANIFESTS.joinpath(*below))
    return [document for document in yaml.safe_load_all(text) if document]


def kind_of(document: Mapping[str, Any]) -> str:
    """The kind with its group, as kubectl accepts it."""
    group, slash, _ = document["apiVersion"].partition("/")
    return f"{document['kind']}.{group}" if slash else str(document["kind"])


def left_behind(cluster: Rig, documents: list[dict[str, Any]]) -> list[str]:
    """Objects of these kinds with `phasewise` in their names."""
    kinds = sorted({kind_of(each) for each in documents})
    names = (cluster.kubectl("get", kind, "-A", "-o", "name").split() for kind in kinds)
    return [name for found in names for name in found if "phasewise" in name]
