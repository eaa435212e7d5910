"""VPAs that have had no recommendation for long: said now and then, and counted."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import PENDING
from recommender.live.vpa_state import VpaState

log = logging.getLogger(__name__)

LONG_S = 1800.0
"""As long as the default recommender waits before it says so, and between two times."""


class Unserved:
    """Looks after each round at who has nothing."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._since_s: dict[ObjectKey, float] = {}
        self._said_s: dict[ObjectKey, float] = {}
        self._number = Gauge(
            "phasewise_vpas_unserved", "VPAs without any recommendation for half an hour or more.", registry=registry
        )

    def look(self, states: Iterable[VpaState], now_s: float) -> None:
        """Who has nothing published now; `now_s` in monotonic seconds."""
        lacking = {state.vpa.key: state for state in states if _lacks(state)}
        for served in self._since_s.keys() - lacking.keys():
            del self._since_s[served]
            self._said_s.pop(served, None)
        number = 0
        for key, state in lacking.items():
            if now_s - self._since_s.setdefault(key, now_s) < LONG_S:
                continue
            number += 1
            if now_s - self._said_s.get(key, -LONG_S) >= LONG_S:
                self._said_s[key] = now_s
                minutes = (now_s - self._since_s[key]) / 60.0
                log.warning("%s: no recommendation for %.0f minutes: %s", key, minutes, _reason(state))
        self._number.set(number)


def _lacks(state: VpaState) -> bool:
    """Nothing is published, though not because its user wants nothing."""
    if b'"containerName"' in state.vpa.status_json:
        return False
    names = state.selection.containers or ("*",)
    policies = [state.vpa.policy_for(name) for name in names]
    return any(policy.mode != "Off" and policy.controlled for policy in policies)


def _reason(state: VpaState) -> str:
    if state.selection.problem:
        return state.selection.problem
    if not state.selection.pods:
        return "no pods match it"
    if all(pod.phase == PENDING for pod in state.selection.pods):
        return "its pods have not begun"
    return "no use of its pods' containers has been told"
