"""Requests to write instead, as manifests: fragments, patches, a kustomization, values of a chart, and a diff."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from recommender.base.records import CPU, MEMORY, Amounts, WorkloadAdvice
from recommender.base.units import BYTES_PER_MIB
from recommender.report.summary import percent
from recommender.report.workloads import evidence_words, kill_words

API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "CronJob": "batch/v1",
    "Job": "batch/v1",
}
"""Kinds whose manifests we know how to change."""


def quantities(amounts: Amounts) -> dict[str, str]:
    """CPU and memory as quantities, rounded up to millicores and MiB; NaN and infinity, for none, are left out."""
    cpu_cores, memory_bytes = amounts
    found = {}
    if math.isfinite(cpu_cores):
        millicores = math.ceil(round(cpu_cores * 1000.0, 6))
        found["cpu"] = str(millicores // 1000) if millicores % 1000 == 0 else f"{millicores}m"
    if math.isfinite(memory_bytes):
        found["memory"] = f"{math.ceil(memory_bytes / BYTES_PER_MIB)}Mi"
    return found


def resources(advice: WorkloadAdvice) -> dict[str, dict[str, str]]:
    """Requests, and limits where there are some: in the same proportion to the requests, as the VPA keeps them."""
    scaled = [
        limit * after / before if math.isfinite(limit) and before > 0.0 else math.nan
        for limit, before, after in zip(advice.limits, advice.now, advice.recommended, strict=True)
    ]
    limits = quantities((scaled[CPU], scaled[MEMORY]))
    return {"requests": quantities(advice.recommended), **({"limits": limits} if limits else {})}


def _why(advice: WorkloadAdvice) -> str:
    now = ", ".join(f"{name} {amount}" for name, amount in quantities(advice.now).items()) or "nothing"
    risk = f"{percent(advice.short_share)} of samples short of CPU, killed: {kill_words(advice)}"
    return f"# {advice.name}: requests {now} now; {evidence_words(advice)}; {risk}"


def _document(advice: WorkloadAdvice) -> dict[str, Any]:
    """The part of a manifest that sets the requests."""
    kind, _, name = advice.owner.partition("/")
    template: dict[str, Any] = {"spec": {"containers": [{"name": advice.container, "resources": resources(advice)}]}}
    spec: dict[str, Any] = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    metadata = {"name": name, **({"namespace": advice.namespace} if advice.namespace else {})}
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": spec}


class _Blocks(yaml.SafeDumper):  # type: ignore[misc]  # the library has no types
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Blocks.add_representer(str, _text)


def _dumped(document: object) -> str:
    return str(yaml.dump(document, Dumper=_Blocks, sort_keys=False, width=1000))


def as_yaml(workloads: Sequence[WorkloadAdvice]) -> str:
    """What to write under each container: a list of containers with their `resources`."""
    parts = []
    for one in workloads:
        where = {"namespace": one.namespace, "workload": one.owner or one.workload, "container": one.container}
        fragment = {**{name: text for name, text in where.items() if text}, "resources": resources(one)}
        parts.append(f"{_why(one)}\n{_dumped([fragment])}")
    return "".join(parts)


def as_patches(workloads: Sequence[WorkloadAdvice]) -> str:
    """Documents for `kubectl apply --server-side --force-conflicts`, which change nothing but these fields."""
    return "---\n".join(f"{_why(one)}\n{_dumped(_document(one))}" for one in workloads)


def as_kustomization(workloads: Sequence[WorkloadAdvice]) -> str:
    patches = []
    for one in workloads:
        document = _document(one)
        target = {"kind": document["kind"], **document["metadata"]}
        patches.append({"target": target, "patch": _dumped(document)})
    head = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "patches": patches}
    return "\n".join(map(_why, workloads)) + "\n" + _dumped(head)


def as_values(workloads: Sequence[WorkloadAdvice]) -> str:
    """Values by workload and container, in the form that most charts give them: `NAME.resources`."""
    parts = []
    for one in workloads:
        values: Mapping[str, Any] = {"resources": resources(one)}
        if one.container != one.workload:
            values = {one.container: values}
        parts.append(f"{_why(one)}\n{_dumped({one.workload: values})}")
    return "".join(parts)


def as_diff(workloads: Sequence[WorkloadAdvice]) -> str:
    """A unified diff of the `resources` of each container."""
    parts: list[str] = []
    for one in workloads:
        before, after = {"requests": quantities(one.now)}, resources(one)
        if "limits" in after:
            before["limits"] = quantities(one.limits)
        lines = difflib.unified_diff(
            _dumped({"resources": before}).splitlines(),
            _dumped({"resources": after}).splitlines(),
            f"{one.name} (now)",
            f"{one.name} (recommended)",
            lineterm="",
            n=9,
        )
        parts += lines
    return "".join(f"{line}\n" for line in parts)


FORMATS: Mapping[str, Callable[[Sequence[WorkloadAdvice]], str]] = {
    "yaml": as_yaml,
    "patch": as_patches,
    "kustomize": as_kustomization,
    "helm-values": as_values,
    "diff": as_diff,
}
KINDS = {"kustomize": tuple(API_VERSIONS), "patch": tuple(kind for kind in API_VERSIONS if kind != "Job")}
"""Kinds that these formats can change: the pod template of a Job stays as it was created."""
