"""Parsing of pods, nodes and profiles; T-shirt sizes; and the footprint of a pod with and without history."""

from __future__ import annotations

import math

import pytest

from extender.gangs.member import read_member
from extender.pods.curves import Grid
from extender.pods.footprint import FFDL, GUESS, HISTORY, REQUESTS, SIZE, checked_sizes, size_for_gpus
from extender.pods.pod import GROUPS, pod_reader, profile_reader, read_node
from recommender.base.errors import Misuse
from recommender.cluster.errors import BadObject
from recommender.cluster.objects.pods import read_pod as read_cluster_pod
from tests.worlds.placement import GIB, Json, World, class_json, node_json, pod_json

read_pod = pod_reader(lambda _: (), frozenset({"phasewise"}))


def pod_with(**spec: object) -> Json:
    pod = pod_json("p")
    return {**pod, "spec": {**pod["spec"], **spec}}


def container(cpu: str, **fields: object) -> Json:
    return {"name": f"c{cpu}", "resources": {"requests": {"cpu": cpu}}, **fields}


def test_requests_are_counted_as_the_scheduler_counts_them() -> None:
    pod = pod_with(
        containers=[container("1"), container("2")],
        initContainers=[container("500m", restartPolicy="Always"), container("4"), container("2")],
        overhead={"cpu": "250m"},
    )
    assert read_pod(pod).requests == (4.5 + 0.25, 0.0), "the second init container runs next to the sidecar"
    assert read_pod(pod_with(containers=[container("1")], resources={"requests": {"cpu": "3"}})).requests[0] == 3.0


def test_what_states_only_limits_requests_them_as_the_api_server_would_write() -> None:
    limited = {"name": "main", "resources": {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}}
    pod = read_pod(
        pod_with(containers=[limited], initContainers=[{"name": "i", "resources": {"limits": {"cpu": "3"}}}])
    )
    assert (pod.requests, pod.extended, pod.gpu.number) == ((3.0, GIB), {"nvidia.com/gpu": 1.0}, 1)
    assert pod.containers[0].requests == (2.0, GIB)
    stated = {"name": "main", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}}
    assert read_pod(pod_with(containers=[stated], resources={"limits": {"cpu": "1"}})).requests[0] == 1.0
    assert read_cluster_pod(pod_with(containers=[limited])).requests == (2.0, GIB)


def test_resources_that_a_node_allocates_above_the_spec_count() -> None:
    pod = pod_with(containers=[container("1"), container("2")])
    statuses = [{"name": "c1", "resources": {"requests": {"cpu": "4"}}}, {"name": "c2", "resources": {}}]
    assert read_pod({**pod, "status": {"containerStatuses": statuses}}).requests[0] == 4.0 + 2.0


def test_a_resize_that_a_node_can_never_grant_does_not_count() -> None:
    """Otherwise whoever may resize a pod could make its node look full."""
    statuses = [{"name": "c8", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "2"}}}]
    pending = {"type": "PodResizePending", "status": "True"}
    for reason, cores in (("Infeasible", 2.0), ("Deferred", 8.0)):
        status = {"containerStatuses": statuses, "conditions": [{**pending, "reason": reason}]}
        assert read_pod({**pod_with(containers=[container("8")]), "status": status}).requests[0] == cores


def test_sidecars_and_pods_as_a_whole_count_with_what_is_allocated_to_them() -> None:
    sidecar = pod_with(containers=[container("2")], initContainers=[container("1", restartPolicy="Always")])
    status: Json = {"initContainerStatuses": [{"name": "c1", "allocatedResources": {"cpu": "3"}}]}
    assert read_pod({**sidecar, "status": status}).requests[0] == 2.0 + 3.0
    whole = pod_with(containers=[{"name": "main"}], resources={"requests": {"cpu": "4"}}, overhead={"cpu": "500m"})
    assert read_pod({**whole, "status": {"allocatedResources": {"cpu": "6500m"}}}).requests[0] == 6.5
    assert read_pod({**whole, "status": {"allocatedResources": {"cpu": "3"}}}).requests[0] == 4.5


