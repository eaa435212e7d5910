"""What a pod is given when it is made, or told to have while it runs: the VPA's admission controller and what the
updater shares with it.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/admission-controller` and `pkg/utils/vpa/capping.go`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from harm_bench.simulated.pods import Autoscaler, Policy, Resources
from recommender.records import CPU, MEMORY, RESOURCES, Amounts, ContainerRecommendation


def in_force(vpa: Autoscaler, container: str, has: Resources) -> ContainerRecommendation | None:
    """What is recommended for a container once policy and, where limits stay, its limits have cut it."""
    said = vpa.recommendation.get(container)
    if said is None:
        return None
    target, lower, upper = (_capped(amounts, vpa.policy, has) for amounts in (said.target, said.lower, said.upper))
    return replace(said, target=target, lower=lower, upper=upper)


def resources_for(vpa: Autoscaler, container: str, has: Resources) -> Resources:
    """The requests and limits that a container gets: the target, and limits that keep their ratio to it.

    Parameters
    ----------
    has
        What its template asks for, or what it has while it runs.
    """
    has = has.defaulted()
    said = in_force(vpa, container, has)
    if said is None:
        return has
    requests, limits = list(has.requests), list(has.limits)
    for i in (CPU, MEMORY):
        if math.isnan(said.target[i]):
            continue
        requests[i] = said.target[i]
        if vpa.policy.controlled_values == "RequestsAndLimits" and not math.isnan(has.limits[i]):
            limits[i] = _in_proportion(has.limits[i], has.requests[i], said.target[i], i)
    return Resources((requests[CPU], requests[MEMORY]), (limits[CPU], limits[MEMORY]))


def _in_proportion(limit: float, request: float, target: float, resource: int) -> float:
    """A limit in whole millicores or bytes; one that is the request stays so, as does one without a request."""
    if request in (limit, 0.0):
        return target
    units = 1000.0 if resource == CPU else 1.0
    return math.floor(limit * target / request * units) / units


def _capped(amounts: Amounts, policy: Policy, has: Resources) -> Amounts:
    capped = list(amounts)
    for i, resource in enumerate(RESOURCES):
        if math.isnan(capped[i]) or resource not in policy.controlled:
            continue
        if least := policy.min_allowed[i]:
            capped[i] = max(capped[i], least)
        if most := policy.max_allowed[i]:
            capped[i] = min(capped[i], most)
        if policy.controlled_values == "RequestsOnly" and has.limits[i] < capped[i]:
            capped[i] = has.limits[i]
    return capped[CPU], capped[MEMORY]
