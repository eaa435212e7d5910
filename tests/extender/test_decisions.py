"""Decisions: their JSON, their outcome once the pod is bound, their events, and how many are kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest

from extender.placing.decisions import Decision, Decisions, event_text
from extender.pods.event import MAX_NOTE, Events
from extender.pods.reservations import Reservation
from extender.protocol.wire import ExtenderArgs
from extender.settings import Limits, Settings
from recommender.cluster.objects.metadata import ObjectKey
from tests.worlds.placement import NOON_S, World, node_json, pod_json


def world_of(nodes: int = 3) -> World:
    return World(None, *(node_json(f"n{number}") for number in range(nodes)))


def decision(world: World, name: str) -> Decision:
    found = world.decisions.find("team", name)
    assert found is not None
    return found


def test_a_decision_lists_nodes_with_their_scorers_and_the_outcome() -> None:
    world = world_of()
    advised = world.place(pod_json("p"))
    shown = decision(world, "p").as_json()
    assert (shown["pod"], shown["advised"], shown["outcome"]) == ("team/p", advised, "not bound yet")
    assert (shown["nodesAsked"], shown["attempts"], shown["demandFrom"]) == (3, 1, "requests")
    assert shown["nodes"][0]["node"] == advised
    assert set(shown["nodes"][0]["scorers"]) == {"complement", "specon"}
    assert shown["nodes"][0]["scorers"]["complement"]["why"] == "peaks at 12% CPU and 3% memory"
    world.put(pod_json("p", node=advised))
    assert decision(world, "p").outcome == "bound where advised"
    assert len(decision(world, "p").as_json(1)["nodes"]) == 1


def test_the_only_node_left_is_advised_without_scores() -> None:
    world = world_of(1)
    assert world.place(pod_json("p")) == "n0"
    world.put(pod_json("p", node="n0"))
    assert decision(world, "p").outcome == "bound to the only node left"


def test_repeated_attempts_to_place_a_pod_are_one_decision() -> None:
    world = world_of()
    for _ in range(50):
        world.place(pod_json("p"))
    assert decision(world, "p").attempts == 50
    assert len(world.decisions) == 1


def test_the_oldest_decisions_are_dropped_when_they_hold_too_many_values() -> None:
    world = world_of()
    world.place(pod_json("p"))
    model = decision(world, "p")
    model.totals, model.scores = np.zeros(0), np.zeros(0, np.intp)
    kept = Decisions(max_decisions=10, max_bytes=5 * model.bytes_held)
    for number in range(20):
        pod = world.read_pod(pod_json(f"p{number}"))
        kept.put(Decision(pod, NOON_S, places=model.places, by_scorer=model.by_scorer), attempts=1)
    assert len(kept) == 5
    assert kept.find("team", "p19") is not None
    assert kept.find("team", "p14") is None


@pytest.mark.parametrize("gang", [True, False], ids=["a gang with reserved nodes", "pods refused because of CPU"])
def test_decisions_on_pods_that_hundreds_of_nodes_refuse_take_no_more_memory_than_is_counted(gang: bool) -> None:
    """And twice as much for the last snapshot and the advice."""
    names = [f"a-node-with-quite-a-name-{number}.example.internal" for number in range(400)]
    world = World(Settings(limits=Limits(cpu_overload=0.01)), *(node_json(name, cpu="5") for name in names))
    world.put(*(pod_json(f"busy-{name}", cpu="5", node=name) for name in names))
    pods = [pod_json(f"p{number}") for number in range(50)]
    if gang:
        reserved = {pod["metadata"]["uid"]: names[0] for pod in pods}
        world.state.reservations.put([Reservation("team", "phasewise.dev/gang=g", NOON_S, 300.0, reserved)])
    world.put(*pods).filter(pods[0])
    tracemalloc.start()
    try:
        for pod in pods:
            parsed = [name.encode().decode() for name in names]
            world.placer.filter(ExtenderArgs(pod, parsed, None))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted_bytes = sum(decision(world, pod["metadata"]["name"]).bytes_held for pod in pods)
    assert counted_bytes >= 8 * 50 * 399
    assert held_bytes < 3 * counted_bytes


def test_decisions_made_while_nodes_come_and_go_share_the_names_of_nodes() -> None:
    """A copy for each would take a gigabyte with 2,000 nodes."""
    world = world_of()
    world.place(pod_json("p"))
    world.put(node_json("another"))
    world.place(pod_json("q"))
    before, after = (decision(world, name).nodes for name in "pq")
    assert len(before) < len(after)
    assert all(old is new for old, new in zip(before, after, strict=False))


def test_a_new_pod_with_an_old_name_has_its_own_decision() -> None:
    world = world_of()
    world.place(pod_json("p", uid="first"))
    world.place(pod_json("p", uid="second"))
    assert decision(world, "p").pod.uid == "second"
    assert world.decisions.of("first") is not None


def test_the_event_explains_the_placement_in_one_line() -> None:
    world = world_of()
    advised = world.place(pod_json("p"))
    world.put(pod_json("p", node=advised))
    note = event_text(decision(world, "p"))
    assert note.startswith(f"{advised}: bound where advised, 10 of 10 among 3 nodes; complement 1 (peaks at")
    other = next(name for name in world.names if name != advised)
    decision(world, "p").bound = other
    assert f"{other}: outvoted by the scheduler's own scores ({advised} was advised)" in event_text(
        decision(world, "p")
    )


class WrittenEvents:
    """The API server, for events alone."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def create(self, path: str, event: Mapping[str, Any]) -> None:
        assert path == "/api/v1/namespaces/team/events"
        assert (event["involvedObject"]["uid"], event["source"]) == ("uid-p", {"component": "ours"})
        self.messages.append(event["message"])


def test_an_event_is_on_the_pod_and_short_enough_to_be_read() -> None:
    written = WrittenEvents()
    events = Events(cast(Any, written), "ours", lambda: NOON_S)
    for text in ("Short.", "some words " * 200):
        assert events.write(ObjectKey("team", "p"), "uid-p", "Why", text)
    assert written.messages[0] == "Short."
    assert len(written.messages[1]) <= MAX_NOTE <= 160 and written.messages[1].endswith("some …")


def test_the_event_on_a_pod_with_gpus_images_and_a_data_set_names_what_counts_most_first() -> None:
    """It had 217 characters."""
    pod = pod_json("p", annotations={"phasewise.dev/data": "imagenet", "phasewise.dev/placement": "pack"})
    world = world_of()
    advised = world.place(pod)
    world.put(pod_json("p", node=advised))
    text, written = event_text(decision(world, "p")), WrittenEvents()
    weights = decision(world, "p").weights
    named = [word for word in text.split() if word in weights]
    assert named == sorted(named, key=lambda name: -weights[name]) and len(named) > 2
    assert Events(cast(Any, written), "ours", lambda: NOON_S).write(ObjectKey("team", "p"), "uid-p", "Why", text)
    assert len(text) > MAX_NOTE >= len(written.messages[0]) and "complement" in written.messages[0]
