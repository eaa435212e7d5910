"""Scorers: the example of the thesis, what each scorer prefers, and agreement with reference implementations."""

from __future__ import annotations

import numpy as np
import pytest

from extender.pods.pod import CATEGORIES
from extender.scoring.scorers import (
    SCORERS,
    complement,
    data,
    images,
    pack,
    scaled_scores,
    specon,
    spread,
    weighted_mean,
)
from tests.reference import extender as reference
from tests.worlds.placement import GIB, World, class_json, node_json, pod_json, profile_json

BUSY = {"cpu": None, "memory": None}


def with_categories(by_node: dict[str, list[str]]) -> World:
    """Nodes with training pods of these categories, which all use the same."""
    world = World()
    for node, categories in by_node.items():
        world.put(node_json(node))
        for number, category in enumerate(categories):
            world.put(pod_json(f"{node}-{number}", cpu="0", memory="0", node=node))
            world.put(profile_json(f"of-{node}-{number}", {f"uid-{node}-{number}": category}))
    return world


WORKERS = {
    "w1": ["progressing"] * 3,
    "w2": ["progressing", "watching"],
    "w3": ["progressing"] * 2,
    "w4": [*["progressing"] * 5, "converged"],
}
"""The example of the thesis: S = 6, 3.5, 4 and 11."""


def test_specon_ranks_the_workers_of_the_thesis_as_the_thesis_does() -> None:
    world = with_categories(WORKERS)
    scores = specon(world.request(pod_json("new")))
    assert scores is not None
    assert scores.facts["S"].tolist() == [6.0, 3.5, 4.0, 11.0]
    points = scaled_scores(weighted_mean({"specon": scores}, {"specon": 1.0}, 4), np.zeros(4), np.arange(4))
    assert points.scores.tolist() == [7, 10, 9, 0], "w2, then w3, w1 and w4"
    assert points.favourite == 1


def test_a_learning_job_counts_the_same_in_a_small_and_in_a_large_cluster() -> None:
    """One job is worth 2 of 100, whatever the largest difference of S in the cluster."""
    alone = specon(with_categories(WORKERS).request(pod_json("new")))
    world = with_categories({**WORKERS, "w5": ["progressing"] * 20})
    for number in range(1000):
        world.put(node_json(f"idle-{number:03}"))
    everywhere = specon(world.request(pod_json("new"), [*WORKERS, "w5", "idle-000"]))
    assert alone is not None
    assert everywhere is not None
    differences = np.diff(alone.values).tolist()
    assert differences == pytest.approx([2.5 / 100, -0.5 / 100, -7 / 100])
    assert np.diff(everywhere.values[:4]).tolist() == pytest.approx(differences)
    scores = world.prioritize(pod_json("new"), [*WORKERS, "w5"])
    assert max(scores, key=lambda name: scores[name]) == "w2", "if the idle nodes are no candidates"
    assert world.place(pod_json("new")).startswith("idle")


def test_specon_is_1_at_the_smallest_s_and_0_at_one_larger_by_a_hundred_or_more() -> None:
    world = with_categories({"few": ["progressing"] * 2, "many": ["progressing"] * 53})
    scores = specon(world.request(pod_json("new")))
    assert scores is not None
    assert scores.values.tolist() == [1.0, 0.0]


def test_on_unequal_nodes_specon_counts_jobs_per_size_by_the_scarcer_of_cpu_and_memory() -> None:
    """With the new job 2 + 2 = 4 on a node of usual size, and 6 + 2 = 8 on one of four times that."""
    sizes = {
        "usual": ("8", "32Gi"),
        "same": ("8", "32Gi"),
        "alike": ("8200m", "31Gi"),
        "huge": ("32", "128Gi"),
        "lopsided": ("32", "32Gi"),
    }
    world = World(None, *(node_json(name, cpu=cpu, memory=memory) for name, (cpu, memory) in sizes.items()))
    held = {"usual": 1, "same": 1, "alike": 1, "huge": 3, "lopsided": 3}
    for name, jobs in held.items():
        world.put(*(pod_json(f"{name}-{number}", node=name) for number in range(jobs)))
    scores = specon(world.request(pod_json("new"), list(sizes)))
    assert scores is not None
    assert scores.facts["S"].tolist() == [2.0, 2.0, 2.0, 6.0, 6.0]
    assert scores.facts["size"].tolist() == [1.0, 1.0, 1.0, pytest.approx(4.0, rel=0.1), 1.0]
    assert (1.0 - scores.values) * 100.0 == pytest.approx([2.0, 2.0, 2.0, 0.0, 6.0], abs=0.2)
    assert world.place(pod_json("new")) == "huge"
    facts = {"S": 6.0, "size": 4.0, "pc": 3.0, "wc": 0.0, "cc": 0.0}
    assert SCORERS["specon"].explain(facts).endswith("0 converged, on 4 times the median node")


