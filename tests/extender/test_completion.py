"""Jobs go where they add least until jobs end: by hand, beside a slow twin, and where it says nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from extender.pods.reading import pod_reader
from extender.scoring.scorers import completion
from extender.scoring.scorers.scorer import NodeScores
from extender.settings import DEFAULT_WEIGHTS, Settings
from placement_bench.worlds import NOON_S, World, class_json, node_json, pod_json, profile_json
from recommender.cluster.workloads.ownership import reader_of
from tests.reference import extender as reference

HUNDRED_S = class_json("k", [1.0, 1.0], [1.0, 1.0], step_s=50.0)
"""A run of the class takes a core for a hundred seconds."""

COUNTED = Settings(weights={**DEFAULT_WEIGHTS, "completion": 10.0})

SMALL = {"cpu": "10m", "memory": "1Mi", "workload": "k"}


def at(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat()


MOVES = (
    '[{"algorithm": "sooner", "pod": "p", "uid": "u", "node": "b", "since": "2026-11-01T00:00:00Z",'
    ' "outcome": "back", "doneCoreSeconds": %s}]'
)
"""Of a Job that was moved once, with what it had done by then."""


def running(name: str, node: str, used_s: float, workload: str = "k", **profile: Any) -> list[dict[str, Any]]:
    """A job that has had half a core for twice so long, and its profile."""
    began_s = NOON_S - 2.0 * used_s
    told = {"meanCpuCores": 0.5, "startedAt": at(began_s), **profile}
    pod = pod_json(name, **{**SMALL, "workload": workload}, node=node, started=at(began_s))
    return [pod, profile_json(f"of-{name}", {f"uid-{name}": "watching"}, **told)]


def one_core_each(*nodes: str) -> World:
    return World(COUNTED, *(node_json(name, cpu="1") for name in nodes), HUNDRED_S)


def judged(world: World, pod: dict[str, Any], *names: str) -> NodeScores:
    scores = completion.score(world.request(pod, names or None))
    assert scores is not None
    return scores


def test_a_job_goes_where_the_one_beside_it_is_nearly_done() -> None:
    """Of `early` ninety seconds are left: shared, it ends after 180 in place of 90, and the new one after 190, 280 in
    sum. Of `late` ten: it ends after 20 in place of 10, and the new one after 110, 120 in sum."""
    world = one_core_each("a-early", "b-late").put(*running("e", "a-early", 10.0), *running("l", "b-late", 90.0))
    scores = judged(world, pod_json("new", **SMALL))
    assert scores.facts["added"].tolist() == pytest.approx([280.0, 120.0])
    assert scores.facts["alone"].tolist() == [100.0, 100.0]
    assert scores.values.tolist() == pytest.approx([1 / 2.6, 1.0])
    assert completion.words({"added": 280.0, "alone": 100.0}) == "adds 280 s until jobs end, alone it takes 100 s"
    assert world.place(pod_json("new", **SMALL)) == "b-late"
    assert world.place(pod_json("other", **SMALL, annotations={"phasewise.dev/weights": "completion=0"})) == "a-early"


def test_what_was_just_advised_counts() -> None:
    """Beside two that begin at once a third of a hundred seconds adds 500, beside the late one 120."""
    world = one_core_each("a", "b").put(*running("l", "b", 90.0))
    assert world.place(pod_json("first", **SMALL)) == "a"
    assert judged(world, pod_json("second", **SMALL)).facts["added"].tolist() == pytest.approx([300.0, 120.0])
    assert world.place(pod_json("second", **SMALL)) == "b"


def test_a_job_of_which_nobody_tells_what_it_has_used_is_taken_to_have_had_all_the_cores_that_it_wants() -> None:
    world = one_core_each("a", "b").put(pod_json("p", **SMALL, node="a", started=at(NOON_S - 90.0)))
    assert judged(world, pod_json("new", **SMALL)).facts["added"].tolist() == pytest.approx([120.0, 100.0])


def test_what_earlier_pods_of_a_moved_job_used_is_done() -> None:
    """Eighty core seconds before it was moved, and ten since."""
    told = beside_a_moved_job(MOVES % 80.0, "a", "b")
    assert told.facts["added"].tolist() == pytest.approx([120.0, 280.0])


@pytest.mark.parametrize("moves", [MOVES % 1e308, MOVES % -1.0, "nonsense", "[1]", '[{"doneCoreSeconds": 80.0}]'])
def test_a_record_of_moves_beyond_all_measure_or_without_sense_decides_nothing(moves: str) -> None:
    """The most that it can say is ten runs: a tenth of them is left, on the half core that the job has used."""
    added = beside_a_moved_job(moves).facts["added"]
    assert added[0] in (pytest.approx(280.0), pytest.approx(200.0))


def beside_a_moved_job(moves: str, *names: str) -> NodeScores:
    """On `a` one that has used ten seconds since it was moved there, on `b` one that has done no more than that."""
    metadata = {"name": "j", "namespace": "team", "annotations": {"phasewise.dev/moves": moves}}
    job = reader_of("Job")({"metadata": metadata})
    world = one_core_each("a", "b", "c")
    world.read_pod = pod_reader(lambda pod: (job,) if pod.key.name == "moved" else (), world.settings.schedulers)
    world.put(*running("moved", "a", 10.0), *running("other", "b", 10.0))
    return judged(world, pod_json("new", **SMALL), *names)


def test_pods_of_which_nothing_is_foreseen_hold_what_they_request_and_use() -> None:
    """The new job has half a core beside one that never ends, by what is known."""
    world = one_core_each("a", "b").put(pod_json("web", cpu="500m", memory="1Mi", node="a", scheduler="x"))
    assert judged(world, pod_json("new", **SMALL)).facts["added"].tolist() == pytest.approx([200.0, 100.0])


def test_nothing_is_said_of_a_class_without_runs_nor_where_cores_are_enough_nor_of_what_is_alike() -> None:
    world = one_core_each("a", "b").put(*running("p", "a", 50.0))
    assert completion.score(world.request(pod_json("new"))) is None
    large = World(COUNTED, node_json("a", cpu="2"), node_json("b", cpu="2"), HUNDRED_S).put(*running("p", "a", 50.0))
    assert completion.score(large.request(pod_json("new", **SMALL))) is None
    world.put(*running("q", "b", 51.0))
    assert completion.score(world.request(pod_json("new", **SMALL))) is None, "a second of a hundred"
    world.put(*running("q", "b", 60.0))
    assert completion.score(world.request(pod_json("new", **SMALL))) is not None


def test_a_node_that_will_overload_is_worth_no_more_than_one_that_will_not() -> None:
    """Jobs would end sooner on `full`, whose memory is not enough. The one on `spared` should be done with its work by
    now, and is not; and where two more forecast that CPU will be short there too, memory counts for more."""
    world = one_core_each("full", "spared").put(class_json("w", [0.9, 0.01], [1.0, 1.0]))
    world.put(*running("p", "spared", 10.0, "w", startedAt=at(NOON_S - 200.0), meanCpuCores=0.05))
    world.put(pod_json("m", cpu="0", memory="32Gi", node="full", scheduler="x"))
    new = pod_json("new", **{**SMALL, "workload": "w"})
    world.put(pod_json("p", **{**SMALL, "workload": "w"}, node="spared", started=at(NOON_S - 200.0)))
    for overloaded in ([True, False], [True, True]):
        request, scores = world.request(new, ["full", "spared"]), judged(world, new, "full", "spared")
        assert (request.overload > 0.0).tolist() == overloaded
        assert scores.facts["added"][0] < scores.facts["added"][1]
        assert scores.values[0] == scores.values[1]
        world.put(*running("q", "spared", 10.0), *running("r", "spared", 10.0))


def test_what_crowded_nodes_add_is_what_the_slow_twin_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    world, runs = World(), {f"k{kind}": rng.uniform(0.5, 6.0, 4).tolist() for kind in range(3)}
    for workload, levels in runs.items():
        world.put(class_json(workload, levels, [1.0] * 4, step_s=50.0))
    nodes: dict[str, tuple[float, list[tuple[list[float], float]]]] = {}
    for number in range(5):
        cores, there = float(rng.integers(2, 9)), []
        world.put(node_json(f"n{number}", str(int(cores))))
        for place in range(int(rng.integers(0, 4))):
            workload, used_s = str(rng.choice(list(runs))), float(rng.uniform(0.0, 150.0))
            world.put(*running(f"p{number}-{place}", f"n{number}", used_s, workload))
            there.append((runs[workload], used_s))
        nodes[f"n{number}"] = cores, there
    scores = judged(world, pod_json("new", **{**SMALL, "workload": "k0"}))
    wanted = [reference.added_s(runs["k0"], there, cores, 50.0) for cores, there in nodes.values()]
    assert scores.facts["added"] == pytest.approx(wanted, rel=0.02)


def test_of_more_nodes_than_can_be_judged_the_least_crowded_are_and_the_others_count_as_the_worst_of_them() -> None:
    """Four jobs on each of sixty nodes: four are judged, and of those that are not none is preferred."""
    names = [f"n{number:02}" for number in range(60)]
    world = one_core_each(*names)
    for number, name in enumerate(names):
        for place in range(4):
            world.put(*running(f"p{number}-{place}", name, 99.0 if number in (3, 7) else 10.0))
    scores = judged(world, pod_json("new", **SMALL))
    assert scores.facts["added"].argmin() == 3
    assert len(set(scores.facts["added"].round(3).tolist())) == 2
    crowd = one_core_each("a", "b").put(*(each for place in range(40) for each in running(f"p{place}", "a", 10.0)))
    added = judged(crowd, pod_json("new", **SMALL)).facts["added"]
    assert added[0] >= added[1] == 100.0, "a single node that is too much to judge"


HOSTILE = [
    {"meanCpuCores": 1e300},
    {"meanCpuCores": 1e6, "startedAt": "0001-01-01T00:00:00Z"},
    {"startedAt": "9999-12-31T23:59:59Z"},
    {"meanCpuCores": -1.0},
    {"meanCpuCores": 0.0},
]


@pytest.mark.parametrize("told", HOSTILE)
def test_no_number_of_a_profile_decides_more_than_a_job_at_its_beginning_or_its_end_would(told: dict[str, Any]) -> None:
    world = one_core_each("a", "b", "c").put(*running("p", "a", 10.0, **told), *running("q", "b", 10.0))
    scores = judged(world, pod_json("new", **SMALL))
    assert 100.0 <= scores.facts["added"][0] <= 300.0 + 1e-6
    assert world.place(pod_json("new", **SMALL)) == "c"


@pytest.mark.parametrize(("step_s", "level"), [(1e308, 1.0), (1.0, 1e300), (1e-320, 1.0), (1e300, 1e300), (1.0, -1.0)])
def test_a_class_beyond_all_measure_is_not_known_and_one_at_its_bounds_is_no_more_than_long(
    step_s: float, level: float
) -> None:
    world = World(COUNTED, node_json("a"), node_json("b"), class_json("huge", [level] * 3, [1.0] * 3, step_s))
    assert world.request(pod_json("new", workload="huge")).run in ((), ((step_s * 0.01, 0.01),))
    world.put(HUNDRED_S, class_json("long", [2.0**20], [1.0], 1e9))
    world.put(pod_json("p", **{**SMALL, "workload": "long"}, node="a"))
    for workload in ("k", "long"):
        scores = judged(world, pod_json("new", **{**SMALL, "workload": workload}))
        assert np.isfinite(scores.facts["added"]).all()
        assert world.place(pod_json("new", **{**SMALL, "workload": workload})) == "b"
