"""One round of the live recommender: a list of steps, each timed, each able to do without one broken object."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pair import NOTHING
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.engine import persistence
from recommender.engine.engine import Engine, MakeFleet
from recommender.engine.keys import Group, Kill, Rules
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.recording import RecordedEngine, Recorder
from recommender.engine.seen import Samples, Seen
from recommender.engine.tally import Report
from recommender.live.containers import ContainerIndex, Placing
from recommender.live.outside.model_source import Refusal
from recommender.live.progress.progress import Progress
from recommender.live.remembering import ClassProfiles, Remembered
from recommender.live.rules import counts_for_s, rules_of
from recommender.live.sharing import Sharing
from recommender.live.view.view import Place, View
from recommender.live.vpa_state import VpaState
from recommender.live.writing.profile import Showing
from recommender.live.writing.publisher import Publisher, Writers, by_urgency, leave_safe
from recommender.live.writing.waiting import WaitingPods
from recommender.policies.constraints import SharedLimits


class Recommender:
    """The state that lives from round to round, and the round.

    Parameters
    ----------
    view
        The cluster.
    lead_time
        How long ahead to publish; the time between samples when nobody gives one.
    class_ttl_s
        A workload class that nothing was run of for so long is forgotten.
    progress
        Where jobs tell how their training comes along; nowhere when nobody gives one.
    writers
        How many statuses are written at a time.
    profiles_a_round
        How many PhaseProfiles of VPAs, and of classes, are written in a round at most.
    resizes_waiting
        Pods that have no node yet are given what is recommended.
    observes_only
        Nothing that is published is ever applied.
    recorder
        Writes down all that the engine is told and says.
    clock, stopwatch
        Unix seconds for what is written; a monotonic one for durations.
    """

    def __init__(
        self,
        view: View,
        make_fleet: MakeFleet,
        options: Options,
        limits: SharedLimits,
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
        lead_time: LeadTime | None = None,
        class_ttl_s: float = np.inf,
        progress: Progress | None = None,
        writers: int = 1,
        profiles_a_round: float = np.inf,
        *,
        resizes_waiting: bool = False,
        observes_only: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        self.view, self.limits = view, limits
        self.clock, self.stopwatch = clock, stopwatch
        self.vpas: dict[ObjectKey, VpaState] = {}
        memory = Remembered(view, self.vpas)
        self.engine = (
            Engine(make_fleet, options, lead_time, memory)
            if recorder is None
            else RecordedEngine(recorder, make_fleet, options, lead_time, memory)
        )
        self.classes = ClassProfiles(view, self.engine.classes, class_ttl_s, profiles_a_round)
        self.progress = Progress() if progress is None else progress
        self.index = ContainerIndex()
        self.refusal: Refusal | None = None
        """Why a newer model is not used, to be shown; None while none is refused."""
        self.ending = False
        """Set when there are seconds left: then no further step of a round is begun."""
        self._observes_only, self._recorder = observes_only, recorder
        self._gone: list[Group] = []
        at_once = Writers(writers)
        self._publisher = Publisher(view, limits, self.engine, clock, at_once)
        self._waiting = WaitingPods(view, self.index, self.engine, at_once) if resizes_waiting else None
        self._showing = Showing(view, self.engine, profiles_a_round)
        self._placing, self._sharing = Placing(view, self.index), Sharing(view)

    def run(self) -> Report:
        """One round, or what of it is done when the process is told to end; then it is recorded."""
        report = Report()
        try:
            self._run(report)
        finally:
            if self._recorder is not None:
                self._recorder.flush()
                report.problems |= {"record": problem} if (problem := self._recorder.problem) else {}
        return report

    def _run(self, report: Report) -> None:
        for step in (
            self.classes.load,
            self._load_vpas,
            self._select_pods,
            self._take_progress,
            self._decide,
            self._publish,
            self._resize_waiting,
            self._show,
        ):
            if self.ending:
                break
            began = self.stopwatch()
            step(report)
            report.step_s[step.__name__.removeprefix("_")] = self.stopwatch() - began

    def leave_safe_values(self, values_until_s: float = np.inf, profiles_until_s: float = np.inf) -> Report:
        """Publish what is safe while nobody watches, and keep what is known, before the process ends.

        Time may be short: kills for memory that no profile tells of yet come first, then the values, those before the
        others that are farthest below what was used, then the other profiles.

        Parameters
        ----------
        values_until_s, profiles_until_s
            By the stopwatch: no value, no profile is begun later.
        """
        report, engine = Report(), self.engine
        if self._recorder is not None:
            self._recorder.close()  # what is left behind is no engine's decision, and there is no time
        self._show_until(profiles_until_s, filter(self._showing.lacks_a_kill, self.vpas.values()), report)
        now_s = self.clock()
        ordered = by_urgency(self.vpas.values(), engine)
        self._publisher.publish_until(
            values_until_s, self.stopwatch, ordered, lambda state: leave_safe(state, engine, now_s), report
        )
        if self.stopwatch() < profiles_until_s:
            self._show_until(profiles_until_s, self.vpas.values(), report)
            self.classes.show(report)
        else:  # which of them would say something new is not looked into any more
            report.unwritten_profiles = len(self.vpas)
        return report

    # -- the steps -------------------------------------------------------------------------------------------------

    def _load_vpas(self, report: Report) -> None:
        with report.guard("VPAs"):
            present = {vpa.key: vpa for vpa in self.view.vpas() if not vpa.deleting}
            for key in self.vpas.keys() - present.keys():
                self._forget(key)
            for key, vpa in present.items():
                known = self.vpas.get(key)
                if known is not None and known.vpa.uid == vpa.uid:
                    known.vpa = vpa
                    continue
                with report.guard(key):
                    self.vpas[key] = self._new(vpa, known, report)

    def _new(self, vpa: Vpa, before: VpaState | None, report: Report) -> VpaState:
        """One that is new to us; of one that was made again what was learned stays."""
        kept, state = self.view.kept(vpa), VpaState(vpa)
        if before is not None:
            state.lost_s, state.groups = before.lost_s, before.groups
        if kept is not None:
            with report.guard(f"PhaseProfile {vpa.key}"):
                state.take_over(persistence.unpack(kept, f"PhaseProfile {vpa.key}"))
        for container in self.view.remembered(vpa.key):  # so that it is spoken of also while no pod is there
            state.groups.setdefault(container, state.group(container))
        return state

    def _forget(self, key: ObjectKey) -> None:
        state = self.vpas.pop(key)
        self._gone += state.groups.values()

    def _select_pods(self, report: Report) -> None:
        self._placing.select(self.vpas.values(), report)

    def _take_progress(self, report: Report) -> None:
        with report.guard("progress"):
            version = self.index, self.index.version  # the sources of progress may outlive us
            report.problems |= self.progress.take(self.vpas.values(), version, self.clock())

    def _decide(self, report: Report) -> None:
        now_s = self.clock()
        seen = Seen(
            self._rules(now_s, report),
            self.index.take_changes(self.view.ended()),
            self._samples(report),
            self._kills(report),
            *self._sharing.look(self.vpas.values(), report),
        )
        targets = self.engine.step(now_s, seen, report)
        with report.guard("phases"):
            report.count_phase_changes(self.engine.fleet.foresight.next_phase_hits)
        for state in self.vpas.values():
            spoken_of = () if state.selection.problem else (state.selection.containers or state.groups)
            state.targets = {
                name: target
                for name in spoken_of
                if (group := state.groups.get(name)) is not None and (target := targets.get(group)) is not None
            }

    def _publish(self, report: Report) -> None:
        self._publisher.publish(self.vpas.values(), report)

    def _resize_waiting(self, report: Report) -> None:
        if self._waiting is not None:
            self._waiting.resize(self.vpas.values(), self.clock(), report)

    def _show(self, report: Report) -> None:
        """The PhaseProfile of each VPA, and of each class, of which something changed."""
        self._showing.show(self.vpas.values(), self.refusal, self.clock(), report)
        self.classes.tidy(self.index, self.clock())
        self.classes.show(report)

    # -- what the engine is told -------------------------------------------------------------------------------------

    def _rules(self, now_s: float, report: Report) -> dict[Group, Rules | None]:
        """Groups that are new, or gone, or of which it is another matter now what becomes of their targets."""
        changes: dict[Group, Rules | None] = dict.fromkeys(self._gone)
        self._gone.clear()

        def look(state: VpaState) -> None:
            by_vpa, by_selection = state.ruled_by or (None, None)
            for name in [name for name, at_s in state.lost_s.items() if now_s - at_s > counts_for_s(state.vpa, name)]:
                del state.lost_s[name]
                changes[state.groups.pop(name)] = None
            if by_vpa is state.vpa and by_selection is state.selection:
                return
            state.ruled_by, present = (state.vpa, state.selection), state.selection.containers
            for name in [*present, *state.groups]:
                if not present or name in present:
                    state.lost_s.pop(name, None)
                else:
                    state.lost_s.setdefault(name, now_s)
                group = state.groups[name] = state.group(name)
                declared = state.selection.declared.get(name, NOTHING)
                observes_only = self._observes_only
                changes[group] = rules_of(state.vpa, state.selection.pods, name, declared, observes_only=observes_only)

        report.each(self.vpas.values(), VpaState.name, look)
        return changes

    def _samples(self, report: Report) -> Samples:
        with report.guard("metrics"):
            return Samples.of(self.index.samples_of(self.view.samples()))
        return Samples()

    def _kills(self, report: Report) -> list[Kill]:
        found: list[Kill] = []
        with report.guard("kills"):
            for told in self.view.kills():
                with report.guard(f"kill of {told.pod}"):
                    if (kill := self._kill(told)) is not None:
                        found.append(kill)
        return found

    def _kill(self, told: OomObservation) -> Kill | None:
        place = self.index.at(Place(told.pod.namespace, told.pod.name, told.container))
        if place is None:
            return None
        instance, group = place
        state = self.vpas.get(ObjectKey(group.namespace, group.vpa))
        if state is None:
            return None
        ratio, least_bytes = self.limits.oom_bump(state.vpa.policy_for(told.container))
        return Kill(group, instance, told.when_s, told.memory_bytes, ratio, least_bytes)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _show_until(self, until_s: float, states: Iterable[VpaState], report: Report) -> None:
        profiles = self._showing.at_the_end(states, self.refusal, self.clock(), report)
        self._publisher.write_until(until_s, self.stopwatch, profiles, report)
