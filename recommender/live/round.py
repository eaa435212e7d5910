"""One round of the live recommender: a list of timed steps, each of which tolerates single broken objects."""

from __future__ import annotations

from functools import partial

import numpy as np

from recommender.base.records import CPU, ContainerKey
from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.quantities import NOTHING
from recommender.cluster.objects.vpa import Vpa, annotation_problems
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import recommendations_in
from recommender.engine import persistence
from recommender.engine.engine import Engine
from recommender.engine.fleet import Fleet
from recommender.engine.keys import Group, Instance, Kill, Rules
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.recording import RecordedEngine, Recorder
from recommender.engine.seen import Evaluation, Samples, Seen
from recommender.engine.tally import Report
from recommender.live.class_profiles import ClassProfiles
from recommender.live.containers import ContainerIndex, PodSelector
from recommender.live.progress.progress import Progress
from recommender.live.rules import retention_s, rules_of, sharing_policy
from recommender.live.steady_clock import SteadyClock
from recommender.live.view.view import MAX_CONTAINERS, View
from recommender.live.vpa_state import RestoredState, VpaState
from recommender.live.writing.profile import ProfilePublisher
from recommender.live.writing.publisher import Publisher, WriterPool
from recommender.live.writing.waiting import PendingPodResizer
from recommender.policies.constraints import SharedLimits


