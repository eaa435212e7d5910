"""From all that is known of containers to the target of each group: the situation, the guard rails, the band."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from recommender.engine.band import published
from recommender.engine.cold_start import Expectations
from recommender.engine.container_arrays import NOBODY, POLICIES, UNDECIDED
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import TARGET
from recommender.engine.groups import Groups
from recommender.engine.keys import Group
from recommender.engine.member import slots_of
from recommender.engine.memory import memory_words
from recommender.engine.options import Options
from recommender.engine.rails import RAILS, Guarded, guarded, notes_of
from recommender.engine.shares import Shares
from recommender.engine.situation import DOUBTS, SURE, Situation, look
from recommender.engine.tally import Report
from recommender.engine.target import Target, Why
from recommender.policies.histogram import Estimate
from recommender.records import CPU, MEMORY, FloatArray, IntArray, amounts_of

DAY_S = 86400.0

LOOKED_UP_EVERY_S = 60.0
"""The default recommender looks at its histograms so often."""


class Advising:
    """What is advised.

    Attributes
    ----------
    targets
        What each group is to have, of those of which anything can be said.
    """

    def __init__(self, fleet: Fleet, groups: Groups, coming: Expectations, shares: Shares, options: Options) -> None:
        self._fleet, self._groups, self._coming, self._shares = fleet, groups, coming, shares
        self._options = options
        self.targets: dict[Group, Target] = {}
        self._situation: Situation | None = None
        self._guarded: Guarded | None = None

    def forget(self, group: Group) -> None:
        """One that is gone."""
        self.targets.pop(group, None)

    def step(self, now_s: float, report: Report) -> None:
        """Say anew what each group is to have."""
        groups = self._groups.arrays
        shared = self._shares.shared(now_s, self._groups.slots, report)
        situation = look(self._fleet, groups, *self._coming.arrays(), shared, now_s, self._options.rails)
        asks = ~situation.seen_before | situation.evicts | groups.limits_follow | situation.guesses
        self._ask_histograms(np.flatnonzero(groups.alive & asks), now_s)
        groups.want(np.where(situation.as_default, groups.known[:, TARGET], situation.wanted)[:, MEMORY], now_s)
        rails = guarded(situation, self._options.rails)
        advised = published(rails.target, situation.disturbs_nobody, situation.evicts, groups, self._options.band)
        self._situation, self._guarded = situation, rails
        self._say(advised, situation)

    def _ask_histograms(self, slots: IntArray, now_s: float) -> None:
        """What the default recommender would say of these, where it would look anew.

        It does so once a minute, and there is no haste in histograms: what they said holds for a tenth of the time that
        it rests on, and for that minute at most.
        """
        groups = self._groups.arrays
        holds_s = np.minimum(LOOKED_UP_EVERY_S, 0.1 * DAY_S * groups.known_days[slots])
        due = slots[now_s >= groups.known_s[slots] + holds_s]
        self.remember(due.tolist())
        self._groups.ask_histograms(due, now_s)

    def remember(self, slots: Iterable[int]) -> None:
        """Bring the histories of groups up to the latest samples."""
        members = self._fleet.members
        known = [members.get(instance) for slot in slots for instance in self._groups.instances[slot]]
        theirs = slots_of([member for member in known if member is not None])
        self._fleet.remember(theirs[self._fleet.arrays.group[theirs] != NOBODY])

    def _say(self, advised: FloatArray, situation: Situation) -> None:
        """Targets of those groups of which something changed."""
        groups = self._groups.arrays
        known = groups.alive & ~np.isnan(advised).any(axis=(1, 2))
        stays = (
            situation.silent
            & (groups.published == advised[:, TARGET]).all(axis=1)
            & ~np.isnan(groups.said).any(axis=(1, 2))
        )
        advised = np.where(stays[:, np.newaxis, np.newaxis], groups.said, advised)
        moved = known & (advised != groups.said).any(axis=(1, 2))
        news = np.flatnonzero(groups.alive & (moved | (situation.doubt != groups.said_doubt) | ~known))
        groups.said[known], groups.said_wide[known] = advised[known], situation.disturbs_nobody[known, CPU]
        groups.said_doubt[:] = np.where(known, situation.doubt, -1)
        self._groups.arrays.tell(news)
        for slot in news.tolist():
            group = self._groups.by_slot[slot]
            if known[slot]:
                self.targets[group] = Target(group, Estimate(*advised[slot].copy()), DOUBTS[situation.doubt[slot]])
            else:
                self.targets.pop(group, None)

    def why(self, group: Group) -> Why:
        """Why the target of a group is what it is, by the last step."""
        slot, situation, rails = self._groups.slots[group], self._situation, self._guarded
        if situation is None or rails is None or slot >= len(situation.wanted):
            return Why(POLICIES[UNDECIDED], (math.nan, math.nan), None, "", ())
        leading = self._fleet.by_slot.get(int(situation.leading[slot]))
        policy, rule = "histogram", ""
        if situation.doubt[slot] == SURE and not situation.as_default[slot, CPU]:
            expected = self._coming.expected.get(slot)
            if leading is not None:
                policy = POLICIES[self._fleet.arrays.decided_by[leading.slot]]
                rule = self._fleet.rule(leading)
            elif expected is not None:
                policy, rule = "class.runs", expected.rule()
            runs = self._coming.runs_of(group, self._groups.workload[slot])
            input_size = math.nan if leading is None else float(self._fleet.arrays.input_size[leading.slot])
            target_kills = self._options.rails.may_be_killed(costly=bool(self._groups.arrays.costly[slot]))
            rule = f"{rule}; {memory_words(runs, input_size, target_kills)}"
        notes = notes_of(rails.acted, slot, situation, self._options.rails)
        default = amounts_of(self._groups.arrays.known[slot, TARGET])
        return Why(policy, amounts_of(situation.wanted[slot]), leading, rule, notes, default)

    def rails_acting(self) -> dict[str, int]:
        """Of how many groups each guard rail moved the target in the last step."""
        if self._guarded is None:
            return {rail.name: 0 for rail in RAILS}
        acted = self._guarded.acted
        of_rails = acted[:, self._groups.arrays.alive[: acted.shape[1]]].sum(axis=1)
        return {rail.name: int(number) for rail, number in zip(RAILS, of_rails, strict=True)}
