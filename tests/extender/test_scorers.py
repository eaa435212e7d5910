"""Scorers: the thesis' example by hand, what each one prefers, and agreement with the slow twins."""

from __future__ import annotations

import numpy as np
import pytest

from extender.judging.combine import points_of, total_of
from extender.judging.scorers import SCORERS, balance, complement, data, pack, specon, spread
from tests.extender.worlds import GIB, World, class_json, node_json, pod_json, profile_json
from tests.reference import extender as reference

BUSY = {"cpu": None, "memory": None}


def with_categories(held: dict[str, list[str]]) -> World:
    """Nodes that hold training pods of these categories, all using the same."""
    world = World()
    for node, categories in held.items():
        world.put(node_json(node))
        for number, category in enumerate(categories):
            world.put(pod_json(f"{node}-{number}", cpu="0", memory="0", node=node))
            world.put(profile_json(f"of-{node}-{number}", {f"uid-{node}-{number}": category}))
    return world


def test_specon_ranks_the_workers_of_the_thesis_as_the_thesis_does() -> None:
    world = with_categories(
        {
            "w1": ["progressing"] * 3,
            "w2": ["progressing", "watching"],
            "w3": ["progressing"] * 2,
            "w4": [*["progressing"] * 5, "converged"],
        }
    )
    opinion = specon.judge(world.question(pod_json("new")))
    assert opinion is not None
    assert opinion.facts["S"].tolist() == [6.0, 3.5, 4.0, 11.0]
    points = points_of(total_of({"specon": opinion}, {"specon": 1.0}, 4), np.arange(4))
    assert points.scores.tolist() == [7, 10, 9, 0], "w2, then w3, w1 and w4"
    assert points.favourite == 1


def test_specon_prefers_the_node_in_less_use_among_equal_ones() -> None:
    world = World(None, node_json("idle"), node_json("busy"))
    world.put(pod_json("load", cpu="6", node="busy", scheduler="default-scheduler"))
    opinion = specon.judge(world.question(pod_json("new"), ["busy", "idle"]))
    assert opinion is not None
    assert opinion.facts["S"].tolist() == [0.0, 0.0]
    assert opinion.values[1] > opinion.values[0]


def test_a_job_of_which_nothing_is_told_counts_as_learning_and_a_stranger_not_at_all() -> None:
    world = World(None, node_json("a")).put(
        pod_json("ours", node="a"), pod_json("theirs", node="a", scheduler="default-scheduler")
    )
    opinion = specon.judge(world.question(pod_json("new")))
    assert opinion is not None
    assert opinion.facts["S"].tolist() == [2.0]
    assert (
        SCORERS["specon"].words({"S": 2.0, "pc": 1.0, "wc": 0.0, "cc": 0.0})
        == "S = 2: 1 progressing, 0 watching, 0 converged"
    )


EARLY, LATE = [6.0] * 12 + [1.0] * 12, [1.0] * 12 + [6.0] * 12


def test_complement_puts_an_early_peak_beside_a_late_one() -> None:
    world = World(None, node_json("early"), node_json("late"))
    world.put(class_json("early", EARLY, [1.0] * 24), class_json("late", LATE, [1.0] * 24))
    world.put(pod_json("a", node="early", workload="early"), pod_json("b", node="late", workload="late"))
    opinion = complement.judge(world.question(pod_json("new", workload="late"), ["early", "late"]))
    assert opinion is not None
    assert opinion.facts["cpu"].tolist() == pytest.approx([7 / 8, 12 / 8])
    assert opinion.values[0] > 0.8, "spared"
    assert opinion.values[1] < 0.3, "12 of 8 cores would be asked for beside its like"
    assert world.place(pod_json("new", workload="late")) == "early"


@pytest.mark.parametrize("asks", [{}, {"phasewise.dev/placement": "pack", "phasewise.dev/data": "d"}])
def test_no_other_scorer_leads_a_pod_to_a_node_that_it_overloads_while_another_is_spared(asks: dict[str, str]) -> None:
    """All others are for `full`: the job's other pods and its data are there, and nobody who still learns."""
    job = {"batch.kubernetes.io/job-name": "j"}
    world = World(None, node_json("full", labels={"data.phasewise.dev/d": ""}), node_json("spared"))
    world.put(pod_json("j-0", cpu="7", memory="28Gi", node="full", labels=job))
    world.put(profile_json("done", {"uid-j-0": "converged"}))
    for number in range(8):
        world.put(pod_json(f"learner-{number}", cpu="750m", memory="1Gi", node="spared"))
    assert world.place(pod_json("j-1", cpu="1", memory="4Gi", labels=job, annotations=asks)) == "full", "it just fits"
    assert world.place(pod_json("j-1", cpu="1100m", memory="4Gi", labels=job, annotations=asks)) == "spared"


def test_complement_fears_missing_memory_more_than_missing_cpu() -> None:
    world = World(None, node_json("no-cpu"), node_json("no-memory"))
    world.put(
        pod_json("a", cpu="8", memory="1Gi", node="no-cpu"), pod_json("b", cpu="1", memory="32Gi", node="no-memory")
    )
    opinion = complement.judge(world.question(pod_json("new", cpu="1", memory="4Gi"), ["no-cpu", "no-memory"]))
    assert opinion is not None
    assert opinion.values[0] > opinion.values[1] > 0


