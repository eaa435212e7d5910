"""API resources: their URL paths, new objects of them, and patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

VPAS = ("autoscaling.k8s.io/v1", "verticalpodautoscalers")
PODS = ("v1", "pods")
NODES = ("v1", "nodes")
EVENTS = ("v1", "events")
LEASES = ("coordination.k8s.io/v1", "leases")
CONFIG_MAPS = ("v1", "configmaps")
POD_METRICS = ("metrics.k8s.io/v1beta1", "pods")


def new_object(resource: tuple[str, str], kind: str, metadata: Mapping[str, Any], **content: Any) -> dict[str, Any]:
    return {"apiVersion": resource[0], "kind": kind, "metadata": metadata, **content}


def json_patch(expected: Mapping[str, Any], added: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A JSON Patch that adds or replaces values, by their paths, of an object that has the expected ones."""
    parts = (("test", expected), ("add", added))
    return [{"op": op, "path": path, "value": value} for op, values in parts for path, value in values.items()]


def path_of(
    resource: tuple[str, str], namespace: str | None = None, name: str | None = None, subresource: str | None = None
) -> str:
    """The path of (apiVersion, plural): of the resource, of a namespace, of one object, or of its subresource.

    Examples
    --------
    >>> path_of(("v1", "pods"))
    '/api/v1/pods'
    >>> path_of(("apps/v1", "deployments"), "team", "web", "scale")
    '/apis/apps/v1/namespaces/team/deployments/web/scale'
    """
    version, plural = resource
    parts = ["apis" if "/" in version else "api", *version.split("/")]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, subresource) if part]
    return "/" + "/".join(quote(part, safe="") for part in parts)
