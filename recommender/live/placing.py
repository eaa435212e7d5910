"""Whose each container is, kept from round to round, and worked out again only where something changed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import INPUT_SIZE
from recommender.engine.tally import Report
from recommender.live.containers import ContainerIndex
from recommender.live.rules import shares
from recommender.live.view.view import SelectedPods, View
from recommender.live.vpa_state import VpaState


class Placed(NamedTuple):
    """A VPA with what was placed of it, and how its pods share their nodes."""

    state: VpaState
    selection: SelectedPods
    shares: str


class Placing:
    """Selects the pods of all VPAs.

    Parameters
    ----------
    index
        Kept up to date.
    """

    def __init__(self, view: View, index: ContainerIndex) -> None:
        self.index = index
        self._view = view
        self._placed: dict[ObjectKey, Placed] = {}

    def select(self, states: Collection[VpaState], report: Report) -> None:
        """The pods of each, as they are now."""
        report.each(states, VpaState.name, self._select)
        if not self._are_placed(states):
            self._place(states, report)

    def _select(self, state: VpaState) -> None:
        """Where they cannot be told now, those known before stay; where none were, that is no word on pods at all."""
        try:
            state.selection = self._view.select(state.vpa)
        except ClusterError as error:
            if not state.told:
                state.selection = SelectedPods((), {}, f"Cannot tell its pods: {error}")
            raise
        state.told = True

    def _are_placed(self, states: Collection[VpaState]) -> bool:
        """Everything is as it was: most rounds of a quiet cluster."""
        return (
            not self.index.contested
            and len(states) == len(self._placed)
            and all(_same(self._placed.get(one.vpa.key), _placed(one)) for one in states)
        )

    def _place(self, states: Collection[VpaState], report: Report) -> None:
        """Bring the index up to date."""
        # Of two VPAs for one pod the updater obeys the older one of those that are not Off.
        ordered = sorted(states, key=lambda one: (one.vpa.update_mode == "Off", one.vpa.created_s, one.vpa.key))
        now = {state.vpa.key: _placed(state) for state in ordered}
        if not self._renew(now, report):
            self.index.clear()
            self._add(ordered, report)
        self._placed = now

    def _renew(self, now: dict[ObjectKey, Placed], report: Report) -> bool:
        """Place those anew whose pods are not the same; False when all must be, since one pod has several VPAs."""
        if self.index.contested or not self._placed or self._placed.keys() - now.keys():
            return False
        changed = [key for key, placed in now.items() if not _same(self._placed.get(key), placed)]
        self.index.version += bool(changed)  # also where nobody lives any more, or yet
        for key in changed:
            before = self._placed.get(key)
            if before is not None:
                for pod in before.selection.pods:
                    self.index.drop(before.state, pod)
        self._add((now[key].state for key in changed), report)
        return not self.index.contested

    def _add(self, states: Iterable[VpaState], report: Report) -> None:
        for state in states:
            for pod in state.selection.pods:
                self.index.add(state, pod)
                if INPUT_SIZE in pod.annotations and math.isnan(pod.input_size):
                    report.refuse(f"pod {pod.key}", f"{INPUT_SIZE} that is no positive number")


def _placed(state: VpaState) -> Placed:
    return Placed(state, state.selection, shares(state.vpa))


def _same(one: Placed | None, other: Placed) -> bool:
    if one is None:
        return False
    return one.state is other.state and one.selection is other.selection and one.shares == other.shares
