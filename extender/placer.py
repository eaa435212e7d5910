"""One decision on one snapshot: read the question, judge the nodes, remember why, and what was advised."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extender.combine import points_of, total_of
from extender.decisions import Decision, Decisions
from extender.errors import BadRequest
from extender.filter import refused
from extender.pod import Pod
from extender.preempt import worth_it
from extender.question import Question
from extender.scorers import SCORERS
from extender.seats import elsewhere, held_for_others
from extender.settings import Settings
from extender.snapshot import Integers, Snapshot
from extender.state import ClusterState, Look
from extender.weights import weights_for
from extender.wire import Asked, AskedVictims, Scored
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
        self._latest: tuple[Json, Pod] | None = None
        self._expected: _Expected | None = None

    def filter(self, asked: Asked) -> Mapping[str, str]:
        """Node -> why the pod must not go there; empty for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            return held_for_others(pod, asked.names, self._state)
        look = self._state.look(pod)
        at_its_seat = elsewhere(pod, asked.names)
        if at_its_seat is None:
            found = held_for_others(pod, asked.names, self._state) | self._overloaded(pod, look, asked.names)
        else:
            found = at_its_seat
        decision = Decision(pod, self._clock(), asked=len(asked.names), source=look.footprint.source, refused=found)
        left = [name for name in asked.names if name not in found] if len(found) >= len(asked.names) - 1 else ()
        if len(left) == 1:  # the scheduler does not ask for scores then
            decision.favourite = left[0]
            self._state.advise(pod, left[0])
        self.decisions.put(decision, attempts=1)
        return found

    def expect(self, asked: Asked) -> None:
        """Judge what `prioritize` will most probably be asked next: the scheduler has work of its own until then.

        Nothing shows of it but that the answer is there sooner; if anything has changed until then, it counts for
        nothing.
        """
        pod = self._pod(asked.pod)
        if len(asked.names) > 1 and self._state.is_ours(pod):
            look = self._state.look(pod)
            self._expected = _Expected(asked, look.snapshot, *self._judged(pod, look, asked.names))

    def be_ready(self) -> None:
        """Look at the cluster before the next question comes, which is quicker then."""
        self._state.snapshot().fullest(self._settings.limits.cycle_s)

    def prioritize(self, asked: Asked) -> Scored:
        """A score of 0 to 10 for each node; all the same for pods that are none of ours."""
        pod = self._pod(asked.pod)
        self._state.withdraw(pod.uid)
        if not self._state.is_ours(pod):
            return Scored(neutral=list(dict.fromkeys(asked.names)))
        with self._advising:  # two schedulers that ask at once must not be sent to the same node
            expected, self._expected = self._expected, None
            if expected is not None and expected.asked is asked and expected.snapshot is self._state.snapshot():
                decision, unknown = expected.decision, expected.unknown
            else:
                decision, unknown = self._judged(pod, self._state.look(pod), asked.names)
            if decision is None:
                return Scored(neutral=unknown)
            self._state.advise(pod, decision.favourite)
        former = self.decisions.of(pod.uid)
        decision.asked = former.asked if former is not None else len(asked.names)
        decision.refused = former.refused if former is not None else {}
        self.decisions.put(decision, attempts=0 if former is not None else 1)
        return Scored(decision.nodes, decision.places, decision.scores, unknown)

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

    def _overloaded(self, pod: Pod, look: Look, names: Sequence[str]) -> dict[str, str]:
        """Node -> why the pod must not go there, by the forecast.

        Where most nodes are asked about it is quicker to look at all of them than to find those that are.
        """
        snapshot = look.snapshot
        most = 2 * len(names) > len(snapshot.names)
        places = snapshot.everywhere if most else snapshot.find(names)[0]
        found: dict[str, str] = {}
        for reason, there in refused(_question(pod, look, places), self._settings.limits).items():
            found |= {snapshot.names[place]: reason for place in places[there].tolist()}
        asked = found.keys() & set(names) if most and found else found
        return {name: found[name] for name in asked}

    def _judged(self, pod: Pod, look: Look, names: Sequence[str]) -> tuple[Decision | None, Sequence[str]]:
        """The decision on the nodes that are known, None where none is; and the names of the others."""
        places, unknown = look.snapshot.find(names)
        return (self._decide(_question(pod, look, places)) if len(places) else None), unknown

    def _decide(self, question: Question) -> Decision:
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
        """The pod of a request; what the watch or the question before this one has shown already is not read again.

        `prioritize` follows `filter` with the very same pod, and a pod of one `resourceVersion` never changes.
        """
        latest = self._latest
        if latest is not None and latest[0] == raw:
            return latest[1]
        pod = self._seen(raw)
        if pod is None:
            try:
                pod = self._read_pod(raw)
            except BadObject as error:
                raise BadRequest(str(error)) from error
            if not pod.uid:
                raise BadRequest(f"Pod {pod} has no uid")
        self._latest = (raw, pod)
        return pod

    def _seen(self, raw: Json) -> Pod | None:
        metadata = raw.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("uid"), str):
            return None
        pod = self._state.waiting(metadata["uid"])
        return pod if pod is not None and pod.version and pod.version == metadata.get("resourceVersion") else None


@dataclass(frozen=True, slots=True)
class _Expected:
    """What was judged before it was asked for, and on what; a snapshot is another one after every change."""

    asked: Asked
    snapshot: Snapshot
    decision: Decision | None
    unknown: Sequence[str]


def _question(pod: Pod, look: Look, places: Integers) -> Question:
    return Question(pod, look.footprint, look.snapshot, places, look.peers)
