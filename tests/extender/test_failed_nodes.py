"""A node where a pod could not be bound, for a reason that is not ours, comes last for the pods of its owner."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cli.explain import show
from extender.pods.pod import MEMORY_REASON
from extender.view.placed import AVOID_S
from tests.worlds.placement import World, node_json, pod_json

NO_VOLUME = 'running PreBind plugin "VolumeBinding": provisioning failed for PVC "data"'


def unbound(name: str, message: str = NO_VOLUME, **fields: Any) -> dict[str, Any]:
    """A pod that the scheduler could not place, with its message."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": message}
    pod = pod_json(name, **fields)
    return {**pod, "status": {**pod["status"], "conditions": [condition]}}


@pytest.fixture
def world() -> World:
    """By use `a` is the favourite, then `b`, then `c`."""
    world = World(None, node_json("a"), node_json("b"), node_json("c"))
    other = {"scheduler": "default-scheduler", "workload": "x"}
    return world.put(pod_json("on-b", node="b", cpu="2", **other), pod_json("on-c", node="c", cpu="4", **other))


@pytest.mark.parametrize("seen", [True, False])
def test_a_pod_that_comes_back_unbound_goes_elsewhere_and_only_then_back(seen: bool, world: World) -> None:
    """Whether the watch shows its condition before the scheduler asks again, or not."""
    assert world.place(pod_json("p")) == "a"
    for favourite in ("b", "c", "a", "b"):
        world.clock.now_s += 10.0
        if seen:
            world.put(unbound("p"))
        assert world.place(unbound("p")) == favourite, "of nodes that failed, the earliest"


def test_all_pods_of_its_owner_avoid_the_node_for_some_minutes_and_others_do_not(world: World) -> None:
    gang = {"labels": {"batch.kubernetes.io/job-name": "train"}}
    assert world.place(pod_json("first", **gang)) == "a"
    assert world.place(unbound("first", **gang)) == "b"
    assert world.place(pod_json("another")) == "a"
    world.state.drop_pod("uid-another")
    world.state.drop_pod("uid-first")
    assert world.place(pod_json("second", **gang)) == "b"
    world.state.drop_pod("uid-second")
    world.clock.now_s += AVOID_S
    assert world.place(pod_json("third", **gang)) == "a"


def test_the_node_is_still_taken_if_no_other_is_left_and_forgotten_once_a_pod_is_bound_there(world: World) -> None:
    assert world.place(pod_json("p")) == "a"
    assert world.place(unbound("p"), ["a"]) == "a"
    world.put(unbound("p"))
    world.put(pod_json("p", node="a"))
    assert world.state.failed_nodes(world.read_pod(pod_json("p"))) == {}


def test_news_of_a_pod_that_its_owner_has_there_already_do_not_make_the_node_good_again(world: World) -> None:
    gang = {"labels": {"batch.kubernetes.io/job-name": "train"}}
    world.put(pod_json("runs", node="a", cpu="0", memory="0", **gang))
    assert world.place(pod_json("p", annotations={"phasewise.dev/placement": "pack"}, **gang)) == "a"
    world.put(pod_json("runs", node="a", cpu="0", memory="0", phase="Running", **gang))
    again = unbound("p", annotations={"phasewise.dev/placement": "pack"}, **gang)
    world.filter(again)
    world.put(pod_json("runs", node="a", cpu="10m", memory="0", **gang))
    assert list(world.state.failed_nodes(world.read_pod(again))) == ["a"]


def test_a_refusal_of_ours_or_a_preemption_makes_no_node_fail(world: World) -> None:
    for pod in (
        pod_json("asked-again"),
        unbound("ours", f"0/3 nodes are available: 3 {MEMORY_REASON}."),
        {**unbound("preempts"), "status": {**unbound("preempts")["status"], "nominatedNodeName": "a"}},
    ):
        name = pod["metadata"]["name"]
        assert world.place(pod_json(name)) == "a"
        world.filter(pod)
        assert world.state.failed_nodes(world.read_pod(pod)) == {}
        world.state.drop_pod(f"uid-{name}")


def test_a_node_that_failed_comes_last_even_behind_one_that_overloads_and_explain_says_so(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.place(pod_json("p", cpu="5")) == "a"
    again = unbound("p", cpu="5")
    assert world.place(again, ["a", "c"]) == "c", "with nine of eight cores"
    decision = world.decisions.of("uid-p")
    assert decision is not None
    show(decision.as_json(), decided=True)
    assert "last, as a pod of its owner could not be bound there: a\n" in capsys.readouterr().out
    assert dict(zip(decision.places.tolist(), decision.scores.tolist(), strict=True)) == {0: 0, 2: 10}


def test_a_thousand_owners_are_remembered_at_most(world: World) -> None:
    for number in range(1010):
        read = world.read_pod(pod_json(f"p{number}"))
        world.state._failed_nodes.put(read, "a")
    assert len(world.state._failed_nodes._failed_s) == 1000
