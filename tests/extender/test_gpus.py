"""GPUs and other extended resources: parsing, allocation to pods, and free GPUs that no pod can use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.pods.gpus import HAMI_ANNOTATION, GpuOffer, GpuRequest, gpu_offer, gpu_request, requests_in_gpus
from extender.scoring.fragments import Free, fragments, starved, unusable
from extender.scoring.scorers import SCORERS, pack
from extender.view.devices import MAX_COUNTED_PODS, DemandMix, DeviceTable, Mix
from recommender.cluster.objects.reading import Fields
from recommender.cluster.objects.requests import requests_of
from tests.worlds.placement import GIB, World, node_json, pod_json

GPU, CORES = "nvidia.com/gpu", "nvidia.com/gpucores"
HALF, ONE, TWO = GpuRequest(1, 500), GpuRequest(1), GpuRequest(2)


# -- parsing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({"cpu": 1.0}, GpuRequest(0)),
        ({GPU: 2.0}, TWO),
        ({"amd.com/gpu": 1.0}, ONE),
        ({"nvidia.com/gpu.shared": 1.0}, ONE),
        ({GPU: 1.0, CORES: 50.0}, HALF),
        ({GPU: 1.0, CORES: 20.0, "nvidia.com/gpumem-percentage": 50.0}, HALF),
        ({GPU: 1.0, CORES: 100.0}, ONE),
        ({GPU: 1.0, "nvidia.com/gpumem": 3000.0}, ONE),
        ({"nvidia.com/mig-1g.5gb": 1.0, "gpu": 1.0}, GpuRequest(0)),
    ],
)
def test_a_pod_requests_whole_gpus_or_a_percentage_of_each(needs: dict[str, float], expected: GpuRequest) -> None:
    (container,) = pod_json("p", extended={name: str(amount) for name, amount in needs.items()})["spec"]["containers"]
    assert gpu_request(needs, Fields({"containers": [container]})) == expected


@pytest.mark.parametrize(
    ("shares", "expected", "in_gpus"),
    [
        (["30", "30"], GpuRequest(2, 300), 2 / 3),
        (["30", "50"], GpuRequest(2, 500), 1.0),
        (["30", ""], GpuRequest(2, 1000), 2.0),
    ],
)
def test_a_percentage_is_of_each_gpu_of_its_container(shares: list[str], expected: GpuRequest, in_gpus: float) -> None:
    containers = [
        {"name": f"c{number}", "resources": {"requests": {GPU: "1", **({CORES: share} if share else {})}}}
        for number, share in enumerate(shares)
    ]
    spec = Fields({"containers": [*containers, {"name": "without"}]})
    assert gpu_request(requests_of(spec, Fields({})), spec) == expected
    assert requests_in_gpus(requests_of(spec, Fields({})), spec)[GPU] == in_gpus


def test_shared_gpus_of_a_node_are_recognized_by_a_label_or_by_hamis_annotation() -> None:
    assert gpu_offer({GPU: 8.0}, {}, {}) == GpuOffer(8)
    assert gpu_offer({"nvidia.com/gpu.shared": 8.0}, {"nvidia.com/gpu.replicas": "4"}, {}) == GpuOffer(2, 4)
    assert gpu_offer({GPU: 2.0}, {"nvidia.com/gpu.replicas": "no number"}, {}) == GpuOffer(2)
    as_text = "GPU-1,10,16384,100,T4,0,true,0,hami-core:GPU-2,10,16384,100,T4,0,true,1,hami-core:"
    as_json = '[{"id":"GPU-1","count":10},{"id":"GPU-2","count":10}]'
    for annotation in (as_text, as_json):
        assert gpu_offer({GPU: 20.0}, {}, {HAMI_ANNOTATION: annotation}) == GpuOffer(2)
    assert gpu_offer({GPU: 20.0}, {"nvidia.com/gpu.count": "2"}, {HAMI_ANNOTATION: "?"}) == GpuOffer(2)


# -- allocation --------------------------------------------------------------------------------------------------------


def test_a_snapshot_has_extended_resources_as_allocatable_and_as_requested() -> None:
    world = World(None, node_json("a", extended={GPU: "4", "example.com/fpga": "2"}), node_json("b"))
    world.put(pod_json("p", node="a", extended={GPU: "1", "example.com/fpga": "2"}))
    world.put(pod_json("waits", extended={GPU: "1"}))
    devices = world.state.snapshot().devices
    amounts = {name: (each.allocatable.tolist(), each.requested.tolist()) for name, each in devices.extended.items()}
    assert amounts == {GPU: ([4.0, 0.0], [1.0, 0.0]), "example.com/fpga": ([2.0, 0.0], [2.0, 0.0])}
    assert devices.gpu_free.T.tolist() == [[0, 1000, 1000, 1000], [0, 0, 0, 0]]
    world.filter(pod_json("waits", extended={GPU: "1"}), ["a"])
    assert world.state.snapshot().devices.gpu_free.sum() == 2000, "an advised pod counts"
    world.state.drop_pod("uid-p")
    world.state.drop_pod("uid-waits")
    assert world.state.snapshot().devices.gpu_free.sum() == 4000


def test_only_resources_that_a_node_offers_are_kept_and_new_ones_count_present_pods() -> None:
    names = {f"example.com/r{number}": "1" for number in range(1000)}
    world = World(None, node_json("a", extended={GPU: "1"}), node_json("b"))
    world.put(pod_json("p", node="b", extended={**names, GPU: "1"}))
    assert world.state.snapshot().devices.extended.keys() == {GPU}
    world.put(node_json("c", extended={"example.com/r7": "4"}), node_json("b", extended={"example.com/r7": "2"}))
    snapshot = world.state.snapshot()
    amounts = snapshot.devices.extended
    assert amounts.keys() == {GPU, "example.com/r7"}
    assert amounts["example.com/r7"].requested[snapshot.table.index["b"]] == 1.0
    world.state.drop_pod("uid-p")
    assert not world.state.snapshot().devices.extended["example.com/r7"].requested.any()


def test_a_share_is_on_the_fullest_gpu_with_room_and_a_replica_is_part_of_a_gpu() -> None:
    world = World(None, node_json("a", extended={GPU: "2"}, annotations={HAMI_ANNOTATION: ""}))
    for number, percent in enumerate((60, 30, 50)):
        world.put(pod_json(f"p{number}", node="a", extended={GPU: "1", CORES: str(percent)}))
    assert world.state.snapshot().devices.gpu_free.T.tolist() == [[100, 500]]
    sliced = node_json("b", extended={GPU: "8"}, labels={"nvidia.com/gpu.replicas": "4"})
    world.put(sliced, pod_json("slice", node="b", extended={GPU: "1"}))
    assert world.state.snapshot().devices.gpu_free.T.tolist() == [[100, 500], [750, 1000]]
    assert world.state.snapshot().devices.gpu_part.tolist() == [1000, 250]


def test_pods_stay_on_their_gpus_when_sums_are_rebuilt() -> None:
    """The first one has gone since: without it, both others would have been put on one GPU."""
    world = World(None, node_json("a", extended={GPU: "2"}, annotations={HAMI_ANNOTATION: ""}))
    for number, percent in enumerate((70, 50, 30)):
        world.put(pod_json(f"p{number}", node="a", extended={GPU: "1", CORES: str(percent)}))
    world.state.drop_pod("uid-p0")
    for _ in range(2):
        assert world.state.snapshot().devices.gpu_free.T.tolist() == [[700, 500]]
        world.clock.now_s += 2 * 3600.0


def test_devices_are_the_same_after_nodes_were_removed_and_sums_were_rebuilt() -> None:
    world = World(None, *(node_json(f"n{number}", extended={GPU: "2"}) for number in range(100)))
    world.put(*(pod_json(f"p{number}", node=f"n{number}", extended={GPU: "1"}) for number in range(0, 100, 3)))
    world.state.drop_node("n0")
    world.state.drop_node("n98")
    before = world.state.snapshot()
    world.clock.now_s += 2 * 3600.0
    after = world.state.snapshot()
    for number in (1, 3, 97, 99):
        free = [each.devices.gpu_free[:, each.table.index[f"n{number}"]].tolist() for each in (before, after)]
        assert free == [[1000 if number % 3 else 0, 1000]] * 2
        assert after.devices.extended[GPU].requested[after.table.index[f"n{number}"]] == (number % 3 == 0)


def test_gpus_of_running_pods_stay_used_when_the_device_plugin_restarts_or_shares_them() -> None:
    """Meanwhile the node has no GPU, and a pod that was just bound is first seen then."""

    def gpu_free() -> list[float]:
        free: list[float] = world.state.snapshot().devices.gpu_free[:, 0].tolist()
        return free

    world = World(None, node_json("a", extended={GPU: "4"}))
    world.put(pod_json("p", node="a", extended={GPU: "2"}))
    world.put(node_json("a", extended={GPU: "0"}), pod_json("q", node="a", extended={GPU: "1"}))
    assert gpu_free() == [0, 0, 0, 0]
    world.put(node_json("a", extended={GPU: "4"}))
    assert sorted(gpu_free()) == [0, 0, 0, 1000]
    world.put(node_json("a", extended={GPU: "8"}, labels={"nvidia.com/gpu.replicas": "2"}))
    assert sum(gpu_free()) == 2500, "three halves are used"
    world.state.drop_pod("uid-p")
    world.state.drop_pod("uid-q")
    assert gpu_free() == [1000] * 4


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.sampled_from([HALF, ONE, TWO])), max_size=40))
def test_gpus_of_a_removed_pod_are_free_again(steps: list[tuple[int, int, GpuRequest]]) -> None:
    """Whether or not it fitted: pods may be bound beyond capacity."""
    table, bound = DeviceTable(3), dict[str, tuple[int, GpuRequest]]()
    for place, gpus in enumerate((2, 1, 0)):
        table.put_node(place, {}, GpuOffer(gpus))
    for place, name, gpu in steps:
        if str(name) in bound:
            old_place, old_gpu = bound.pop(str(name))
            table.count(old_place, str(name), {}, old_gpu, -1)
        else:
            bound[str(name)] = (place, gpu)
            table.count(place, str(name), {GPU: float(gpu.number)}, gpu, 1)
    assert (table.snapshot(3).gpu_free >= 0).all()
    for name, (place, gpu) in bound.items():
        table.count(place, name, {}, gpu, -1)
    assert table.snapshot(3).gpu_free.T.tolist() == [[1000, 1000], [1000, 0], [0, 0]]


# -- the mix of requests -----------------------------------------------------------------------------------------------


def test_each_pod_with_gpus_counts_once_and_recent_pods_count_most() -> None:
    demand = DemandMix()
    demand.see("no gpu", (1.0, GIB), GpuRequest())
    assert demand.mix() is None
    for uid in ("a", "a", "b", "c"):
        demand.see(uid, (1.0, GIB), HALF if uid == "c" else ONE)
    mix = demand.mix()
    assert mix is not None
    assert mix.milli[mix.milli_of].tolist() == [1000.0, 500.0]
    assert mix.frequency.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert mix.per_gpu == pytest.approx((3 / 2.5, 3 * GIB / 2.5)), "three pods with 2.5 GPUs"
    for number in range(2 * MAX_COUNTED_PODS):
        demand.see(str(number), (2.0, GIB), HALF)
    mix = demand.mix()
    assert mix is not None
    assert mix.cpu_cores.tolist() == [2.0], "the first three are forgotten"


# -- unusable GPUs -----------------------------------------------------------------------------------------------------

MIX = Mix(
    np.array([1.0, 2.0, 8.0]), np.full(3, GIB), np.array([1.0, 1.0, 2.0]),
    np.array([500.0, 1000.0]), np.array([0, 1, 1]), np.array([0.5, 0.25, 0.25]), (3.0, GIB),
)  # fmt: skip
"""Half of the pods request half a GPU, a quarter one, a quarter two with 8 cores."""


def free_of(*nodes: tuple[float, list[float]]) -> Free:
    """Nodes of (free cores, free thousandths of each GPU) with enough memory."""
    cores = np.array([cpu for cpu, _ in nodes])
    gpus = np.array([gpus for _, gpus in nodes], dtype=float).T
    return Free(cores, np.full(len(nodes), 100 * GIB), gpus, np.full(len(nodes), 1000.0))


def test_expected_unusable_gpus_are_as_calculated_by_hand() -> None:
    """500, 300 and 1000 are free with 4 cores: halves cannot use 300, whole GPUs 800, and pods of two GPUs nothing.

    Without CPU all are unusable; without free GPUs none.
    """
    gpus = unusable(free_of((4.0, [500, 300, 1000]), (0.5, [500, 300, 1000]), (4.0, [0, 0, 0])), MIX)
    assert gpus.tolist() == pytest.approx([0.5 * 0.3 + 0.25 * 0.8 + 0.25 * 1.8, 1.8, 0.0])


def test_a_pod_of_two_replicas_may_use_the_free_halves_of_two_gpus() -> None:
    free = free_of((16.0, [500, 500]))._replace(part=np.array([500.0]))
    assert unusable(free, MIX).tolist() == [0.0]
    assert free.without((0.0, 0.0), TWO).gpus.T.tolist() == [[0, 0]]


def test_gpus_starve_without_enough_free_cpu_or_memory_as_calculated_by_hand() -> None:
    """With three cores per GPU, 6 cores serve two GPUs, 4 one and a third; without cores, both starve."""
    free = free_of((6.0, [1000, 1000]), (4.0, [1000, 1000]), (0.0, [1000, 1000]), (9.0, [500, 0]), (-1.0, [0, 500]))
    assert starved(free, MIX).tolist() == pytest.approx([0.0, 2 - 4 / 3, 2.0, 0.0, 0.5])
    without_memory = free._replace(memory_bytes=np.full(5, GIB / 2))
    assert starved(without_memory, MIX)[0] == 1.5
    assert starved(free, MIX._replace(per_gpu=(0.0, 0.0))).tolist() == [0.0] * 5, "no pod requests either"


def test_a_gpu_is_usable_if_the_free_cpu_and_memory_just_suffice() -> None:
    exact = free_of((1.0, [500]), (1.0, [500]))._replace(memory_bytes=np.array([GIB, GIB / 2]))
    assert unusable(exact, MIX).tolist() == pytest.approx([0.25, 0.5]), "for half of the pods; none fits the second"
    assert starved(exact._replace(cpu_cores=np.zeros(2)), MIX._replace(per_gpu=(0.5, 0.0))).tolist() == [0.5, 0.5]


FOUR_GPUS = st.lists(st.sampled_from([0.0, 200.0, 500.0, 700.0, 1000.0]), min_size=4, max_size=4)
KINDS = list(zip(MIX.cpu_cores, MIX.gpus, MIX.milli[MIX.milli_of], MIX.frequency, strict=True))


@given(
    st.lists(st.tuples(st.floats(0, 16), FOUR_GPUS), min_size=1, max_size=8),
    st.sampled_from([GpuRequest(), HALF, ONE, TWO]),
)
def test_unusable_gpus_of_many_nodes_equal_the_definition_node_by_node(
    nodes: list[tuple[float, list[float]]], request: GpuRequest
) -> None:
    free = free_of(*nodes)
    after = free.without((1.0, GIB), request)
    for each in (free, after):
        one_by_one = [
            sum(chance * unused(cpu, gpus.tolist(), cores, int(count), milli) for cores, count, milli, chance in KINDS)
            for cpu, gpus in zip(each.cpu_cores, each.gpus.T, strict=True)
        ]
        assert unusable(each, MIX).tolist() == pytest.approx(one_by_one)
    taken = (free.gpus - after.gpus).sum(axis=0)
    assert (taken <= request.number * request.milli + 1e-9).all()


def unused(cpu: float, gpus: list[float], cores: float, count: int, milli: float) -> float:
    """GPUs that one kind of pod leaves unused on one node."""
    enough = [gpu for gpu in gpus if gpu >= milli]
    runs = cpu >= cores and len(enough) >= count
    return (sum(gpus) - (sum(enough) if runs else 0.0)) / 1000.0


# -- the scorers -------------------------------------------------------------------------------------------------------


def gpu_world() -> World:
    """Nodes with a half-used GPU, with two idle GPUs and with none; pods that request half a GPU and two."""
    world = World(
        None, node_json("half", extended={GPU: "1"}), node_json("idle", extended={GPU: "2"}), node_json("none")
    )
    world.put(pod_json("h", cpu="500m", node="half", extended={GPU: "1", CORES: "50"}))
    return world.put(pod_json("t", cpu="6", extended={GPU: "2"}))


def test_half_a_gpu_goes_to_the_half_used_one_and_a_pod_without_gpus_to_a_node_without() -> None:
    world = gpu_world()
    half = pod_json("new", cpu="500m", extended={GPU: "1", CORES: "50"})
    scores = fragments(world.request(half, ["half", "idle"]))
    assert scores is not None
    assert scores.values[0] == 1.0
    assert scores.values[1] < 0.2
    assert world.place(half) == "half", "with all scorers"
    plain = fragments(world.request(pod_json("cpu", cpu="4"), ["half", "idle", "none"]))
    assert plain is not None
    assert plain.values[2] > 0.95
    assert plain.values[1] < 0.2
    assert plain.facts["unusable"][1] == 1.0, "half of the pods request two GPUs, and would lack CPU there"
    assert (
        SCORERS["fragments"].explain({"unusable": 0.25, "starved": -1.0, "free": 2.0})
        == "0.25 of 2 free GPUs would become unusable"
    )


def test_a_node_of_unknown_size_is_judged_by_its_gpus_alone() -> None:
    known, sizeless = (node_json(name, cpu="32", extended={GPU: "1"}) for name in ("known", "sizeless"))
    sizeless["status"]["allocatable"] = {GPU: "1"}
    world = World(None, known, sizeless, pod_json("other", cpu="1", extended={GPU: "1"}))
    scores = fragments(world.request(pod_json("new", cpu="1", extended={GPU: "1"})))
    assert scores is not None
    assert scores.values.tolist() == [1.0, 1.0]


def test_cpu_that_free_gpus_of_a_node_will_need_is_spared() -> None:
    """Pods request 4 cores with each GPU. `tight` has just that, `roomy` twice as much; the next pod with a GPU fits on
    both in any case, so nothing is unusable yet. A pod of 3 cores without a GPU goes to `roomy`."""
    world = World(
        None, node_json("tight", cpu="16", extended={GPU: "4"}), node_json("roomy", cpu="32", extended={GPU: "4"})
    )
    world.put(pod_json("one", cpu="4", extended={GPU: "1"}))
    scores = fragments(world.request(pod_json("plain", cpu="3"), ["tight", "roomy"]))
    assert scores is not None
    assert scores.facts["unusable"].tolist() == [0.0, 0.0]
    assert scores.facts["starved"].tolist() == pytest.approx([0.75, 0.0])
    assert scores.values.argmax() == 1
    facts = {fact: float(values[0]) for fact, values in scores.facts.items()}
    assert (
        SCORERS["fragments"].explain(facts)
        == "0 of 4 free GPUs would become unusable, 0.75 more would lack CPU or memory"
    )


def test_memory_that_free_gpus_of_a_node_will_need_is_spared() -> None:
    """Pods request 4 GiB with each GPU. On `tight` 12 GiB are free, enough for three of four GPUs; on `roomy` 32."""
    world = World(None, *(node_json(name, memory="32Gi", extended={GPU: "4"}) for name in ("tight", "roomy")))
    world.put(
        pod_json("there", cpu="0", memory="20Gi", node="tight"), pod_json("one", memory="4Gi", extended={GPU: "1"})
    )
    scores = fragments(world.request(pod_json("plain", cpu="0", memory="3Gi"), ["tight", "roomy"]))
    assert scores is not None
    assert scores.facts["starved"].tolist() == pytest.approx([0.75, 0.0])
    assert scores.values.tolist() == pytest.approx([1 / (1 + 10 * 0.3 * 0.75), 1.0])


def test_an_explanation_does_not_mention_starved_gpus_if_there_are_none() -> None:
    explanation = SCORERS["fragments"].explain({"unusable": 0.0, "starved": 0.0, "free": 4.0})
    assert explanation == "0 of 4 free GPUs would become unusable"


def test_fragments_has_no_opinion_if_no_gpu_is_free_or_none_was_ever_requested() -> None:
    world = World(None, node_json("a", extended={GPU: "1"}), node_json("b"))
    assert fragments(world.request(pod_json("new"))) is None
    world.put(pod_json("p", node="a", extended={GPU: "1"}))
    assert fragments(world.request(pod_json("new"))) is None


def test_pack_also_rates_the_extended_resources_that_the_pod_requests() -> None:
    """By CPU and memory `b` is a little fuller, by GPUs `a`."""
    world = World(None, *(node_json(name, extended={GPU: "4"}) for name in "ab"))
    world.put(pod_json("p", cpu="1", node="a", extended={GPU: "3"}), pod_json("q", cpu="2", node="b"))
    with_gpu = pack(world.request(pod_json("new", extended={GPU: "1"})))
    without = pack(world.request(pod_json("new")))
    assert with_gpu is not None
    assert without is not None
    assert with_gpu.values.argmax() == 0
    assert without.values.argmax() == 1


def test_pack_is_the_mean_fullness_of_all_resources_that_the_pod_requests() -> None:
    """On `a` 2 of 8 cores, 8 of 32 GiB and 2 of 4 GPUs would be used. `b` has no GPU and `c` is too small, which counts
    as full; a resource that no node offers does not count."""
    world = World(None, node_json("a", extended={GPU: "4"}), node_json("b"), node_json("c", cpu="1", memory="1Gi"))
    world.put(pod_json("p", cpu="1", memory="4Gi", node="a", extended={GPU: "1"}))
    pod = pod_json("new", cpu="1", memory="4Gi", extended={GPU: "1", "example.com/nobody-has-it": "1"})
    scores = pack(world.request(pod))
    assert scores is not None
    fullness = [(2 / 8 + 8 / 32 + 2 / 4) / 3, (1 / 8 + 4 / 32 + 1) / 3, 1.0]
    assert scores.facts["full"].tolist() == scores.values.tolist() == pytest.approx(fullness)
