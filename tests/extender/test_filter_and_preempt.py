"""Nodes refused for forecast memory, and preemption that evicts no pod in vain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.placing.decisions import event_text
from extender.protocol.wire import ExtenderArgs, FilterResult, PreemptionArgs, filter_answer
from extender.settings import Settings
from tests.examples import at_most
from tests.worlds.placement import GIB, NO_MEMORY, NOON_S, World, class_json, node_json, pod_json

LATER = [4.0] * 2 + [30.0] * 22
"""GiB: little for five minutes, then much."""


def world_with_growing_memory(settings: Settings | None = None) -> World:
    """`full` has 32 GiB, of which its pod will soon use 30; `free` has no pods."""
    world = World(settings, node_json("full"), node_json("free"), class_json("eater", [1.0] * 24, LATER))
    return world.put(pod_json("a", node="full", memory="4Gi", workload="eater"))


def test_a_node_without_enough_forecast_memory_is_refused_though_requests_fit() -> None:
    world = world_with_growing_memory()
    assert world.filter(pod_json("new", memory="8Gi")) == {"full": NO_MEMORY}
    assert world.filter(pod_json("small", memory="1Gi")) == {}


@pytest.mark.parametrize("peak_at_h", [0.1, 0.5, 0.9, 1.4, 3.0, 7.5, 20.0, 40.0])
def test_memory_is_refused_over_the_whole_known_run_and_not_beyond_the_run_of_the_pod_itself(peak_at_h: float) -> None:
    """Runs of 48 hours need 4 GiB, and 30 for ten minutes; a pod of five minutes has long ended by the later peaks."""
    run = [4.0] * 1152
    run[int(peak_at_h * 24) : int(peak_at_h * 24) + 4] = [30.0] * 4
    world = World(
        None, node_json("a"), class_json("late", [0.1] * 1152, run), class_json("brief", [0.1] * 2, [8.0] * 2)
    )
    world.put(pod_json("there", node="a", cpu="100m", memory="4Gi", workload="late"))
    for hours_later in (0.0, 0.05):
        world.clock.now_s += hours_later * 3600.0
        assert world.filter(pod_json("same", cpu="100m", memory="4Gi", workload="late")) == {"a": NO_MEMORY}
        assert world.filter(pod_json("steady", cpu="100m", memory="4Gi")) == {"a": NO_MEMORY}
        brief = world.filter(pod_json("brief", cpu="100m", memory="4Gi", workload="brief"))
        assert brief == ({"a": NO_MEMORY} if peak_at_h < 0.2 else {})
    world.clock.now_s += (peak_at_h + 1.2) * 3600.0
    assert world.filter(pod_json("steady", cpu="100m", memory="4Gi")) == {}, "the peak is over"


@at_most(40)
@given(data=st.data())
def test_pods_that_pass_the_filter_never_need_more_memory_together_than_their_node_has(data: st.DataObject) -> None:
    """Whenever they come, as long as they run as earlier ones of their class did: for up to twelve hours here."""
    stretch = st.tuples(st.integers(1, 90), st.floats(0.1, 30.0))
    runs = [
        [gib for cells, gib in data.draw(st.lists(stretch, min_size=1, max_size=4)) for _ in range(cells)]
        for _ in range(3)
    ]
    world = World(None, node_json("a", cpu="64"))
    world.put(*(class_json(f"k{kind}", [0.1] * len(run), run) for kind, run in enumerate(runs)))
    memory, cell = np.zeros(2000), 0
    for number in range(12):
        cell += data.draw(st.integers(0, 40))
        world.clock.now_s = NOON_S + 150.0 * cell
        kind = data.draw(st.integers(0, 2))
        made = {"cpu": "100m", "memory": "1Mi", "workload": f"k{kind}"}
        if not world.filter(pod_json(f"p{number}", **made)):
            world.put(pod_json(f"p{number}", node="a", **made))
            memory[cell : cell + len(runs[kind])] += runs[kind]
    assert memory.max() <= 32.0 * 1.001


def tenants(now_gib: float, soon_gib: float, requested: str) -> World:
    """On both nodes four pods of another namespace, of a class that uses as much in all, and more in 20 minutes."""
    run = [now_gib / 4] * 8 + [soon_gib / 4] * 100
    world = World(None, node_json("a"), node_json("b"), class_json("k", [0.1] * 108, run, namespace="other"))
    theirs = {"cpu": "100m", "memory": requested, "workload": "k", "namespace": "other"}
    return world.put(*(pod_json(f"{on}{number}", node=on, **theirs) for on in "ab" for number in range(4)))


def test_what_another_namespace_learned_to_use_beyond_its_requests_keeps_a_pod_out_for_a_cycle_at_most() -> None:
    """Four pods that request 1Mi each are of a class that uses 62 GiB."""
    world, mine = tenants(62.0, 62.0, "1Mi"), pod_json("mine", memory="4Gi")
    world.put(mine)
    by_others = "pods of other namespaces are expected to use its memory in the coming cycle; the pod waits at most 10m"
    assert world.filter(mine) == {"a": by_others, "b": by_others}
    world.clock.now_s += 601.0
    assert world.filter(mine) == {}


def test_later_use_of_another_namespace_beyond_its_requests_keeps_no_pod_out_but_a_node_without_it_is_preferred() -> (
    None
):
    world, mine = tenants(8.0, 30.0, "2Gi"), pod_json("mine", memory="4Gi")
    assert world.filter(mine) == {}
    world.put(node_json("free"))
    assert world.filter(mine) == {"a": NO_MEMORY, "b": NO_MEMORY}


def test_what_another_namespace_requests_and_what_ones_own_learned_keeps_a_pod_out_for_the_whole_patience() -> None:
    mine = pod_json("mine", memory="4Gi")
    assert tenants(8.0, 30.0, "7500Mi").filter(mine) == {"a": NO_MEMORY, "b": NO_MEMORY}
    world = tenants(1.0, 1.0, "1Mi")
    world.put(class_json("own", [0.1] * 100, [1.0] * 8 + [30.0] * 92))
    world.put(*(pod_json(f"own-{on}", node=on, cpu="100m", memory="1Gi", workload="own") for on in "ab"))
    assert world.filter(mine) == {"a": NO_MEMORY, "b": NO_MEMORY}


def test_pods_of_another_namespace_that_were_shrunk_count_with_what_their_owner_declared() -> None:
    """They request 2 GiB each by now, of 7.5 declared."""
    world, mine = tenants(8.0, 30.0, "2Gi"), pod_json("mine", memory="4Gi")
    declared = {"name": "main", "declaredMemoryBytes": 7.5 * GIB}
    status = {"containers": [declared], "pods": [{"uid": f"uid-{on}{number}"} for on in "ab" for number in range(4)]}
    metadata = {"name": "vpa", "namespace": "other"}
    world.put({"kind": "PhaseProfile", "metadata": metadata, "spec": {"class": False}, "status": status})
    assert world.filter(mine) == {"a": NO_MEMORY, "b": NO_MEMORY}


def test_no_victim_is_added_because_of_what_another_namespace_learned_to_use_later() -> None:
    world = tenants(8.0, 30.0, "2Gi")
    urgent = pod_json("urgent", memory="4Gi", priority=10)
    assert world.placer.filter(ExtenderArgs(urgent, ["a", "b"], None)) == FilterResult(["a", "b"], {})
    proposed = {"a": ["uid-a0"], "b": ["uid-b0"]}
    assert world.placer.preempt(PreemptionArgs(urgent, proposed, {})) == proposed


def test_a_pod_that_fits_exactly_is_not_refused() -> None:
    world = World(None, node_json("a"))
    for number in range(31):
        world.put(pod_json(f"p{number}", cpu="100m", node="a"))
    assert world.filter(pod_json("new")) == {}
    assert world.filter(pod_json("more", memory="2Gi")) == {"a": NO_MEMORY}


def test_guessed_use_refuses_no_node() -> None:
    gpu = {"nvidia.com/gpu": "2"}
    world = World(None, node_json("a"))
    silent = pod_json(
        "silent", cpu=None, memory=None, limits=gpu, nodeSelector={"nvidia.com/gpu.product": "Tesla-V100"}
    )
    assert world.filter(silent) == {}, "48 GiB by FfDL's table, on a node of 32"
    world.put({**silent, "spec": {**silent["spec"], "nodeName": "a"}, "status": {"phase": "Running"}})
    assert world.filter(pod_json("new", memory="8Gi")) == {}
    assert world.request(pod_json("new")).snapshot.load[0].max() == 42.0 + 1.0, "the guess counts as load"


def test_guessed_use_of_one_of_two_containers_refuses_no_node() -> None:
    """One uses 31.9 of 32 GiB; the use of the other is guessed."""
    world = World(None, node_json("a"), class_json("k", [1.0], [31.9]))
    pod = pod_json("new", workload="k")
    pod["spec"]["containers"].append({"name": "side", "image": "x"})
    assert world.request(pod).footprint.guessed[1] > 0.1 * 2**30
    assert world.filter(pod) == {}


def test_a_pod_of_unknown_use_is_not_refused_even_by_an_overcommitted_node() -> None:
    world = World(None, node_json("a"), pod_json("there", memory="34Gi", node="a", scheduler="x"))
    assert world.filter(pod_json("known", memory="1Gi")) == {"a": NO_MEMORY}
    assert world.filter(pod_json("new", cpu=None, memory=None)) == {}


def test_a_history_that_exceeds_every_node_is_ignored() -> None:
    world = World(None, node_json("a"), class_json("absurd", [1e9], [1e9]))
    assert world.filter(pod_json("new", workload="absurd")) == {}
    assert world.request(pod_json("new", workload="absurd")).footprint.source == "requests"


def test_pods_of_other_schedulers_unknown_nodes_and_nodes_without_a_size_are_not_refused() -> None:
    world = world_with_growing_memory().put(node_json("sizeless", "0", "0"))
    assert world.filter(pod_json("theirs", memory="31Gi", scheduler="default-scheduler")) == {}
    labels = {"phasewise.dev/workload": "eater"}  # read by the recommender too, and no consent to be refused
    assert world.filter(pod_json("theirs", memory="31Gi", scheduler="default-scheduler", labels=labels)) == {}
    assert world.filter(pod_json("ours", memory="31Gi"), ["never-heard-of", "sizeless"]) == {}


def test_the_reason_for_a_refusal_is_the_same_at_every_attempt() -> None:
    world = world_with_growing_memory()
    reasons = set()
    for _ in range(3):
        world.clock.now_s += 7.0
        reasons.add(tuple(world.filter(pod_json("new", memory="8Gi")).items()))
    assert len(reasons) == 1


def test_a_pod_is_filtered_as_the_scheduler_sends_it_if_the_watch_has_an_older_version() -> None:
    world = world_with_growing_memory()
    before, now = pod_json("new", memory="1Gi"), pod_json("new", memory="8Gi")
    before["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"] = "1", "2"
    world.put(before)
    assert world.filter(before) == {}
    assert world.filter(now) == {"full": NO_MEMORY}


def test_scores_are_added_to_the_decision_of_the_filter_or_recorded_without_one() -> None:
    world = world_with_growing_memory().put(node_json("third"))
    pod, unfiltered = pod_json("new", memory="8Gi"), pod_json("unfiltered")
    world.place(pod)
    decision = world.decisions.find("team", "new")
    assert decision is not None
    assert decision.refused.reasons(None) == {"full": NO_MEMORY}
    assert (decision.nodes_asked, decision.attempts) == (3, 1)
    assert decision.favourite in ("free", "third")
    world.prioritize(unfiltered, ["free", "third", "never-heard-of"])
    decision = world.decisions.find("team", "unfiltered")
    assert decision is not None
    assert decision.refused.reasons(None) == {}
    assert (decision.nodes_asked, decision.attempts) == (3, 1)


def test_nodes_that_the_watch_has_not_shown_are_counted_in_every_request() -> None:
    world = world_with_growing_memory()
    for candidates in (["free"], ["free", "unknown-1"], ["unknown-1", "unknown-2"]):
        world.filter(pod_json("new"), candidates)
    assert world.placer.unknown_nodes == 3


def test_a_class_whose_recorded_peak_fits_no_candidate_runs_after_the_patience() -> None:
    """40 of 32 GiB: waiting does not help, and without a run the profile would never change."""
    world = World(None, node_json("a"), node_json("larger", memory="64Gi", cpu="1")).put(
        class_json("hungry", [1.0], [40.0]), pod_json("there", cpu="1", memory="60Gi", node="larger", workload="x")
    )
    hungry = pod_json("hungry", workload="hungry")
    world.put(hungry)
    assert world.filter(hungry, ["a"]) == {"a": NO_MEMORY}
    assert NO_MEMORY == "forecast memory exceeds the limit while the pod would run; the pod waits at most 2h"
    world.clock.now_s += 7199.0
    assert world.filter(hungry, ["a"]) == {"a": NO_MEMORY}
    world.clock.now_s += 1.0
    assert world.filter(hungry, ["a"]) == {}
    decision = world.decisions.find("team", "hungry")
    assert decision is not None
    assert (decision.favourite, decision.as_json()["waitedSeconds"]) == ("a", 7200.0)
    world.put(pod_json("hungry", workload="hungry", node="a"))
    assert "after being refused by all nodes for 2h" in event_text(decision)


def urgent(name: str = "urgent", **fields: Any) -> dict[str, Any]:
    return pod_json(name, memory="8Gi", priority=1000, **fields)


def test_one_node_where_evictions_would_help_is_reported_as_resolvable() -> None:
    """`a` and `b` will be full of pods that may be evicted, `c` of one that may not; `b` needs fewer evictions."""
    world = World(None, *(node_json(name) for name in "abc"), class_json("eater", [1.0] * 24, LATER))
    world.put(class_json("half", [1.0] * 24, [15.0] * 24), pod_json("c-0", node="c", workload="eater", priority=1000))
    world.put(*(pod_json(f"a-{number}", node="a", workload="half") for number in range(2)))
    world.put(pod_json("b-0", node="b", workload="eater"))
    wide = urgent()
    wide["spec"]["containers"][0]["resources"]["requests"]["memory"] = "20Gi"
    filtered = world.placer.filter(ExtenderArgs(wide, ["a", "b", "c"], None))
    assert filtered == FilterResult([], dict.fromkeys("abc", NO_MEMORY), "b")
    assert json.loads(filter_answer(ExtenderArgs(wide, [], None), filtered))["FailedNodes"] == {"b": NO_MEMORY}
    for pod in (pod_json("equal", memory="20Gi"), {**wide, "spec": {**wide["spec"], "preemptionPolicy": "Never"}}):
        assert world.placer.filter(ExtenderArgs(pod, ["a", "b", "c"], None)).resolvable == ""
    assert world.placer.filter(ExtenderArgs(wide, ["c"], None)).resolvable == "", "not of lower priority"
    world.put(node_json("free"))
    assert world.placer.filter(ExtenderArgs(wide, ["a", "b", "c", "free"], None)).resolvable == "", (
        "`free` is not refused"
    )


def test_a_refusal_that_evictions_would_not_lift_is_not_resolvable() -> None:
    """Most memory is used by a pod of another scheduler, which is never evicted."""
    world = World(None, node_json("a"), pod_json("stranger", memory="30Gi", node="a", scheduler="x"))
    world.put(pod_json("low", node="a"))
    assert world.placer.filter(ExtenderArgs(urgent(), ["a"], None)) == FilterResult([], {"a": NO_MEMORY}, "")


def test_a_node_is_not_resolvable_by_evicting_pods_that_the_watch_has_not_shown() -> None:
    world = World(None, node_json("a"), class_json("eater", [1.0] * 24, LATER))
    assert world.filter(pod_json("b-0", workload="eater")) == {}
    args = ExtenderArgs(urgent(), ["a"], None)
    assert world.placer.filter(args) == FilterResult([], {"a": NO_MEMORY}, "")
    world.put(pod_json("b-0", node="a", workload="eater"))
    assert world.placer.filter(args) == FilterResult([], {"a": NO_MEMORY}, "a")


@pytest.mark.parametrize("proposed", [(), ("uid-a-1",)])
def test_other_pods_of_lower_priority_are_evicted_if_the_proposed_victims_do_not_suffice(
    proposed: tuple[str, ...],
) -> None:
    """Three use 14 of 48 GiB each; for 30 GiB two must go, the lowest first, and none of another scheduler."""
    world = World(None, node_json("a", memory="48Gi"), class_json("k", [1.0], [14.0]))
    world.put(*(pod_json(f"a-{number}", node="a", workload="k", priority=number) for number in range(3)))
    world.put(pod_json("stranger", node="a", memory="1Gi", scheduler="x", priority=-5))
    wide = pod_json("wide", memory="30Gi", priority=1000)
    chosen = world.placer.preempt(PreemptionArgs(wide, {"a": proposed}, {"a": 0}))
    assert chosen == {"a": [*proposed, *[uid for uid in ("uid-a-0", "uid-a-1") if uid not in proposed]]}
    low = pod_json("low", memory="30Gi", priority=1)
    assert world.placer.preempt(PreemptionArgs(low, {"a": ("uid-a-0",)}, {"a": 0})) == {}, "one alone does not help"


def test_pods_with_and_without_a_history_can_be_victims_on_the_same_node() -> None:
    world = world_with_growing_memory().put(pod_json("flat", node="full", memory="1Gi"))
    both = {"full": ["uid-a", "uid-flat"]}
    assert world.placer.preempt(PreemptionArgs(pod_json("new", memory="8Gi"), both, {"full": 0})) == both


def test_among_equal_priorities_the_pod_that_will_use_most_memory_is_evicted_first() -> None:
    """One will use up to 20 of 48 GiB, the other 12; evicting one suffices for 30 GiB."""
    world = World(None, node_json("a", memory="48Gi"), class_json("spiky", [1.0] * 24, [4.0] * 2 + [20.0] * 22))
    world.put(class_json("flat", [1.0] * 24, [12.0] * 24))
    world.put(*(pod_json(name, node="a", workload=name) for name in ("flat", "spiky")))
    wide = pod_json("wide", memory="30Gi", priority=1000)
    assert world.placer.preempt(PreemptionArgs(wide, {"a": ()}, {"a": 0})) == {"a": ["uid-spiky"]}


def test_advised_pods_not_seen_yet_are_evicted_if_no_other_node_would_do() -> None:
    """The scheduler has bound two, the watch is behind. A preemption that fails now is not retried for minutes."""
    world = World(None, node_json("a", memory="48Gi"), class_json("k", [1.0], [14.0]))
    for number in range(2):
        assert world.filter(pod_json(f"a-{number}", workload="k"), ["a"]) == {}
    wide = pod_json("wide", memory="30Gi", priority=1000)
    args = PreemptionArgs(wide, {"a": ("uid-a-0",)}, {"a": 0})
    assert world.placer.preempt(args) == {"a": ["uid-a-0"]}, "the other uses 14 of 48 GiB"
    wider = pod_json("wider", memory="40Gi", priority=1000)
    assert world.placer.preempt(PreemptionArgs(wider, args.victims, args.disruptions)) == {"a": ["uid-a-0", "uid-a-1"]}
    world.put(node_json("b", memory="48Gi"), pod_json("b-0", node="b", workload="k"))
    either = PreemptionArgs(wider, {"a": ("uid-a-0",), "b": ("uid-b-0",)}, {"a": 0, "b": 0})
    assert world.placer.preempt(either) == {"b": ["uid-b-0"]}, "its pod was seen"


def test_no_pod_is_evicted_from_a_node_that_the_forecast_would_still_refuse() -> None:
    world = world_with_growing_memory().put(pod_json("small", memory="1Gi", node="full"))
    raw = pod_json("new", memory="8Gi")
    in_vain = PreemptionArgs(raw, {"full": ("uid-small",), "free": ()}, {"full": 0, "free": 0})
    assert world.placer.preempt(in_vain) == {}
    helps = PreemptionArgs(raw, {"full": ("uid-a",)}, {"full": 0})
    assert world.placer.preempt(helps) == {"full": ["uid-a"]}


def test_a_pod_whose_use_is_only_guessed_is_not_evicted_for_a_forecast() -> None:
    """Its T-shirt size, 24 GiB, is more than any other pod uses, and refuses no pod, so without it nothing changes."""
    guessed = pod_json("guessed", node="a", cpu=None, memory=None, annotations={"phasewise.dev/size": "1-K80"})
    world = World(None, node_json("a"), guessed, pod_json("stranger", memory="10Gi", node="a", scheduler="x"))
    world.put(pod_json("other", memory="20Gi", node="a"))
    assert world.placer.preempt(PreemptionArgs(urgent(), {"a": ("uid-guessed",)}, {"a": 0})) == {
        "a": ["uid-guessed", "uid-other"]
    }
    assert world.placer.preempt(PreemptionArgs(urgent(), {"a": ()}, {"a": 0})) == {"a": ["uid-other"]}
    world.put(pod_json("stranger", memory="30Gi", node="a", scheduler="x"))
    assert world.placer.filter(ExtenderArgs(urgent(), ["a"], None)) == FilterResult([], {"a": NO_MEMORY}, "")


def test_the_victims_proposed_for_a_pod_of_another_scheduler_are_not_changed() -> None:
    world = world_with_growing_memory().put(pod_json("small", memory="1Gi", node="full"))
    theirs = PreemptionArgs(pod_json("new", memory="8Gi", scheduler="x"), {"full": ("uid-small",)}, {"full": 0})
    assert world.placer.preempt(theirs) == {"full": ("uid-small",)}, "though the forecast would still refuse our pods"


@pytest.mark.parametrize("victims", [("uid-nobody",), ("uid-a", "uid-nobody")])
def test_unknown_victims_are_left_to_the_scheduler(victims: tuple[str, ...]) -> None:
    world = world_with_growing_memory()
    args = PreemptionArgs(
        pod_json("new", memory="8Gi"), {"full": victims, "strange": ("x",)}, {"full": 0, "strange": 0}
    )
    assert set(world.placer.preempt(args)) == {"full", "strange"}
    theirs = PreemptionArgs(pod_json("new", scheduler="x"), {"full": victims, "free": ()}, {"full": 0, "free": 0})
    assert list(world.placer.preempt(theirs)) == ["full"]


def nominated(node: str, version: str, refusal: str = NO_MEMORY) -> dict[str, Any]:
    """A version of a pod that has preempted others on `node`."""
    pod = urgent()
    pod["metadata"]["resourceVersion"] = version
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": refusal}
    pod["status"] |= {"nominatedNodeName": node, "conditions": [condition]}
    return pod


def test_no_other_pod_takes_the_memory_that_a_preemption_frees() -> None:
    """The victim has 30 of 32 GiB. Afterwards the nominated pod is tried again later than one of lower priority."""
    world = World(None, node_json("a"), pod_json("victim", node="a", memory="30Gi"), urgent())
    args = ExtenderArgs(urgent(), ["a"], None)
    assert world.placer.filter(args) == FilterResult([], {"a": NO_MEMORY}, "a")
    world.put(nominated("a", "2"))
    assert world.filter(nominated("a", "2")) == {"a": NO_MEMORY}, "its victim is still there"
    world.state.drop_pod("uid-victim")
    assert world.filter(pod_json("low", memory="28Gi")) == {"a": NO_MEMORY}
    assert world.filter(nominated("a", "2")) == {}


def test_a_nominated_pod_does_not_count_twice_against_itself_and_no_longer_when_its_nomination_is_cleared() -> None:
    world = World(None, node_json("a"), node_json("b"))
    world.put(pod_json("there", node="a", memory="2Gi"), pod_json("more", node="a", memory="22Gi"), nominated("a", "2"))
    proposed = PreemptionArgs(nominated("a", "2"), {"a": ("uid-there",)}, {"a": 0})
    assert world.placer.preempt(proposed) == {"a": ["uid-there"]}
    assert world.filter(pod_json("other", memory="6Gi"), ["a"]) == {"a": NO_MEMORY}
    world.put(nominated("b", "3"))
    assert world.filter(pod_json("other", memory="6Gi"), ["a"]) == {}
    world.put(nominated("", "4"))
    assert world.filter(pod_json("another", memory="28Gi"), ["b"]) == {}


def test_a_nomination_by_another_scheduler_does_not_count() -> None:
    theirs = nominated("a", "2")
    theirs["spec"]["schedulerName"] = "theirs"
    assert World(None, node_json("a"), theirs).filter(pod_json("new", memory="28Gi")) == {}
