"""The table of behaviours with rounds over plain records, before and after the first forecast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.usage.oom import OomObservation
from recommender.live.round import Recommender
from tests.fakes.records import FakeView, pod_of, recommender, use
from tests.recommender.live.behaviours import CASES, Case
from tests.recommender.live.checking import check

GIB = 2.0**30
BEFORE_FORECAST, UNTIL_FORECAST = 3, 37
"""Rounds, one second apart."""


def cluster_of(case: Case) -> FakeView:
    records = FakeView()
    records.largest = [(64.0, 256 * GIB)]
    raw = case.vpa("job")
    raw["metadata"] |= {"namespace": "ns", "uid": "vpa-1", "generation": 3, "resourceVersion": "1"}
    records.raw["job"] = raw | ({"status": case.status_before} if case.status_before else {})
    if (target := raw["spec"]["targetRef"]["name"]) != "job":
        records.problems["job"] = f"Cannot read targetRef. Reason: Deployment ns/{target} does not exist"
    elif case.replicas:
        containers = (container.spec(name) for name, container in case.containers.items())
        pod = pod_of("job-1", *containers, annotations=case.pod_annotations, initContainers=list(case.init_containers))
        records.pods["job"] = [pod]
    return records


def play(records: FakeView, ours: Recommender, case: Case, rounds: int) -> None:
    for number in range(rounds):
        records.now_s += 1.0
        for pod in records.pods.get("job", ()):
            for name, container in case.containers.items():
                if name != case.kill:  # killed right after each start, it is never measured
                    use(records, pod.key.name, container.usage[0], container.usage[1] / GIB, name)
            for init_container in case.init_containers:
                use(records, pod.key.name, 3.0, 7.0, init_container["name"])
        if case.kill and number == 1:
            requested = parse_quantity(case.containers[case.kill].requests["memory"])
            records.killed = [OomObservation(ObjectKey("ns", "job-1"), case.kill, records.now_s, requested)]
        report = ours.run()
        assert not report.problems


@pytest.mark.parametrize("name", CASES)
def test_a_behaviour_that_users_of_the_default_recommender_rely_on_holds_also_over_a_restart(name: str) -> None:
    case = CASES[name]
    records = cluster_of(case)

    def holds() -> None:
        check(case, records.raw["job"]["status"], 3, "ns")

    ours = recommender(records)
    play(records, ours, case, BEFORE_FORECAST)
    holds()
    recommender(records).run()  # before its first sample
    holds()
    play(records, ours, replace(case, kill=""), UNTIL_FORECAST)
    holds()
