"""Pods read once while they wait: what the watch says of their binding is what reading them again would have said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from extender.pods.pod import Pod
from extender.pods.reading import pod_reader
from extender.view.watched import MOST_HELD, Rereading
from placement_bench.worlds import pod_json
from recommender.cluster.errors import BadObject
from recommender.cluster.workloads.ownership import Workloads, reader_of

Json = dict[str, Any]


class Desk:
    """A reader that counts what it reads."""

    def __init__(self) -> None:
        self.read, self.workloads = 0, Workloads()
        self.plain = pod_reader(self.workloads.above, frozenset({"phasewise"}))
        self.reader = Rereading(self._count, self.workloads.version)

    def _count(self, raw: Mapping[str, Any]) -> Pod:
        self.read += 1
        return self.plain(raw)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def bound(raw: Json, node: str = "n", **status: object) -> Json:
    return {
        **raw,
        "metadata": {**raw["metadata"], "resourceVersion": "2"},
        "spec": {**raw["spec"], "nodeName": node},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}], **status},
    }


def test_a_pod_that_was_read_while_it_waited_is_not_read_again_when_it_is_bound(desk: Desk) -> None:
    waits = pod_json("a", workload="w", annotations={"phasewise.dev/size": "2-V100"})
    desk.reader(waits)
    pod = desk.reader(bound(waits))
    assert desk.read == 1
    assert pod == desk.plain(bound(waits))
    assert (pod.node, pod.version, pod.started_s != pod.started_s) == ("n", "", True)


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {"labels": {"phasewise.dev/workload": "other"}}},
        {"metadata": {"annotations": {"phasewise.dev/weights": "pack=2"}}},
        {"metadata": {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}]}},
        {"metadata": {"uid": "another"}},
        {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}},
        {"spec": {"overhead": {"cpu": "1"}}},
        {"status": {"startTime": "2027-01-15T08:00:00Z"}},
        {"status": {"phase": "Failed"}},
        {"status": {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}},
    ],
)
def test_whatever_else_changes_is_read(desk: Desk, changed: Mapping[str, Json]) -> None:
    waits = pod_json("a", workload="w")
    desk.reader(waits)
    now = bound(waits)
    now = {part: {**now[part], **changed.get(part, {})} for part in ("metadata", "spec", "status")}
    assert desk.reader(now) == desk.plain(now)
    assert desk.read == 2


def test_controllers_that_become_known_meanwhile_count(desk: Desk) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert-17", "uid": "u", "controller": True}
    waits = pod_json("a")
    waits["metadata"]["ownerReferences"] = [owner]
    assert desk.reader(waits).workload == "bert"
    above = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "c", "controller": True}
    job = {"metadata": {"namespace": "team", "name": "bert-17", "uid": "u", "ownerReferences": [above]}}
    desk.workloads.changed(None, reader_of("Job")(job))
    assert desk.reader(bound(waits)).workload == "nightly"


def test_a_pod_is_read_again_each_time_it_changes_while_it_waits_and_once_more_after_it_was_bound(desk: Desk) -> None:
    waits = pod_json("a")
    for _ in range(3):
        desk.reader(waits)
    desk.reader(bound(waits))
    assert desk.read == 3
    assert desk.reader(bound(waits)) == desk.plain(bound(waits))
    assert desk.read == 4


def test_no_more_pods_are_remembered_than_agreed(desk: Desk) -> None:
    for number in range(MOST_HELD + 1):
        desk.reader({"metadata": {"name": f"p{number}", "uid": f"u{number}"}, "spec": {}, "status": {}})
    first = {"metadata": {"name": "p0", "uid": "u0"}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}
    last = {**first, "metadata": {"name": f"p{MOST_HELD}", "uid": f"u{MOST_HELD}"}}
    desk.reader(last)
    assert desk.read == MOST_HELD + 1
    desk.reader(first)
    assert desk.read == MOST_HELD + 2


@pytest.mark.parametrize("broken", [{"metadata": []}, {"metadata": {"name": "a", "uid": "a"}, "spec": 3}])
def test_what_is_broken_fails_as_it_did(desk: Desk, broken: Json) -> None:
    desk.reader({"metadata": {"name": "a", "uid": "a"}})
    with pytest.raises(BadObject):
        desk.reader(broken)
