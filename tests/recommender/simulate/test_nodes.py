"""Pods packed onto nodes over time: worked examples, then properties."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import Misuse
from recommender.base.nodes import NodeType, check_prices, parse_node_type
from recommender.base.records import Played, RunFacts, RunTally, Tally, UsageSeries
from recommender.simulate.nodes import Pod, nodes_needed, pack, pods_of
from tests.examples import at_most

SMALL = NodeType(4.0, 16.0, price_per_hour=1.0)
WITH_GPUS = NodeType(8.0, 64.0, devices=4, price_per_hour=5.0)
HOUR = 3600.0


def pod(name: str, *levels: tuple[float, ...], until: float, moves: bool = False) -> Pod:
    """Levels are hour, cores, bytes (1 if left out) and devices; it ends at an hour."""
    rows = [(hour, cores, *(more or (1.0,)), *([0.0] * (2 - len(more or (1.0,))))) for hour, cores, *more in levels]
    table = np.array([*rows, (until, 0.0, 0.0, 0.0)])
    return Pod(name, table[:, 0] * HOUR, table[:, 1:], moves)


def test_two_nodes_for_an_hour_and_one_for_another() -> None:
    """Two pods of three cores do not fit on four; the third comes when both have ended."""
    found = pack([pod("a", (0, 3), until=1), pod("b", (0, 3), until=1), pod("c", (1, 1), until=2)], [SMALL])
    assert (found.node_hours, found.peak_nodes, found.mean_nodes, found.cost) == (3.0, 2, 1.5, 3.0)
    assert (found.displaced, found.larger) == (0, ())
    assert math.isnan(found.stranded_device_hours)


def test_the_largest_pod_is_placed_first_and_others_where_they_leave_least_room() -> None:
    """4 = 3 + 1 = 2 + 2: in the order of the names there would be four nodes."""
    cores = {"a": 1, "b": 2, "c": 2, "d": 3, "e": 4}
    assert pack([pod(name, (0, of), until=1) for name, of in cores.items()], [SMALL]).peak_nodes == 3


def test_memory_fills_a_node_as_well_as_cpu() -> None:
    assert pack([pod(name, (0, 0.1, 9.0), until=1) for name in "ab"], [SMALL]).peak_nodes == 2


def test_a_resize_keeps_its_node_if_that_has_room_and_else_displaces_the_pod() -> None:
    grows = pod("a", (0, 1), (1, 3), until=2)
    assert pack([grows, pod("b", (0, 1), until=2)], [SMALL]).displaced == 0
    found = pack([grows, pod("b", (0, 2), until=2)], [SMALL])
    assert (found.displaced, found.node_hours) == (1, 3.0)


def test_room_that_one_pod_gives_back_is_there_for_another_at_the_same_time() -> None:
    found = pack([pod("a", (0, 3), (1, 1), until=2), pod("b", (0, 1), (1, 3), until=2)], [SMALL])
    assert (found.displaced, found.peak_nodes) == (0, 1)


def test_a_pod_larger_than_a_node_counts_as_whole_nodes_and_is_named() -> None:
    """Nine cores are three nodes of four, and the small pod beside it has none of them."""
    found = pack([pod("big", (0, 9), until=1), pod("small", (0, 1), until=1)], [SMALL])
    assert (found.node_hours, found.larger, found.displaced) == (4.0, ("big",), 0)


def test_services_are_drained_from_nodes_less_than_half_requested_and_runs_are_not() -> None:
    """After an hour both need a core each; ten minutes later one node is enough for services."""
    levels = ((0, 3), (1, 1))
    runs = pack([pod("a", *levels, until=3), pod("b", *levels, until=3)], [SMALL])
    services = pack([pod("a", *levels, until=3, moves=True), pod("b", *levels, until=3, moves=True)], [SMALL])
    assert (runs.node_hours, services.node_hours) == (6.0, pytest.approx(4.0 + 1 / 6))
    assert services.displaced == 0


def test_a_new_node_is_of_the_cheapest_type_that_the_pod_fits_on() -> None:
    large = NodeType(16.0, 64.0, price_per_hour=3.0)
    assert pack([pod("a", (0, 3), until=1)], [large, SMALL]).cost == 1.0
    assert pack([pod("a", (0, 5), until=1)], [large, SMALL]).cost == 3.0


def test_pods_with_devices_go_to_nodes_with_devices_and_others_to_those_without() -> None:
    found = pack([pod("train", (0, 1, 1, 1), until=1), pod("web", (0, 1), until=1)], [SMALL, WITH_GPUS])
    assert (found.cost, found.peak_nodes) == (6.0, 2)
    assert pack([pod("train", (0, 1, 1, 1), until=1), pod("web", (0, 1), until=1)], [WITH_GPUS]).peak_nodes == 1


def test_gpus_are_stranded_on_nodes_that_only_cpu_or_memory_makes_necessary() -> None:
    """Two pods with two GPUs fill a node of four, unless each requests five of its eight cores."""
    greedy, modest = ([pod(name, (0, cores, 1, 2), until=2) for name in "ab"] for cores in (5, 4))
    assert (pack(greedy, [WITH_GPUS]).stranded_device_hours, pack(modest, [WITH_GPUS]).stranded_device_hours) == (8, 0)


def test_pods_whose_devices_no_type_has_are_packed_and_named() -> None:
    found = pack([pod("train", (0, 1, 1, 1), until=1)], [SMALL])
    assert (found.node_hours, found.without_devices) == (1.0, ("train",))


def test_the_work_that_kills_lose_is_paid_as_the_share_of_a_node_that_it_takes() -> None:
    """An hour of work on two of four cores, and on one of four GPUs, is half a node and a quarter."""
    run = replace(pod("a", (0, 2), until=4), lost=(2.0 * HOUR, 1.0 * HOUR))
    found = pack([run], [SMALL])
    assert (found.lost_node_hours, found.cost) == (0.5, 4.5)
    run = replace(pod("a", (0, 1, 1, 1), until=4), lost=(1.0 * HOUR, 1.0 * HOUR))
    assert pack([run], [WITH_GPUS]).cost == pytest.approx(4 * 5 + 0.25 * 5)


def test_containers_of_a_pod_share_a_node_and_what_they_have_first_counts_from_their_start() -> None:
    def series(name: str, at: int, devices: float = math.nan) -> UsageSeries:
        return UsageSeries(
            name, at + 60 * np.arange(4), 60.0, np.ones((4, 2)), owner="Deployment/web", facts=RunFacts(devices=devices)
        )

    def played(times_s: list[int], cores: list[float]) -> Played:
        amounts = np.column_stack([cores, np.ones(len(cores))])
        return Played(Tally(), RunTally(lost=(1.0, 2.0)), (np.array(times_s), amounts))

    names = ("ns/pod/main", "ns/pod/sidecar", "alone")
    of = dict(zip(names, (played([60, 180], [2.0, 1.0]), played([120], [0.5]), played([60], [1.0])), strict=True))
    both, alone = pods_of([series(names[0], 0, 2.0), series(names[1], 60), series(names[2], 0)], of)
    assert (both.name, both.moves, both.lost, alone.name) == ("ns/pod", True, (2.0, 4.0), "alone")
    assert both.times_s.tolist() == [0, 60, 180, 240, 300]
    assert both.wants.tolist() == [[2, 1, 2], [2.5, 2, 2], [1.5, 2, 2], [0.5, 1, 0], [0, 0, 0]]
    rows = {name: {"static": of[name], "vpa": of[name]} for name in names}
    del rows["alone"]["vpa"]
    all_series = [series(names[0], 0), series(names[1], 60), series(names[2], 0), series("not judged", 0)]
    assert list(nodes_needed(all_series, rows, ("static", "vpa"), [SMALL])) == ["static"]


LEVEL = st.tuples(st.floats(0.1, 6.0), st.floats(0.1, 24.0), st.integers(0, 3))


@st.composite
def pods(draw: st.DrawFn) -> list[Pod]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        times_s = np.cumsum([draw(st.integers(1, 40)) * 100.0 for _ in range(draw(st.integers(2, 4)))])
        devices = draw(st.integers(0, 3))
        levels = [(*draw(LEVEL)[:2], devices) for _ in times_s[1:]]
        found.append(Pod(f"{number}", times_s, np.array([*levels, (0, 0, 0)], float), draw(st.booleans())))
    return found


@at_most(100)
@given(pods(), st.sampled_from([[SMALL], [WITH_GPUS], [SMALL, WITH_GPUS]]))
def test_nodes_are_at_least_what_is_requested_and_at_most_what_each_pod_alone_needs(
    some: list[Pod], types: list[NodeType]
) -> None:
    found, alone = pack(some, types), [pack([one], types) for one in some]
    most = max(one.cpu_cores for one in types)
    core_hours = sum(float(np.diff(one.times_s) @ one.wants[:-1, 0]) for one in some) / HOUR
    assert found.node_hours * most >= core_hours * (1 - 1e-9)
    assert found.node_hours <= sum(one.node_hours for one in alone) * (1 + 1e-9)
    assert found.peak_nodes <= sum(one.peak_nodes for one in alone)
    assert set(found.larger) == {name for one in alone for name in one.larger}
    doubled = pack(some, [replace(one, price_per_hour=2 * one.price_per_hour) for one in types])
    assert doubled.cost == pytest.approx(2 * found.cost)


@pytest.mark.parametrize(
    "text", ["16", "16x64", "16x64Gi@", "x64Gi", "16x64Gx", "0x64Gi", "16x0Gi", "-1x64Gi", "9e9x1Gi"]
)
def test_what_is_no_node_type_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Misuse, match="16x64Gi"):
        parse_node_type(text)


def test_numbers_beyond_all_machines_are_refused() -> None:
    with pytest.raises(Misuse, match="16x64Gi"):
        parse_node_type(f"{'9' * 30}x64Gi")


def test_prices_of_only_some_types_are_refused() -> None:
    with pytest.raises(Misuse, match="Give all of them one"):
        check_prices([parse_node_type("4x16Gi@0.20"), parse_node_type("8x32Gi")])
