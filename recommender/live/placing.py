"""Whose each container is, kept from round to round, and worked out again only where something changed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
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
        """The pods of each, as they are now; where everything is as it was, as in most rounds, that is all."""
        report.each(states, VpaState.name, self._select)
        now = {state.vpa.key: Placed(state, state.selection, shares(state.vpa)) for state in states}
        changed = [key for key, placed in now.items() if not _same(self._placed.get(key), placed)]
        if changed or self.index.contested or len(now) != len(self._placed):
            self._place(now, changed, report)
        self._placed = now

    def _select(self, state: VpaState) -> None:
        """Where they cannot be told now, those known before stay; where none were, that is no word on pods at all."""
        try:
            state.selection = self._view.select(state.vpa)
        except ClusterError as error:
            if not state.told:
                state.selection = SelectedPods((), {}, f"Cannot tell its pods: {error}")
            raise
        state.told = True

    def _place(self, now: Mapping[ObjectKey, Placed], changed: Collection[ObjectKey], report: Report) -> None:
        """Place those anew whose pods are not the same; all of them where one pod has, or had, several VPAs."""
        all_anew = self.index.contested or not self._placed or bool(self._placed.keys() - now.keys())
        if not all_anew:
            self.index.version += bool(changed)  # also where nobody lives any more, or yet
            for key in changed:
                if (before := self._placed.get(key)) is not None:
                    for pod in before.selection.pods:
                        self.index.drop(before.state, pod)
            self._add([now[key].state for key in changed], report)
        if all_anew or self.index.contested:
            self.index.clear()
            self._add([placed.state for placed in now.values()], report)

    def _add(self, states: Iterable[VpaState], report: Report) -> None:
        # Of two VPAs for one pod the updater obeys the older one of those that are not Off.
        for state in sorted(states, key=lambda one: (one.vpa.update_mode == "Off", one.vpa.created_s, one.vpa.key)):
            for pod in state.selection.pods:
                self.index.add(state, pod)
                if INPUT_SIZE in pod.annotations and math.isnan(pod.input_size):
                    report.refuse(f"pod {pod.key}", f"{INPUT_SIZE} that is no positive number")


def _same(one: Placed | None, other: Placed) -> bool:
    if one is None:
        return False
    return one.state is other.state and one.selection is other.selection and one.shares == other.shares
