"""One decision on one snapshot: read the question, judge the nodes, remember why, and what was advised."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from extender.errors import BadRequest
from extender.judging.combine import NEUTRAL, points_of, total_of
from extender.judging.filter import refused
from extender.judging.preempt import worth_it
from extender.judging.question import Question
from extender.judging.scorers import SCORERS
from extender.judging.weights import weights_for
from extender.placing.decisions import Decision, Decisions
from extender.placing.seats import elsewhere, held_for_others
from extender.pods.pod import Pod
from extender.protocol.wire import Asked, AskedVictims, Scored, UnreadPod
from extender.reasons import CPU_REASON
from extender.settings import Settings
from extender.view.snapshot import Integers, Snapshot
from extender.view.state import ClusterState, Look
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
        self._advising = threading.Lock()
        self._latest: tuple[Json | UnreadPod, Pod] | None = None
        self._filtered: tuple[Asked, Question, Sequence[str]] | None = None
        self._expected: _Expected | None = None

    def filter(self, asked: Asked) -> Mapping[str, str]:
        """Node -> why the pod must not go there; empty for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            self._state.snapshot().find(asked.names)  # to see that they are names
            return held_for_others(pod, asked.names, self._state)
        question, unknown = self._question_on(pod, asked.names)
        self._filtered = (asked, question, unknown)
        found = elsewhere(pod, asked.names)
        decision = Decision(pod, self._clock(), asked=len(asked.names), source=question.footprint.source)
        if found is None:
            found = held_for_others(pod, asked.names, self._state) | self._overloaded(question, decision)
        decision.refused = found
        if found and len(found) == len(asked.names):
            self._state.waiting.refused(pod.uid)
        left = [name for name in asked.names if name not in found] if len(found) >= len(asked.names) - 1 else ()
        if len(left) == 1:  # the scheduler does not ask for scores then
            decision.favourite = left[0]
            self._state.advise(pod, left[0])
        self.decisions.put(decision, attempts=1)
        return found

    def expect(self, asked: Asked) -> Scored | None:
        """What will be said to `prioritize`, which is asked next most probably; the scheduler has work of its own till
        then.

        Nothing shows of it but that the answer is there sooner; if anything has changed until then, it counts for
        nothing.
        """
        filtered, self._filtered = self._filtered, None
        pod = self._pod(asked.pod)
        if len(asked.names) < 2 or not self._state.is_ours(pod):
            return None
        if filtered is not None and filtered[0] is asked and filtered[1].snapshot is self._state.snapshot():
            _, question, unknown = filtered
        else:
            question, unknown = self._question_on(pod, asked.names)
        judged = self._judged(question, unknown)
        self._expected = _Expected(asked, question.snapshot, judged)
        return judged.scored

    def be_ready(self) -> None:
        """Look at the cluster before the next question comes, which is quicker then."""
        self._state.snapshot().fullest(self._settings.limits.cycle_s)

    def prioritize(self, asked: Asked) -> Scored:
        """A score of 0 to 10 for each node; all the same for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            snapshot = self._state.snapshot()
            places, unknown = snapshot.find(asked.names)
            return Scored(snapshot.names, places, np.full(len(places), NEUTRAL), unknown)
        with self._advising:  # two schedulers that ask at once must not be sent to the same node
            expected, self._expected = self._expected, None
            if expected is not None and expected.asked is asked and expected.snapshot is self._state.snapshot():
                judged = expected.judged
            else:
                judged = self._judged(*self._question_on(pod, asked.names))
            decision = judged.decision
            if decision is None:
                return judged.scored
            self._state.advise(pod, decision.favourite)
        former = self.decisions.of(pod.uid)
        decision.asked = former.asked if former is not None else len(asked.names)
        if former is not None:
            decision.refused, decision.added, decision.tolerated = former.refused, former.added, former.tolerated
        self.decisions.put(decision, attempts=0 if former is not None else 1)
        return judged.scored

    def preempt(self, asked: AskedVictims) -> list[str]:
        """The nodes on which evicting the proposed victims would let the pod in; those without victims are left out."""
        pod = self._pod(asked.pod)
        proposed = [node for node, victims in asked.victims.items() if victims]
        if not self._state.is_ours(pod):
            return proposed
        relief = {node: self._state.use_of(node, asked.victims[node]) for node in proposed}
        look = self._state.look(pod)
        places, unknown = look.snapshot.find(proposed)
        if not len(places):
            return proposed
        names = [look.snapshot.names[place] for place in places.tolist()]
        kept = worth_it(_question(pod, look, places), names, relief, self._settings.limits) | set(unknown)
        return [node for node in proposed if node in kept]

    def _question_on(self, pod: Pod, names: Sequence[str]) -> tuple[Question, Sequence[str]]:
        """What the scorers are asked of the nodes that are known; and the names of the others."""
        look = self._state.look(pod)
        places, unknown = look.snapshot.find(names)
        return _question(pod, look, places), unknown

    def _overloaded(self, question: Question, decision: Decision) -> dict[str, str]:
        """Node -> why the pod must not go there, by the forecast; the numbers behind it go into the decision."""
        refusals, names = refused(question, self._settings.limits), question.snapshot.names
        found: dict[str, str] = {}
        for reason, there in refusals.by_reason.items():
            found |= {names[place]: reason for place in question.places[there].tolist()}
        if (short := refusals.by_reason.get(CPU_REASON)) is not None and refusals.added is not None:
            shares = zip(question.places[short].tolist(), refusals.added[short].tolist(), strict=True)
            decision.added, decision.tolerated = {names[place]: share for place, share in shares}, refusals.tolerated
        return found

    def _judged(self, question: Question, unknown: Sequence[str]) -> _Judged:
        if not len(question.places):
            return _Judged(None, Scored(neutral=unknown))
        decision = self._decide(question)
        return _Judged(decision, Scored(decision.nodes, decision.places, decision.scores, unknown))

    def _decide(self, question: Question) -> Decision:
        weights = weights_for(question.pod.words, self._settings.weights)
        opinions = {
            name: opinion
            for name, weight in weights.items()
            if weight > 0.0 and (opinion := SCORERS[name].judge(question)) is not None
        }
        totals = total_of(opinions, weights, len(question.places))
        points = points_of(totals, question.here(question.snapshot.rank))
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

    def _pod(self, raw: Json | UnreadPod) -> Pod:
        """The pod of a request; what the watch or the question before this one has shown already is not read again.

        `prioritize` follows `filter` with the very same pod, and a pod of one `resourceVersion` never changes.
        """
        latest = self._latest
        if latest is not None and (latest[0] is raw or latest[0] == raw):
            return latest[1]
        pod = self._seen(raw)
        if pod is None:
            try:
                pod = self._read_pod(raw.read() if isinstance(raw, UnreadPod) else raw)
            except BadObject as error:
                raise BadRequest(str(error)) from error
            if not pod.uid:
                raise BadRequest(f"Pod {pod} has no uid")
        self._latest = (raw, pod)
        return pod

    def _seen(self, raw: Json | UnreadPod) -> Pod | None:
        if not isinstance(raw, UnreadPod):
            return None
        pod = self._state.waiting.of(raw.uid)
        return pod if pod is not None and raw.is_known_as(pod) else None


class _Judged(NamedTuple):
    """The decision on the nodes that are known, None where none is; and what is said of all of them."""

    decision: Decision | None
    scored: Scored


class _Expected(NamedTuple):
    """What was judged before it was asked for, and on what; a snapshot is another one after every change."""

    asked: Asked
    snapshot: Snapshot
    judged: _Judged


def _question(pod: Pod, look: Look, places: Integers) -> Question:
    return Question(pod, look.footprint, look.snapshot, places, look.peers, look.waited_s)
