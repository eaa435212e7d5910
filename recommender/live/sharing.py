"""Which containers share their node, what there is for them, and how their training comes along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recommender.cluster.objects.vpa import SHARES, SHARING_POLICIES
from recommender.engine.keys import Instance
from recommender.engine.seen import Evaluation
from recommender.engine.tally import Report
from recommender.live.rules import shares
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.records import CPU


class Sharing:
    """What the engine is told of nodes that are shared."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._told: Mapping[str, float] = {}

    def look(
        self, states: Iterable[VpaState], report: Report
    ) -> tuple[dict[str, float | None], dict[Instance, Evaluation]]:
        """The cores of nodes where they have changed, and the latest evaluations; what is misspelt is reported."""
        sharing = []
        for state in states:
            said = state.vpa.annotations.get(SHARES)
            if shares(state.vpa):
                sharing.append(state)
            elif said is not None:
                words = f"{SHARES}: {said[:40]!r} is none of {', '.join(SHARING_POLICIES)}"
                report.problems[f"VPA {state.vpa.key}"] = words
        pods = {pod.uid: pod for state in sharing for pod in state.selection.pods if pod.node and not pod.finished}
        spare = self._view.spare({pod.node for pod in pods.values()}, pods.keys()) if pods else {}
        now = {name: left[CPU] for name, left in spare.items()}
        changed: dict[str, float | None] = {name: cores for name, cores in now.items() if self._told.get(name) != cores}
        changed |= dict.fromkeys(self._told.keys() - now.keys())
        self._told = now
        evaluations = {
            Instance(pod.key.namespace, pod.uid, container.name): Evaluation(
                growth.value, growth.scale, growth.seen_s, f"{growth.origin} {growth.metric}"
            )
            for state in sharing
            for uid, growth in state.growth.items()
            if (pod := pods.get(uid)) is not None and growth.value is not None
            for container in pod.containers
        }
        return changed, evaluations
