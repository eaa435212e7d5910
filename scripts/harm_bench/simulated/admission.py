"""The VPA's admission controller, and what the updater shares with it: resources of new and running pods.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/admission-controller` and `pkg/utils/vpa/capping.go`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from harm_bench.simulated.pods import Autoscaler, Policy, Resources
from recommender.records import CPU, MEMORY, RESOURCES, Amounts, ContainerRecommendation


def capped_recommendation(vpa: Autoscaler, container: str, current: Resources) -> ContainerRecommendation | None:
    """Recommendation within the policy and, with `RequestsOnly`, the limits of the container."""
    found = vpa.recommendation.get(container)
    if found is None:
        return None
    bounds = (found.target, found.lower, found.upper)
    target, lower, upper = (_capped(amounts, vpa.policy, current) for amounts in bounds)
    return replace(found, target=target, lower=lower, upper=upper)


def resources_for(vpa: Autoscaler, container: str, current: Resources) -> Resources:
    """Requests and limits that a container gets: the target, and limits in proportion to its `current` resources."""
    current = current.defaulted()
    found = capped_recommendation(vpa, container, current)
    if found is None:
        return current
    requests, limits = list(current.requests), list(current.limits)
    for i in (CPU, MEMORY):
        if math.isnan(found.target[i]):
            continue
        requests[i] = found.target[i]
        if vpa.policy.controlled_values == "RequestsAndLimits" and not math.isnan(current.limits[i]):
            limits[i] = _in_proportion(current.limits[i], current.requests[i], found.target[i], i)
    return Resources((requests[CPU], requests[MEMORY]), (limits[CPU], limits[MEMORY]))


def _in_proportion(limit: float, request: float, target: float, resource: int) -> float:
    """Proportional limit in whole millicores or bytes; the target if the limit equals the request or there is none."""
    if request in (limit, 0.0):
        return target
    units = 1000.0 if resource == CPU else 1.0
    return math.floor(limit * target / request * units) / units


def _capped(amounts: Amounts, policy: Policy, current: Resources) -> Amounts:
    capped = list(amounts)
    for i, resource in enumerate(RESOURCES):
        if math.isnan(capped[i]) or resource not in policy.controlled:
            continue
        if least := policy.min_allowed[i]:
            capped[i] = max(capped[i], least)
        if most := policy.max_allowed[i]:
            capped[i] = min(capped[i], most)
        if policy.controlled_values == "RequestsOnly" and current.limits[i] < capped[i]:
            capped[i] = current.limits[i]
    return capped[CPU], capped[MEMORY]
