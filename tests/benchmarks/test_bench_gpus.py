"""The GPU rows of bench_placement: trace, nodes, policies by hand, and output."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.placement import output
from benchmarks.placement.gpu_fleet import Fleet, GpuTrace, Kinds, Placement, read_trace
from benchmarks.placement.gpu_policies import (
    CPU_AND_MEMORY,
    GPU_ONLY,
    POLICIES,
    FragmentationGradient,
    Policy,
    best_fit,
    by_requests,
    fragments,
)
from benchmarks.placement.gpu_runs import GpuResult, fill, play_trace, run_gpus, some_nodes
from recommender.base.errors import BadInput
from tests.benchmarks.benches import invoke

CPU_ONLY, HALF, ONE, TWO = range(4)
KINDS = Kinds(*np.array([[4000, 1000, 0, 0], [1000, 1000, 1, 500], [2000, 1000, 1, 1000], [8000, 1000, 2, 1000]]).T,
              pods=np.array([1, 2, 1, 1]))  # fmt: skip


def trace_of(*nodes: tuple[int, int], kind_of: tuple[int, ...] = (HALF,), runs_s: float = 100.0) -> GpuTrace:
    """Nodes of (cores, GPUs) with enough memory; pods that arrive a second apart."""
    cores, gpus = np.array(nodes).T
    came_s = np.arange(len(kind_of), dtype=float)
    memory = np.full(len(nodes), 100_000)
    return GpuTrace(KINDS, np.array(kind_of), came_s, np.full(len(kind_of), runs_s), cores * 1000, memory, gpus)


class FirstNode:
    """Takes the first node."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet, self.ends = fleet, list[int]()

    def place(self, kind: int, pod: int, fitting: np.ndarray) -> Placement | None:
        return self._fleet.take(int(fitting[0]), kind)

    def ended(self, kind: int, pod: int, placement: Placement) -> None:
        self.ends.append(pod)


# -- the nodes ---------------------------------------------------------------------------------------------------------


def test_a_share_goes_to_the_fullest_gpu_with_room_and_a_whole_gpu_must_be_unused() -> None:
    fleet = Fleet(trace_of((16, 2)))
    first, second = fleet.take(0, HALF), fleet.take(0, HALF)
    assert first.gpus.tolist() == second.gpus.tolist() == [0]
    assert fleet.gpu_milli.tolist() == [[0, 1000]]
    third = fleet.take(0, HALF)
    assert fleet.gpu_milli.tolist() == [[0, 500]]
    assert not fleet.fitting(ONE)[0]
    fleet.release(third, HALF)
    assert fleet.fitting(ONE)[0]
    assert not fleet.fitting(TWO)[0]


@given(st.lists(st.tuples(st.sampled_from([CPU_ONLY, HALF, ONE, TWO]), st.booleans()), max_size=40))
def test_no_capacity_is_allocated_twice_and_all_is_released(steps: list[tuple[int, bool]]) -> None:
    fleet, placements = Fleet(trace_of((16, 2), (8, 1), (8, 0))), list[tuple[Placement, int]]()
    for kind, ends in steps:
        if ends and placements:
            fleet.release(*placements.pop())
        elif len(fitting := np.flatnonzero(fleet.fitting(kind))):
            placements.append((fleet.take(int(fitting[0]), kind), kind))
        assert fleet.gpu_milli.min() >= 0
        assert fleet.cpu_milli.min() >= 0
    for placement in reversed(placements):
        fleet.release(*placement)
    assert fleet.gpu_milli.tolist() == [[1000, 1000], [1000, 0], [0, 0]]
    assert fleet.cpu_milli.tolist() == [16000, 8000, 8000]


# -- the policies ------------------------------------------------------------------------------------------------------


def test_scores_of_the_schedulers_strategies_by_hand() -> None:
    """A pod of one GPU and 2 cores; nodes of 8 cores: one of two GPUs and 2 cores used, nothing used, without GPUs."""
    fleet = Fleet(trace_of((8, 2), (8, 2), (8, 0)))
    fleet.take(0, ONE)
    memory = 0.01
    balanced = [np.floor(100 * (1 - abs(cpu - mem) / 2)) for cpu, mem in ((0.5, 2 * memory), (0.25, memory))]
    least = by_requests(fleet, ONE, weights=CPU_AND_MEMORY, most=False)
    assert least[:2].tolist() == [np.floor((50 + 98) / 2) + balanced[0], np.floor((75 + 99) / 2) + balanced[1]]
    ratio = by_requests(fleet, ONE, weights=GPU_ONLY, most=True)
    assert ratio[:2].tolist() == [100 + balanced[0], 50 + balanced[1]]
    assert np.isfinite(ratio).all()
    without = by_requests(fleet, CPU_ONLY, weights=GPU_ONLY, most=True)
    assert without[1] == without[2], "GPUs do not count for a pod that asks for none"
    assert best_fit(fleet, ONE).argmax() == 0


