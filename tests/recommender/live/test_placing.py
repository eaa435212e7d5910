"""Which VPA a container belongs to, as kept from round to round, and which changes reach the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recommender.base.records import ContainerKey, Sample
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.pods import DEFERRED, Pod, ResizeCondition, Termination
from recommender.cluster.objects.vpa import SHARES, Vpa, read_vpa
from recommender.engine.keys import Ended, Group, Instance, Running
from recommender.engine.tally import Report
from recommender.live.containers import RETENTION_ROUNDS, ContainerIndex, PodSelector
from recommender.live.view.view import SelectedPods
from recommender.live.vpa_state import VpaState
from tests.fakes.records import GIB, FakeView, a_pod, a_vpa

JOBS = ("a", "b", "c")


class Steady(FakeView):
    """Returns the same object while the pods are unchanged, as the real view does."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[ObjectKey, SelectedPods] = {}

    def select(self, vpa: Vpa) -> SelectedPods:
        found = super().select(vpa)
        if vpa.key not in self.known or self.known[vpa.key].pods is not found.pods:
            self.known[vpa.key] = found
        return self.known[vpa.key]


def selector_of(records: FakeView, *selecting: VpaState) -> PodSelector:
    """A selector, which selects for these VPAs at first."""
    selector = PodSelector(records, ContainerIndex())
    selector.select(selecting, Report())
    return selector


def state_of(name: str, **spec: Any) -> VpaState:
    return VpaState(read_vpa(a_vpa(name, **spec)))


def running_in(selector: PodSelector, *pods: int) -> list[Running | None]:
    found = (selector.index.get(instance(f"pod-{number}")) for number in pods)
    return [None if owned is None else owned.running() for owned in found]


def instance(pod: str) -> Instance:
    return Instance("ns", f"uid-{pod}", "main")


def owners(selector: PodSelector, pods: int) -> dict[str, str | None]:
    """The VPA that owns each pod."""
    found: dict[str, str | None] = {}
    for number in range(pods):
        name = f"pod-{number}"
        owned = selector.index.get(instance(name))
        found[name] = None if owned is None else owned.state.vpa.key.name
        if owned is not None:
            assert selector.index.lookup(ContainerKey("ns", name, "main")) == (
                instance(name),
                Group("ns", found[name], "main"),
            )
            assert owned.pod in owned.state.selection.pods
    return found


def test_the_first_of_two_vpas_owns_a_pod_and_the_second_once_the_first_drops_it() -> None:
    records = FakeView()
    contested, other = a_pod("pod-0"), a_pod("pod-1")
    records.pods = {"a": [contested], "b": [contested, other]}
    states = [state_of(name) for name in ("a", "b")]
    selector = selector_of(records, *states)
    assert owners(selector, 2) == {"pod-0": "a", "pod-1": "b"}
    records.pods["a"] = []
    selector.select(states, Report())
    assert owners(selector, 2) == {"pod-0": "b", "pod-1": "b"}
    records.pods["a"] = [contested]
    selector.select(states, Report())
    assert owners(selector, 2) == {"pod-0": "a", "pod-1": "b"}


def test_a_vpa_in_mode_off_does_not_own_a_pod_that_a_later_vpa_selects() -> None:
    records = FakeView()
    records.pods = {"a": [a_pod("pod-0")], "b": [a_pod("pod-0")]}
    states = [state_of("a", updatePolicy={"updateMode": "Off"}), state_of("b")]
    selector = selector_of(records, *states)
    assert owners(selector, 1) == {"pod-0": "b"}


def test_a_vpa_reports_that_its_pods_were_never_read_and_keeps_known_pods() -> None:
    records = FakeView()
    records.pods, records.broken = {"a": [a_pod("pod-0")]}, {"a"}
    state = state_of("a")
    selector = selector_of(records, state)
    assert state.selection.problem == "Cannot determine its pods: the API server does not answer"
    records.broken.clear()
    selector.select([state], Report())
    assert (state.selection.problem, len(state.selection.pods)) == (None, 1)
    records.broken = {"a"}
    selector.select([state], Report())
    assert (state.selection.problem, len(state.selection.pods)) == (None, 1), "known pods are kept"


def test_the_owner_of_a_removed_container_is_found_for_some_rounds() -> None:
    records, key = FakeView(), ContainerKey("ns", "pod-0", "main")
    records.pods = {"a": [a_pod("pod-0")]}
    state = state_of("a")
    selector = selector_of(records, state)
    selector.index.take_changes()
    records.pods = {"a": []}
    known = []
    for _ in range(RETENTION_ROUNDS + 1):
        selector.select([state], Report())
        selector.index.take_changes()
        assert selector.index.get(instance("pod-0")) is None
        known.append(selector.index.lookup(key))
    assert known == [(instance("pod-0"), Group("ns", "a", "main"))] * RETENTION_ROUNDS + [None]


