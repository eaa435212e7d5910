"""What the pod that replaces a moved one will request.

A pod that was resized in place requests less, or more, than the template that its replacement is made from. The VPA's
admission controller then sets the target of that moment; it is absent from many clusters, so a target counts instead of
the template only if that controller handled the present pod, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from extender.gangs.member import Requirements
from recommender.base.records import RESOURCES, Amounts
from recommender.cluster.objects.quantities import quantities_of
from recommender.cluster.objects.reading import Fields
from recommender.cluster.objects.requests import MAX_CORES, requests_in, requests_of
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.vpas.status import recommendations_in

Controller = tuple[str, str]
"""Kind and name of a controller of pods."""

Targets = tuple[tuple[str, Amounts], ...]
"""(container, target) of a VPA; NaN for what it does not set."""

RESTARTABLE = "restartPolicy"  # of an init container: `Always` for a sidecar


class VpaTargets(NamedTuple):
    """What a VPA sets in new pods of the controller that it targets."""

    namespace: str
    controller: Controller
    targets: Targets


def read_vpa_targets(raw: Mapping[str, Any]) -> VpaTargets:
    """In the mode Off, nothing is set. A container whose start is boosted gets more CPU than any node has, as it is not
    known here how much."""
    vpa = read_vpa(raw)
    found = recommendations_in(vpa.status) if vpa.update_mode != "Off" else {}
    targets = []
    for name, policy in vpa.controlling(found):
        cpu_cores, memory_bytes = found[name].target
        targets.append((name, (MAX_CORES if policy.boosts_startup else cpu_cores, memory_bytes)))
    return VpaTargets(vpa.key.namespace, (vpa.target.kind, vpa.target.name), tuple(targets))


def template_of(spec: Fields) -> bytes:
    """The parts of a pod template that decide on its requests of CPU and memory, as JSON: as Python objects they would
    take ten times the memory."""
    kept = {name: spec.raw[name] for name in ("overhead", "resources") if name in spec}
    for kind in ("containers", "initContainers"):
        kept[kind] = [
            {name: each.raw[name] for name in ("name", "resources", RESTARTABLE) if name in each}
            for each in spec.children(kind)
        ]
    return orjson.dumps(kept)


@lru_cache(maxsize=4096)
def replacement(present: Requirements, template: bytes, targets: Targets, admitted_by_vpa: bool) -> Requirements:
    """The larger of what a pod requires and what its template will ask for after admission."""
    spec = orjson.loads(template)
    possible = [dict(present.needs), requests_of(_admitted(spec, dict(targets)), Fields({}))]
    if not (targets and admitted_by_vpa):
        possible.append(requests_of(Fields(spec), Fields({})))
    most = {name: max(each.get(name, 0.0) for each in possible) for name in RESOURCES}
    needs = dict(present.needs) | {name: amount for name, amount in most.items() if amount > 0.0}
    return replace(present, needs=tuple(sorted(needs.items())))


def _admitted(spec: Mapping[str, Any], targets: Mapping[str, Amounts]) -> Fields:
    """A template with the targets of its containers as their requests."""
    containers = [
        {**each, "resources": {**each.get("resources", {}), "requests": _requests(each, targets)}}
        for each in spec["containers"]
    ]
    return Fields({**spec, "containers": containers})


def _requests(container: Mapping[str, Any], targets: Mapping[str, Amounts]) -> Mapping[str, Any]:
    own = requests_in(Fields(container).child("resources"))
    return own | quantities_of(targets.get(container.get("name", ""), (None, None)))
