"""The moves that SpeCon plans: the example of the thesis on nodes, and what keeps a pod where it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.gangs.member import Member
from extender.moves.board import MoveInputs, PlannedMove
from extender.moves.job import read_job
from extender.moves.specon import SpeConPlanner
from recommender.progress.growth import Category
from tests.extender.gangs.herds import NOON_S, node, nodes, pod
from tests.extender.moves.trainings import CC, CHECKPOINTABLE, PC, job_json, thesis, training


def planned(
    pods: Mapping[Member, Category | None], candidates: Any, planner: SpeConPlanner | None = None, at_s: float = NOON_S
) -> list[PlannedMove]:
    categories = {each.identity: category for each, category in pods.items() if category is not None}
    return (planner or SpeConPlanner()).plan(pods, candidates, MoveInputs(categories), at_s)


def names(moves: list[PlannedMove]) -> list[tuple[str, str]]:
    return [(move.pod.key.name, move.node) for move in moves]


def test_the_converged_job_of_the_thesis_goes_to_the_second_node_with_a_reason() -> None:
    (move,) = planned(thesis(), nodes(4))
    assert (move.pod.key.name, move.node) == ("job-1", "n1")
    assert move.text == "converged, beside jobs that learn; S is 3.5 there and 11 here"


def test_a_node_without_room_or_with_a_taint_is_no_candidate() -> None:
    full = [node("n0"), node("n1", cpu="2"), node("n2"), node("n3")]
    assert names(planned(thesis(), full)) == [("job-1", "n2")]
    tainted = [node("n0"), node("n1", taints=[{"key": "own", "effect": "NoSchedule"}]), node("n2"), node("n3")]
    assert names(planned(thesis(), tainted)) == [("job-1", "n2")]


def test_a_pod_that_is_not_checkpointable_is_skipped() -> None:
    assert planned(thesis(annotations={}), nodes(4)) == []
    assert planned(thesis(annotations={"phasewise.dev/checkpointable": "yes"}), nodes(4)) == []


def test_a_pod_of_a_group_and_a_pod_without_an_owner_are_refused_with_a_reason() -> None:
    group = {"batch.kubernetes.io/job-name": "several"}
    pods = {**thesis(labels=group), training("job-2", "n3", labels=group, annotations={}): PC}
    (move,) = planned(pods, nodes(4))
    assert (move.node, move.text) == ("", "it belongs to a group of 2 pods, which is never moved in part")
    (move,) = planned(thesis(owner=None), nodes(4))
    assert (move.node, move.text) == ("", "it has no owner that would recreate it")


def test_once_all_jobs_have_converged_the_latest_goes_to_a_node_without_training_jobs() -> None:
    planner = SpeConPlanner()
    first = {training(f"job-{number}", "n0"): CC for number in range(3)}
    assert names(planned(first, nodes(1), planner)) == []
    last = {**first, training("late", "n0"): CC, pod("web", on="n1"): None}
    moves = planned(last, nodes(2), planner, NOON_S + 60.0)
    assert names(moves) == [("late", "n1"), ("job-0", "n1")]
    assert moves[0].text == "rebalance: an even spread is 2 jobs per worker"


def test_the_only_training_job_of_a_node_is_not_moved_to_one_without_any() -> None:
    planner, others = SpeConPlanner(), {training(f"job-{number}", "n0"): CC for number in range(3)}
    planned(others, nodes(1), planner)
    moves = planned({**others, training("late", "n1"): CC}, nodes(3), planner, NOON_S + 60.0)
    assert names(moves) == [("job-0", "n2")], "without it, n1 would take the place of n2"


def test_rebalancing_never_plans_more_than_fits() -> None:
    jobs = {training(f"job-{number}", "n0", cpu="2"): CC for number in range(4)}
    moves = planned(jobs, [node("n0"), node("n1", cpu="3")])
    assert names(moves) == [("job-0", "n1"), ("job-1", "")]
    assert moves[1].text == "n1 has no room for it"


def test_nodes_that_no_training_job_may_use_are_no_workers() -> None:
    """An even spread would be one job per node on three nodes; on two it is two."""
    jobs = {training(f"job-{number}", "n0", nodeSelector={"pool": "training"}): CC for number in range(4)}
    pool = {"pool": "training"}
    candidates = [node("n0", labels=pool), node("n1", labels=pool), node("n2")]
    assert names(planned(jobs, candidates)) == [("job-0", "n1"), ("job-1", "n1")]


def test_the_time_when_a_job_converged_outlives_its_pods() -> None:
    planner = SpeConPlanner()
    index = {**CHECKPOINTABLE, "batch.kubernetes.io/job-completion-index": "0"}
    old, other = training("old", "n0", owner=("Job", "a"), annotations=index), training("b", "n0")
    planned({old: CC}, nodes(1), planner, NOON_S)
    planned({old: CC, other: CC}, nodes(1), planner, NOON_S + 60.0)
    again = training("new", "n0", owner=("Job", "a"), annotations=index)
    moves = planned({again: CC, other: CC}, nodes(2), planner, NOON_S + 120.0)
    assert names(moves) == [("b", "n1")]  # converged last; `new` is the job of `old`


def test_a_job_whose_own_node_is_best_stays_even_if_others_come_later() -> None:
    """S is 3 on its own node and 4 on the other; then three more jobs that learn join it."""
    planner = SpeConPlanner()
    jobs = {training("old", "n0"): CC, training("new", "n0"): PC, **{training(f"b-{n}", "n1"): PC for n in range(2)}}
    crowd = {**jobs, **{training(f"late-{n}", "n0"): PC for n in range(3)}}
    assert planned(jobs, nodes(2), planner) == []
    assert planned(crowd, nodes(2), planner) == []
    assert names(planned(crowd, nodes(2))) == [("old", "n1")], "a new planner does not know that it stays"


def test_a_job_that_no_other_node_has_room_for_is_considered_again() -> None:
    planner = SpeConPlanner()
    jobs = {training("old", "n0"): CC, training("new", "n0"): PC}
    assert planned(jobs, [node("n0", cpu="2"), node("n1", cpu="500m")], planner) == []
    assert names(planned(jobs, [node("n0", cpu="2"), node("n1")], planner)) == [("old", "n1")]


def test_the_state_of_a_job_is_kept_while_it_has_no_pod() -> None:
    planner, old, other = SpeConPlanner(), training("old", "n0"), training("b", "n0")
    jobs = {name: read_job(job_json(name)) for name in ("old", "b")}
    for at_s, running in ((0.0, [old]), (60.0, [other]), (120.0, [old, other])):
        inputs = MoveInputs({pod.identity: CC for pod in running}, jobs=jobs)
        moves = planner.plan(running, nodes(2 if len(running) == 2 else 1), inputs, NOON_S + at_s)
    assert names(moves) == [("b", "n1")], "it converged last"


def test_without_pods_or_nodes_nothing_is_planned() -> None:
    assert planned({}, nodes(2)) == planned({}, []) == []
    assert planned({training("a", "gone"): CC}, nodes(2)) == []