def test_a_container_that_comes_back_is_still_found_after_the_rounds_for_which_a_removed_one_is() -> None:
    records, key = FakeView(), ContainerKey("ns", "pod-0", "main")
    state = state_of("a")
    selector = selector_of(records, state)
    for pods in ([a_pod("pod-0")], [], [a_pod("pod-0")]):
        records.pods = {"a": pods}
        selector.select([state], Report())
        selector.index.take_changes()
    for _ in range(RETENTION_ROUNDS):
        selector.index.take_changes()
    assert selector.index.lookup(key) == (instance("pod-0"), Group("ns", "a", "main"))


def test_the_owner_of_a_removed_container_is_found_for_some_rounds_while_another_pod_is_contested() -> None:
    records, contested, key = FakeView(), a_pod("pod-0"), ContainerKey("ns", "pod-1", "main")
    records.pods = {"a": [contested, a_pod("pod-1")], "b": [contested]}
    states = [state_of(name) for name in ("a", "b")]
    selector = selector_of(records, *states)
    records.pods["a"] = [contested]
    known = []
    for _ in range(RETENTION_ROUNDS + 2):
        selector.select(states, Report())
        known.append(selector.index.lookup(key))
        selector.index.take_changes()
    assert known == [(instance("pod-1"), Group("ns", "a", "main"))] * (RETENTION_ROUNDS + 1) + [None]


def test_a_pod_of_two_vpas_belongs_to_the_other_one_once_its_owner_only_recommends() -> None:
    records = Steady()
    records.pods = {name: [a_pod("pod-0")] for name in ("a", "b")}
    first, second = state_of("a"), state_of("b")
    selector = selector_of(records, first, second)
    assert owners(selector, 1) == {"pod-0": "a"}
    first.vpa = replace(first.vpa, update_mode="Off")
    selector.select([first, second], Report())
    assert owners(selector, 1) == {"pod-0": "b"}


def test_a_new_annotation_for_shares_reaches_the_engine_although_no_pod_has_changed() -> None:
    records = Steady()
    records.pods = {"a": [replace(a_pod("pod-0"), node="n0")]}
    state = state_of("a")
    selector = selector_of(records, state)
    selector.index.take_changes()
    state.vpa = replace(state.vpa, annotations={SHARES: "flowcon"})
    selector.select([state], Report())
    (changed,) = selector.index.take_changes().values()
    assert changed is not None and (changed.shares_node, changed.shares_by) == ("n0", "flowcon")


def test_samples_of_a_recreated_pod_with_the_same_name_belong_to_the_new_pod() -> None:
    """Pods of a StatefulSet keep their names."""
    records, key = FakeView(), ContainerKey("ns", "pod-0", "main")
    first = a_pod("pod-0")
    recreated = replace(first, uid="another")
    state = state_of("a")
    selector = selector_of(records)
    for pod in (first, recreated):
        records.pods = {"a": [pod]}
        selector.select([state], Report())
    sample = Sample(1.0, 0.5, 1e9)
    samples = selector.index.samples_of([(key, sample), (ContainerKey("ns", "stranger", "main"), sample)])
    assert list(samples) == [(Instance("ns", "another", "main"), sample)]


def test_samples_of_a_finished_pod_are_dropped_but_its_container_is_still_found() -> None:
    records, key = FakeView(), ContainerKey("ns", "pod-0", "main")
    records.pods = {"a": [replace(a_pod("pod-0"), phase="Failed")]}
    selector = selector_of(records, state_of("a"))
    assert list(selector.index.samples_of([(key, Sample(1.0, 0.5, 1e9))])) == []
    assert selector.index.lookup(key) == (instance("pod-0"), Group("ns", "a", "main"))


def changes_with(selector: PodSelector, state: VpaState, pods: Sequence[Pod]) -> dict[Instance, Running | None]:
    """The changes for the engine once these are the pods."""
    state.selection = SelectedPods(pods, {pod.uid: "bert" for pod in pods})
    selector.index.clear()
    for pod in pods:
        selector.index.add(state, pod)
    return selector.index.take_changes()