def test_fragmentation_is_the_mean_gpu_capacity_that_the_workload_cannot_use() -> None:
    """Three GPUs have 500, 300 and 1,000 left, and CPU suffices for all but pods of two GPUs.

    Of five pods one has no GPU and counts nothing, two need a half (300 are useless to them), one a whole GPU (800),
    and one does not fit at all (1,800).
    """
    found = fragments(np.array([4000]), np.array([100_000]), np.array([[500, 300, 1000]]), KINDS)
    assert found.tolist() == [pytest.approx((2 * 300 + 800 + 1800) / 5)]


def test_the_gradient_fills_shared_gpus_and_keeps_cpu_of_gpu_nodes_free() -> None:
    fleet = Fleet(trace_of((10, 2), (10, 2), (10, 0)))
    fleet.take(1, HALF)
    gradient, everywhere = FragmentationGradient(fleet), np.arange(3)
    assert gradient.place(HALF, 0, everywhere[:2]).node == 1  # type: ignore[union-attr]
    assert fleet.gpu_milli[1].tolist() == [0, 1000]
    assert gradient.place(CPU_ONLY, 1, everywhere[[0, 2]]).node == 2  # type: ignore[union-attr]
    gradient.place(TWO, 2, np.array([0]))
    placement = gradient.place(HALF, 3, np.array([1]))
    assert placement is not None
    fleet.release(placement, HALF)
    gradient.ended(HALF, 3, placement)
    assert gradient.place(HALF, 4, np.array([1])).gpus.tolist() == [1]  # type: ignore[union-attr]


# -- the runs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_fills_the_nodes_reproducibly_until_no_kind_fits(name: str) -> None:
    trace = trace_of((16, 2), (16, 4), (8, 1), kind_of=(CPU_ONLY, HALF, HALF, ONE, TWO))
    one, again = fill(trace, POLICIES[name], 1), fill(trace, POLICIES[name], 1)
    assert one == again
    assert 0.5 < one.when_requested[0] <= one.when_requested[1] <= one.in_the_end <= 1.0


def test_pods_that_do_not_fit_wait_in_order_until_another_ends() -> None:
    """One GPU for four halves of 1,000 s that arrive a second apart: the last two wait for the first two."""
    policies: list[FirstNode] = []

    def make(fleet: Fleet, seed: int) -> Policy:
        policies.append(FirstNode(fleet, seed))
        return policies[-1]

    waited = play_trace(trace_of((16, 1), kind_of=(HALF,) * 4, runs_s=1000.0), make, 0)
    assert (waited.pods, waited.long) == (4, 2)
    assert waited.mean_s == (998 + 998) / 4
    assert policies[0].ends == [0, 1, 2, 3]
    assert play_trace(trace_of((16, 1), kind_of=(TWO, HALF)), FirstNode, 0).pods == 1, "two GPUs fit nowhere"


def test_drawn_nodes_have_the_requested_number_of_gpus_and_a_largest_node() -> None:
    trace = trace_of(*[(16, 2)] * 20, (16, 8), *[(16, 0)] * 20)
    for seed in range(5):
        drawn = trace.on(some_nodes(trace, 12, seed))
        assert 12 <= drawn.gpus.sum() < 14
        assert drawn.gpus.max() == 8


# -- the trace and the output ------------------------------------------------------------------------------------------


