"""Our moves: worked out from what a class takes and what a pod has used, refused where nothing is foreseen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.gangs.member import Member
from extender.moves.board import MoveInputs, PlannedMove, Rate
from extender.moves.job import (
    ANNOTATION,
    MAX_RECORDS,
    Algorithm,
    MoveRecord,
    Outcome,
    read_job,
    read_records,
    records_json,
)
from extender.moves.phasewise import PhasewisePlanner, cost_s
from extender.moves.store import read_profile_facts
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.reading import BadField
from recommender.contention.forecast import stages_of
from recommender.contention.phasewise import MoveOptions
from recommender.contention.sharing import Stage
from tests.extender.gangs.herds import NOON_S, node, pod
from tests.extender.moves.trainings import job_json, training

OPTIONS = MoveOptions(cost_s=10.0, margin=2.0, cool_down_s=0.0)
ALIKE = {"template": {"metadata": {"labels": {"phasewise.dev/workload": "vae"}}, "spec": {}}}
ONE_CORE = [Stage(100.0, 1.0)]
"""A run of a hundred seconds on one core."""


def known(
    pods: list[Member], run: list[Stage] | None = None, used_s: float = 0.0, **of_jobs: dict[str, str]
) -> MoveInputs:
    """Jobs of one class, each of which has used one core for so long."""
    names = [pod.owner.name for pod in pods if pod.owner]
    jobs = {name: read_job(job_json(name, of_jobs.get(name), **ALIKE)) for name in names}
    rates = {pod.uid: Rate(1.0, NOON_S - used_s) for pod in pods}
    return MoveInputs(rates=rates, classes={ObjectKey("team", "vae"): ONE_CORE if run is None else run}, jobs=jobs)


def planned(pods: list[Member], told: MoveInputs, *cpus: str) -> list[tuple[str, str]]:
    moves = plan(pods, told, *cpus)
    return [(move.pod.key.name, move.node) for move in moves]


def plan(pods: list[Member], told: MoveInputs, *cpus: str) -> list[PlannedMove]:
    places = [node(f"n{number}", cpu=cpu) for number, cpu in enumerate(cpus or ("1", "1"))]
    return PhasewisePlanner(OPTIONS).plan(pods, places, told, NOON_S)


def pair(**more: Any) -> list[Member]:
    return [training(name, "n0", cpu="500m", **more) for name in ("a", "b")]


def test_of_two_jobs_that_share_a_core_one_goes_to_the_idle_node_and_the_plan_says_what_that_wins() -> None:
    """Both end after 200 s. Apart one ends after 100, the other after 100 and the 10 of the move: 190 less in sum."""
    (move,) = plan(pair(), known(pair()))
    assert (move.pod.key.name, move.node, move.algorithm) == ("a", "n1", Algorithm.SOONER)
    assert move.text == "jobs end 190 s earlier in sum, for 10 s"


def test_what_is_used_up_of_a_run_is_not_won_any_more() -> None:
    """With 8 of 100 core seconds left they end after 16 s: apart one after 8, the moved one after 18."""
    assert planned(pair(), known(pair(), used_s=92.0)) == []
    assert plan(pair(), known(pair(), used_s=40.0))[0].done_core_s == 40.0


def test_jobs_that_never_want_the_cores_at_once_stay_together() -> None:
    halves = [Stage(50.0, 0.5)]
    assert planned(pair(), known(pair(), halves)) == []


def test_pods_of_which_nothing_is_foreseen_hold_what_they_request() -> None:
    web = pod("web", on="n1", cpu="500m")
    assert planned([*pair(), web], known(pair()), "1", "1") == []  # half a core there is no gain
    assert planned([*pair(), web], known(pair()), "1", "2") == [("a", "n1")]


def test_a_job_of_an_unseen_class_is_neither_moved_nor_counted_on() -> None:
    stranger = MoveInputs(rates={"uid-a": Rate(1.0, NOON_S)}, jobs={"a": read_job(job_json("a"))})
    assert planned(pair(), stranger) == []


@pytest.mark.parametrize(
    "stays",
    [
        {"annotations": {}},
        {"nodeSelector": {"pool": "elsewhere"}},
        {"labels": {"batch.kubernetes.io/job-name": "both"}},
        {"owner": None},
    ],
)
def test_who_may_not_be_moved_stays_whatever_is_won(stays: dict[str, Any]) -> None:
    assert planned(pair(**stays), known(pair(**stays))) == []


def test_a_node_that_is_full_by_requests_takes_nobody() -> None:
    assert planned([*pair(), pod("web", on="n1", cpu="800m")], known(pair()), "1", "1") == []


def moved(downtime_s: float, outcome: Outcome = Outcome.BACK, done_core_s: float = 30.0) -> dict[str, str]:
    record = MoveRecord("", Algorithm.SOONER, "old", "old", "n0", NOON_S - 500.0, outcome, done_core_s, downtime_s)
    return {"phasewise.dev/moves": records_json([record])}


def test_a_move_costs_what_earlier_ones_have_cost() -> None:
    """190 s are won for 10; with 100 s on the way only 100 are left to win, and 200 would have to be."""
    told = known(pair(), other=moved(100.0))
    dear = MoveInputs(
        rates=told.rates, classes=told.classes, jobs={**told.jobs, "c": read_job(job_json("c", moved(100.0)))}
    )
    assert planned(pair(), dear) == []


def test_what_earlier_pods_of_a_job_did_is_done_and_it_goes_twice_at_most() -> None:
    told = known(pair(), a=moved(10.0), used_s=20.0)
    moves = {move.pod.key.name: move.done_core_s for move in plan(pair(), told)}
    assert moves in ({"a": 50.0}, {"b": 20.0})
    (record,) = read_records(moved(10.0))
    twice = {
        "phasewise.dev/moves": records_json([record, MoveRecord("", Algorithm.SOONER, "o", "p", "n1", NOON_S - 99.0)])
    }
    assert planned(pair(), known(pair(), a=twice, b=twice)) == []


def test_a_record_keeps_what_was_done_and_how_long_the_job_was_away_and_older_ones_are_read() -> None:
    (record,) = read_records(moved(12.34))
    assert (record.done_core_s, record.downtime_s) == (30.0, 12.3)
    old = '[{"algorithm": "rebalance", "pod": "p", "uid": "u", "node": "n", "since": "2026-11-01T00:00:00Z",'
    (read,) = read_records({"phasewise.dev/moves": f'{old} "outcome": "back"}}]'})
    assert read.downtime_s != read.downtime_s


def test_what_cannot_be_true_of_a_move_is_not_read_nor_more_than_is_ever_written() -> None:
    text = moved(10.0)[ANNOTATION]
    for number in ('"soon"', "-1", "1.7e308"):
        (read,) = read_records({ANNOTATION: text.replace("30.0", number).replace("10.0", number)})
        assert (math.isnan(read.done_core_s), math.isnan(read.downtime_s)) == (True, True)
    for since in ("9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z"):
        (record,) = orjson.loads(text)
        with pytest.raises(BadField, match="is not a list of moves"):
            read_records({ANNOTATION: orjson.dumps([{**record, "since": since}]).decode()})
    assert len(read_records({ANNOTATION: f"[{','.join([text[1:-1]] * 500)}]"})) == MAX_RECORDS


def test_one_namespace_does_not_tell_all_others_what_a_move_costs() -> None:
    """However many of its Jobs say that they were away for no time at all, or for an hour."""
    job = read_job(job_json("a", moved(100.0)))
    (record,) = job.records
    others = [replace(job, key=ObjectKey(f"other-{number}", "a")) for number in range(2)]
    for lie_s in (0.0, 3600.0):
        liars = [replace(job, records=[replace(record, downtime_s=lie_s)] * MAX_RECORDS)] * 50
        assert cost_s([*others, *liars], 60.0) == 100.0
    assert cost_s([replace(job, records=[replace(record, downtime_s=0.0)])], 60.0) == 1.0
    assert cost_s([], 60.0) == 60.0


def test_a_job_that_is_idle_and_has_done_more_than_any_run_keeps_no_plan_waiting() -> None:
    told = known(pair(), a=moved(10.0, done_core_s=1e12))
    idle = replace(told, rates={pod.uid: Rate(0.0, NOON_S) for pod in pair()})
    assert planned(pair(), idle) == []


def test_profiles_tell_what_a_class_takes_and_what_its_pods_used() -> None:
    demand = {"stepSeconds": 10, "cpuCores": [0.0, 1.0, 3.0]}
    containers = [
        {"name": "main", "demand": demand},
        {"name": "side", "demand": {"stepSeconds": 10, "cpuCores": [0.1]}},
    ]
    pods = [
        {"uid": "u", "meanCpuCores": 0.5, "startedAt": "2026-11-23T12:00:00Z"},
        {"uid": "u", "category": "Watching"},
    ]
    whole = {"metadata": {"name": "class.vae", "namespace": "team"}, "status": {"containers": containers, "pods": pods}}
    told = read_profile_facts({**whole, "spec": {"class": True}})
    assert told.run == [Stage(0.1, 0.01), Stage(10.0, 1.0), Stage(30.0, 3.0)]
    assert {uid: rate.cpu_cores for uid, rate in told.rates.items()} == {"u": 0.5}
    demand["usedCoreSeconds"] = 20.05
    assert [stage.core_s for stage in read_profile_facts({**whole, "spec": {"class": True}}).run] == pytest.approx(
        [0.05, 5, 15]
    )
    assert read_profile_facts(whole).run == ()
    odd = [{"name": "main", "demand": {"stepSeconds": 10, "cpuCores": cores}} for cores in ([1.0, "x"], "curve", [])]
    assert read_profile_facts({**whole, "spec": {"class": True}, "status": {"containers": odd}}).run == ()


@given(st.lists(st.floats(0.0, 8.0), min_size=1, max_size=240), st.floats(1.0, 900.0))
def test_few_stages_hold_all_the_work_of_a_curve(levels: list[float], step_s: float) -> None:
    stages = stages_of(step_s, levels)
    assert len(stages) <= 12
    assert sum(stage.core_s for stage in stages) == pytest.approx(sum(max(x, 0.01) for x in levels) * step_s)