@pytest.mark.parametrize(
    ("cpu", "memory", "requests"),
    [
        ("1e16", "1e19", (0.0, 0.0)),
        ("5e15", "5e18", (0.0, 0.0)),
        ("1e15", "1e18", (2.0**20, 2.0**50)),
    ],
)  # fmt: skip
def test_a_sum_of_requests_that_overflows_in_the_scheduler_counts_as_nothing(
    cpu: str, memory: str, requests: tuple[float, float]
) -> None:
    """As it does there: such a pod runs anywhere. A large sum that does not overflow fits on no node."""
    both = [{"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}} for name in ("main", "other")]
    read = read_pod(pod_with(containers=both))
    assert read.requests == read_cluster_pod(pod_with(containers=both)).requests == requests


def test_a_pod_is_ours_by_its_scheduler_or_a_label_or_an_annotation() -> None:
    assert read_pod(pod_json("p")).ours
    assert not read_pod(pod_json("p", scheduler="default-scheduler")).ours
    assert read_pod(pod_json("p", scheduler="x", labels={"phasewise.dev/workload": "k"})).ours
    assert read_pod(pod_json("p", scheduler="x", annotations={"phasewise.dev/data": "d"})).ours


def test_a_pod_of_another_scheduler_is_ours_if_its_history_is_known() -> None:
    pod = pod_json("p", scheduler="x", ownerReferences=[])
    world = World(None, node_json("a"))
    assert not world.state.is_ours(world.read_pod(pod))
    workload = world.read_pod(pod).workload
    world.put(class_json(workload, [1.0], [1.0]))
    assert world.state.is_ours(world.read_pod(pod))


def test_the_job_of_a_pod_is_its_group_or_else_its_controller() -> None:
    for name, _ in GROUPS:
        for kind in ("labels", "annotations"):
            pod = pod_json("p", **{kind: {name: "j"}})
            assert read_pod(pod).job == read_member(pod).membership.name == f"{name}=j"
    owned = pod_json("p")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j-1", "uid": "job-uid", "controller": True}
    ]
    assert read_pod(owned).job == "job-uid"
    assert read_pod(pod_json("p")).job == ""


def test_labels_of_a_node_give_the_share_of_each_data_set_there() -> None:
    labels = {f"data.phasewise.dev/{name}": text for name, text in
              {"all": "", "yes": "true", "no": "false", "half": "0.5", "much": "7", "nan": "nan"}.items()}  # fmt: skip
    assert read_node(node_json("a", labels=labels)).data == {
        "all": 1.0, "yes": 1.0, "no": 0.0, "half": 0.5, "much": 1.0, "nan": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "demand",
    [{}, {"stepSeconds": 15}, {"stepSeconds": 15, "cpuCores": [], "memoryBytes": []},
     {"stepSeconds": "15", "cpuCores": [1], "memoryBytes": [1]},
     {"stepSeconds": 15, "cpuCores": ["1"], "memoryBytes": [1]}],
)  # fmt: skip
def test_an_invalid_demand_of_a_profile_is_ignored(demand: Json) -> None:
    raw = class_json("k", [1.0], [1.0])
    raw["status"]["containers"][0]["demand"] = demand
    assert profile_reader(Grid())(raw).demand.curves == {}


def test_only_a_profile_with_class_true_is_of_a_class() -> None:
    raw = class_json("k", [1.0], [1.0])
    assert profile_reader(Grid())(raw).workload == "k"
    assert profile_reader(Grid())({**raw, "spec": {"class": False}}).workload == ""
    with pytest.raises(BadObject, match="status"):
        profile_reader(Grid())({**raw, "status": []})


def test_the_category_of_a_pod_is_that_of_its_container_that_learns_most() -> None:
    entries = [{"uid": "u", "category": "Converged"}, {"uid": "u"}, {"uid": "u", "category": "Watching"}, {"uid": "v"}]
    raw = {**class_json("k", [1.0], [1.0]), "status": {"pods": [{"name": "p", **entry} for entry in entries]}}
    assert profile_reader(Grid())(raw).categories == {"u": 1, "v": None}


def test_a_footprint_comes_from_history_then_requests_then_size_then_a_guess() -> None:
    world = World(None, node_json("a", "64", "256Gi"), class_json("k", [2.0, 3.0], [1.0, 5.0]))
    known = world.request(pod_json("p", workload="k")).footprint
    assert (known.source, known.curve.peak.tolist()) == (HISTORY, [3.0, 5 * GIB])
    capped = world.request(pod_json("p", workload="k", limits={"memory": "4Gi"})).footprint
    assert capped.curve.peak.tolist() == [3.0, 4 * GIB], "above its limit it would be killed"
    explicit = world.request(pod_json("p", cpu="2", memory="8Gi")).footprint
    assert (explicit.source, explicit.curve.peak.tolist(), explicit.guessed) == (REQUESTS, [2.0, 8 * GIB], (0.0, 0.0))
    sized = world.request(pod_json("p", cpu=None, memory="8Gi", annotations={"phasewise.dev/size": "1-V100"})).footprint
    assert (sized.source, sized.curve.peak.tolist(), sized.guessed) == (SIZE, [26.0, 8 * GIB], (26.0, 0.0))
    silent = world.request(pod_json("p", cpu=None, memory=None)).footprint
    assert (silent.source, silent.curve.peak.tolist()) == (GUESS, [0.1, 200 * 2.0**20])


def test_containers_without_a_history_count_by_their_requests() -> None:
    world = World(None, node_json("a", "64", "256Gi"), class_json("k", [2.0], [1.0]))
    pod = pod_json("p", workload="k")
    pod["spec"]["containers"].append({"name": "side", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}})
    assert world.request(pod).footprint.curve.peak.tolist() == [2.5, 2 * GIB]


def test_sizes_are_those_of_ffdl_and_scale_by_the_number_of_gpus() -> None:
    assert size_for_gpus(FFDL, 2, "nvidia-tesla-p100") == (16.0, 48 * GIB)
    assert size_for_gpus(FFDL, 4, "V100") == (84.0, 96 * GIB)
    assert size_for_gpus(FFDL, 1, "H999") == (4.0, 24 * GIB), "the smallest size for an unknown type"
    assert size_for_gpus(FFDL, 0, "V100") is None
    assert size_for_gpus({}, 1, "V100") is None


@pytest.mark.parametrize("name", ["V100", "0-V100", "x-V100", "²-V100", "1-"])
def test_a_size_that_is_not_named_by_number_and_type_of_gpus_is_refused(name: str) -> None:
    with pytest.raises(Misuse, match="<GPUs>-<kind>"):
        checked_sizes({name: (1.0, 1.0)})
    with pytest.raises(Misuse):
        checked_sizes({"1-V100": (math.inf, 1.0)})