def lists_in(folder: Path) -> Path:
    """The lists as published, of three pods and two nodes."""
    pods = {"name": ["a", "b", "c"], "cpu_milli": [1000, 1000, 4000], "memory_mib": [1000] * 3, "num_gpu": [1, 1, 0]}
    pods |= {"gpu_milli": [500, 500, 1000], "creation_time": [10, 20, 30], "deletion_time": [100, 110, 120]}
    pd.DataFrame(pods | {"scheduled_time": [15, None, 30]}).to_csv(folder / "openb_pod_list_default.csv", index=False)
    nodes = {"sn": ["x", "y"], "cpu_milli": [16000, 8000], "memory_mib": [64000, 32000], "gpu": [2, 0]}
    pd.DataFrame(nodes).to_csv(folder / "openb_node_list_all_node.csv", index=False)
    return folder


def test_the_lists_are_read_as_published(tmp_path: Path) -> None:
    trace = read_trace(lists_in(tmp_path))
    assert trace.kinds.pods[trace.kind_of].tolist() == [2, 2, 1]
    assert trace.kinds.gpu_total_milli[trace.kind_of].tolist() == [500, 500, 0]
    assert trace.came_s.tolist() == [0.0, 10.0, 20.0]
    assert trace.runs_s.tolist() == [85.0, 90.0, 90.0], "a pod that was never scheduled counts from its creation"
    assert trace.gpus.tolist() == [2, 0]


def test_parquet_lists_are_read_like_csv_and_preferred(tmp_path: Path) -> None:
    published = read_trace(lists_in(tmp_path))
    for name, file in (("pods", "openb_pod_list_default.csv"), ("nodes", "openb_node_list_all_node.csv")):
        pd.read_csv(tmp_path / file).to_parquet(tmp_path / f"openb_{name}.parquet")
        (tmp_path / file).write_text("nonsense")
    same = read_trace(tmp_path)
    assert same.kind_of.tolist() == published.kind_of.tolist()
    assert np.array_equal(same.runs_s, published.runs_s)
    assert same.gpus.tolist() == published.gpus.tolist()


def test_a_missing_list_is_named_with_its_source_and_a_missing_column_by_name(tmp_path: Path) -> None:
    done = invoke("bench_placement", "--rows", "gpus", "--gpu-trace", tmp_path)
    assert done.exit_code == 2
    assert "neither openb_pods.parquet nor openb_pod_list_default.csv" in done.stderr
    assert "github.com/alibaba/clusterdata" in done.stderr
    file = lists_in(tmp_path) / "openb_pod_list_default.csv"
    pd.read_csv(file).drop(columns="num_gpu").to_csv(file, index=False)
    with pytest.raises(BadInput, match=r"openb_pod_list_default\.csv: it has no column num_gpu"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("file", "column", "problem"),
    [
        ("openb_pod_list_default.csv", "num_gpu", "none of its pods asks for a GPU"),
        ("openb_node_list_all_node.csv", "gpu", "none of its nodes has a GPU"),
    ],
)
def test_a_trace_without_gpus_is_refused(tmp_path: Path, file: str, column: str, problem: str) -> None:
    table = lists_in(tmp_path) / file
    pd.read_csv(table).assign(**{column: 0}).to_csv(table, index=False)
    done = invoke("bench_placement", "--rows", "gpus", "--gpu-trace", tmp_path)
    assert done.exit_code == 2
    assert f"{tmp_path}: {problem}" in done.stderr


def test_without_a_trace_its_source_is_named_before_anything_runs() -> None:
    done = invoke("bench_placement", "--rows", "burst,gpus")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--gpu-trace" in done.stderr
    assert "github.com/alibaba/clusterdata" in done.stderr


def test_the_gpu_rows_are_printed_and_written(tmp_path: Path) -> None:
    done = invoke("bench_placement", "--rows", "gpus", "--fills", 1, "--gpu-trace", lists_in(tmp_path),
                  "--json", tmp_path / "r.json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "fragmentation gradient" in done.stdout
    read = orjson.loads((tmp_path / "r.json").read_bytes())["gpus"]
    assert {row["policy"] for row in read} == set(POLICIES)
    assert all(row["filled"]["in_the_end"] == 1.0 for row in read), "halves fill two GPUs"


def test_the_mean_over_orders_is_printed_with_its_spread() -> None:
    found: list[GpuResult] = []
    run_gpus(trace_of((16, 8), (8, 1), kind_of=(HALF, ONE, TWO)), (0, 1), found, lambda: None)
    console = Console(width=180, record=True, file=io.StringIO())
    console.print(output.gpus_table(found, "title"))
    text = console.export_text()
    assert all(name in text for name in POLICIES)
    assert "100% requested" in text
    assert "±" in text