def test_complement_says_what_its_slow_twin_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World()
    sizes = {}
    for number in range(8):
        cpu, memory = int(rng.integers(2, 32)), int(rng.integers(8, 128))
        sizes[f"n{number}"] = (float(cpu), memory * GIB)
        world.put(node_json(f"n{number}", str(cpu), f"{memory}Gi"))
    for kind in range(4):
        world.put(class_json(f"k{kind}", rng.uniform(0, 6, 30).tolist(), rng.uniform(0, 20, 30).tolist()))
    for number in range(20):
        world.put(pod_json(f"p{number}", node=f"n{rng.integers(8)}", workload=f"k{rng.integers(4)}"))
    question = world.question(pod_json("new", workload="k0"), list(sizes))
    opinion = complement.judge(question)
    assert opinion is not None
    for number, (node, size) in enumerate(sizes.items()):
        load = question.snapshot.load[:, :, question.snapshot.index[node]].T.tolist()
        assert opinion.values[number] == pytest.approx(
            reference.complement(load, question.demand.T.tolist(), size), abs=1e-4
        )


def test_pack_goes_where_the_job_is_and_else_where_least_is_left() -> None:
    job = {"batch.kubernetes.io/job-name": "j"}
    world = World(None, node_json("a"), node_json("b"), node_json("c"))
    world.put(pod_json("full", cpu="6", memory="24Gi", node="c", scheduler="x"))
    first = pack.judge(world.question(pod_json("j-0", labels=job)))
    assert first is not None
    assert int(first.values.argmax()) == 2
    world.put(pod_json("j-1", node="a", labels=job))
    second = pack.judge(world.question(pod_json("j-0", labels=job)))
    assert second is not None
    assert second.values[0] == 1.0
    assert second.values[2] > second.values[1], "of the nodes without the job, the fuller one"
    assert second.facts["peers"].tolist() == [1, 0, 0]


def test_spread_keeps_the_pods_of_a_job_apart_and_is_silent_on_the_first() -> None:
    job = {"jobset.sigs.k8s.io/jobset-name": "j"}
    world = World(None, node_json("a"), node_json("b"))
    assert spread.judge(world.question(pod_json("j-0", labels=job))) is None
    world.put(pod_json("j-1", node="a", labels=job))
    opinion = spread.judge(world.question(pod_json("j-0", labels=job)))
    assert opinion is not None
    assert opinion.values.tolist() == [0.0, 1.0]


def test_data_counts_parts_of_data_sets() -> None:
    half = {"data.phasewise.dev/imagenet": "0.5", "data.phasewise.dev/coco": ""}
    world = World(None, node_json("half", labels=half), node_json("none"))
    wants = {"phasewise.dev/data": "imagenet, coco"}
    opinion = data.judge(world.question(pod_json("new", annotations=wants)))
    assert opinion is not None
    assert opinion.values.tolist() == [0.75, 0.0]
    assert SCORERS["data"].words({"present": 1.5, "wanted": 2.0}) == "1.5 of 2 data sets"
    assert data.judge(world.question(pod_json("new"))) is None
    assert data.judge(world.question(pod_json("new", annotations={"phasewise.dev/data": "nobody-has-it"}))) is None


def test_balance_prefers_the_node_where_cpu_and_memory_end_together() -> None:
    world = World(None, node_json("a"), node_json("b"))
    world.put(pod_json("cpu", cpu="4", memory="1Gi", node="a"), pod_json("memory", cpu="1", memory="16Gi", node="b"))
    opinion = balance.judge(world.question(pod_json("new", cpu="2", memory="1Gi")))
    assert opinion is not None
    assert opinion.values[1] > opinion.values[0]


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_every_scorer_stays_between_0_and_1_does_not_depend_on_order_and_has_words(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World()
    for number in range(12):
        labels = {"data.phasewise.dev/d": str(rng.random())}
        world.put(node_json(f"n{number}", str(int(rng.integers(1, 9))), f"{rng.integers(1, 33)}Gi", labels))
    world.put(node_json("sizeless", "0", "0"))
    job = {"volcano.sh/job-name": "j"}
    for number in range(30):
        world.put(pod_json(f"p{number}", node=f"n{rng.integers(12)}", labels=job if number % 3 else {}))
    pod = pod_json("new", labels=job, annotations={"phasewise.dev/data": "d"})
    names = world.names
    opinion = SCORERS[name].judge(world.question(pod, names))
    assert opinion is not None
    assert opinion.values.shape == (13,)
    assert ((opinion.values >= 0) & (opinion.values <= 1)).all()
    back = SCORERS[name].judge(world.question(pod, names[::-1]))
    assert back is not None
    assert np.array_equal(back.values[::-1], opinion.values)
    assert SCORERS[name].words({fact: float(of[0]) for fact, of in opinion.facts.items()})