class Recommender:
    """The round, and the state that is kept between rounds.

    Targets are published `lead_time` ahead, by default the time between samples, by `writers` at once. A workload class
    that nothing has run of for `class_ttl_s` is forgotten. Of PhaseProfiles of VPAs, and of classes, at most
    `profiles_per_round` are written in a round, besides those with a new kill.
    """

    def __init__(
        self,
        view: View,
        fleet: Fleet,
        options: Options,
        limits: SharedLimits,
        clock: WallClock,
        stopwatch: MonotonicClock,
        lead_time: LeadTime | None = None,
        class_ttl_s: float = np.inf,
        progress: Progress | None = None,
        writers: int = 1,
        profiles_per_round: float = np.inf,
        *,
        resizes_waiting: bool = False,
        observe_only: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        self.view, self.limits = view, limits
        self.clock, self.stopwatch = clock, stopwatch
        self.vpas: dict[ObjectKey, VpaState] = {}
        make_engine = Engine if recorder is None else partial(RecordedEngine, recorder)
        self.engine: Engine = make_engine(fleet, options, lead_time, RestoredState(view, self.vpas))
        self.classes = ClassProfiles(view, self.engine.classes, class_ttl_s, profiles_per_round)
        self.progress = Progress() if progress is None else progress
        self.index = ContainerIndex()
        self.stopping = False
        """Set on shutdown: no further step of the round is started."""
        self._observe_only, self._recorder = observe_only, recorder
        self._removed_groups: list[Group] = []
        pool = WriterPool(writers)
        self._publisher = Publisher(view, limits, self.engine, clock, stopwatch, pool)
        self._waiting = PendingPodResizer(view, self.index, self.engine, stopwatch, pool) if resizes_waiting else None
        self.profiles = ProfilePublisher(view, self.engine, clock, stopwatch, pool, profiles_per_round)
        self._pods = PodSelector(view, self.index)
        self._shared_cores: dict[str, float] = {}
        self._steady_clock = SteadyClock(clock, stopwatch)

    def run(self) -> Report:
        """Run one round, or only its first steps on shutdown, and record it."""
        report = Report()
        steps = (
            self.classes.load,
            self._load_vpas,
            self._select_pods,
            self._take_progress,
            self._decide,
            self._publish,
            self._resize_waiting,
            self._show,
        )
        try:
            for step in steps:
                if self.stopping:
                    break
                started_s = self.stopwatch()
                step(report)
                report.step_s[step.__name__.removeprefix("_")] = self.stopwatch() - started_s  # a label of a metric
        finally:
            if self._recorder is not None:
                self._recorder.flush()
                report.problems |= {"record": problem} if (problem := self._recorder.problem) else {}
        return report

    def publish_safe_values(self, values_until_s: float = np.inf, profiles_until_s: float = np.inf) -> Report:
        """Publish targets that are safe without supervision and save the state, before the process ends.

        By the stopwatch, no target and no profile is started after its deadline: time may be short. Profiles that lack
        a kill for memory come first, the others last.
        """
        report, states = Report(), self._decided_states()
        if self._recorder is not None:
            self._recorder.close()  # the safe values are no decision of the engine, and time is short
        self.profiles.publish_until(profiles_until_s, filter(self.profiles.has_unsaved_kill, states), report)
        self._publisher.publish_safe_values(values_until_s, states, report)
        if self.stopwatch() < profiles_until_s:
            self.profiles.publish_until(profiles_until_s, states, report)
            self.classes.write_changed(report)
        else:  # no time to find out which of them changed
            report.unwritten_profiles = len(states)
        return report

    def _decided_states(self) -> list[VpaState]:
        """The VPAs that the engine knows containers of, without those that a round cut short did not get to.

        Of a VPA that it does not know yet nothing is written: what was saved of it earlier must stay.
        """
        slots = self.engine.groups.slots
        for state in self.vpas.values():
            state.groups = {name: group for name, group in state.groups.items() if group in slots}
        return [state for state in self.vpas.values() if state.groups]

    # -- the steps -------------------------------------------------------------------------------------------------

    def _load_vpas(self, report: Report) -> None:
        with report.guard("VPAs"):
            present = {vpa.key: vpa for vpa in self.view.vpas() if not vpa.deleting}
            for key in self.vpas.keys() - present.keys():
                self._removed_groups += self.vpas.pop(key).groups.values()
            for key, vpa in present.items():
                known = self.vpas.get(key)
                if known is not None and known.vpa.uid == vpa.uid:
                    known.vpa = vpa
                    continue
                with report.guard(key):
                    self.vpas[key] = self._new_state(vpa, known, report)

    def _new_state(self, vpa: Vpa, before: VpaState | None, report: Report) -> VpaState:
        """State of a VPA that is new to us; a VPA that was recreated keeps what was learned."""
        saved, state = self.view.saved_state(vpa), VpaState(vpa)
        if before is not None:
            state.absent_since_s, state.groups, state.saved = before.absent_since_s, before.groups, before.saved
            state.growth, state.stages = before.growth, before.stages
        if saved is not None:
            with report.guard(f"PhaseProfile {vpa.key}"):
                state.restore(persistence.unpack(saved, f"PhaseProfile {vpa.key}"))
        published = recommendations_in(vpa.status)
        for container in sorted(self.view.containers_with_history(vpa.key))[:MAX_CONTAINERS]:
            state.groups.setdefault(container, state.group(container))  # gets a recommendation even without pods
            if published and container not in published:  # its pods had it no more
                state.absent_since_s.setdefault(container, self.clock())
        return state

    def _select_pods(self, report: Report) -> None:
        self._pods.select(self.vpas.values(), report)

    def _take_progress(self, report: Report) -> None:
        with report.guard("progress"):
            version = self.index, self.index.version  # `progress` may outlive this recommender and its index
            report.problems |= self.progress.take(self.vpas.values(), version, self.clock())

    def _decide(self, report: Report) -> None:
        now_s = self.clock()
        self._report_annotations(report)
        seen = Seen(
            self._rules(now_s, report),
            self.index.take_changes(self.view.finished_pods()),
            self._samples(report),
            self._kills(report),
            *self._node_sharing(),
        )
        targets = self.engine.step(now_s, seen, report)
        report.count_phase_changes(self.engine.fleet.foresight.next_phase_hits)
        for state in self.vpas.values():
            names = () if state.selection.problem else (state.selection.containers or state.latest_containers())
            state.targets = {
                name: target
                for name in names
                if (group := state.groups.get(name)) is not None and (target := targets.get(group)) is not None
            }

    def _publish(self, report: Report) -> None:
        """Write the statuses that changed, and before each the kill that it answers: a crash must not lose it."""
        if report.kills:
            self.classes.write_changed(report)
        self._publisher.publish(list(self.vpas.values()), lambda state: self.profiles.save_kill(state, report), report)

    def _resize_waiting(self, report: Report) -> None:
        if self._waiting is not None:
            self._waiting.resize(self.vpas.values(), report)

    def _show(self, report: Report) -> None:
        """Write the PhaseProfile of each VPA, and of each class, that changed."""
        self.profiles.publish(self.vpas.values(), report)
        if self._steady_clock.is_steady():
            in_use = self.index.workload_classes() | self.engine.workload_classes()
            self.classes.drop_unused(in_use, self.clock())
        self.classes.write_changed(report)

    # -- input of the engine -----------------------------------------------------------------------------------------

    def _rules(self, now_s: float, report: Report) -> dict[Group, Rules | None]:
        """Rules of groups that are new or whose rules may have changed; None for groups that are gone."""
        changes: dict[Group, Rules | None] = dict.fromkeys(self._removed_groups)
        self._removed_groups.clear()

        def update(state: VpaState) -> None:
            from_vpa, from_selection = state.rules_source or (None, None)
            for name, since_s in list(state.absent_since_s.items()):
                # The longest absent come first. Without the limit, a new name in each rollout would add up for days.
                if now_s - since_s > retention_s(state.vpa, name) or len(state.groups) > MAX_CONTAINERS:
                    del state.absent_since_s[name]
                    changes[state.groups.pop(name)] = None
            if from_vpa is state.vpa and from_selection is state.selection:
                return
            state.rules_source, present = (state.vpa, state.selection), state.selection.containers
            state.last_pods = state.selection.pods or state.last_pods
            for name in [*present, *state.groups]:
                if name in present:
                    state.absent_since_s.pop(name, None)
                elif present:
                    state.absent_since_s.setdefault(name, now_s)
                group, declared = state.group(name), state.selection.declared.get(name, NOTHING)
                state.groups[name] = group
                changes[group] = rules_of(state.vpa, state.last_pods, name, declared, observe_only=self._observe_only)

        report.each(self.vpas.values(), VpaState.name, update)
        return changes

    def _samples(self, report: Report) -> Samples:
        with report.guard("metrics"):
            return Samples.of(self.index.samples_of(self.view.samples()))
        return Samples()

    def _kills(self, report: Report) -> list[Kill]:
        found: list[Kill] = []

        def take(oom: OomObservation) -> None:
            if (named := self.index.lookup(ContainerKey(*oom.pod, oom.container))) is None:
                return
            instance, group = named
            if oom.memory_bytes > oom.most_bytes:
                report.refuse(instance, "a kill with more memory than its limit or its node")
                return
            if (state := self.vpas.get(ObjectKey(group.namespace, group.vpa))) is not None:
                bump = self.limits.oom_bump(state.vpa.policy_for(oom.container))
                found.append(Kill(group, instance, oom.when_s, oom.memory_bytes, *bump, evicted=oom.evicted))

        with report.guard("kills"):
            report.each(self.view.kills(), lambda oom: f"kill of {oom.pod}", take)
        return found

    def _report_annotations(self, report: Report) -> None:
        for state in self.vpas.values():
            if problems := annotation_problems(state.vpa.annotations):
                report.problems[f"VPA {state.vpa.key}"] = "; ".join(problems)

    def _node_sharing(self) -> tuple[dict[str, float | None], dict[Instance, Evaluation]]:
        """The cores of shared nodes where they changed, and the latest evaluations of the pods that share them."""
        sharing = [state for state in self.vpas.values() if sharing_policy(state.vpa)]
        pods = {pod.uid: pod for state in sharing for pod in state.selection.pods if pod.node and not pod.finished}
        spare = self.view.spare({pod.node for pod in pods.values()}, pods.keys()) if pods else {}
        before, now = self._shared_cores, {name: left[CPU] for name, left in spare.items()}
        self._shared_cores = now
        changed: dict[str, float | None] = {name: cores for name, cores in now.items() if before.get(name) != cores}
        changed |= dict.fromkeys(before.keys() - now.keys())
        evaluations = {
            Instance(pod.key.namespace, pod.uid, container.name): Evaluation(
                growth.value, growth.scale, growth.seen_s, f"{growth.origin} {growth.metric}"
            )
            for state in sharing
            for uid, growth in state.growth.items()
            if (pod := pods.get(uid)) is not None and growth.value is not None
            for container in pod.containers
        }
        return changed, evaluations
