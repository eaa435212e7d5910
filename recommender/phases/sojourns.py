"""How long phases last and what follows them, counted live: a semi-Markov graph of the class, leaning on all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender.errors import BadArtifact
from recommender.kernels.occupancy import chance_to_end, occupancy_by_context
from recommender.records import FloatArray, IntArray

BUCKETS = 8
"""Of dwell: 1, 2-3, 4-7, ... 128 steps and longer."""

SOON_STEPS = 2
"""However late a change may be in force: a phase that is to last for so many steps and one more is there to stay."""

LEANS_HAZARD, LEANS_FOLLOWERS = 5.0, 2.0
"""A context counts as much as its parent with so many observations of its own."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """What is known of where each sample stands: the phase, the one before (0: none, else phase + 1), and the dwell."""

    phases: IntArray
    before: IntArray
    dwell_steps: IntArray

    @classmethod
    def of(cls, labels: IntArray) -> Contexts:
        """Of every sample of one run, from its phases."""
        starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        visit = np.cumsum(np.concatenate([[0], labels[1:] != labels[:-1]]))
        before = np.concatenate([[0], labels[starts[1:] - 1] + 1])[visit]
        return cls(labels, before, np.arange(len(labels)) - starts[visit] + 1)

    @property
    def buckets(self) -> IntArray:
        return bucket_of(self.dwell_steps)


def bucket_of(dwell_steps: IntArray) -> IntArray:
    """Bucket of a dwell of at least one step."""
    buckets: IntArray = np.minimum(np.log2(dwell_steps).astype(np.int64), BUCKETS - 1)
    return buckets


@dataclass(frozen=True, slots=True)
class Foresight:
    """Tables by (phase before, phase, bucket of dwell), as `occupancy_by_context` fills them."""

    occupancy: FloatArray
    ends: FloatArray


@dataclass(slots=True)
class Sojourns:
    """Counts of the visits to phases.

    Attributes
    ----------
    exposed, left
        float64 (1 + phases, phases, BUCKETS): samples in each context, and how many of them were the last of a visit.
    followed
        float64 (1 + phases, phases, phases): what came next.
    """

    exposed: FloatArray
    left: FloatArray
    followed: FloatArray

    @classmethod
    def empty(cls, phases: int) -> Sojourns:
        shape = (phases + 1, phases, BUCKETS)
        return cls(np.zeros(shape), np.zeros(shape), np.zeros((phases + 1, phases, phases)))

    @property
    def n_phases(self) -> int:
        return int(self.followed.shape[1])

    def learn(self, labels: IntArray) -> None:
        """Count one finished run, from the phase of each of its samples."""
        contexts = Contexts.of(labels)
        seen = slice(0, len(labels) - 1)
        place = contexts.before[seen], contexts.phases[seen]
        np.add.at(self.exposed, (*place, contexts.buckets[seen]), 1.0)
        changes = np.flatnonzero(labels[1:] != labels[:-1])
        place = contexts.before[changes], contexts.phases[changes]
        np.add.at(self.left, (*place, contexts.buckets[changes]), 1.0)
        np.add.at(self.followed, (*place, labels[changes + 1]), 1.0)

    def learn_visit(self, before: int, phase: int, dwell_steps: int, following: int) -> None:
        """Count one visit that ended, its context as in `Contexts`."""
        self.exposed[before, phase] += np.bincount(bucket_of(np.arange(1, dwell_steps + 1)), minlength=BUCKETS)
        self.left[before, phase, bucket_of(np.array(dwell_steps))] += 1.0
        self.followed[before, phase, following] += 1.0

    def hazard(self, prior: FloatArray | None = None) -> FloatArray:
        """Chance that a visit ends with the next step, each context leaning on shorter ones, these on all classes.

        Parameters
        ----------
        prior
            The hazard of all classes, which shorter contexts of one class lean on; None leans on the mean over all.
        """
        if prior is not None:
            of_class = _shrunk(self.left.sum(axis=0), self.exposed.sum(axis=0), prior)
            return _shrunk(self.left, self.exposed, of_class)
        overall = (self.left.sum() + 1.0) / (self.exposed.sum() + 20.0)
        of_phase = _shrunk(self.left.sum(axis=(0, 2)), self.exposed.sum(axis=(0, 2)), overall)
        of_age = _shrunk(self.left.sum(axis=0), self.exposed.sum(axis=0), of_phase[:, np.newaxis])
        return _shrunk(self.left, self.exposed, of_age[np.newaxis])

    def followers(self, prior: FloatArray | None = None) -> FloatArray:
        """Chance of each next phase, by the phase before and the one that ends; never the same again."""
        first_order = self.followed.sum(axis=0)
        if prior is None:
            often = first_order.sum(axis=0) + 1.0
            anything = np.tile(often, (self.n_phases, 1))
            np.fill_diagonal(anything, 0.0)
            anything /= np.maximum(anything.sum(axis=1, keepdims=True), 1e-300)
            prior = anything[np.newaxis]
        return _mixed(self.followed, _mixed(first_order, prior))

    def foresight(self, lead_steps: int, ahead_steps: int, everyone: Sojourns | None = None) -> Foresight:
        """Occupancy of `ahead_steps` steps after a change is in force, and the chance that the phase ends by then.

        Parameters
        ----------
        everyone
            Counts over all classes, which this one leans on.
        """
        hazard = self.hazard(None if everyone is None else everyone.hazard())
        followers = self.followers(None if everyone is None else everyone.followers())
        occupancy = np.empty((*hazard.shape, self.n_phases))
        occupancy_by_context(hazard, followers, lead_steps, ahead_steps, occupancy)
        return Foresight(occupancy, _ends(hazard, lead_steps + 1))

    def to_provide_for(self, lead_steps: int, ahead_steps: int, everyone: Sojourns | None = None) -> Foresight:
        """The same for a plan: a change may be in force at once, so the present phase counts by its chance to go on.

        So an allocation is raised before a phase comes, and lowered when the present one is about to end.
        """
        seen = self.foresight(lead_steps, ahead_steps, everyone)
        hazard = self.hazard(None if everyone is None else everyone.hazard())
        goes_on = 1.0 - _ends(hazard, min(lead_steps, SOON_STEPS) + 1)
        for phase in range(self.n_phases):
            here = seen.occupancy[:, phase, :, phase]
            np.maximum(here, goes_on[:, phase], out=here)
        return seen

    def to_state(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, for the model folder; no count is so large that float32 would round it by much."""
        return {field.name: getattr(self, field.name).astype(np.float32) for field in fields(self)}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], phases: int) -> Sojourns:
        """The counts that `to_state` wrote, of so many phases.

        Raises
        ------
        BadArtifact
            Something is missing or does not fit.
        """
        counts = cls.empty(phases)
        for field in fields(cls):
            kept = arrays.get(field.name)
            if (
                kept is None
                or kept.shape != getattr(counts, field.name).shape
                or not (np.isfinite(kept) & (kept >= 0)).all()
            ):
                raise BadArtifact(f"the model's visits: {field.name} does not fit {phases} phases. Train it again.")
            setattr(counts, field.name, kept.astype(np.float64))
        return counts


def _ends(hazard: FloatArray, within_steps: int) -> FloatArray:
    """float64 (1 + phases, phases, BUCKETS): chance that a visit ends within so many steps."""
    ends = np.empty(hazard.shape)
    chance_to_end(hazard, within_steps, ends)
    return ends


def _shrunk(happened: FloatArray, tried: FloatArray, prior: FloatArray | float) -> FloatArray:
    shares: FloatArray = (happened + LEANS_HAZARD * prior) / (tried + LEANS_HAZARD)
    return shares


def _mixed(counts: FloatArray, prior: FloatArray) -> FloatArray:
    shares: FloatArray = (counts + LEANS_FOLLOWERS * prior) / (counts.sum(axis=-1, keepdims=True) + LEANS_FOLLOWERS)
    return shares
