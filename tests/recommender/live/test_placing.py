"""Whose a container is: what is kept from round to round is what would be worked out anew, and changes are told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.pods import DEFERRED, Pod, ResizeCondition, Termination
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.engine.keys import Ended, Group, Instance, Running
from recommender.engine.tally import Report
from recommender.live.containers import RETENTION_ROUNDS, ContainerIndex, PodSelector
from recommender.live.view.view import SelectedPods
from recommender.live.vpa_state import VpaState
from recommender.records import Sample
from tests.fakes.records import GIB, FakeView, a_pod, a_vpa

JOBS = ("a", "b", "c")


def placing(records: FakeView) -> PodSelector:
    return PodSelector(records, ContainerIndex())


def instance(pod: str) -> Instance:
    return Instance("ns", f"uid-{pod}", "main")


def owners(placed: PodSelector, pods: int) -> dict[str, str | None]:
    """The job that speaks for each pod."""
    found: dict[str, str | None] = {}
    for number in range(pods):
        name = f"pod-{number}"
        home = placed.index.get(instance(name))
        found[name] = None if home is None else home.state.vpa.key.name
        if home is not None:
            assert placed.index.lookup(ContainerKey("ns", name, "main")) == (
                instance(name),
                Group("ns", found[name], "main"),
            )
            assert home.pod in home.state.selection.pods
    return found


def test_of_two_vpas_for_one_pod_the_first_has_it_and_the_second_once_it_is_alone() -> None:
    records = FakeView()
    both, other = a_pod("pod-0"), a_pod("pod-1")
    records.pods = {"a": [both], "b": [both, other]}
    states = [VpaState(read_vpa(a_vpa(name))) for name in ("a", "b")]
    placed = placing(records)
    placed.select(states, Report())
    assert owners(placed, 2) == {"pod-0": "a", "pod-1": "b"}
    records.pods["a"] = []
    placed.select(states, Report())
    assert owners(placed, 2) == {"pod-0": "b", "pod-1": "b"}
    records.pods["a"] = [both]
    placed.select(states, Report())
    assert owners(placed, 2) == {"pod-0": "a", "pod-1": "b"}


def test_of_two_vpas_for_one_pod_the_one_that_is_off_does_not_count_however_old_it_is() -> None:
    records = FakeView()
    records.pods = {"a": [a_pod("pod-0")], "b": [a_pod("pod-0")]}
    states = [VpaState(read_vpa(a_vpa("a", updatePolicy={"updateMode": "Off"}))), VpaState(read_vpa(a_vpa("b")))]
    placed = placing(records)
    placed.select(states, Report())
    assert owners(placed, 1) == {"pod-0": "b"}


def test_where_the_pods_of_a_vpa_could_never_be_told_that_is_the_problem_and_not_that_there_are_none() -> None:
    records = FakeView()
    records.pods, records.broken = {"a": [a_pod("pod-0")]}, {"a"}
    state = VpaState(read_vpa(a_vpa("a")))
    placed = placing(records)
    placed.select([state], Report())
    assert state.selection.problem == "Cannot determine its pods: the API server does not answer"
    records.broken.clear()
    placed.select([state], Report())
    assert (state.selection.problem, len(state.selection.pods)) == (None, 1)
    records.broken = {"a"}
    placed.select([state], Report())
    assert (state.selection.problem, len(state.selection.pods)) == (None, 1), "those known before stay"


def test_who_had_a_container_that_has_gone_is_known_for_some_rounds() -> None:
    records, place = FakeView(), ContainerKey("ns", "pod-0", "main")
    records.pods = {"a": [a_pod("pod-0")]}
    state = VpaState(read_vpa(a_vpa("a")))
    placed = placing(records)
    placed.select([state], Report())
    placed.index.take_changes()
    records.pods = {"a": []}
    known = []
    for _ in range(RETENTION_ROUNDS + 1):
        placed.select([state], Report())
        placed.index.take_changes()
        assert placed.index.get(instance("pod-0")) is None
        known.append(placed.index.lookup(place))
    assert known == [(instance("pod-0"), Group("ns", "a", "main"))] * RETENTION_ROUNDS + [None]


def test_who_had_a_container_that_has_gone_is_known_also_while_two_vpas_want_another_pod() -> None:
    records, both = FakeView(), a_pod("pod-0")
    records.pods = {"a": [both, a_pod("pod-1")], "b": [both]}
    states = [VpaState(read_vpa(a_vpa(name))) for name in ("a", "b")]
    placed = placing(records)
    placed.select(states, Report())
    records.pods["a"] = [both]
    placed.select(states, Report())
    assert placed.index.lookup(ContainerKey("ns", "pod-1", "main")) == (instance("pod-1"), Group("ns", "a", "main"))


def test_metrics_of_a_pod_that_came_under_a_name_again_are_those_of_the_new_one() -> None:
    """Those of a StatefulSet keep their names."""
    records, place = FakeView(), ContainerKey("ns", "pod-0", "main")
    first = a_pod("pod-0")
    again = replace(first, uid="another")
    state = VpaState(read_vpa(a_vpa("a")))
    placed = placing(records)
    for pod in (first, again):
        records.pods = {"a": [pod]}
        placed.select([state], Report())
    sample = Sample(1.0, 0.5, 1e9)
    told = placed.index.samples_of([(place, sample), (ContainerKey("ns", "stranger", "main"), sample)])
    assert list(told) == [(Instance("ns", "another", "main"), sample)]


def test_samples_of_a_pod_that_has_finished_are_left_out_and_a_kill_of_it_is_not() -> None:
    records, place = FakeView(), ContainerKey("ns", "pod-0", "main")
    records.pods = {"a": [replace(a_pod("pod-0"), phase="Failed")]}
    placed = placing(records)
    placed.select([VpaState(read_vpa(a_vpa("a")))], Report())
    assert list(placed.index.samples_of([(place, Sample(1.0, 0.5, 1e9))])) == []
    assert placed.index.lookup(place) == (instance("pod-0"), Group("ns", "a", "main"))


def told_of(placed: PodSelector, state: VpaState, pods: Sequence[Pod]) -> dict[Instance, Running | None]:
    """What the engine is told once these are the pods."""
    state.selection = SelectedPods(pods, {pod.uid: "bert" for pod in pods})
    placed.index.clear()
    for pod in pods:
        placed.index.add(state, pod)
    return placed.index.take_changes()


def test_the_engine_is_told_what_is_new_what_changed_and_what_is_gone_once_each() -> None:
    state, placed = VpaState(read_vpa(a_vpa("a"))), placing(FakeView())
    group, nothing = Group("ns", "a", "main"), (math.nan, math.nan)
    new = told_of(placed, state, [a_pod("pod-0"), a_pod("pod-1")])
    assert list(new) == [instance("pod-0"), instance("pod-1")]
    running = new[instance("pod-0")]
    assert running is not None
    assert str(running) == str(Running(group, "bert", None, (2.0, 4 * GIB), nothing))
    assert told_of(placed, state, [a_pod("pod-0"), a_pod("pod-1")]) == {}, "placed anew, and all as it was"
    resized = told_of(placed, state, [a_pod("pod-0", cpu="3"), a_pod("pod-1")])
    assert resized == {instance("pod-0"): running._replace(requests=(3.0, 4 * GIB))}
    assert told_of(placed, state, [a_pod("pod-1")]) == {instance("pod-0"): None}
    assert placed.index.take_changes() == {}


def test_the_engine_is_told_how_a_run_ended_and_since_when_a_resize_waits() -> None:
    state, placed = VpaState(read_vpa(a_vpa("a"))), placing(FakeView())
    pod = a_pod("pod-0")
    (container,) = pod.containers
    waits = tuple(
        ResizeCondition("PodResizePending", reason, "", since_s)
        for reason, since_s in ((DEFERRED, 70.0), ("Infeasible", 10.0), (DEFERRED, 50.0))
    )
    ended = replace(container, started_s=5.0, restart_count=2, terminated=Termination("Error", 5.0, 65.0, 137))
    told = told_of(placed, state, [replace(pod, phase="Failed", resizes=waits, containers=(ended,))])
    running = told[instance("pod-0")]
    assert running is not None
    assert (running.started_s, running.restarts, running.finished) == (5.0, 2, True)
    assert (running.ended, running.deferred_since_s) == (Ended(137, 5.0, 65.0), 50.0)


def test_how_a_run_ended_is_told_once_also_of_a_pod_that_is_gone_by_then_and_of_one_that_finished_a_moment_ago() -> (
    None
):
    """A pod may finish while a round looks, which then takes it for running; in the next round it may be gone."""
    state, placed = VpaState(read_vpa(a_vpa("a"))), placing(FakeView())
    pod = a_pod("pod-0")
    container = replace(pod.containers[0], terminated=Termination("Completed", 5.0, 65.0, 0))
    ended = replace(pod, phase="Succeeded", containers=(container,))
    told_of(placed, state, [pod])
    assert placed.index.take_changes([ended, a_pod("stranger")]) == {}
    running = told_of(placed, state, [])[instance("pod-0")]
    assert running is not None
    assert (running.finished, running.ended, running.workload) == (True, Ended(0, 5.0, 65.0), "bert")
    assert placed.index.take_changes() == {instance("pod-0"): None}
    assert placed.index.take_changes([ended]) == {}
    told_of(placed, state, [ended])
    assert told_of(placed, state, []) == {instance("pod-0"): None}, "a round saw it"


@pytest.mark.parametrize("start", range(4))
def test_what_is_kept_is_what_would_be_worked_out_anew(start: int) -> None:
    chance, records, pods = np.random.default_rng(start), FakeView(), 6
    told: dict[Instance, Running | None] = {}
    states = {name: VpaState(read_vpa(a_vpa(name))) for name in JOBS}
    kept = placing(records)
    for _ in range(60):
        for name in JOBS:
            if chance.random() < 0.3:
                chosen = np.flatnonzero(chance.random(pods) < 0.4).tolist()
                records.pods[name] = [a_pod(f"pod-{number}", cpu=str(chance.integers(1, 4))) for number in chosen]
        if chance.random() < 0.1:
            name = str(chance.choice(JOBS))
            states[name] = VpaState(read_vpa(a_vpa(name)))  # made again
        there = [one for one in states.values() if chance.random() < 0.9]
        kept.select(there, Report())
        anew = placing(records)
        anew.select(there, Report())
        assert owners(kept, pods) == owners(anew, pods)
        told |= kept.index.take_changes()
        known = {name: running for name, running in anew.index.take_changes().items() if running is not None}
        assert {name: running for name, running in told.items() if running is not None} == known


def test_while_nothing_changes_nothing_is_placed_anew_and_a_change_is_told() -> None:
    class Steady(FakeView):
        """Gives the very same answer while pods are the same, as the real one does."""

        def __init__(self) -> None:
            super().__init__()
            self.known: dict[ObjectKey, SelectedPods] = {}

        def select(self, vpa: Vpa) -> SelectedPods:
            found = super().select(vpa)
            if vpa.key not in self.known or self.known[vpa.key].pods is not found.pods:
                self.known[vpa.key] = found
            return self.known[vpa.key]

    records = Steady()
    records.pods = {"a": [a_pod("pod-0")]}
    state = VpaState(read_vpa(a_vpa("a")))
    placed = placing(records)
    placed.select([state], Report())
    version = placed.index.version
    placed.select([state], Report())
    assert placed.index.version == version
    records.pods = {"a": [a_pod("pod-1")]}
    placed.select([state], Report())
    assert placed.index.version != version
    assert owners(placed, 2) == {"pod-0": None, "pod-1": "a"}


def test_the_engine_is_told_the_input_of_a_run_and_one_that_cannot_be_read_is_refused() -> None:
    records, report = FakeView(), Report()
    told, wrong, silent = (
        replace(a_pod(f"pod-{number}"), annotations=annotations)
        for number, annotations in enumerate(
            ({"phasewise.dev/input-size": "1.2e6"}, {"phasewise.dev/input-size": "-3"}, {})
        )
    )
    records.pods = {"a": [told, wrong, silent]}
    placed = placing(records)
    placed.select([VpaState(read_vpa(a_vpa("a")))], report)
    homes = [placed.index.get(instance(f"pod-{number}")) for number in range(3)]
    sizes = [home.running().input_size for home in homes if home is not None]
    np.testing.assert_array_equal(sizes, [1.2e6, np.nan, np.nan])
    assert report.problems == {"pod ns/pod-1": "refused: phasewise.dev/input-size that is no positive number"}


def test_the_engine_is_told_whom_a_kill_costs_more() -> None:
    records = FakeView()
    plain, stubborn, movable, training = (a_pod(f"pod-{number}") for number in range(4))
    stubborn = replace(stubborn, annotations={"phasewise.dev/checkpointable": "false"})
    movable = replace(movable, annotations={"phasewise.dev/checkpointable": "true"})
    training = replace(training, containers=(replace(training.containers[0], uses_devices=True),))
    records.pods = {"a": [plain, stubborn, movable, training]}
    placed = placing(records)
    placed.select([VpaState(read_vpa(a_vpa("a")))], Report())
    homes = [placed.index.get(instance(f"pod-{number}")) for number in range(4)]
    assert [home.running().costly for home in homes if home is not None] == [False, True, False, True]


def test_a_pod_that_goes_on_with_the_work_of_another_of_its_job_is_known_as_resumed() -> None:
    """So its run teaches its class nothing: it lacks what the first pod did. One that begins anew does teach."""
    records = FakeView()
    job = OwnerRef("batch/v1", "Job", "train", "uid-train")
    may = {"phasewise.dev/checkpointable": "true"}
    first, second, beside = (replace(a_pod(f"pod-{number}"), owner=job, annotations=may) for number in range(3))
    leaving, done = replace(first, deleting=True), replace(second, phase="Succeeded")
    state, placed = VpaState(read_vpa(a_vpa("a"))), placing(records)
    for pods, resumed_pod_uid in (
        ([first], [""]),
        ([first, beside], ["", ""]),
        ([leaving, second], ["", first.uid]),
        ([second], [first.uid]),
        ([done], [first.uid]),
    ):
        records.pods = {"a": pods}
        placed.select([state], Report())
        homes = [placed.index.get(instance(pod.key.name)) for pod in pods]
        assert [None if home is None else home.running().resumed_pod_uid for home in homes] == resumed_pod_uid
    stranger = replace(first, key=ObjectKey("elsewhere", "pod-9"), uid="uid-9")
    records.pods = {"a": [first], "b": [replace(stranger, deleting=True)]}
    other = placing(records)
    theirs = VpaState(replace(read_vpa(a_vpa("b")), key=ObjectKey("elsewhere", "b")))
    other.select([theirs, state], Report())
    home = other.index.get(instance("pod-0"))
    assert home is not None
    assert home.running().resumed_pod_uid == "", "a pod of another namespace may name the same owner"
    records.pods = {"a": [replace(second, annotations={})]}
    placed.select([state], Report())
    home = placed.index.get(instance("pod-1"))
    assert home is not None
    assert home.running().resumed_pod_uid == ""
