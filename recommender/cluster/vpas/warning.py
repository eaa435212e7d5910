"""A condition that warns of side effects of applying a VPA: QoS class changes, restarts and refused pods."""

from __future__ import annotations

from collections.abc import Iterable

from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.resizability import BEST_EFFORT, GUARANTEED, POD_LEVEL, QUEUED, RESTART_CONTAINER
from recommender.cluster.objects.vpa import REQUESTS_ONLY, Vpa
from recommender.cluster.vpas.status import Condition

EFFECT_BY_MODE = {
    "Initial": "new pods get it, running ones stay as they are",
    "InPlace": "such a resize is refused, and running pods stay as they are",
    "InPlaceOrRecreate": "such a resize is refused, and the updater evicts the pod instead",
}
"""By update mode; all others except `Off` evict in any case."""

EVICTION_EFFECT = "pods are evicted to apply it"


def disruption_warning(vpa: Vpa, pods: Iterable[Pod]) -> Condition | None:
    """Warn of unintended effects of the updates on pods; None without any, or in mode `Off`."""
    if vpa.update_mode == "Off":
        return None
    found = sorted({words for pod in pods if not pod.finished for words in _warnings(vpa, pod)})
    return Condition("True", "QosClassOrRestart", "; ".join(found)) if found else None


def _warnings(vpa: Vpa, pod: Pod) -> list[str]:
    controlled = vpa.controlling(container.name for container in pod.containers)
    if not controlled:
        return []
    effect, found = EFFECT_BY_MODE.get(vpa.update_mode, EVICTION_EFFECT), []
    if pod.resizability.pod_level:
        found.append(POD_LEVEL)
    elif pod.resizability.qos == BEST_EFFORT:
        found.append(f"with requests, {BEST_EFFORT} pods become Burstable: {effect}")
    elif pod.resizability.qos == GUARANTEED:
        requests_only = [name for name, policy in controlled if policy.controlled_values == REQUESTS_ONLY]
        if requests_only:
            only = f"{', '.join(requests_only)}: controlledValues {REQUESTS_ONLY}"
            found.append(f"with limits left as they are ({only}), {GUARANTEED} pods become Burstable: {effect}")
    if vpa.resizes_in_place and any(pod.resizability.restarts & policy.controlled for _, policy in controlled):
        found.append(f"a container's resizePolicy is {RESTART_CONTAINER}: each resize restarts it")
    if vpa.resizes_in_place and pod.resizability.queued:
        found.append(QUEUED)
    return found