def test_large_images_that_a_node_stores_count_as_little_more_than_one_job_that_learns() -> None:
    large = [{"names": ["registry/train@sha256:0", "registry/train:latest"], "sizeBytes": 8_000_000_000}]
    small = [{"names": ["registry/train:latest"], "sizeBytes": 80_000_000}]
    world = World(None, *({**node_json(name), "status": {**node_json(name)["status"], "images": images}}
                          for name, images in (("has", large), ("tiny", small), ("none", []))))  # fmt: skip
    pod = pod_json("new")
    pod["spec"]["containers"] += [{"name": "again", "image": "registry/train"}, {"name": "b", "image": "other:1"}]
    scores = images(world.request(pod, ["has", "none", "tiny"]))
    assert scores is not None
    assert scores.values.tolist() == [1.0, 0.0, 0.0]
    assert images(world.request(pod_json("another"))) is None
    for learning, favourite in ((0, "has"), (1, "has"), (2, "none")):
        world.put(*(pod_json(f"p{number}", node="has", cpu="1") for number in range(learning)))
        assert world.place(pod) == favourite
    explained = SCORERS["images"].explain({"present": 8e9, "wanted": 1.2e10})
    assert explained == "8.0 of 12.0 GB of its images"


def test_a_node_of_unknown_size_counts_as_a_usual_one() -> None:
    unsized = {**node_json("unsized"), "status": {}}
    world = World(None, unsized, node_json("small", cpu="4"), node_json("usual"), node_json("usual-too"))
    assert world.state.snapshot().sizes.tolist() == [1.0, pytest.approx(0.5, rel=0.05), 1.0, 1.0]
    assert World(None, unsized).state.snapshot().sizes.tolist() == [1.0]


@pytest.mark.parametrize("nodes", [4, 20, 200])
def test_without_histories_the_smallest_s_is_taken_in_a_cluster_of_any_size(nodes: int, seed: int) -> None:
    """Only requests are known of these unequal pods; how full nodes are by requests is up to the scheduler."""
    rng, world, taken = np.random.default_rng(seed), World(), 0
    for number in range(nodes):
        world.put(node_json(f"n{number:03}", cpu="96", memory="384Gi"))
    for number in range(3 * nodes):
        needs = {"cpu": f"{rng.integers(100, 4000)}m", "memory": f"{rng.integers(1, 16)}Gi"}
        world.put(pod_json(f"p{number}", node=f"n{rng.integers(nodes):03}", **needs))
        world.put(profile_json(f"of-{number}", {f"uid-p{number}": CATEGORIES[rng.integers(3)]}))
    for number in range(50):
        pod = pod_json(f"new-{number}", cpu=f"{rng.integers(100, 4000)}m", memory=f"{rng.integers(1, 16)}Gi")
        scores = specon(world.request(pod))
        assert scores is not None
        sums = dict(zip(world.names, scores.facts["S"].tolist(), strict=True))
        taken += sums[world.place(pod)] == min(sums.values())
    assert taken == 50


def test_of_nodes_with_equal_s_the_one_in_less_use_by_cpu_or_memory_is_taken() -> None:
    world = World(None, node_json("idle"), node_json("busy"))
    world.put(pod_json("cpu", cpu="10m", memory="8Gi", node="idle", scheduler="default-scheduler"))
    world.put(pod_json("memory", cpu="0", memory="24Gi", node="busy", scheduler="default-scheduler"))
    assert world.place(pod_json("new", cpu="0", memory="0")) == "idle", "25 against 75 % of memory, despite 10m of CPU"


def test_the_node_that_is_in_less_use_now_is_taken_if_scores_are_equal() -> None:
    """One node is in use at first, the other in the following two and a half minutes."""
    world = World(None, node_json("a-now"), node_json("b-later"))
    world.put(class_json("now", [6.0, 1.0], [1.0] * 2), class_json("later", [1.0, 6.0], [1.0] * 2))
    world.put(pod_json("n", node="a-now", workload="now"), pod_json("l", node="b-later", workload="later"))
    assert world.place(pod_json("new", annotations={"phasewise.dev/weights": "complement=0"})) == "b-later"