def test_new_changed_and_removed_containers_are_reported_once_each() -> None:
    state, selector = state_of("a"), selector_of(FakeView())
    group, no_limits = Group("ns", "a", "main"), (math.nan, math.nan)
    new = changes_with(selector, state, [a_pod("pod-0"), a_pod("pod-1")])
    assert list(new) == [instance("pod-0"), instance("pod-1")]
    running = new[instance("pod-0")]
    assert str(running) == str(Running(group, "bert", None, (2.0, 4 * GIB), no_limits))
    assert changes_with(selector, state, [a_pod("pod-0"), a_pod("pod-1")]) == {}, "added again, unchanged"
    resized = changes_with(selector, state, [a_pod("pod-0", cpu="3"), a_pod("pod-1")])
    assert resized == {instance("pod-0"): running._replace(requests=(3.0, 4 * GIB))}
    assert changes_with(selector, state, [a_pod("pod-1")]) == {instance("pod-0"): None}
    assert selector.index.take_changes() == {}


def test_the_end_of_a_run_and_the_start_of_a_deferred_resize_are_reported() -> None:
    state, selector = state_of("a"), selector_of(FakeView())
    pod = a_pod("pod-0")
    (container,) = pod.containers
    conditions = tuple(
        ResizeCondition("PodResizePending", reason, "", since_s)
        for reason, since_s in ((DEFERRED, 70.0), ("Infeasible", 10.0), (DEFERRED, 50.0))
    )
    ended = replace(container, started_s=5.0, restart_count=2, terminated=Termination("Error", 5.0, 65.0, 137))
    changes = changes_with(selector, state, [replace(pod, phase="Failed", resizes=conditions, containers=(ended,))])
    running = changes[instance("pod-0")]
    assert (running.started_s, running.restarts, running.finished) == (5.0, 2, True)
    assert (running.ended, running.deferred_since_s) == (Ended(137, 5.0, 65.0), 50.0)


def test_the_end_of_a_run_is_reported_once_even_if_its_pod_is_gone_by_then() -> None:
    """A pod may finish during a round that still sees it running, and be gone in the next one."""
    state, selector = state_of("a"), selector_of(FakeView())
    pod = a_pod("pod-0")
    container = replace(pod.containers[0], terminated=Termination("Completed", 5.0, 65.0, 0))
    ended = replace(pod, phase="Succeeded", containers=(container,))
    changes_with(selector, state, [pod])
    assert selector.index.take_changes([ended, a_pod("stranger")]) == {}
    running = changes_with(selector, state, [])[instance("pod-0")]
    assert (running.finished, running.ended, running.workload) == (True, Ended(0, 5.0, 65.0), "bert")
    assert selector.index.take_changes() == {instance("pod-0"): None}
    assert selector.index.take_changes([ended]) == {}
    changes_with(selector, state, [ended])
    assert changes_with(selector, state, []) == {instance("pod-0"): None}, "a round has seen it"


def test_a_pod_that_is_deleted_once_it_has_finished_by_itself_was_not_stopped() -> None:
    state, selector = state_of("a"), selector_of(FakeView())
    ended = replace(a_pod("pod-0"), phase="Succeeded")
    leaving = replace(ended, deleting=True)
    state.selection = SelectedPods([leaving], {})
    selector.index.add(state, leaving)
    running = selector.index.take_changes([ended])[instance("pod-0")]
    assert (running.finished, running.terminating) == (True, False)


@pytest.mark.parametrize("rng_seed", range(4))
def test_the_kept_index_equals_one_that_is_built_from_scratch(rng_seed: int) -> None:
    rng, records, pods = np.random.default_rng(rng_seed), FakeView(), 6
    reported: dict[Instance, Running | None] = {}
    states = {name: state_of(name) for name in JOBS}
    selector = selector_of(records)
    for _ in range(60):
        for name in JOBS:
            if rng.random() < 0.3:
                chosen = np.flatnonzero(rng.random(pods) < 0.4).tolist()
                records.pods[name] = [a_pod(f"pod-{number}", cpu=str(rng.integers(1, 4))) for number in chosen]
        if rng.random() < 0.1:
            name = str(rng.choice(JOBS))
            states[name] = state_of(name)  # recreated
        present = [one for one in states.values() if rng.random() < 0.9]
        selector.select(present, Report())
        rebuilt = selector_of(records, *present)
        assert owners(selector, pods) == owners(rebuilt, pods)
        reported |= selector.index.take_changes()
        expected = {name: running for name, running in rebuilt.index.take_changes().items() if running is not None}
        assert {name: running for name, running in reported.items() if running is not None} == expected


def test_the_index_is_updated_only_when_pods_change() -> None:
    records = Steady()
    records.pods = {"a": [a_pod("pod-0")]}
    state = state_of("a")
    selector = selector_of(records, state)
    version = selector.index.version
    selector.select([state], Report())
    assert selector.index.version == version
    records.pods = {"a": [a_pod("pod-1")]}
    selector.select([state], Report())
    assert selector.index.version != version
    assert owners(selector, 2) == {"pod-0": None, "pod-1": "a"}


