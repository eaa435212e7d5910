"""What was known before a start, as the engine asks for it: from checkpoints, statuses and PhaseProfiles."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.status import published_in
from recommender.engine.keys import Group, Instance
from recommender.engine.seen import GroupStart
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import Amounts

NOTHING: Amounts = (float("nan"), float("nan"))


class Remembered:
    """The engine's memory in a cluster.

    Parameters
    ----------
    states
        The VPAs that are ours.
    """

    def __init__(self, view: View, states: Mapping[ObjectKey, VpaState]) -> None:
        self._view, self._states = view, states

    def group(self, group: Group) -> GroupStart:
        """History from the checkpoint, the target in force from the status, all else from the profile."""
        key = ObjectKey(group.namespace, group.scaler)
        state = self._states[key]
        history = HistogramAggregate(self._view.history(key, group.container))
        return GroupStart(history, _standing(state, group.container), state.kept_once("groups", group.container))

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        """What the profile kept of a container."""
        state = self._states[ObjectKey(group.namespace, group.scaler)]
        return state.kept_once("members", f"{instance.pod_uid}/{instance.container}")


def _standing(state: VpaState, container: str) -> Amounts:
    """The target in force, before limits.

    What was left behind at the end of another process stands in the status, and in no container: what had stood before
    is the uncapped target there, and goes on.
    """
    before = published_in(state.vpa.status).get(container)
    if before is None:
        return NOTHING
    cpu_cores, memory_bytes = (
        target if isnan(uncapped) else uncapped for uncapped, target in zip(before.uncapped, before.target, strict=True)
    )
    return cpu_cores, memory_bytes
