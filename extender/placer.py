"""One decision on one snapshot: read the question, judge the nodes, remember why, and what was advised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from extender.combine import NEUTRAL, points_of, total_of
from extender.decisions import Decision, Decisions
from extender.errors import BadRequest
from extender.filter import refused
from extender.pod import Pod
from extender.preempt import worth_it
from extender.question import Question
from extender.scorers import SCORERS
from extender.seats import elsewhere, held_for_others
from extender.settings import Settings
from extender.snapshot import Snapshot
from extender.state import ClusterState, Look
from extender.weights import weights_for
from extender.wire import Asked, AskedVictims
from recommender.cluster.errors import BadObject

Json = Mapping[str, Any]


class Placer:
    """The answers to a scheduler. Every method may be called from any thread, any number of times for one pod.

    Parameters
    ----------
    read_pod
        Makes a pod of its JSON.
    clock
        Unix seconds.
    """

    def __init__(
        self,
        state: ClusterState,
        settings: Settings,
        decisions: Decisions,
        read_pod: Callable[[Json], Pod],
        clock: Callable[[], float],
    ) -> None:
        self._state, self._settings, self.decisions = state, settings, decisions
        self._read_pod, self._clock = read_pod, clock
        self._latest: tuple[Json, Pod] | None = None

    def filter(self, asked: Asked) -> Mapping[str, str]:
        """Node -> why the pod must not go there; empty for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            return held_for_others(pod, asked.names, self._state)
        look = self._state.look(pod)
        names, question = _question(pod, look, asked.names)
        found: dict[str, str] = {}
        for reason, places in (refused(question, self._settings.limits) if names else {}).items():
            found |= {names[number]: reason for number in np.flatnonzero(places)}
        at_its_seat = elsewhere(pod, asked.names)
        found = held_for_others(pod, asked.names, self._state) | found if at_its_seat is None else at_its_seat
        decision = Decision(pod, self._clock(), asked=len(asked.names), source=look.footprint.source, refused=found)
        left = [name for name in asked.names if name not in found] if len(found) >= len(asked.names) - 1 else ()
        if len(left) == 1:  # the scheduler does not ask for scores then
            decision.favourite = left[0]
            self._state.advise(pod, left[0])
        self.decisions.put(decision, attempts=1)
        return found

    def prioritize(self, asked: Asked) -> list[int]:
        """A score of 0 to 10 for each node, in their order; all the same for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        scores = [NEUTRAL] * len(asked.names)
        if not self._state.is_ours(pod):
            return scores
        look = self._state.look(pod)
        names, question = _question(pod, look, asked.names)
        if not names:
            return scores
        decision = self._judged(question)
        former = self.decisions.of(pod.uid)
        decision.asked = former.asked if former is not None else len(asked.names)
        decision.refused = former.refused if former is not None else {}
        self._state.advise(pod, decision.favourite)
        self.decisions.put(decision, attempts=0 if former is not None else 1)
        if len(names) == len(asked.names):
            all_scores: list[int] = decision.scores.tolist()
            return all_scores
        scored: dict[str, int] = dict(zip(names, decision.scores.tolist(), strict=True))
        return [scored.get(name, NEUTRAL) for name in asked.names]

    def preempt(self, asked: AskedVictims) -> list[str]:
        """The nodes on which evicting the proposed victims would let the pod in; those without victims are left out."""
        pod = self._pod(asked.pod)
        proposed = [node for node, victims in asked.victims.items() if victims]
        if not self._state.is_ours(pod):
            return proposed
        relief = {node: self._state.use_of(node, asked.victims[node]) for node in proposed}
        names, question = _question(pod, self._state.look(pod), proposed)
        if not names:
            return proposed
        kept = worth_it(question, names, relief, self._settings.limits)
        return [node for node in proposed if node in kept or node not in question.snapshot.index]

    def _judged(self, question: Question) -> Decision:
        weights = weights_for(question.pod.words, self._settings.weights)
        opinions = {
            name: opinion
            for name, weight in weights.items()
            if weight > 0.0 and (opinion := SCORERS[name].judge(question)) is not None
        }
        totals = total_of(opinions, weights, len(question.places))
        points = points_of(totals, question.snapshot.rank[question.places])
        return Decision(
            question.pod,
            self._clock(),
            source=question.footprint.source,
            nodes=question.snapshot.names,
            places=question.places,
            opinions=opinions,
            weights=weights,
            totals=totals,
            scores=points.scores,
            favourite=question.snapshot.names[question.places[points.favourite]],
        )

    def _pod(self, raw: Json) -> Pod:
        """The pod of a request; `prioritize` follows `filter` with the very same one, which is read only once."""
        latest = self._latest
        if latest is not None and latest[0] == raw:
            return latest[1]
        try:
            pod = self._read_pod(raw)
        except BadObject as error:
            raise BadRequest(str(error)) from error
        if not pod.uid:
            raise BadRequest(f"Pod {pod} has no uid")
        self._latest = (raw, pod)
        return pod


def _question(pod: Pod, look: Look, names: list[str]) -> tuple[list[str], Question]:
    """The question about those of the nodes that are known, and their names."""
    snapshot: Snapshot = look.snapshot
    places = snapshot.places(names)
    if places.size and places.min() < 0:
        known = places >= 0
        names = [name for name, here in zip(names, known.tolist(), strict=True) if here]
        places = places[known]
    return names, Question(pod, look.footprint, snapshot, places, look.peers)
