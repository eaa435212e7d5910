"""One round of the live recommender: a list of steps, each timed, each able to do without one broken object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from recommender.cluster.objects import ObjectKey, Pair
from recommender.cluster.oom import bumped_memory_bytes
from recommender.cluster.pods import Pod
from recommender.cluster.vpa_status import Condition, published_in
from recommender.cluster.vpa_status import ContainerRecommendation as StatusEntry
from recommender.errors import PhasewiseError
from recommender.live.book import Book
from recommender.live.fleet import Fleet, Instance, Newcomer, Sample
from recommender.live.profile import profile_of, signature_of
from recommender.live.rails import Draft
from recommender.live.recommend import Advice, Options, advise, safe_values
from recommender.live.view import Place, View
from recommender.live.workload import Workload
from recommender.policies.constraints import (
    OFF,
    ContainerRecommendation,
    SharedLimits,
    constrain,
    fit_largest_node,
    integer_cpu_containers,
)
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import CPU, MEMORY, FloatArray

log = logging.getLogger(__name__)

PROVIDED, NO_PODS, UNSUPPORTED, UNSURE = (
    "RecommendationProvided",
    "NoPodsMatched",
    "ConfigUnsupported",
    "LowConfidence",
)


@dataclass(slots=True)
class Report:
    """What a round did.

    Attributes
    ----------
    step_s
        Duration of each step in seconds, in order.
    problems
        What went wrong, by the object it is about.
    samples, decisions, published
        How many there were.
    """

    step_s: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    samples: int = 0
    decisions: int = 0
    published: int = 0


class Recommender:
    """The state that lives from round to round, and the round.

    Parameters
    ----------
    view
        The cluster.
    make_fleet
        Makes the fleet, given what it asks of each newcomer.
    clock, stopwatch
        Unix seconds for what is written; a monotonic one for durations.
    """

    def __init__(
        self,
        view: View,
        make_fleet: Callable[[Callable[[Instance], Newcomer]], Fleet],
        options: Options,
        limits: SharedLimits,
        clock: Callable[[], float],
        stopwatch: Callable[[], float],
    ) -> None:
        self.view, self.options, self.limits = view, options, limits
        self.clock, self.stopwatch = clock, stopwatch
        self.workloads: dict[ObjectKey, Workload] = {}
        self.fleet = make_fleet(self._welcome)
        self._home: dict[Instance, tuple[Workload, str | None]] = {}
        self._places: dict[Place, tuple[Workload, Pod]] = {}

    def run(self) -> Report:
        """One round."""
        report = Report()
        for step in (
            self._load_vpas,
            self._select_pods,
            self._take_samples,
            self._take_kills,
            self._forecast,
            self._advise,
            self._publish,
            self._show,
            self._let_go,
        ):
            began = self.stopwatch()
            step(report)
            report.step_s[step.__name__.removeprefix("_")] = self.stopwatch() - began
        return report

    def remember(self, workload: Workload) -> None:
        """Bring the histories of a VPA up to the latest samples, for a checkpoint."""
        for members in workload.members.values():
            for member in members:
                self.fleet.remember(member)

    def leave_safe_values(self) -> Report:
        """Publish what may stand while nobody watches, before the process ends."""
        report = Report()
        for key, workload in self.workloads.items():
            with self._sparing(str(key), report):
                self.remember(workload)
                doubt = "the recommender was stopped"
                workload.advice = {
                    name: Advice(estimate, Draft(estimate.target), np.full(2, np.nan), None, doubt)
                    for name, estimate in safe_values(workload.books).items()
                }
        self._publish(report)
        return report

    # -- the steps -------------------------------------------------------------------------------------------------

    def _load_vpas(self, report: Report) -> None:
        with self._sparing("VPAs", report):
            present = {vpa.key: vpa for vpa in self.view.vpas() if not vpa.deleting}
            for key in self.workloads.keys() - present.keys():
                del self.workloads[key]
            for key, vpa in present.items():
                known = self.workloads.get(key)
                if known is None or known.vpa.uid != vpa.uid:
                    self.workloads[key] = Workload(vpa)
                else:
                    known.vpa = vpa

    def _select_pods(self, report: Report) -> None:
        self._places.clear()
        for key, workload in self.workloads.items():
            with self._sparing(str(key), report):
                workload.selection = self.view.select(workload.vpa)
            for pod in workload.selection.pods:  # the last known ones, when they cannot be told now
                for container in pod.containers:
                    place = Place(pod.key.namespace, pod.key.name, container.name)
                    self._places.setdefault(place, (workload, pod))

    def _take_samples(self, report: Report) -> None:
        with self._sparing("metrics", report):
            placed: list[tuple[Instance, Sample]] = []
            for place, sample in self.view.samples():
                if (home := self._places.get(place)) is None:
                    continue
                workload, pod = home
                instance = Instance(place.namespace, pod.uid, place.container)
                self._home[instance] = workload, workload.selection.workload.get(pod.uid)
                placed.append((instance, sample))
                self._judge(workload, pod, place.container, sample)
            report.samples = self.fleet.observe(placed)

    def _take_kills(self, report: Report) -> None:
        with self._sparing("kills", report):
            for kill in self.view.kills():
                home = self._places.get(Place(kill.pod.namespace, kill.pod.name, kill.container))
                if home is None:
                    continue
                workload, pod = home
                policy = workload.vpa.policy_for(kill.container)
                member = self.fleet.members.get(Instance(kill.pod.namespace, pod.uid, kill.container))
                peak = float(np.nanmax(self.fleet.recent(member)[:, MEMORY])) if member else 0.0
                needed = bumped_memory_bytes(
                    kill.memory_bytes, peak, policy.oom_bump_up_ratio, policy.oom_min_bump_up_bytes
                )
                book = self._book(workload, kill.container)
                book.killed(needed, kill.when_s)
                book.session(pod.uid).observe_oom(kill.when_s, needed)

    def _forecast(self, report: Report) -> None:
        for member in self.fleet.due():
            with self._sparing(str(member.instance), report):
                self.fleet.decide(member)
                report.decisions += 1

    def _advise(self, report: Report) -> None:
        now_s = self.clock()
        self._assign_members()
        for key, workload in self.workloads.items():
            with self._sparing(str(key), report):
                workload.advice = {}
                for name in sorted(self._containers(workload)):
                    book = self._book(workload, name)
                    members, requests = workload.members.get(name, ()), _requests(workload, name)
                    advice = advise(self.fleet, members, book, requests, now_s, self.options)
                    if advice is not None:
                        workload.advice[name] = advice

    def _publish(self, report: Report) -> None:
        for key, workload in self.workloads.items():
            with self._sparing(str(key), report):
                recommendations = self._constrained(workload)
                entries = _kept(workload) | {entry.container: _entry(entry) for entry in recommendations}
                self.view.publish(workload.vpa, list(entries.values()), _conditions(workload, entries))
                now_s = self.clock()
                for recommendation in recommendations:
                    book = workload.books[recommendation.container]
                    report.published += book.publish(np.array(recommendation.target), now_s)

    def _show(self, report: Report) -> None:
        """The PhaseProfile of each workload of which something changed."""
        for key, workload in self.workloads.items():
            with self._sparing(f"PhaseProfile {key}", report):
                signature = signature_of(workload)
                if signature != workload.shown:
                    self.view.show(workload.vpa, profile_of(workload, self.fleet))
                    workload.shown = signature

    def _let_go(self, report: Report) -> None:
        """Forget containers whose pod is gone or done."""
        alive = {
            Instance(pod.key.namespace, pod.uid, container.name)
            for _, pod in self._places.values()
            if not pod.finished
            for container in pod.containers
        }
        gone = [member.instance for member in self.fleet if member.instance not in alive]
        self.fleet.remove(gone)
        for instance in gone:
            workload, _ = self._home.pop(instance)
            self._book(workload, instance.container).history.leave(instance.pod_uid)

    # -- parts -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _sparing(self, about: str, report: Report) -> Iterator[None]:
        """Whatever goes wrong with one object stops that object only, and is reported."""
        try:
            yield
        except PhasewiseError as error:
            report.problems[about] = str(error)
        except Exception as error:  # a round must outlive what nobody foresaw
            log.exception("round: %s", about)
            report.problems[about] = f"{type(error).__name__}: {error}"

    def _welcome(self, instance: Instance) -> Newcomer:
        workload, workload_class = self._home[instance]
        return Newcomer(workload_class, self._book(workload, instance.container).session(instance.pod_uid))

    def _book(self, workload: Workload, container: str) -> Book:
        if container not in workload.books:
            book = Book(HistogramAggregate(self.view.history(workload.vpa.key, container)))
            if before := published_in(workload.vpa.status).get(container):
                book.published = np.array([np.nan if value is None else value for value in before.target])
            workload.books[container] = book
        return workload.books[container]

    def _judge(self, workload: Workload, pod: Pod, container: str, sample: Sample) -> None:
        state = pod.container(container)
        book = workload.books.get(container)
        if state is not None and book is not None and not np.isnan(book.published).any():
            book.judge(np.array([sample.cpu_cores, sample.memory_bytes]), np.array(state.requests))

    def _assign_members(self) -> None:
        for workload in self.workloads.values():
            workload.members = {}
        for member in self.fleet:
            workload, _ = self._home[member.instance]
            workload.members.setdefault(member.instance.container, []).append(member)

    def _containers(self, workload: Workload) -> set[str]:
        return _present(workload) or set(workload.books)

    def _constrained(self, workload: Workload) -> tuple[ContainerRecommendation, ...]:
        vpa = workload.vpa
        whole = integer_cpu_containers(vpa.annotations, workload.advice)
        estimates = {name: advice.estimate for name, advice in workload.advice.items()}
        recommendations = constrain(estimates, vpa.policy_for, self.limits, whole)
        return fit_largest_node(recommendations, _beside(workload), self.view.room(workload.selection.pods))


def _present(workload: Workload) -> set[str]:
    """Names of the containers that its pods have."""
    return {container.name for pod in workload.selection.pods for container in pod.containers}


def _entry(recommendation: ContainerRecommendation) -> StatusEntry:
    return StatusEntry(
        recommendation.container,
        recommendation.target,
        recommendation.lower,
        recommendation.upper,
        recommendation.uncapped,
    )


def _kept(workload: Workload) -> dict[str, StatusEntry]:
    """What stands published of containers of which nothing new can be said: it is better than nothing at all.

    A container that the user takes out (mode Off) or that its pods no longer have is not kept.
    """
    present = _present(workload)
    return {
        name: entry
        for name, entry in published_in(workload.vpa.status).items()
        if name not in workload.advice
        and workload.vpa.policy_for(name).mode != OFF
        and (name in present or not present)
    }


def _conditions(workload: Workload, entries: Mapping[str, StatusEntry]) -> dict[str, Condition | None]:
    """The conditions of a VPA, None for those that are to go."""
    problem, pods = workload.selection.problem, workload.selection.pods
    nobody = Condition("True", "NoPodsMatched", "No pods match this VPA object") if not pods and not problem else None
    provided = Condition("True") if entries else Condition("False", *(nobody[1:] if nobody else ()))
    doubts = {name: advice.doubt for name, advice in workload.advice.items() if advice.doubt}
    words = "; ".join(f"{name}: {doubt}" for name, doubt in sorted(doubts.items()))
    return {
        PROVIDED: provided,
        NO_PODS: nobody,
        UNSUPPORTED: Condition("True", "", problem) if problem else None,
        UNSURE: Condition("True", "Fallback", words) if doubts else None,
    }


def _requests(workload: Workload, container: str) -> FloatArray:
    """float64 (2,): the most that one of its running containers has of each resource; NaN where none is requested."""
    states = (pod.container(container) for pod in workload.selection.pods if not pod.finished)
    had = np.array([state.requests for state in states if state is not None]).reshape(-1, 2)
    most: FloatArray = np.fmax.reduce(had, axis=0, initial=np.nan)
    return most


def _beside(workload: Workload) -> Pair:
    """What a pod of this workload requests for containers of which nothing is recommended."""
    most = (0.0, 0.0)
    for pod in workload.selection.pods:
        rest = [container.requests for container in pod.containers if container.name not in workload.advice]
        cpu_cores, memory_bytes = (sum(r[i] for r in rest if r[i] >= 0) for i in (CPU, MEMORY))
        most = max(most[CPU], cpu_cores), max(most[MEMORY], memory_bytes)
    return most
