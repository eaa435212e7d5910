"""Which pods form a gang, its size, and the nodes that its pods may run on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from extender.gangs.affinity import NodeConstraints
from extender.gangs.gang import JobSize, gangs_of
from extender.gangs.member import GATE, NodeCapacity
from extender.gangs.plan import NodeArrays
from extender.gangs.sizes import path_of_job, size_of_job
from recommender.cluster.errors import BadObject
from tests.extender.gangs.herds import gang, node, pod


def unknown_size(_: object) -> None:
    return None


@pytest.mark.parametrize(
    ("labels", "annotations", "size"),
    [
        ({"phasewise.dev/gang": "g", "phasewise.dev/gang-size": "3"}, {}, 3),
        ({"phasewise.dev/gang": "g"}, {"phasewise.dev/gang-size": "3"}, 3),
        ({"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "4"}, 4),
        ({"volcano.sh/job-name": "g"}, {"scheduling.volcano.sh/group-min-member": "5"}, 5),
        ({}, {"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "5"}, 5),
        (
            {
                "pod-group.scheduling.sigs.k8s.io/name": "g",
                "pod-group.scheduling.sigs.k8s.io/min-available": "6",
            },
            {},
            6,
        ),
        ({"scheduling.x-k8s.io/pod-group": "g"}, {"phasewise.dev/gang-size": "7"}, 7),
    ],
)
def test_group_names_and_sizes_are_recognised(labels: dict[str, str], annotations: dict[str, str], size: int) -> None:
    (found,) = gangs_of([pod("a", labels=labels, annotations=annotations, gates=[GATE])], unknown_size)
    assert (str(found), found.size, found.missing) == ("team/g", size, size - 1)


def test_a_gated_pod_without_a_group_is_a_gang_of_one_and_an_ungated_one_is_no_gang() -> None:
    (found,) = gangs_of([pod("alone", gates=[GATE]), pod("free")], unknown_size)
    assert (str(found), found.size) == ("team/alone", 1)


def test_the_pods_of_a_kubernetes_job_are_a_gang_of_the_size_of_the_job() -> None:
    members = [
        pod(f"j-{n}", labels={"batch.kubernetes.io/job-name": "j"}, gates=[GATE], owner=("Job", "j")) for n in (0, 1)
    ]
    assert path_of_job(members[0]) == "/apis/batch/v1/namespaces/team/jobs/j"
    (found,) = gangs_of(members, lambda _: JobSize(2))
    assert (found.size, found.missing) == (2, 0)


def test_the_size_of_a_gang_is_looked_up_in_its_jobset_or_kubeflow_job() -> None:
    of_jobset = pod("x", labels={"jobset.sigs.k8s.io/jobset-name": "set"}, owner=("Job", "set-workers-0"))
    assert path_of_job(of_jobset) == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/set"
    of_torch = pod("y", labels={"training.kubeflow.org/job-name": "t"}, owner=("PyTorchJob", "t"))
    assert path_of_job(of_torch) == "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/t"
    assert path_of_job(pod("z", gang="g", owner=("Stranger", "s"))) is None


def test_the_size_of_a_job_is_the_number_of_pods_that_run_at_once() -> None:
    workers = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 4}}}
    driver = {"name": "d", "template": {"spec": {}}}
    assert size_of_job({"spec": {"replicatedJobs": [workers, driver]}}) == JobSize(9)
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
    assert size_of_job({"spec": {"pytorchReplicaSpecs": roles}}) == JobSize(4)
    least = {"schedulingPolicy": {"minAvailable": 3}}
    assert size_of_job({"spec": {"pytorchReplicaSpecs": roles, "runPolicy": least}}) == JobSize(3)
    assert size_of_job({"spec": {"parallelism": 8, "completions": 5}}) == JobSize(5)
    indexed = {"spec": {"parallelism": 8}, "status": {"succeeded": 1, "failedIndexes": "1,3-5"}}
    assert size_of_job(indexed) == JobSize(8, ended=5)
    ended = {"replicaStatuses": {"Master": {}, "Worker": {"active": 1, "succeeded": 2}}}
    assert size_of_job({"spec": {"pytorchReplicaSpecs": roles}, "status": ended}) == JobSize(4, ended=2)
    jobs = {"replicatedJobsStatus": [{"name": "w", "succeeded": 1, "ready": 1}, {"name": "d", "succeeded": 0}]}
    assert size_of_job({"spec": {"replicatedJobs": [workers, driver]}, "status": jobs}) == JobSize(9, ended=4)
    assert size_of_job({"spec": {"parallelism": 0}}) is None
    with pytest.raises(BadObject, match="parallelism is not a whole number"):
        size_of_job({"metadata": {"name": "j"}, "spec": {"parallelism": "many"}})


def test_the_problem_of_a_gang_that_cannot_be_admitted_is_stated() -> None:
    def problem(*members: object) -> str:
        return gangs_of(members, unknown_size)[0].problem  # type: ignore[arg-type]

    assert problem(*gang("g", 2), pod("h", gang="g", size=3)) == "its pods declare different sizes"
    assert (
        problem(pod("a", gang="g", size=2, priority=1), pod("b", gang="g", size=2))
        == "its pods have different priorities"
    )
    other = pod("b", gang="g", size=2, schedulerName="default-scheduler")
    assert problem(pod("a", gang="g", size=2), other) == "its pods name different schedulers"
    assert "not a positive integer" in problem(pod("a", gang="g", size="many"))
    assert "its size is unknown" in problem(pod("a", gang="g"))
    many = [replace(pod("a", gang="g", size=10_001), uid=str(number)) for number in range(10_001)]
    assert problem(*many) == "it has more than 10000 pods"
    assert problem(*many[1:]) == ""


def test_succeeded_pods_of_the_same_job_count_and_those_of_an_earlier_job_do_not() -> None:
    succeeded = [pod(f"g-{n}", gang="g", size=3, on="n0", phase="Succeeded", owner=("Job", "j")) for n in (0, 1)]
    waiting = pod("g-2", gang="g", size=3, owner=("Job", "j"))
    assert gangs_of([*succeeded, waiting], unknown_size)[0].missing == 0
    of_later_job = pod("g-2", gang="g", size=3, owner=("Job", "j-again"))
    assert gangs_of([*succeeded, of_later_job], unknown_size)[0].missing == 2


@pytest.mark.parametrize("declared", ["", 3])
def test_pods_of_a_job_that_were_deleted_with_their_node_after_they_succeeded_are_not_waited_for(
    declared: int | str,
) -> None:
    """Otherwise the pod that replaces the last one of the job would wait for ever."""
    label = {"batch.kubernetes.io/job-name": "j"}
    replacement = pod("j-2", labels=label, gates=[GATE], owner=("Job", "j"), size=declared)
    (found,) = gangs_of([replacement], lambda _: JobSize(3, ended=2))
    assert (found.size, found.missing) == (3, 0)


def test_native_pod_groups_of_kubernetes_are_left_out() -> None:
    assert not gangs_of([pod("a", gang="g", size=1, schedulingGroup={"podGroupName": "native"})], unknown_size)
    assert not gangs_of([pod("a", gang="g", size=1, workloadRef={"name": "w", "podGroup": "p"})], unknown_size)


def names_allowed(nodes: Sequence[NodeCapacity], constraints: NodeConstraints) -> list[str]:
    known = NodeArrays(nodes)
    return [each.node.name for each, allowed in zip(known.nodes, known.allowed(constraints), strict=True) if allowed]


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({}, "plain"),
        ({"nodeSelector": {"zone": "a"}}, "plain"),
        ({"nodeSelector": {"zone": "b"}}, ""),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, "plain tainted"),
        ({"tolerations": [{"operator": "Exists"}]}, "closed plain tainted"),
        ({"tolerations": [{"key": "gpu", "value": "no"}]}, "plain"),
        ({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]}, "plain"),
    ],
)
def test_taints_and_selectors_rule_nodes_out(spec: dict[str, object], allowed: str) -> None:
    nodes = [node("plain", labels={"zone": "a"}), node("tainted", taints=[TAINT]), node("closed", unschedulable=True)]
    constraints = pod("p", **spec).requirements.constraints
    assert names_allowed(nodes, constraints) == allowed.split()


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ({"key": "rank", "operator": "Gt", "values": ["2"]}, "b"),
        ({"key": "rank", "operator": "Lt", "values": ["7"]}, "a"),
        ({"key": "odd", "operator": "Lt", "values": ["5"]}, "c"),
        ({"key": "odd", "operator": "Gt", "values": ["3"]}, "c"),
        ({"key": "rank", "operator": "NotIn", "values": ["2"]}, "b c"),
        ({"key": "rank", "operator": "In", "values": ["7", "8"]}, "b"),
        ({"key": "rank", "operator": "Exists"}, "a b"),
        ({"key": "rank", "operator": "DoesNotExist"}, "c"),
        ({"key": "absent", "operator": "NotIn", "values": ["2"]}, "a b c"),
        ({"key": "absent", "operator": "Lt", "values": ["5"]}, ""),
    ],
)
def test_required_node_affinity_is_evaluated(condition: dict[str, object], allowed: str) -> None:
    nodes = [
        node("a", labels={"rank": "2", "odd": "1_0"}),
        node("b", labels={"rank": "7"}),
        node("c", labels={"odd": "4"}),
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    constraints = pod("p", affinity=affinity).requirements.constraints
    assert names_allowed(nodes, constraints) == allowed.split()


@pytest.mark.parametrize("values", [["abc"], ["1_0"], [], ["1", "2"]])
def test_an_invalid_affinity_condition_rules_out_only_its_own_term(values: list[str]) -> None:
    """The API server accepts such a pod, which may still match another term."""
    broken = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": values}]}
    linux = {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux"]}]}
    for terms, allowed in (([broken, linux], True), ([broken], False)):
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        constraints = pod("p", affinity=affinity).requirements.constraints
        assert names_allowed([node("a", labels={"os": "linux", "rank": "7"})], constraints) == ["a"] * allowed


def test_thousands_of_conditions_on_one_pod_do_not_keep_the_gangs_of_others_waiting() -> None:
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(3000)]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    tolerations = [{"key": f"k{n}", "operator": "Exists"} for n in range(3000)]
    constraints = pod("p", affinity=affinity, tolerations=tolerations).requirements.constraints
    tainted = [node(f"n{n}", labels={"zone": "a"}, taints=[TAINT]) for n in range(1000)]
    began_s = time.process_time()
    assert names_allowed(tainted, constraints) == []
    assert time.process_time() - began_s < 0.3


def test_constraints_that_only_the_scheduler_checks_are_listed() -> None:
    term = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    spec = {
        "affinity": {"podAntiAffinity": term},
        "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        "resourceClaims": [{"name": "gpu"}],
    }
    assert pod("p", **spec).requirements.constraints.unchecked == (
        "pod anti-affinity",
        "topology spread",
        "volumes",
        "resource claims",
    )


def test_a_device_requested_by_its_class_is_left_to_the_scheduler_like_a_claim() -> None:
    """No node lists it as allocatable, so its gang would never fit."""
    requirements = pod("p", requests={"deviceclass.resource.kubernetes.io/gpu.example.com": "1"}).requirements
    assert requirements.constraints.unchecked == ("resource claims",)
    assert requirements.needs == pod("q").requirements.needs
