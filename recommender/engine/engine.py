"""One step: from what was seen of containers to the target of each group.

It knows no Kubernetes and no clock. The same steps with the same `Seen` give the same targets, wherever they come from:
a cluster, a record of one, or a replay of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from recommender.engine import persistence
from recommender.engine.advising import Advising
from recommender.engine.band import safe_value
from recommender.engine.classes import Classes, learn_ended
from recommender.engine.cold_start import Expectations
from recommender.engine.container_arrays import NOBODY, UNDECIDED
from recommender.engine.containers import Containers
from recommender.engine.fleet import Fleet
from recommender.engine.groups import Groups
from recommender.engine.judging import is_given, judge
from recommender.engine.keys import Group, Instance, Rules, Running, WorkloadKey
from recommender.engine.kills import Kills
from recommender.engine.lead_time import LeadTime
from recommender.engine.member import Member, NewContainer, slots_of
from recommender.engine.memory import decide_memory
from recommender.engine.options import Options
from recommender.engine.seen import Memory, Nothing, Samples, Seen
from recommender.engine.shares import Shares, Work
from recommender.engine.situation import PINNED_SAMPLES
from recommender.engine.tally import Report
from recommender.engine.target import Target, Why
from recommender.model import PhaseModel
from recommender.policies.class_runs import ClassRuns
from recommender.policies.histogram import Estimate
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import CPU, Amounts, FloatArray, IntArray, amounts_of

MakeFleet = Callable[[Callable[[Instance], NewContainer], Callable[[Containers, Member, int], None]], Fleet]
"""Makes the fleet, given what it asks of each new container, and what it calls with each new member."""


class Engine:
    """The state that lives from step to step, and the step.

    Parameters
    ----------
    lead_time
        How long ahead to publish; the time between samples when nobody gives one.
    memory
        What is known from before.
    classes
        What earlier runs taught, where that is known to others, too.

    Attributes
    ----------
    classes
        What earlier runs taught.
    """

    def __init__(
        self,
        make_fleet: MakeFleet,
        options: Options,
        lead_time: LeadTime | None = None,
        memory: Memory | None = None,
        classes: Classes | None = None,
    ) -> None:
        self.options, self._memory = options, memory or Nothing()
        self.fleet, self.groups = make_fleet(self._introduce, self._resume), Groups()
        self.fleet.promise(options.rails.target_violation, options.rails.resizes_per_hour)
        self.classes = Classes() if classes is None else classes
        self.lead_time = LeadTime(None, self.fleet.step_s) if lead_time is None else lead_time
        self.running: dict[Instance, Running] = {}
        self._waiting_for_room: set[Instance] = set()
        self._coming = Expectations(self.fleet, self.groups, self.classes, self.running, options.rails)
        self._report, self._now_s = Report(), -math.inf  # of the running step, for what the fleet asks
        self._shares, self._began_s = Shares(self._work_of), math.inf
        self._kills = Kills(self.fleet, self.groups, self.classes, options.rails.memory_margin)
        self._advising = Advising(self.fleet, self.groups, self._coming, self._shares, options)

    @property
    def targets(self) -> Mapping[Group, Target]:
        """What each group is to have, of those of which anything can be said."""
        return self._advising.targets

    def step(self, now_s: float, seen: Seen, report: Report) -> Mapping[Group, Target]:
        """Take in what was seen, and say what each group is to have.

        Whatever goes wrong with one object stops that one only, and stands in the report.

        Parameters
        ----------
        now_s
            Unix seconds.
        """
        if now_s < self._now_s:
            self.groups.arrays.follow_clock(slice(None), now_s)
        self._report, self._now_s, self._began_s = report, now_s, min(self._began_s, now_s)
        self._take_groups(seen.groups, now_s, report)
        self._kills.teach(seen.kills, now_s, report)
        self._take_containers(seen.containers, now_s, report)
        self._shares.take_nodes(seen.nodes)
        self.fleet.lead_s = self.lead_time.seconds
        self._take_samples(seen, now_s, report)
        self._kills.take(seen.kills, now_s, report)
        self._forecast(now_s, report)
        self._advising.step(now_s, report)
        self._let_go(now_s, report)
        return self.targets

    def published(self, group: Group, target: Amounts, given: Amounts, now_s: float) -> bool:
        """A target stands published, before and within all limits; True when it is another one than before."""
        changed = self.groups.arrays.publish(self.groups.slots[group], target, given, now_s)
        for instance in self.groups.instances[self.groups.slots[group]]:
            running = self.running[instance]
            if not running.finished and running.started_s is not None:
                self.lead_time.published(instance, given, running.requests, now_s)
        return changed

    def adopt(self, model: PhaseModel) -> None:
        """Go on with another model, see `Containers.adopt`."""
        self.fleet.adopt(model)

    def keep(self, member: Member) -> dict[str, Any]:
        """What must survive a restart of a container, ready for JSON."""
        return persistence.keep(self.fleet, member)

    def why(self, group: Group) -> Why:
        """Why the target of a group is what it is, by the last step."""
        return self._advising.why(group)

    def rails_acting(self) -> dict[str, int]:
        """Of how many groups each guard rail moved the target in the last step."""
        return self._advising.rails_acting()

    def news_of(self, groups: Iterable[Group]) -> list[tuple[int, int]]:
        """What changes of each group whenever there is news of it, and whenever some of that must not be lost."""
        arrays, slots = self.groups.arrays, self.groups.slots
        return [(int(arrays.news[slots[group]]), int(arrays.vital[slots[group]])) for group in groups]

    def killed_s(self, groups: Iterable[Group]) -> float:
        """When a container of these was killed for memory last, unix seconds; minus infinity when none was."""
        slots = self.groups.slots
        return max((float(self.groups.arrays.killed_s[slots[group]]) for group in groups), default=-math.inf)

    def kept_of(self, group: Group) -> dict[str, Any]:
        """What must survive a restart of a group, ready for JSON; the history has its checkpoint."""
        return self.groups.kept(self.groups.slots[group])

    def in_force(self, group: Group) -> Amounts:
        """The target that stands published, before limits; NaN where there is none."""
        return amounts_of(self.groups.arrays.published[self.groups.slots[group]])

    def history(self, group: Group) -> HistogramAggregate:
        """What the default recommender would know of a group, up to the latest samples."""
        slot = self.groups.slots[group]
        self._advising.remember([slot])
        return self.groups.history[slot]

    def used(self, group: Group) -> Amounts:
        """Cores and bytes: the most that one of its containers uses now; 0 where nothing is known."""
        slots = slots_of(self.members_of(group))
        return amounts_of(np.fmax.reduce(self.fleet.arrays.used[slots], axis=0, initial=0.0))

    def safe_value(self, group: Group, now_s: float) -> Estimate | None:
        """What may stand while nobody watches, see `band.safe_value`; None where what stands is as good."""
        slot = self.groups.slots[group]
        self.history(group)
        return safe_value(
            self.groups, slot, [self.running[instance] for instance in self.groups.instances[slot]], now_s, self.options
        )

    def next_run(self, group: Group, input_size: float) -> Amounts | None:
        """What its class promises to suffice for the next container of a group at its start; None for no promise."""
        slot = self.groups.slots.get(group)
        coming = None if slot is None else self._coming.next_run(slot, input_size)
        return coming.wanted if coming is not None and coming.promised else None

    def members_of(self, group: Group) -> list[Member]:
        """The live containers of a group of which samples came."""
        found = (self.fleet.members.get(instance) for instance in self.groups.instances[self.groups.slots[group]])
        return [member for member in found if member is not None and self.fleet.arrays.group[member.slot] != NOBODY]

    # -- what comes in -------------------------------------------------------------------------------------------

    def _take_groups(self, changed: Mapping[Group, Rules | None], now_s: float, report: Report) -> None:
        for group, rules in changed.items():
            with report.guard(group):
                if rules is None:
                    self._advising.forget(group)
                    self._coming.forget(slot := self.groups.slots[group])
                    self.groups.remove(group)
                    self.fleet.arrays.group[self.fleet.arrays.group == slot] = NOBODY
                else:
                    if group not in self.groups.slots:
                        self.groups.add(group, self._memory.group(group), now_s, self.options.rails.memory_margin)
                    self.groups.rule(group, rules)

    def _take_containers(self, changed: Mapping[Instance, Running | None], now_s: float, report: Report) -> None:
        touched: set[int] = set()
        for instance, running in changed.items():
            with report.guard(instance):
                before = self.running.get(instance)
                for known in (before, running):
                    if known is not None and (slot := self.groups.slots.get(known.group)) is not None:
                        touched.add(slot)
                        self.groups.instances[slot].pop(instance, None)
                self._waiting_for_room.discard(instance)
                if running is None:
                    self.running.pop(instance, None)
                    self._shares.forget(instance, now_s)
                    self._kills.forget(instance)
                    if instance not in self.fleet.members:  # others are let go with their last samples
                        self.groups.leave([instance])
                else:
                    self.running[instance] = running
                    self._take_container(instance, running, before, report)
                    self._shares.place(instance, running, self._declared_cores(running.group), now_s)
                self._place(instance)
        for instance in sorted(self._waiting_for_room - changed.keys()):
            self._see_resize(instance, now_s, report)
        self.groups.arrays.tell(list(touched), vital=True)
        for slot in touched:
            self.groups.look_through(slot, [self.running[instance] for instance in self.groups.instances[slot]])
            self._coming.look_at(slot)

    def _take_container(self, instance: Instance, running: Running, before: Running | None, report: Report) -> None:
        slot = self.groups.slots.get(running.group)
        if slot is not None:
            self.groups.instances[slot][instance] = None
            self.groups.workload[slot] = running.workload or self.groups.workload[slot]
        if running.deferred_since_s < math.inf:
            self._waiting_for_room.add(instance)
        self._see_resize(instance, self._now_s, report)
        if before is None or before.started_s != running.started_s:  # else a clock was set back
            self._see_start(instance)

    def _see_start(self, instance: Instance) -> None:
        """Whether a container was started again since its age was told."""
        member, started_s = self.fleet.members.get(instance), self.running[instance].started_s
        if member is None or started_s is None:
            return
        if started_s > (int(self.fleet.arrays.start_cell[member.slot]) + 1) * self.fleet.step_s:
            self.fleet.begin_anew(member, min(started_s, self._now_s))

    def _see_resize(self, instance: Instance, now_s: float, report: Report) -> None:
        deferred = instance in self._waiting_for_room
        delay_s = self.lead_time.seen(instance, self.running[instance].requests, now_s, deferred=deferred)
        if delay_s is not None and math.isfinite(delay_s):
            report.resizes_s.append(delay_s)

    def _place(self, instance: Instance) -> None:
        """What the arrays say of a container besides its use."""
        member, running = self.fleet.members.get(instance), self.running.get(instance)
        if member is None:
            return
        arrays, slot = self.fleet.arrays, member.slot
        if running is None:
            arrays.group[slot] = NOBODY
            return
        arrays.group[slot] = NOBODY if running.finished else self.groups.slots.get(running.group, NOBODY)
        if running.requests[CPU] > arrays.had[slot, CPU]:  # whether it uses all of that is to be seen again
            arrays.pinned[slot] = min(arrays.pinned[slot], PINNED_SAMPLES - 1)
        arrays.had[slot], arrays.limits[slot] = running.requests, running.limits
        arrays.input_size[slot], arrays.costly[slot] = running.input_size, running.costly
        self._belong(member, running)

    def _belong(self, member: Member, running: Running) -> None:
        """Another VPA may speak for it than before, and has its samples from now on; and it may be of another class.

        The most that its run used goes along: it may come to that again.
        """
        group = int(self.fleet.arrays.group[member.slot])
        if group != NOBODY and (history := self.groups.session(group, member.instance)) is not member.history:
            self.fleet.remember(slots := slots_of([member]))
            member.history = history
            self._see_memory(slots, self.fleet.memory.largest_bytes[slots], self._now_s)
        if running.workload != member.workload:
            self.fleet.join(member, running.workload, self._runs_of(member.instance, running))

    def _take_samples(self, seen: Seen, now_s: float, report: Report) -> None:
        with report.guard("metrics"):
            told = self._of_ours(seen.samples)
            fresh = self.fleet.observe(told, now_s)
            self._shares.observe(told, seen.evaluations, now_s)
            report.samples = len(fresh)
            for instance, why in self.fleet.refused:
                report.refuse(instance, why)
            self.groups.arrays.tell(self.fleet.arrays.group[self.fleet.entered])
            slots = np.unique(slots_of(fresh))
            slots = slots[self.fleet.arrays.group[slots] != NOBODY]
            judge(self.fleet, self.groups.arrays, slots, self.options.rails.target_violation, report, now_s)
            usable = self.fleet.usable
            whose = slots_of([self.fleet.members[told.whose[at]] for at in usable.tolist()])
            self._see_memory(whose, told.told[usable, 2], told.told[usable, 0])

    def _of_ours(self, samples: Samples) -> Samples:
        """Those of containers that run and have a group."""
        running, groups = self.running, self.groups.slots
        ours = [
            (one := running.get(instance)) is not None and not one.finished and one.group in groups
            for instance in samples.whose
        ]
        if all(ours):  # as most often
            return samples
        return Samples([one for one, is_ours in zip(samples.whose, ours, strict=True) if is_ours], samples.told[ours])

    def _see_memory(self, slots: IntArray, used_bytes: FloatArray, at_s: FloatArray | float) -> None:
        """What each of these samples says, of many of one container too: a peak may have been a while ago."""
        owner, ages_s = self.fleet.arrays.group[slots], self.fleet.ages_s(slots, at_s)
        ours = owner != NOBODY
        self.groups.arrays.see_memory(owner[ours], used_bytes[ours], ages_s[ours], self._now_s)

    # -- what is made of it --------------------------------------------------------------------------------------

    def _forecast(self, now_s: float, report: Report) -> None:
        due, arrays = self.fleet.due(now_s), self.fleet.arrays
        strangers = slots_of(due)[arrays.decided_by[slots_of(due)] == UNDECIDED]
        try:
            report.decisions += self.fleet.decide(due, now_s)
        except Exception:  # noqa: BLE001  # of all together: then one by one, so that only whose fault it is goes without
            for member in self.fleet.due(now_s):
                with report.guard(member.instance):
                    report.decisions += self.fleet.decide([member], now_s)
        self.groups.arrays.tell(arrays.group[strangers], vital=True)
        with report.guard("memory"):
            decide_memory(self.fleet, self.groups.arrays, self.options.rails)
        self._coming.expect(now_s, report)

    def _let_go(self, now_s: float, report: Report) -> None:
        """Forget containers whose pod is gone or done; a run that came to a good end is learned."""
        gone = []
        for slot in np.flatnonzero(self.fleet.arrays.alive & (self.fleet.arrays.group == NOBODY)).tolist():
            member = self.fleet.by_slot[slot]
            running = self.running.get(member.instance)
            if running is None or running.finished:
                gone.append(member.instance)
                with report.guard(member.instance):
                    if running is not None:
                        killed = self._kills.taught(member.instance)
                        report.runs += learn_ended(self.classes, self.fleet, member, running, now_s, killed=killed)
        if gone:
            self.fleet.remove(gone)
            self.lead_time.keep_only(self.running)
            self.groups.leave(gone)

    def _declared_cores(self, group: Group) -> float:
        slot = self.groups.slots.get(group)
        return math.nan if slot is None else float(self.groups.arrays.declared_cores[slot])

    # -- asked by the fleet --------------------------------------------------------------------------------------

    def _work_of(self, instance: Instance) -> Work:
        member, running = self.fleet.members.get(instance), self.running[instance]
        if member is None:
            return Work(0.0, self._coming.runs_of(running.group, running.workload))
        slot, arrays = member.slot, self.fleet.arrays
        seen_s = float(arrays.last_cell[slot] + 1 - arrays.start_cell[slot]) * self.fleet.step_s
        return Work(float(self.fleet.curves.used_cores[slot]) * max(0.0, seen_s), member.runs)

    def _introduce(self, instance: Instance) -> NewContainer:
        running = self.running[instance]
        slot = self.groups.slots.get(running.group, NOBODY)
        history, runs = self.groups.session(slot, instance), self._runs_of(instance, running)
        return NewContainer(running.workload, history, runs, running.started_s, slot)

    def _runs_of(self, instance: Instance, running: Running) -> ClassRuns | None:
        if running.workload is None:
            return None
        return self.classes.runs(WorkloadKey(instance.namespace, running.workload), instance.container)

    def _resume(self, fleet: Containers, member: Member, cell: int) -> None:
        """A container that was known before a restart goes on from there.

        One that ran before, and of which nothing was kept, has enough CPU where it has what stood published: to see
        whether it would use more costs two resizes, and to foresee it as a stranger some more. So its own use is
        followed until the plan would have been cheaper.
        """
        self._place(member.instance)
        running = self.running[member.instance]
        group = running.group
        if group in self.groups.slots:
            self._coming.look_at(self.groups.slots[group])
        with self._report.guard(member.instance):
            kept = self._memory.container(member.instance, group)
            if kept is not None:
                persistence.go_on(fleet, member, kept, cell)
                self._see_start(member.instance)
            elif running.started_s is not None and running.started_s < self._began_s and group in self.groups.slots:
                stood = self.groups.arrays.given[self.groups.slots[group]]
                if is_given(np.array(running.requests), stood):
                    fleet.arrays.free_cpu_cores[member.slot] = stood[CPU]
                    fleet.foresight.follow_own_use(member.slot)
