"""Nodes by name: where they stand, and what is kept of them while they only say again what they said."""

from __future__ import annotations

from placement_bench.worlds import World, node_json


def test_nodes_are_found_by_name_and_all_of_them_are_everywhere() -> None:
    snapshot = World(None, node_json("a"), node_json("b"), node_json("c")).state.snapshot()
    places, unknown = snapshot.table.find(["c", "new", "a"])
    assert ({snapshot.table.names[place] for place in places}, len(places), unknown) == ({"c", "a"}, 2, ["new"])
    assert snapshot.table.find(["c", "a", "b"])[0] is snapshot.table.everywhere
    assert snapshot.table.find([])[0].size == 0


def test_a_node_that_says_again_what_it_said_or_changes_its_size_leaves_the_names_as_they_are() -> None:
    world = World(None, node_json("a"), node_json("b"))
    before = world.state.snapshot()
    world.put(node_json("a"))
    assert world.state.snapshot().table.names is before.table.names
    world.put(node_json("a", cpu="4"), node_json("b", cpu="2"))
    after = world.state.snapshot()
    assert after.table.names is before.table.names
    assert after.table.index is before.table.index
    assert after.allocatable[0].tolist() == [4.0, 2.0]
    assert before.allocatable[0].tolist() == [8.0, 8.0]
    world.put(node_json("c"))
    assert world.state.snapshot().table.names is not before.table.names
