"""A fleet under several models: each container by one that was not trained on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from recommender.engine.fleet import Fleet
from recommender.engine.foresight import PhaseForesight
from recommender.engine.keys import Instance
from recommender.engine.member import Member, NewContainer
from recommender.model import PhaseModel
from recommender.phases.tracking import PhaseTracker
from recommender.records import IntArray
from recommender.slots import SlotArrays, fresh


class FoldNumbers(SlotArrays):
    number: IntArray = fresh(0)


class FoldedFleet(Fleet):
    """A fleet under several models, stepped once: everything except phases and plans is computed for all together.

    The models have one lag; `fold_of` is the index of the model of each container. For the rest see `Containers`.
    """

    def __init__(
        self,
        models: Sequence[PhaseModel],
        fold_of: Mapping[Instance, int],
        step_s: float,
        cycle_samples: int,
        introduce: Callable[[Instance], NewContainer],
        *resume: Callable[..., None],
    ) -> None:
        super().__init__(models[0], step_s, cycle_samples, introduce, *resume)
        self._fold_of, self._folds = fold_of, FoldNumbers()
        self._trackers = [self.tracker, *(PhaseTracker(model.detector) for model in models[1:])]
        self._foresights = [self.foresight, *(PhaseForesight(model, step_s) for model in models[1:])]

    def set_objectives(self, target_violation: tuple[float, float], resizes_per_hour: float) -> None:
        for foresight in self._foresights:
            foresight.set_objectives(target_violation, resizes_per_hour)

    def _parts(self) -> tuple[SlotArrays, ...]:
        trackers, foresights = self._trackers[1:], self._foresights[1:]
        return (*super()._parts(), self._folds, *(one.state for one in trackers), *(one.state for one in foresights))

    def _table_of(self, member: Member) -> int:
        fold = self._folds.number[member.slot] = self._fold_of[member.instance]
        in_fold = self.arrays.alive & (self._folds.number == fold)
        return self._foresights[fold].table_of(member.phases_of, self.arrays.table[in_fold])

    def _by_model(self, slots: IntArray) -> Iterator[tuple[PhaseTracker, PhaseForesight, IntArray | slice]]:
        folds = self._folds.number[slots]
        for fold in sorted(set(folds.tolist())):
            yield self._trackers[fold], self._foresights[fold], np.flatnonzero(folds == fold)
