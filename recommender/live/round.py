"""One round of the live recommender: a list of steps, each timed, each able to do without one broken object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.oom import bumped_memory_bytes
from recommender.live.advice.advising import Advising
from recommender.live.advice.book import Book
from recommender.live.advice.lead_time import LeadTime
from recommender.live.advice.parting import by_urgency, make_safe
from recommender.live.advice.recommend import Options
from recommender.live.advice.workload import Workload
from recommender.live.classes.keeper import ClassKeeper
from recommender.live.classes.newcomers import Newcomers
from recommender.live.fleet import keeping
from recommender.live.fleet.fleet import MakeFleet
from recommender.live.fleet.model_source import Refusal
from recommender.live.outside.writers import Writers
from recommender.live.owners.homes import Homes
from recommender.live.owners.judging import Judging
from recommender.live.owners.placing import Placing
from recommender.live.progress.progress import Progress
from recommender.live.tally import Report
from recommender.live.view.view import Place, View
from recommender.live.writing.profile import Known
from recommender.live.writing.publisher import Publisher
from recommender.live.writing.showing import Showing, lacks_a_kill
from recommender.policies.constraints import SharedLimits
from recommender.records import MEMORY

log = logging.getLogger(__name__)


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
        How many PhaseProfiles are written in a round at most.
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
    ) -> None:
        self.view, self.options, self.limits = view, options, limits
        self.clock, self.stopwatch = clock, stopwatch
        self.workloads: dict[ObjectKey, Workload] = {}
        self._homes, self.classes = Homes(), ClassKeeper(view, class_ttl_s)
        self._newcomers = Newcomers(view, self._homes, self.classes)
        self.fleet = make_fleet(self._newcomers.welcome, self._newcomers.resume)
        self.lead_time = LeadTime(None, self.fleet.step_s) if lead_time is None else lead_time
        self.progress = Progress() if progress is None else progress
        self._publisher = Publisher(view, limits, self.lead_time, clock, Writers(writers))
        self._showing = Showing(view, profiles_a_round)
        self.refusal: Refusal | None = None
        """Why a newer model is not used, to be shown; None while none is refused."""
        self.ending = False
        """Set when there are seconds left: then no further step of a round is begun."""
        self._judging = Judging(self.fleet, self._homes, self._newcomers.books, options.rails.target_violation)
        self._advising = Advising(self.fleet, options, self._newcomers.book)
        self._placing = Placing(view, self._homes, self.lead_time, clock)
        self._standing: tuple[int, int] | None = None
        self._let_go_of: tuple[int, int] | None = None
        self._expecting: list[Workload] = []

    def run(self) -> Report:
        """One round, or what of it is done when the process is told to end."""
        report = Report()
        for step in (
            self.classes.load_classes,
            self._load_vpas,
            self._select_pods,
            self._take_samples,
            self._take_kills,
            self._take_progress,
            self._forecast,
            self._advise,
            self._publish,
            self._let_go,
            self._show,
        ):
            if self.ending:
                break
            began = self.stopwatch()
            step(report)
            report.step_s[step.__name__.removeprefix("_")] = self.stopwatch() - began
        return report

    def remember(self, workload: Workload) -> None:
        """Bring the histories of a VPA up to the latest samples, for a checkpoint."""
        for members in workload.members.values():
            for member in members:
                here = self.fleet.by_slot.get(member.slot) is member  # else it went, and another may have its place
                if here and self.fleet.counts.unremembered[member.slot]:
                    self.fleet.remember(member)

    def leave_safe_values(self, values_until_s: float = np.inf, profiles_until_s: float = np.inf) -> Report:
        """Publish what is safe while nobody watches, and keep what is known, before the process ends.

        Time may be short: kills for memory that no profile tells of yet come first, then the values, those before the
        others that are farthest below what was used, then the other profiles.

        Parameters
        ----------
        values_until_s, profiles_until_s
            By the stopwatch: no value, no profile is begun later.
        """
        report, killed = Report(), [workload for workload in self.workloads.values() if lacks_a_kill(workload)]
        self._show_until(profiles_until_s, killed, report)
        ordered = by_urgency(self.workloads.values(), self.fleet.curves.peaks().tolist())
        self._publisher.publish_until(values_until_s, self.stopwatch, ordered, self._make_safe, report)
        if self.stopwatch() < profiles_until_s:
            self._show_until(profiles_until_s, self.workloads.values(), report)
            self.classes.show(report)
        else:  # which of them would say something new is not looked into any more
            report.unshown = len(self.workloads)
        return report

    # -- the steps -------------------------------------------------------------------------------------------------

    def _load_vpas(self, report: Report) -> None:
        with report.sparing("VPAs"):
            present = {vpa.key: vpa for vpa in self.view.vpas() if not vpa.deleting}
            for key in self.workloads.keys() - present.keys():
                del self.workloads[key]
            for key, vpa in present.items():
                known = self.workloads.get(key)
                if known is not None and known.vpa.uid == vpa.uid:
                    known.vpa = vpa
                    continue
                with report.sparing(key):
                    self.workloads[key] = self._new_workload(vpa, known, report)

    def _new_workload(self, vpa: Vpa, before: Workload | None, report: Report) -> Workload:
        """One that is new to us; of one that was made again the histories stay."""
        kept = self.view.kept(vpa)
        workload = Workload(vpa)
        if before is not None:
            workload.books = {name: Book(book.history) for name, book in before.books.items()}
        if kept is not None:
            with report.sparing(f"PhaseProfile {vpa.key}"):
                workload.take_over(keeping.unpack(kept, f"PhaseProfile {vpa.key}"))
        for container in self.view.remembered(vpa.key):  # so that it is spoken of also while no pod is there
            self._newcomers.book(workload, container)
        return workload

    def _select_pods(self, report: Report) -> None:
        self._placing.select(self.workloads.values(), report)

    def _take_samples(self, report: Report) -> None:
        with report.sparing("metrics"):
            fresh = self.fleet.observe(self._homes.running(self.view.samples()))
            report.samples = len(fresh)
            self._judging.judge(fresh, report)
            report.changed(self.fleet.changes, self.fleet.model.graph)

    def _take_kills(self, report: Report) -> None:
        with report.sparing("kills"):
            for kill in self.view.kills():
                found = self._homes.at(Place(kill.pod.namespace, kill.pod.name, kill.container))
                if found is None:
                    continue
                report.kills += 1
                instance, (workload, *_) = found
                ratio, least_bytes = self.limits.oom_bump(workload.vpa.policy_for(kill.container))
                member = self.fleet.members.get(instance)
                peak = float(np.nanmax(self.fleet.recent(member)[:, MEMORY])) if member else 0.0
                needed = bumped_memory_bytes(kill.memory_bytes, peak, ratio, least_bytes)
                book = self._newcomers.book(workload, kill.container)
                book.killed(needed, kill.when_s)
                history = book.session(instance.pod_uid) if member else book.history.past
                history.observe_oom(kill.when_s, needed)

    def _take_progress(self, report: Report) -> None:
        with report.sparing("progress"):
            version = self._homes, self._homes.version  # the sources of progress may outlive us
            report.problems |= self.progress.take(self.workloads.values(), version, self.clock())

    def _forecast(self, report: Report) -> None:
        now_s, self.fleet.lead_s = self.clock(), self.lead_time.seconds
        due = self.fleet.due(now_s)
        try:
            report.decisions += sum(made is not None for made in self.fleet.decide_all(due, now_s))
        except Exception:  # of all together: then one by one, so that only whose fault it is goes without
            log.exception("forecasts")
            for member in self.fleet.due(now_s):
                with report.sparing(member.instance):
                    report.decisions += self.fleet.decide(member, now_s) is not None
        self._assign_members()
        for workload in self._expecting:
            with report.sparing(workload.vpa.key):
                self.classes.expect(workload, self.fleet, self._homes, now_s)

    def _advise(self, report: Report) -> None:
        self._advising.advise(self.workloads.values(), self.clock(), report)

    def _publish(self, report: Report) -> None:
        self._publisher.publish(self.workloads.values(), report)

    def _let_go(self, report: Report) -> None:
        """Forget containers whose pod is gone or done; a run that came to a good end is learned."""
        if self._let_go_of == (self.fleet.version, self._homes.version):
            return
        gone = []
        for member in self.fleet:
            home = self._homes.of(member.instance)
            if home is None or home.pod.finished:
                gone.append(member.instance)
                with report.sparing(member.instance):
                    report.runs += home is not None and self.classes.learn(member, home, self.fleet, self.clock())
        self.fleet.remove(gone)
        self.lead_time.keep_only(self._homes)
        for instance in gone:
            self._newcomers.books.pop(instance).history.leave(instance.pod_uid)
        self._let_go_of = self.fleet.version, self._homes.version

    def _show(self, report: Report) -> None:
        """The PhaseProfile of each workload, and of each class, of which something changed."""
        self._showing.show(self.workloads.values(), self._shown(), self.clock(), report)
        self.classes.show(report)
        self.classes.tidy(self._homes, self.clock(), report)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _make_safe(self, workload: Workload) -> bool:
        self.remember(workload)
        return make_safe(workload, self.options.band)

    def _show_until(self, until_s: float, workloads: Iterable[Workload], report: Report) -> None:
        profiles = self._showing.parting(workloads, self._shown(), self.clock(), report)
        self._publisher.write_until(until_s, self.stopwatch, profiles, report)

    def _shown(self) -> Known:
        return Known(self.fleet, self.classes.known, self.refusal)

    def _assign_members(self) -> None:
        """To each workload its live containers, when one came or went, or pods are not what they were."""
        standing = self.fleet.version, self._homes.version
        if standing == self._standing:
            return
        self._standing = standing
        for workload in self.workloads.values():
            workload.members, workload.expected = {}, {}
        for member in self.fleet:
            home = self._homes.of(member.instance)
            if home is not None and not home.pod.finished:
                home.workload.members.setdefault(member.instance.container, []).append(member)
        self._expecting = [one for one in self.workloads.values() if self.classes.may_expect(one, self.fleet)]
