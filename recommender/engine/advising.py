"""Targets of the groups from the state of the containers: situation, guard rails, band."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from recommender.engine.band import banded_targets
from recommender.engine.cold_start import ColdStarts
from recommender.engine.container_arrays import NO_GROUP, POLICIES, UNDECIDED
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import DAY_S, TARGET
from recommender.engine.groups import Groups
from recommender.engine.keys import Group
from recommender.engine.member import slots_of
from recommender.engine.memory import explain_memory
from recommender.engine.options import Options
from recommender.engine.rails import RAILS, RailedTargets, apply_rails, rail_notes
from recommender.engine.shares import Shares
from recommender.engine.situation import DOUBTS, NO_DOUBT, Situation, assess
from recommender.engine.tally import Report
from recommender.engine.target import Target, Why
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, FloatArray, IntArray, amounts_of

DEFAULT_INTERVAL_S = 60.0
"""Interval of the default recommender's rounds."""


class Advising:
    """Decides `targets`: the target of each group that has one."""

    def __init__(self, fleet: Fleet, groups: Groups, cold_starts: ColdStarts, shares: Shares, options: Options) -> None:
        self._fleet, self._groups, self._cold_starts, self._shares = fleet, groups, cold_starts, shares
        self._options = options
        self.targets: dict[Group, Target] = {}
        self._situation: Situation | None = None
        self._railed: RailedTargets | None = None

    def forget(self, group: Group) -> None:
        self.targets.pop(group, None)

    def step(self, now_s: float, report: Report) -> None:
        """Decide the target of each group anew."""
        groups = self._groups.arrays
        shared = self._shares.shared(now_s, self._groups.slots, report)
        situation = assess(self._fleet, groups, *self._cold_starts.arrays(), shared, now_s, self._options.rails)
        needs_default = ~situation.from_experience | situation.evicts | groups.limits_follow | situation.doubtful
        self._query_default(np.flatnonzero(groups.alive & needs_default), now_s)
        wanted = np.where(situation.as_default, groups.default_estimate[:, TARGET], situation.wanted)
        groups.track_memory_demand(wanted[:, MEMORY], now_s)
        rails = apply_rails(situation, self._options.rails)
        in_default_bounds, options = situation.within_default_bounds, self._options.band
        advised = banded_targets(rails.target, in_default_bounds, situation.evicts, groups, options)
        self._situation, self._railed = situation, rails
        self._update_targets(advised, situation)

    def _query_default(self, slots: IntArray, now_s: float) -> None:
        """Refresh the default recommender's estimates that are due.

        It runs once a minute. With much history an estimate changes slowly: each holds for a tenth of the time that it
        rests on, and for a minute at most.
        """
        groups = self._groups.arrays
        holds_s = np.minimum(DEFAULT_INTERVAL_S, 0.1 * DAY_S * groups.history_days[slots])
        due = slots[now_s >= groups.default_asked_s[slots] + holds_s]
        if len(due):
            self.update_histories(due.tolist())
            self._groups.query_default(due, now_s)

    def update_histories(self, slots: Iterable[int]) -> None:
        """Bring the histograms of groups up to the latest samples."""
        members = self._fleet.members
        known = [members.get(instance) for slot in slots for instance in self._groups.instances[slot]]
        theirs = slots_of([member for member in known if member is not None])
        self._fleet.update_history(theirs[self._fleet.arrays.group[theirs] != NO_GROUP])

    def _update_targets(self, advised: FloatArray, situation: Situation) -> None:
        """Replace the targets that changed."""
        groups = self._groups.arrays
        known = groups.alive & ~np.isnan(advised).any(axis=(1, 2))
        stays = (
            situation.silent
            & (groups.published == advised[:, TARGET]).all(axis=1)
            & ~np.isnan(groups.advised).any(axis=(1, 2))
        )
        advised = np.where(stays[:, np.newaxis, np.newaxis], groups.advised, advised)
        moved = known & (advised != groups.advised).any(axis=(1, 2))
        changed = np.flatnonzero(groups.alive & (moved | (situation.doubt != groups.advised_doubt) | ~known))
        groups.advised[known] = advised[known]
        groups.advised_in_default_bounds[known] = situation.within_default_bounds[known, CPU]
        groups.advised_doubt[:] = np.where(known, situation.doubt, -1)
        groups.bump_revision(changed)
        for slot in changed.tolist():
            group = self._groups.by_slot[slot]
            if known[slot]:
                self.targets[group] = Target(group, Estimate(*advised[slot].copy()), DOUBTS[situation.doubt[slot]])
            else:
                self.targets.pop(group, None)

    def why(self, group: Group) -> Why:
        """Explain the target of a group, as of the last step."""
        slot, situation, rails = self._groups.slots[group], self._situation, self._railed
        if situation is None or rails is None or slot >= len(situation.wanted):
            return Why(POLICIES[UNDECIDED], (math.nan, math.nan), None, "", ())
        leading = self._fleet.by_slot.get(int(situation.leading[slot]))
        policy, rule = "histogram", ""
        if situation.doubt[slot] == NO_DOUBT and not situation.as_default[slot, CPU]:
            expected = self._cold_starts.expected.get(slot)
            if leading is not None:
                policy = POLICIES[self._fleet.arrays.decided_by[leading.slot]]
                rule = self._fleet.rule(leading)
            elif expected is not None:
                policy, rule = "class.runs", expected.rule()
            runs = self._cold_starts.runs_of(group, self._groups.workload[slot])
            input_size = math.nan if leading is None else float(self._fleet.arrays.input_size[leading.slot])
            target_kills = self._options.rails.target_kills_of(costly=bool(self._groups.arrays.costly[slot]))
            rule = f"{rule}; {explain_memory(runs, input_size, target_kills)}"
        notes = rail_notes(rails.acted, slot, situation, self._options.rails)
        default = amounts_of(self._groups.arrays.default_estimate[slot, TARGET])
        return Why(policy, amounts_of(situation.wanted[slot]), leading, rule, notes, default)

    def rails_acting(self) -> dict[str, int]:
        """Number of groups whose target each guard rail moved in the last step."""
        if self._railed is None:
            return {rail.name: 0 for rail in RAILS}
        acted = self._railed.acted
        counts = acted[:, self._groups.arrays.alive[: acted.shape[1]]].sum(axis=1)
        return {rail.name: int(count) for rail, count in zip(RAILS, counts, strict=True)}
