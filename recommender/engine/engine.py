"""One step: from what was observed of containers to the target of each group.

The engine knows no Kubernetes and no clock. The same steps with the same `Seen` give the same targets, whether they
come from a cluster, a record or a replay of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from recommender.base.records import (
    CPU,
    MEMORY,
    Amounts,
    BoolArray,
    FloatArray,
    IntArray,
    amounts_of,
    in_both,
    in_either,
)
from recommender.engine import persistence
from recommender.engine.band import banded_targets, safe_value
from recommender.engine.classes import Classes, learn_finished_run
from recommender.engine.cold_start import ColdStarts
from recommender.engine.container_arrays import NO_GROUP, POLICIES, UNDECIDED
from recommender.engine.containers import Containers, Member, NewContainer, slots_of
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import LOWER, TARGET, UPPER
from recommender.engine.groups import Groups
from recommender.engine.judging import judge, matches_in_force
from recommender.engine.keys import Group, Instance, Rules, Running, WorkloadKey
from recommender.engine.kills import Kills
from recommender.engine.lead_time import LeadTime
from recommender.engine.memory import decide_memory, explain_memory, next_run
from recommender.engine.options import Options
from recommender.engine.rails import RAILS, apply_rails, rail_notes, rails_acted
from recommender.engine.seen import Memory, Samples, Seen
from recommender.engine.shares import Shares, Work
from recommender.engine.situation import DOUBTS, NO_DOUBT, Situation, assess
from recommender.engine.tally import Report
from recommender.engine.target import Target, Why
from recommender.kernels.histogram import DAY_S
from recommender.kernels.samples import LIMIT_HEADROOM, MIN_CENSORED_SAMPLES
from recommender.learning.model import PhaseModel
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import DEFAULT_INTERVAL_S, Estimate, HistogramAggregate

MAX_LEAD_STEPS = 600
"""Longer lead times count as this long: forecasts are computed step by step."""


class Engine:
    """The state between steps, and the step.

    `fleet` has no containers yet. `lead_time` is how long ahead to publish, by default the time between samples;
    `memory` what is known from before a restart; `classes` are earlier runs, which may be shared with other engines.
    """

    def __init__(
        self,
        fleet: Fleet,
        options: Options,
        lead_time: LeadTime | None = None,
        memory: Memory | None = None,
        classes: Classes | None = None,
    ) -> None:
        self.options, self._memory = options, memory or Memory()
        self.fleet, self.groups = fleet, Groups()
        fleet.introduce, fleet.resume = self._introduce, self._resume
        fleet.set_objectives(options.rails.target_violation, options.rails.resizes_per_hour)
        self.classes = Classes() if classes is None else classes
        self.classes.set_trained(fleet.memory_variances)
        self.lead_time = LeadTime(None, self.fleet.step_s) if lead_time is None else lead_time
        self.running: dict[Instance, Running] = {}
        self._deferred: set[Instance] = set()
        self._cold_starts = ColdStarts(self.fleet, self.groups, self.classes, self.running, options.rails)
        self._report, self._now_s = Report(), -math.inf  # of the present step, for the callbacks of the fleet
        self._shares, self._began_s = Shares(self._work_of), math.inf
        self._kills = Kills(self.fleet, self.groups, self.classes, options.rails.memory_margin)
        self.targets: dict[Group, Target] = {}
        self.retargeted: dict[Group, None] = {}  # whose target is new, another or gone since the step before
        self._situation: Situation | None = None
        self._railed = [np.empty((0, 2))] * (len(RAILS) + 1)

    def step(self, now_s: float, seen: Seen, report: Report) -> Mapping[Group, Target]:
        """Take in what was observed, and return the target of each group; `now_s` in unix seconds.

        A failure of one object affects that object only, and is reported.
        """
        self.retargeted = {}
        if now_s < self._now_s:
            self.groups.arrays.follow_clock(slice(None), now_s)
            self._shares.follow_clock(now_s)
        self._report, self._now_s, self._began_s = report, now_s, min(self._began_s, now_s)
        self._take_groups(seen.groups, now_s, report)
        self._kills.learn(seen.kills, now_s, report)
        self._take_containers(seen.containers, now_s, report)
        self._shares.take_nodes(seen.nodes)
        self.fleet.lead_s = min(self.lead_time.seconds, MAX_LEAD_STEPS * self.fleet.step_s)
        self._take_samples(seen, now_s, report)
        self._kills.apply(seen.kills, now_s, report)
        self._forecast(now_s, report)
        self._advise(now_s, report)
        self._remove_finished(now_s, report)
        return self.targets

    def published(self, group: Group, target: Amounts, in_force: Amounts, now_s: float) -> bool:
        """Record that a target was published, before and after all limits; True when it changed."""
        slot = self.groups.slots[group]
        changed = self.groups.arrays.publish(slot, target, in_force, now_s)
        lower, _, upper = self.groups.arrays.targets[slot]
        for instance in self.groups.instances[slot]:
            running = self.running[instance]
            boosted = math.isnan(running.requests[CPU]) and not math.isnan(in_force[CPU])  # resized once that ends
            if running.finished or boosted or running.started_s is None:
                continue
            # The updater leaves a container within its bounds alone: that is no slow resize.
            stays = in_both((lower <= running.requests) & (running.requests <= upper))
            wanted = running.requests if stays else in_force
            self.lead_time.published(instance, wanted, running.requests, now_s, (group.namespace, group.vpa))
        return changed

    def adopt(self, model: PhaseModel) -> None:
        self.fleet.adopt(model)
        self.classes.set_trained(model.memory_variances)

    def why(self, group: Group) -> Why:
        """Explain the target of a group, as of the last step."""
        slot, situation, options = self.groups.slots[group], self._situation, self.options.rails
        if situation is None or slot >= len(situation.wanted):
            return Why(POLICIES[UNDECIDED], (math.nan, math.nan), None, "", ())
        leading = self.fleet.by_slot.get(int(situation.leading[slot]))
        policy, rule = "histogram", ""
        if situation.doubt[slot] == NO_DOUBT and not situation.as_default[slot, CPU]:
            expected = self._cold_starts.expected.get(slot)
            if leading is not None:
                policy, rule = POLICIES[self.fleet.arrays.decided_by[leading.slot]], self.fleet.rule(leading)
            elif expected is not None:
                policy, rule = "class.runs", expected.rule()
            runs = self._cold_starts.runs_of(group, self.groups.workload[slot])
            input_size = math.nan if leading is None else float(self.fleet.arrays.input_size[leading.slot])
            costly = bool(self.groups.arrays.costly[slot])
            spread = self.classes.spread(group.namespace)
            run = next_run(self.groups.arrays, slot, input_size, options, spread, costly=costly)
            rule = f"{rule}; {explain_memory(runs, run)}"
        notes = rail_notes(self._railed, slot, situation, options)
        default = amounts_of(self.groups.arrays.default_estimate[slot, TARGET])
        return Why(policy, amounts_of(situation.wanted[slot]), leading, rule, notes, default)

    def rails_acting(self) -> dict[str, int]:
        """Number of groups whose target each guard rail moved in the last step."""
        acted = rails_acted(self._railed)
        counts = acted[:, self.groups.arrays.alive[: acted.shape[1]]].sum(axis=1)
        return {rail.name: int(count) for rail, count in zip(RAILS, counts, strict=True)}

    def revisions_of(self, groups: Iterable[Group]) -> list[tuple[int, int]]:
        """Revision of each group, counting changes worth showing, and that of its durable state."""
        arrays, slots = self.groups.arrays, self.groups.slots
        return [(int(arrays.revision[slots[group]]), int(arrays.durable_revision[slots[group]])) for group in groups]

    def killed_s(self, groups: Iterable[Group]) -> float:
        """Time of the last OOM kill in these groups, unix seconds; minus infinity without one."""
        slots = self.groups.slots
        return max((float(self.groups.arrays.killed_s[slots[group]]) for group in groups), default=-math.inf)

    def kept_of(self, group: Group) -> dict[str, Any]:
        """State of a group that must survive a restart, ready for JSON; its histograms have a checkpoint."""
        return self.groups.kept(self.groups.slots[group])

    def published_target(self, group: Group) -> Amounts:
        """The published target before limits; NaN if there is none."""
        return amounts_of(self.groups.arrays.published[self.groups.slots[group]])

    def history(self, group: Group) -> HistogramAggregate:
        """Histograms of the default recommender for a group, up to the latest samples."""
        slot = self.groups.slots[group]
        self._update_histories([slot])
        return self.groups.history[slot]

    def workload_classes(self) -> set[WorkloadKey]:
        """The classes of the groups: also while none of their containers runs, the next run is one of them."""
        groups = self.groups
        return {
            WorkloadKey(groups.by_slot[slot].namespace, workload)
            for slot, workload in groups.workload.items()
            if workload is not None
        }

    def used(self, group: Group) -> Amounts:
        """Cores and bytes: present usage of the largest of its containers; 0 if unknown."""
        slots = slots_of(self.members_of(group))
        return amounts_of(np.fmax.reduce(self.fleet.arrays.used[slots], axis=0, initial=0.0))

    def safe_value(self, group: Group, now_s: float) -> Estimate | None:
        """The value to leave behind at shutdown, see `band.safe_value`; None if the published target will do."""
        slot = self.groups.slots[group]
        self.history(group)
        return safe_value(
            self.groups, slot, [self.running[instance] for instance in self.groups.instances[slot]], now_s, self.options
        )

    def next_run(self, group: Group, input_size: float) -> Amounts | None:
        """Cores and bytes for the next container of a group at its start, if its class bounds them; else None."""
        slot = self.groups.slots.get(group)
        start = None if slot is None else self._cold_starts.next_run(slot, input_size)
        return start.wanted if start is not None and start.promised else None

    def members_of(self, group: Group) -> list[Member]:
        """Live containers of a group that have samples."""
        found = (self.fleet.members.get(instance) for instance in self.groups.instances[self.groups.slots[group]])
        return [member for member in found if member is not None and self.fleet.arrays.group[member.slot] != NO_GROUP]

    # -- input -----------------------------------------------------------------------------------------------------

    def _take_groups(self, changed: Mapping[Group, Rules | None], now_s: float, report: Report) -> None:
        for group, rules in changed.items():
            with report.guard(group):
                if rules is None:
                    self._withdraw(group)
                    self._cold_starts.forget(slot := self.groups.slots[group])
                    self.groups.remove(group)
                    self.fleet.arrays.group[self.fleet.arrays.group == slot] = NO_GROUP
                else:
                    if group not in self.groups.slots:
                        self.groups.add(group, self._memory.group(group), now_s, self.options.rails.memory_margin)
                    self.groups.set_rules(group, rules)

    def _take_containers(self, changed: Mapping[Instance, Running | None], now_s: float, report: Report) -> None:
        touched: set[int] = set()
        for instance, running in changed.items():
            with report.guard(instance):
                before = self.running.get(instance)
                for known in (before, running):
                    if known is not None and (slot := self.groups.slots.get(known.group)) is not None:
                        touched.add(slot)
                        self.groups.instances[slot].pop(instance, None)
                self._deferred.discard(instance)
                if running is None:
                    self.running.pop(instance, None)
                    self._shares.forget(instance, now_s)
                    self._kills.learned.discard(instance)
                    if instance not in self.fleet.members:  # members are removed after their last samples
                        self.groups.leave([instance])
                else:
                    self.running[instance] = running
                    self._take_container(instance, running, before, report)
                    self._shares.place(instance, running, self.groups.declared(running.group)[CPU], now_s)
                self._place(instance)
        for instance in sorted(self._deferred - changed.keys()):
            self._measure_resize(instance, now_s, report)
        self.groups.arrays.bump_revision(list(touched), durable=True)
        for slot in touched:
            self.groups.update_running(slot, [self.running[instance] for instance in self.groups.instances[slot]])
            self._cold_starts.changed(slot)

    def _take_container(self, instance: Instance, running: Running, before: Running | None, report: Report) -> None:
        slot = self.groups.slots.get(running.group)
        if slot is not None:
            self.groups.instances[slot][instance] = None
            self.groups.workload[slot] = running.workload or self.groups.workload[slot]
        if running.deferred_since_s < math.inf:
            self._deferred.add(instance)
        self._measure_resize(instance, self._now_s, report)
        member, started_s = self.fleet.members.get(instance), running.started_s
        same = before is not None and before.started_s == started_s  # then at most a clock was set back
        if member is None or started_s is None or same:
            return
        if started_s > (int(self.fleet.arrays.start_cell[member.slot]) + 1) * self.fleet.step_s:
            self.fleet.reset_run(member, min(started_s, self._now_s))

    def _measure_resize(self, instance: Instance, now_s: float, report: Report) -> None:
        deferred = instance in self._deferred
        delay_s = self.lead_time.observe(instance, self.running[instance].requests, now_s, deferred=deferred)
        if delay_s is not None and math.isfinite(delay_s):
            report.resizes_s.append(delay_s)

    def _place(self, instance: Instance) -> None:
        """Update the arrays of a container, except for its usage."""
        member, running = self.fleet.members.get(instance), self.running.get(instance)
        if member is None:
            return
        arrays, slot = self.fleet.arrays, member.slot
        if running is None:
            arrays.group[slot] = NO_GROUP
            return
        arrays.group[slot] = NO_GROUP if running.finished else self.groups.slots.get(running.group, NO_GROUP)
        if running.requests[CPU] > arrays.requests[slot, CPU]:  # whether it uses all of that must show again
            arrays.censored_samples[slot] = min(arrays.censored_samples[slot], MIN_CENSORED_SAMPLES - 1)
        arrays.requests[slot], arrays.limits[slot] = running.requests, running.limits
        arrays.input_size[slot], arrays.costly[slot] = running.input_size, running.costly
        self._reassign(member, running)

    def _reassign(self, member: Member, running: Running) -> None:
        """Move a container to its present VPA, with later samples and the peak memory of its run, and to its class."""
        group = int(self.fleet.arrays.group[member.slot])
        if group != NO_GROUP and (history := self.groups.session(group, member.instance)) is not member.history:
            self.fleet.update_history(slots := slots_of([member]))
            member.history = history
            self._record_memory(slots, self.fleet.memory.largest_bytes[slots], self._now_s)
        if running.workload != member.workload:
            self.fleet.assign_class(member, running.workload, self._runs_of(member.instance, running))

    def _take_samples(self, seen: Seen, now_s: float, report: Report) -> None:
        with report.guard("metrics"):
            samples = self._of_ours(seen.samples)
            fresh = self.fleet.observe(samples, now_s)
            self._shares.observe(samples, self.fleet.usable, seen.evaluations)
            report.samples = len(fresh)
            for instance, why in self.fleet.refused:
                report.refuse(instance, why)
            self.groups.arrays.bump_revision(self.fleet.arrays.group[self.fleet.phase_changed])
            owner = self.fleet.arrays.group
            slots = np.flatnonzero((np.bincount(fresh, minlength=len(owner)) > 0) & (owner != NO_GROUP))
            judge(self.fleet, self.groups.arrays, slots, self.options.rails.target_violation, report, now_s)
            at_s, _, memory_bytes = samples.values[self.fleet.usable].T
            self._record_memory(self.fleet.owners, memory_bytes, at_s)

    def _of_ours(self, samples: Samples) -> Samples:
        """Samples of running containers that have a group."""
        running, groups = self.running, self.groups.slots
        ours = [
            (one := running.get(instance)) is not None and not one.finished and one.group in groups
            for instance in samples.instances
        ]
        if all(ours):  # the usual case
            return samples
        instances = [one for one, is_ours in zip(samples.instances, ours, strict=True) if is_ours]
        return Samples(instances, samples.values[ours])

    def _record_memory(self, slots: IntArray, used_bytes: FloatArray, at_s: FloatArray | float) -> None:
        """Record every memory sample, not only the latest of a container: the peak may have been an earlier one."""
        owner, ages_s = self.fleet.arrays.group[slots], self.fleet.ages_s(slots, at_s)
        ours = owner != NO_GROUP
        self.groups.arrays.record_memory(owner[ours], used_bytes[ours], ages_s[ours], self._now_s)

    # -- decisions -------------------------------------------------------------------------------------------------

    def _forecast(self, now_s: float, report: Report) -> None:
        due, arrays = self.fleet.due(now_s), self.fleet.arrays
        slots = slots_of(due)
        undecided = slots[arrays.decided_by[slots] == UNDECIDED]
        try:
            report.decisions += self.fleet.decide(due, now_s)
        except Exception:  # noqa: BLE001  # retry one by one, so that only the faulty container gets no decision
            for member in self.fleet.due(now_s):
                with report.guard(member.instance):
                    report.decisions += self.fleet.decide([member], now_s)
        self.groups.arrays.bump_revision(arrays.group[undecided], durable=True)
        with report.guard("memory"):
            decide_memory(self.fleet, self.groups.arrays, self.classes, self.options.rails)
        self._cold_starts.update(now_s, report)

    def _advise(self, now_s: float, report: Report) -> None:
        """Decide the target of each group anew: situation, guard rails, band."""
        groups, options = self.groups.arrays, self.options
        shared = self._shares.shared(now_s, self.groups.slots, report)
        situation = assess(self.fleet, groups, *self._cold_starts.arrays(), shared, now_s, options.rails)
        needs_default = ~situation.from_experience | situation.evicts | groups.limits_follow | situation.doubtful
        needs_default |= situation.cpu_needs_experience
        self._query_default(np.flatnonzero(groups.alive & needs_default), situation.evicts, now_s)
        wanted = np.where(situation.as_default, groups.default_estimate[:, TARGET], situation.wanted)
        groups.track_memory_demand(wanted[:, MEMORY], now_s)
        self._situation, self._railed = situation, apply_rails(situation, options.rails)
        self._update_targets(situation, self._railed[-1])

    def _query_default(self, slots: IntArray, evicts: BoolArray, now_s: float) -> None:
        """Refresh the default recommender's estimates that are due.

        It runs once a minute. With much history an estimate changes slowly: each holds for a tenth of the time that it
        rests on, and for a minute at most. Where a change evicts, it holds until the next minute of the clock begins.
        """
        groups = self.groups.arrays
        asked_s, days = groups.default_asked_s[slots], groups.history_days[slots]
        asked_before_s = now_s - np.minimum(DEFAULT_INTERVAL_S, 0.1 * DAY_S * days)
        this_minute_s = now_s - now_s % DEFAULT_INTERVAL_S
        due = slots[np.where(evicts[slots], asked_s < this_minute_s, asked_s <= asked_before_s)]
        if len(due):
            self._update_histories(due.tolist())
            self.groups.query_default(due, now_s)

    def _update_histories(self, slots: Iterable[int]) -> None:
        members = self.fleet.members
        known = [members.get(instance) for slot in slots for instance in self.groups.instances[slot]]
        theirs = slots_of([member for member in known if member is not None])
        self.fleet.update_history(theirs[self.fleet.arrays.group[theirs] != NO_GROUP])

    def _update_targets(self, situation: Situation, target: FloatArray) -> None:
        """Replace the targets that changed, by those after all rails, float64 (n, 2)."""
        groups, in_default_bounds = self.groups.arrays, situation.as_default
        keeps, evicts = situation.keeps_published, situation.evicts
        targets = banded_targets(target, in_default_bounds, keeps, evicts, groups, self.options.band)
        known = groups.alive & ~in_either(np.isnan(targets[:, TARGET]))
        had_target = ~np.isnan(groups.targets[:, TARGET, CPU])
        stays = situation.silent & had_target & in_both(groups.published == targets[:, TARGET])
        # Looking more often than the default recommender would evict pods at peaks that it does not see.
        stays |= situation.evicts & had_target & (groups.default_asked_s < self._now_s)
        targets[stays] = groups.targets[stays]
        differs = in_either(targets != groups.targets)
        moved = known & (differs[:, LOWER] | differs[:, TARGET] | differs[:, UPPER])
        changed = np.flatnonzero(groups.alive & (moved | (situation.doubt != groups.target_doubt) | ~known))
        groups.targets[known] = targets[known]
        groups.target_in_default_bounds[known] = in_default_bounds[known, CPU]
        groups.target_doubt[:] = np.where(known, situation.doubt, -1)
        groups.bump_revision(changed)
        doubts, is_known = situation.doubt[changed].tolist(), known[changed].tolist()
        for slot, estimate, doubt, has_target in zip(changed.tolist(), targets[changed], doubts, is_known, strict=True):
            group = self.groups.by_slot[slot]
            if has_target:
                self.targets[group] = Target(group, Estimate(*estimate.copy()), DOUBTS[doubt])
                self.retargeted[group] = None
            else:
                self._withdraw(group)

    def _withdraw(self, group: Group) -> None:
        if self.targets.pop(group, None) is not None:
            self.retargeted[group] = None

    def _remove_finished(self, now_s: float, report: Report) -> None:
        """Remove containers whose pod is gone or finished, and learn runs that completed."""
        gone = []
        for slot in np.flatnonzero(self.fleet.arrays.alive & (self.fleet.arrays.group == NO_GROUP)).tolist():
            member = self.fleet.by_slot[slot]
            running = self.running.get(member.instance)
            if running is None or running.finished:
                gone.append(member.instance)
                with report.guard(member.instance):
                    if running is not None:
                        killed = member.instance in self._kills.learned
                        declared_bytes = self.groups.declared(running.group)[MEMORY]
                        report.runs += learn_finished_run(
                            self.classes, self.fleet, member, running, now_s, declared_bytes, killed=killed
                        )
        if gone:
            self.fleet.remove(gone)
            self.lead_time.keep_only(self.running)
            self.groups.leave(gone)

    # -- callbacks -------------------------------------------------------------------------------------------------

    def _work_of(self, instance: Instance) -> Work:
        member, running = self.fleet.members.get(instance), self.running[instance]
        if member is None:
            return Work(0.0, self._cold_starts.runs_of(running.group, running.workload))
        slot, arrays = member.slot, self.fleet.arrays
        seen_s = float(arrays.last_cell[slot] + 1 - arrays.start_cell[slot]) * self.fleet.step_s
        return Work(float(self.fleet.curves.used_cores[slot]) * max(0.0, seen_s), member.runs)

    def _introduce(self, instance: Instance) -> NewContainer:
        running = self.running[instance]
        slot = self.groups.slots[running.group]
        history, runs = self.groups.session(slot, instance), self._runs_of(instance, running)
        started_s = None if running.started_s is None else min(running.started_s, self._now_s)
        return NewContainer(running.workload, history, runs, started_s, slot)

    def _runs_of(self, instance: Instance, running: Running) -> ClassRuns | None:
        if running.workload is None:
            return None
        return self.classes.runs(WorkloadKey(instance.namespace, running.workload), instance.container)

    def _resume(self, fleet: Containers, member: Member, cell: int) -> None:
        """Restore a container that was known before a restart.

        Without usable state, one that started before us and has the published target counts as having enough CPU: its
        own usage is followed until the plan would have been cheaper. Probing for more, or a new forecast, would cost
        resizes.
        """
        self._place(member.instance)
        running = self.running[member.instance]
        slot = self.groups.slots[running.group]
        self._cold_starts.changed(slot)
        with self._report.guard(member.instance):
            restored = persistence.go_on(fleet, member, self._memory.container(member.instance, running.group), cell)
            if restored or running.started_s is None:
                return
            in_force = self.groups.arrays.in_force[slot]
            if running.started_s < self._began_s and matches_in_force(np.array(running.requests), in_force):
                fleet.arrays.free_cpu_cores[member.slot] = in_force[CPU] / LIMIT_HEADROOM
                fleet.foresight.follow_own_use(member.slot, in_force[CPU])
