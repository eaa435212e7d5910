"""Which pods are a gang, of which size, and which nodes they may run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.gangs.gang import gangs_of
from extender.gangs.member import GATE
from extender.gangs.reading import path_of_job, size_of_job
from recommender.cluster.errors import BadObject
from recommender.cluster.objects.reading import Fields
from recommender.cluster.objects.requests import requests_of
from tests.extender.gangs.herds import gang, node, pod


def nobody(_: object) -> None:
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
def test_the_group_labels_of_others_are_known(labels: dict[str, str], annotations: dict[str, str], size: int) -> None:
    (found,) = gangs_of([pod("a", labels=labels, annotations=annotations, gates=[GATE])], nobody)
    assert (str(found), found.size, found.missing) == ("team/g", size, size - 1)


def test_a_single_pod_at_the_gate_is_a_gang_of_one_and_one_without_gate_is_none() -> None:
    (found,) = gangs_of([pod("alone", gates=[GATE]), pod("free")], nobody)
    assert (str(found), found.size) == ("team/alone", 1)


def test_a_job_of_kubernetes_tells_its_size_by_itself() -> None:
    members = [
        pod(f"j-{n}", labels={"batch.kubernetes.io/job-name": "j"}, gates=[GATE], owner=("Job", "j")) for n in (0, 1)
    ]
    assert path_of_job(members[0]) == "/apis/batch/v1/namespaces/team/jobs/j"
    (found,) = gangs_of(members, lambda _: 2)
    assert (found.size, found.missing) == (2, 0)


def test_jobset_and_kubeflow_jobs_are_asked_for_their_size() -> None:
    of_jobset = pod("x", labels={"jobset.sigs.k8s.io/jobset-name": "set"}, owner=("Job", "set-workers-0"))
    assert path_of_job(of_jobset) == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/set"
    of_torch = pod("y", labels={"training.kubeflow.org/job-name": "t"}, owner=("PyTorchJob", "t"))
    assert path_of_job(of_torch) == "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/t"
    assert path_of_job(pod("z", gang="g", owner=("Stranger", "s"))) is None


def test_the_size_of_a_job_is_what_runs_at_once() -> None:
    workers = {"replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 4}}}
    driver = {"template": {"spec": {}}}
    assert size_of_job({"spec": {"replicatedJobs": [workers, driver]}}) == 9
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
    assert size_of_job({"spec": {"pytorchReplicaSpecs": roles}}) == 4
    least = {"schedulingPolicy": {"minAvailable": 3}}
    assert size_of_job({"spec": {"pytorchReplicaSpecs": roles, "runPolicy": least}}) == 3
    assert size_of_job({"spec": {"parallelism": 8, "completions": 5}}) == 5
    with pytest.raises(BadObject, match="parallelism is not a whole number"):
        size_of_job({"metadata": {"name": "j"}, "spec": {"parallelism": "many"}})


def test_members_that_contradict_each_other_are_told_so() -> None:
    def problem(*members: object) -> str:
        return gangs_of(members, nobody)[0].problem  # type: ignore[arg-type]

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


def test_what_a_job_has_finished_counts_and_what_an_earlier_job_of_the_name_has_finished_does_not() -> None:
    done = [pod(f"g-{n}", gang="g", size=3, on="n0", phase="Succeeded", owner=("Job", "j")) for n in (0, 1)]
    anew = pod("g-2", gang="g", size=3, owner=("Job", "j"))
    assert gangs_of([*done, anew], nobody)[0].missing == 0
    of_another = pod("g-2", gang="g", size=3, owner=("Job", "j-again"))
    assert gangs_of([*done, of_another], nobody)[0].missing == 2


def test_groups_of_kubernetes_itself_are_left_out() -> None:
    assert not gangs_of([pod("a", gang="g", size=1, schedulingGroup={"podGroupName": "native"})], nobody)
    assert not gangs_of([pod("a", gang="g", size=1, workloadRef={"name": "w", "podGroup": "p"})], nobody)


def test_gangs_come_by_priority_and_then_by_age() -> None:
    pods = [*gang("young", 1, age_s=1), *gang("old", 1, age_s=9), *gang("urgent", 1, priority=5)]
    assert [str(each) for each in gangs_of(pods, nobody)] == ["team/urgent", "team/old", "team/young"]


TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({}, "plain"),
        ({"nodeSelector": {"zone": "a"}}, "plain"),
        ({"nodeSelector": {"zone": "b"}}, ""),
        ({"tolerations": [{"key": "gpu", "operator": "Exists"}]}, "plain tainted"),
        ({"tolerations": [{"operator": "Exists"}]}, "plain tainted closed"),
        ({"tolerations": [{"key": "gpu", "value": "no"}]}, "plain"),
        ({"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]}, "plain"),
    ],
)
def test_taints_and_selectors_rule_nodes_out(spec: dict[str, object], allowed: str) -> None:
    places = [node("plain", labels={"zone": "a"}), node("tainted", taints=[TAINT]), node("closed", unschedulable=True)]
    constraints = pod("p", **spec).requirements.constraints
    assert [each.node.name for each in places if constraints.allows(each.node)] == allowed.split()


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ({"key": "rank", "operator": "Gt", "values": ["3"]}, "b"),
        ({"key": "rank", "operator": "Lt", "values": ["5"]}, "a"),
        ({"key": "odd", "operator": "Gt", "values": ["3"]}, "c"),
        ({"key": "rank", "operator": "NotIn", "values": ["2"]}, "b c"),
        ({"key": "rank", "operator": "Exists"}, "a b"),
    ],
)
def test_required_node_affinity_is_understood(condition: dict[str, object], allowed: str) -> None:
    places = [
        node("a", labels={"rank": "2", "odd": "1_0"}),
        node("b", labels={"rank": "7"}),
        node("c", labels={"odd": "4"}),
    ]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [condition]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    constraints = pod("p", affinity=affinity).requirements.constraints
    assert [each.node.name for each in places if constraints.allows(each.node)] == allowed.split()


@pytest.mark.parametrize("values", [["abc"], ["1_0"], [], ["1", "2"]])
def test_a_condition_that_the_scheduler_cannot_read_rules_out_its_own_term_alone(values: list[str]) -> None:
    """The API server takes such a pod, which may run by another term: it must not be left out."""
    broken = {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": values}]}
    linux = {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux"]}]}
    for terms, allowed in (([broken, linux], True), ([broken], False)):
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        constraints = pod("p", affinity=affinity).requirements.constraints
        assert constraints.allows(node("a", labels={"os": "linux", "rank": "7"}).node) is allowed


def test_what_is_not_understood_is_named() -> None:
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


def test_requests_are_counted_as_the_scheduler_counts_them() -> None:
    def asks(cpu: str, **more: object) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu, **more}}}

    spec = {
        "initContainers": [{**asks("1"), "restartPolicy": "Always"}, asks("5"), asks("2")],
        "containers": [asks("2", **{"nvidia.com/gpu": "1"}), asks("1")],
        "overhead": {"cpu": "500m"},
    }
    assert requests_of(Fields(spec), Fields({})) == {"cpu": 6.5, "nvidia.com/gpu": 1.0}
    whole = {"containers": [asks("2")], "resources": {"requests": {"cpu": "8"}}}
    assert requests_of(Fields(whole), Fields({})) == {"cpu": 8.0}
