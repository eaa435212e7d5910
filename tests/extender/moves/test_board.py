"""The pods of a cluster as move planners see them: their groups and jobs, and the CPU requested on each node."""

from __future__ import annotations

from dataclasses import replace

from extender.gangs.member import NodeCapacity
from extender.moves.board import Board, MoveInputs
from extender.moves.job import Algorithm, MoveRecord, Outcome, read_job
from tests.extender.gangs.herds import NOON_S, node, nodes
from tests.extender.moves.trainings import job_json, training


def test_a_finished_pod_neither_counts_in_its_group_nor_uses_capacity() -> None:
    first, second = (training(name, "n0", cpu="3", owner=("Job", "j")) for name in ("j-0", "j-1"))
    both, one = Board([first, second], nodes(1)), Board([first, replace(second, phase="Failed")], nodes(1))
    assert both.refusal(first) == "it belongs to a group of 2 pods, which is never moved in part"
    assert one.refusal(first) == ""
    assert [board.cores(board.free.free).tolist() for board in (both, one)] == [[4.0], [7.0]]
    assert one.running == [first]


def test_a_pod_whose_nodes_only_the_scheduler_knows_is_not_moved() -> None:
    """It would be evicted for a node that may not suit it. Its volumes are assumed to follow it."""
    claims = training("a", "n0", resourceClaims=[{"name": "gpu"}])
    volumes = training("b", "n0", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}])
    board = Board([claims, volumes], nodes(2))
    assert board.refusal(claims) == "only the scheduler knows which nodes suit its resource claims"
    assert board.refusal(volumes) == ""


def test_a_job_is_identified_by_owner_and_index_or_else_by_pod_if_pods_share_them() -> None:
    alone, indexed, ownerless = (
        training("a", "n0"),
        replace(training("b", "n0"), completion_index="7"),
        training("c", "n0", owner=None),
    )
    pair = [training(name, "n0", owner=("Job", "j")) for name in ("j-0", "j-1")]
    board = Board([alone, indexed, ownerless, *pair], nodes(1))
    assert [board.job_of(each) for each in (alone, indexed, ownerless, *pair)] == [
        ("team", "a", ""),
        ("team", "b", "7"),
        ("team", "uid-c", ""),
        ("team", "j", "uid-j-0"),
        ("team", "j", "uid-j-1"),
    ]


def test_only_moves_of_the_same_completion_index_that_were_not_refused_count() -> None:
    made = MoveRecord("1", Algorithm.REALLOCATE, "a-1", "uid-a-1", "n1", NOON_S, Outcome.BACK)
    records = (
        made,
        replace(made, algorithm=Algorithm.REBALANCE, outcome=Outcome.REFUSED),
        replace(made, algorithm=Algorithm.SOONER, index="2"),
    )
    inputs = MoveInputs(jobs={"a": replace(read_job(job_json("a")), records=records)})
    assert inputs.moved_by(replace(training("a", "n0"), completion_index="1")) == {Algorithm.REALLOCATE}
    assert inputs.moved_by(training("b", "n0")) == set()


def test_nodes_without_allocatable_cpu_have_no_cores() -> None:
    without_cpu = NodeCapacity(node("n0").node, (("memory", 8.0), ("pods", 110.0)))
    board = Board([], [without_cpu])
    assert board.cores(board.free.free).tolist() == [0.0]
