"""What applying a VPA would do to its pods besides changing their requests: said in a condition of its status."""

from __future__ import annotations

from collections.abc import Iterable

from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.resizability import BEST_EFFORT, GUARANTEED, RESTARTS
from recommender.cluster.objects.vpa import REQUESTS_ALONE, Vpa
from recommender.cluster.vpas.status import Condition

WHEN_APPLIED = {
    "Initial": "new pods get it, running ones stay as they are",
    "InPlace": "such a resize is refused, and running pods stay as they are",
    "InPlaceOrRecreate": "such a resize is refused, and the updater evicts the pod instead",
}
"""By update mode; every other mode but `Off` evicts in any case."""

EVICTED = "pods are evicted to get it"


def warning_of(vpa: Vpa, pods: Iterable[Pod]) -> Condition | None:
    """What the updater would do to running pods that nobody may have meant; None when nothing, or it is not to act."""
    if vpa.update_mode == "Off":
        return None
    found = sorted({words for pod in pods if not pod.finished for words in _warnings(vpa, pod)})
    return Condition("True", "QosClassOrRestart", "; ".join(found)) if found else None


def _warnings(vpa: Vpa, pod: Pod) -> list[str]:
    policies = [(container.name, vpa.policy_for(container.name)) for container in pod.containers]
    acted_on = [(name, policy) for name, policy in policies if policy.mode != "Off" and policy.controlled]
    if not acted_on:
        return []
    how, found = WHEN_APPLIED.get(vpa.update_mode, EVICTED), []
    if pod.resizability.qos == BEST_EFFORT:
        found.append(f"with requests, {BEST_EFFORT} pods become Burstable: {how}")
    if pod.resizability.qos == GUARANTEED:
        alone = [name for name, policy in acted_on if policy.controlled_values == REQUESTS_ALONE]
        if alone:
            only = f"{', '.join(alone)}: controlledValues {REQUESTS_ALONE}"
            found.append(f"with limits left as they are ({only}), {GUARANTEED} pods become Burstable: {how}")
    if pod.resizability.restarts and vpa.update_mode in ("InPlace", "InPlaceOrRecreate"):
        found.append(f"a container's resizePolicy is {RESTARTS}: each resize restarts it")
    return found
