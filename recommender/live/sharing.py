"""Which containers share a node, how many cores they share, and how their training progresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from recommender.cluster.objects.vpa import SHARES, SHARING_POLICIES
from recommender.engine.keys import Instance
from recommender.engine.seen import Evaluation
from recommender.engine.tally import Report
from recommender.live.rules import sharing_policy
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.records import CPU


class NodeSharing:
    def __init__(self, view: View) -> None:
        self._view = view
        self._reported: Mapping[str, float] = {}

    def collect(
        self, states: Iterable[VpaState], report: Report
    ) -> tuple[dict[str, float | None], dict[Instance, Evaluation]]:
        """The cores of nodes where they changed, and the latest evaluations; an invalid annotation is reported."""
        sharing = []
        for state in states:
            policy = state.vpa.annotations.get(SHARES)
            if sharing_policy(state.vpa):
                sharing.append(state)
            elif policy is not None:
                problem = f"{SHARES}: {policy[:40]!r} is none of {', '.join(SHARING_POLICIES)}"
                report.problems[f"VPA {state.vpa.key}"] = problem
        pods = {pod.uid: pod for state in sharing for pod in state.selection.pods if pod.node and not pod.finished}
        spare = self._view.spare({pod.node for pod in pods.values()}, pods.keys()) if pods else {}
        now = {name: left[CPU] for name, left in spare.items()}
        before, self._reported = self._reported, now
        changed: dict[str, float | None] = {name: cores for name, cores in now.items() if before.get(name) != cores}
        changed |= dict.fromkeys(before.keys() - now.keys())
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