def test_a_deleted_vpa_leaves_the_pods_of_the_others_as_they_are() -> None:
    records = Steady()
    records.pods = {"a": [a_pod("pod-0")], "b": [a_pod("pod-1")]}
    states = [state_of(name) for name in ("a", "b")]
    selector = selector_of(records, *states)
    before = selector.index.get(instance("pod-0"))
    selector.select(states[:1], Report())
    assert selector.index.get(instance("pod-0")) is before
    assert owners(selector, 2) == {"pod-0": "a", "pod-1": None}


def test_the_input_size_of_a_run_is_read_and_an_invalid_one_is_reported() -> None:
    records, report = FakeView(), Report()
    valid, invalid, missing = (
        replace(a_pod(f"pod-{number}"), annotations=annotations)
        for number, annotations in enumerate(
            ({"phasewise.dev/input-size": "1.2e6"}, {"phasewise.dev/input-size": "-3"}, {})
        )
    )
    records.pods = {"a": [valid, invalid, missing]}
    selector = selector_of(records)
    selector.select([state_of("a")], report)
    sizes = [running.input_size for running in running_in(selector, 0, 1, 2)]
    np.testing.assert_array_equal(sizes, [1.2e6, np.nan, np.nan])
    assert report.problems == {"pod ns/pod-1": "refused: phasewise.dev/input-size that is no positive number"}


def test_containers_with_devices_and_pods_that_are_not_checkpointable_are_costly() -> None:
    records = FakeView()
    plain, not_checkpointable, checkpointable, training = (a_pod(f"pod-{number}") for number in range(4))
    not_checkpointable = replace(not_checkpointable, annotations={"phasewise.dev/checkpointable": "false"})
    checkpointable = replace(checkpointable, annotations={"phasewise.dev/checkpointable": "true"})
    training = replace(training, containers=(replace(training.containers[0], uses_devices=True),))
    records.pods = {"a": [plain, not_checkpointable, checkpointable, training]}
    selector = selector_of(records, state_of("a"))
    assert [running.costly for running in running_in(selector, *range(4))] == [False, True, False, True]


def test_a_pod_that_replaces_another_one_of_its_job_is_a_resumed_run() -> None:
    """Its class learns nothing from a resumed run, which lacks the work of the first pod."""
    records = FakeView()
    job = OwnerRef("batch/v1", "Job", "train", "uid-train")
    checkpointable = {"phasewise.dev/checkpointable": "true"}
    first, second, third = (replace(a_pod(f"pod-{n}"), owner=job, annotations=checkpointable) for n in range(3))
    leaving, done = replace(first, deleting=True), replace(second, phase="Succeeded")
    state, selector = state_of("a"), selector_of(records)
    for pods, resumed_pod_uid in (
        ([first], [""]),
        ([first, third], ["", ""]),
        ([leaving, second], ["", first.uid]),
        ([second], [first.uid]),
        ([done], [first.uid]),
    ):
        records.pods = {"a": pods}
        selector.select([state], Report())
        containers = [selector.index.get(instance(pod.key.name)) for pod in pods]
        assert [None if owned is None else owned.running().resumed_pod_uid for owned in containers] == resumed_pod_uid
    foreign = replace(first, key=ObjectKey("elsewhere", "pod-9"), uid="uid-9")
    records.pods = {"a": [first], "b": [replace(foreign, deleting=True)]}
    foreign_state = VpaState(replace(read_vpa(a_vpa("b")), key=ObjectKey("elsewhere", "b")))
    other = selector_of(records, foreign_state, state)
    assert running_in(other, 0)[0].resumed_pod_uid == "", "a pod of another namespace may name the same owner"
    records.pods = {"a": [replace(second, annotations={})]}
    selector.select([state], Report())
    assert running_in(selector, 1)[0].resumed_pod_uid == ""


def test_a_run_that_still_changes_stays_resumed_however_many_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recommender.live.containers.MAX_RUNS", 2)
    records, state = FakeView(), state_of("a")
    selector = selector_of(records)

    def pod_of(job: str, name: str, cpu: str = "2") -> Pod:
        owner = OwnerRef("batch/v1", "Job", job, f"uid-{job}")
        return replace(a_pod(name, cpu=cpu), owner=owner, annotations={"phasewise.dev/checkpointable": "true"})

    records.pods = {"a": [pod_of("train", "pod-0")]}
    selector.select([state], Report())
    for number in range(1, 6):
        other = pod_of(f"other-{number}", f"pod-{number + 1}")
        records.pods = {"a": [pod_of("train", "pod-1", cpu=str(number)), other]}
        selector.select([state], Report())
    assert running_in(selector, 1)[0].resumed_pod_uid == "uid-pod-0"