def test_a_tie_break_never_outweighs_a_scorer_of_however_small_a_weight() -> None:
    world = World(None, node_json("idle"), node_json("busy", labels={"data.phasewise.dev/coco": ""}))
    world.put(pod_json("there", cpu="7", memory="24Gi", node="busy", scheduler="default-scheduler"))
    assert world.place(pod_json("new", cpu="0", memory="0")) == "idle"
    wish = {"phasewise.dev/data": "coco", "phasewise.dev/weights": "data=0.001"}
    assert world.place(pod_json("new", cpu="0", memory="0", annotations=wish)) == "busy"


def test_a_pod_without_a_category_counts_as_learning_unless_it_is_not_ours() -> None:
    world = World(None, node_json("a")).put(
        pod_json("ours", node="a"), pod_json("theirs", node="a", scheduler="default-scheduler")
    )
    scores = specon(world.request(pod_json("new")))
    assert scores is not None
    assert scores.facts["S"].tolist() == [2.0]
    assert (
        SCORERS["specon"].explain({"S": 2.0, "size": 1.0, "pc": 1.0, "wc": 0.0, "cc": 0.0})
        == "S = 2: 1 progressing, 0 watching, 0 converged"
    )


EARLY, LATE = [6.0] * 12 + [1.0] * 12, [1.0] * 12 + [6.0] * 12


def test_complement_combines_an_early_with_a_late_peak() -> None:
    world = World(None, node_json("early"), node_json("late"))
    world.put(class_json("early", EARLY, [1.0] * 24), class_json("late", LATE, [1.0] * 24))
    world.put(pod_json("a", node="early", workload="early"), pod_json("b", node="late", workload="late"))
    scores = complement(world.request(pod_json("new", workload="late"), ["early", "late"]))
    assert scores is not None
    assert scores.facts["cpu"].tolist() == pytest.approx([7 / 8, 12 / 8])
    assert scores.values[0] > 0.8, "no overload"
    assert scores.values[1] < 0.3, "12 of 8 cores would be needed with another late job"
    assert world.place(pod_json("new", workload="late")) == "early"


def test_without_overload_a_lower_peak_outweighs_jobs_that_still_learn() -> None:
    """A late job peaks at 45 % of 20 cores with an early job that is watching, at 80 % with a converged late one."""
    early, late = [8.0] * 12 + [1.0] * 12, [1.0] * 12 + [8.0] * 12
    world = World(None, node_json("a-late", cpu="20"), node_json("b-early", cpu="20"))
    world.put(class_json("early", early, [1.0] * 24), class_json("late", late, [1.0] * 24))
    world.put(pod_json("l", node="a-late", workload="late"), pod_json("e", node="b-early", workload="early"))
    world.put(profile_json("vpa", {"uid-l": "converged", "uid-e": "watching"}))
    pod = pod_json("new", workload="late")
    request = world.request(pod, ["b-early", "a-late"])
    peaks, learning = complement(request), specon(request)
    assert peaks is not None
    assert learning is not None
    assert peaks.facts["cpu"].tolist() == pytest.approx([0.45, 0.8])
    weights = world.settings.weights
    gained = weights["complement"] * (peaks.values[0] - peaks.values[1])
    assert gained > weights["specon"] * (learning.values[1] - learning.values[0]) > 0.0
    assert world.place(pod) == "b-early"


def test_without_overload_a_memory_heavy_pod_goes_to_a_cpu_heavy_one() -> None:
    """With 40 % of memory, a pod peaks at 41 % with a job of 40 % of CPU, at 80 % with one of 40 % of memory."""
    world = World(None, node_json("a-memory", "100", "100Gi"), node_json("b-cpu", "100", "100Gi"))
    world.put(pod_json("m", cpu="1", memory="40Gi", node="a-memory"))
    world.put(pod_json("c", cpu="40", memory="1Gi", node="b-cpu"))
    heavy = pod_json("new", cpu="1", memory="40Gi", workload="heavy")
    assert world.place(heavy) == "b-cpu", "by requests alone, the node in less use of equal S"
    world.put(class_json("heavy", [1.0], [40.0]))
    assert world.place(heavy) == "b-cpu"


def test_of_peaks_less_than_five_points_apart_the_one_with_fewer_learning_jobs_is_taken() -> None:
    world = World(None, node_json("high", cpu="100"), node_json("low", cpu="100"), class_json("k", [10.0], [1.0]))
    world.put(pod_json("h", cpu="34900m", node="high", scheduler="x"), pod_json("l", cpu="30", node="low"))
    assert world.place(pod_json("new", workload="k")) == "high", "44.9 against 40 %, and no job learns there"
    world.put(pod_json("h", cpu="35", node="high", scheduler="x"))
    assert world.place(pod_json("new", workload="k")) == "low"


def test_complement_prefers_no_node_below_capacity_if_only_requests_are_known() -> None:
    world = World(None, node_json("a"), node_json("b")).put(pod_json("p", cpu="6", node="a"))
    scores = complement(world.request(pod_json("new")))
    assert scores is not None
    assert scores.values.tolist() == [1.0, 1.0]
    full = complement(world.request(pod_json("new", cpu="3")))
    assert full is not None
    assert full.values[0] < 0.3 < full.values[1] == 1.0
    world.put(class_json("k", [1.0], [1.0]), pod_json("q", node="b", workload="k"))
    again = complement(world.request(pod_json("new")))
    assert again is not None
    assert again.values[0] < again.values[1]


@pytest.mark.parametrize("wishes", [{}, {"phasewise.dev/placement": "pack", "phasewise.dev/data": "d"}])
def test_no_other_scorer_outweighs_an_overload_that_another_node_avoids(wishes: dict[str, str]) -> None:
    """All others prefer `full`: the job's other pods and its data are there, and no job that still learns."""
    job = {"batch.kubernetes.io/job-name": "j"}
    world = World(None, node_json("full", labels={"data.phasewise.dev/d": ""}), node_json("spared"))
    world.put(pod_json("j-0", cpu="7", memory="28Gi", node="full", labels=job))
    world.put(profile_json("done", {"uid-j-0": "converged"}))
    for number in range(8):
        world.put(pod_json(f"learner-{number}", cpu="750m", memory="1Gi", node="spared"))
    assert world.place(pod_json("j-1", cpu="1", memory="4Gi", labels=job, annotations=wishes)) == "full", "it just fits"
    assert world.place(pod_json("j-1", cpu="1100m", memory="4Gi", labels=job, annotations=wishes)) == "spared"


def test_complement_rates_missing_memory_worse_than_missing_cpu() -> None:
    world = World(None, node_json("no-cpu"), node_json("no-memory"))
    world.put(
        pod_json("a", cpu="8", memory="1Gi", node="no-cpu"), pod_json("b", cpu="1", memory="32Gi", node="no-memory")
    )
    scores = complement(world.request(pod_json("new", cpu="1", memory="4Gi"), ["no-cpu", "no-memory"]))
    assert scores is not None
    assert scores.values[0] > scores.values[1] > 0


def test_complement_explains_any_overload_as_too_much() -> None:
    facts = {"cpu": 1.2, "memory": 0.35, "overload": 0.1}
    assert SCORERS["complement"].explain(facts) == "peaks at 120% CPU and 35% memory, too much"


def test_complement_equals_its_reference_implementation(seed: int) -> None:
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
    request = world.request(pod_json("new", workload="k0"), list(sizes))
    scores = complement(request)
    assert scores is not None
    loads = [request.snapshot.load[:, :, request.snapshot.table.index[node]].T.tolist() for node in sizes]
    expected = reference.complement(loads, request.demand.T.tolist(), list(sizes.values()))
    assert scores.values == pytest.approx(expected, abs=1e-4)


def test_pack_prefers_the_node_of_the_job_or_else_the_fullest() -> None:
    job = {"batch.kubernetes.io/job-name": "j"}
    world = World(None, node_json("a"), node_json("b"), node_json("c"))
    world.put(pod_json("full", cpu="6", memory="24Gi", node="c", scheduler="x"))
    first = pack(world.request(pod_json("j-0", labels=job)))
    assert first is not None
    assert int(first.values.argmax()) == 2
    world.put(pod_json("j-1", node="a", labels=job))
    second = pack(world.request(pod_json("j-0", labels=job)))
    assert second is not None
    assert second.values[0] == 1.0
    assert second.values[2] > second.values[1], "of the nodes without the job, the fuller one"
    assert second.facts["peers"].tolist() == [1, 0, 0]


def test_pack_halves_the_fullness_of_nodes_without_the_job() -> None:
    """With the pod, half of `b` would be requested."""
    job = {"batch.kubernetes.io/job-name": "j"}
    world = World(None, node_json("a"), node_json("b")).put(pod_json("j-1", node="a", labels=job))
    scores = pack(world.request(pod_json("j-0", cpu="4", memory="16Gi", labels=job)))
    assert scores is not None
    assert scores.values.tolist() == [1.0, 0.25]


@pytest.mark.parametrize("learned", [True, False])
def test_a_packed_job_takes_the_fuller_node_from_its_first_pod_on(learned: bool) -> None:
    packs = {"phasewise.dev/placement": "pack"}
    world = World(None, node_json("a-empty"), node_json("b-half"), *([class_json("k", [1.0], [1.0])] * learned))
    world.put(pod_json("there", cpu="4", memory="16Gi", node="b-half", scheduler="x"))
    job = {"batch.kubernetes.io/job-name": "j"}
    nodes = {world.place(pod_json(f"j-{pod}", workload="k", labels=job, annotations=packs)) for pod in range(3)}
    assert nodes == {"b-half"}
    assert world.place(pod_json("other", workload="k")) == "a-empty"


def test_a_high_peak_without_overload_does_not_keep_a_packed_job_from_a_node() -> None:
    """A tenth of the fuller node is requested, and four fifths of it will be used."""
    world = World(None, node_json("a-empty"), node_json("b-fuller"), class_json("k", [6.4], [25.6]))
    world.put(pod_json("there", cpu="800m", memory="3200Mi", node="b-fuller", workload="k"))
    assert world.place(pod_json("new")) == "a-empty"
    packs = {"phasewise.dev/placement": "pack", "phasewise.dev/weights": "specon=0"}
    assert world.place(pod_json("first", annotations=packs)) == "b-fuller"


def test_spread_keeps_the_pods_of_a_job_apart_and_has_no_opinion_on_the_first() -> None:
    job = {"jobset.sigs.k8s.io/jobset-name": "j"}
    world = World(None, node_json("a"), node_json("b"))
    assert spread(world.request(pod_json("j-0", labels=job))) is None
    world.put(pod_json("j-1", node="a", labels=job))
    scores = spread(world.request(pod_json("j-0", labels=job)))
    assert scores is not None
    assert scores.values.tolist() == [0.0, 1.0]


def test_data_counts_shares_of_data_sets() -> None:
    half = {"data.phasewise.dev/imagenet": "0.5", "data.phasewise.dev/coco": ""}
    world = World(None, node_json("half", labels=half), node_json("none"))
    wants = {"phasewise.dev/data": "imagenet, coco"}
    scores = data(world.request(pod_json("new", annotations=wants)))
    assert scores is not None
    assert scores.values.tolist() == [0.75, 0.0]
    assert SCORERS["data"].explain({"present": 1.5, "wanted": 2.0}) == "1.5 of 2 data sets"
    assert data(world.request(pod_json("new"))) is None
    assert data(world.request(pod_json("new", annotations={"phasewise.dev/data": "nobody-has-it"}))) is None


def test_empty_items_in_a_list_of_data_sets_are_ignored() -> None:
    world = World(None, node_json("a", labels={"data.phasewise.dev/coco": ""}))
    scores = data(world.request(pod_json("new", annotations={"phasewise.dev/data": "coco, ,"})))
    assert scores is not None
    assert (scores.values.tolist(), scores.facts["wanted"].tolist()) == ([1.0], [1.0])


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_every_scorer_is_between_0_and_1_independent_of_order_and_explained(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = World()
    for number in range(12):
        labels = {"data.phasewise.dev/d": str(rng.random())}
        gpus = {"nvidia.com/gpu": str(rng.integers(4))}
        node = node_json(f"n{number}", str(int(rng.integers(1, 9))), f"{rng.integers(1, 33)}Gi", labels, gpus)
        node["status"]["images"] = [{"names": ["x:latest"], "sizeBytes": int(rng.integers(10**10))}]
        world.put(node)
    world.put(node_json("sizeless", "0", "0"))
    job = {"volcano.sh/job-name": "j"}
    for number in range(30):
        gpus = {"nvidia.com/gpu": "1"} if number % 5 == 0 else {}
        world.put(pod_json(f"p{number}", node=f"n{rng.integers(12)}", labels=job if number % 3 else {}, extended=gpus))
    pod = pod_json("new", labels=job, annotations={"phasewise.dev/data": "d"})
    names = world.names
    scores = SCORERS[name].score(world.request(pod, names))
    assert scores is not None
    assert scores.values.shape == (13,)
    assert ((scores.values >= 0) & (scores.values <= 1)).all()
    reverse = SCORERS[name].score(world.request(pod, names[::-1]))
    assert reverse is not None
    assert np.array_equal(reverse.values[::-1], scores.values)
    assert SCORERS[name].explain({fact: float(values[0]) for fact, values in scores.facts.items()})
