"""What watches bring: read a few events at a time, no pod twice, and dated by the newest change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from extender.pods.pod import Pod
from extender.pods.reading import pod_reader, read_node
from extender.view.watched import BATCH_S, MAX_CACHED, BatchingReader, CachingPodReader, TimestampingReader
from placement_bench.worlds import Json, node_json, pod_json
from recommender.cluster.errors import BadObject
from recommender.cluster.workloads.ownership import Workloads, workload_reader


class Watch:
    """Events at these moments; the thread takes each as soon as it is there and the one before it is done."""

    def __init__(self, *, watching: bool = True) -> None:
        self.now_s, self.rests, self.read_s = 100.0, 0, list[float]()
        self._gathering = BatchingReader(self._read, lambda: watching, clock=lambda: self.now_s, sleep=self._rest)

    def _read(self, event: float) -> float:
        if event < 0:
            raise ValueError(event)
        self.now_s += 0.0002
        self.read_s.append(self.now_s)
        return event

    def _rest(self, duration_s: float) -> None:
        self.rests += 1
        self.now_s += duration_s

    def take(self, *moments_s: float) -> list[float]:
        """How long each event waited until it was read."""
        for moment_s in moments_s:
            self.now_s = max(self.now_s, 100.0 + moment_s)
            assert self._gathering(moment_s) == moment_s
        return [at_s - 100.0 - moment_s for at_s, moment_s in zip(self.read_s, moments_s, strict=True)]


def test_events_that_come_alone_are_read_at_once() -> None:
    watch = Watch()
    assert max(watch.take(1.0, 2.0, 2.05, 3.0)) < 0.001
    assert watch.rests == 0


def test_of_many_a_few_are_read_at_a_time_and_none_waits_for_longer_than_a_rest() -> None:
    """One every 6 ms: a rest for every fourth or so."""
    watch = Watch()
    waited_s = watch.take(*(0.006 * number for number in range(100)))
    assert max(waited_s) <= BATCH_S + 0.002
    assert 20 <= watch.rests <= 30


def test_what_was_there_already_and_what_is_listed_is_read_without_a_rest() -> None:
    flood = Watch()
    assert len(flood.take(*[1.0] * 1000)) == 1000
    listed = Watch(watching=False)
    listed.take(*(0.006 * number for number in range(100)))
    assert (flood.rests, listed.rests) == (0, 0)


def test_what_cannot_be_read_is_told_as_before() -> None:
    watch = Watch()
    with pytest.raises(ValueError, match="-1"):
        watch.take(-1.0)
    watch.now_s += 0.01
    watch._gathering(1.0)
    assert watch.rests == 1, "an event all the same"


NOON_S = 1_800_000_000.0
NOON, BEFORE, AFTER = "2027-01-15T08:00:00Z", "2027-01-15T07:59:00Z", "2027-01-15T08:00:05Z"


def changed(at: str, *more: str, **node: str) -> Json:
    raw = node_json("a", **node)
    raw["metadata"] |= {"creationTimestamp": at, "managedFields": [{"time": each} for each in more]}
    return raw


def test_it_is_when_somebody_wrote_last_or_made_it_and_an_older_object_changes_nothing() -> None:
    dated = TimestampingReader(read_node, lambda: NOON_S)
    assert math.isnan(dated.newest_s)
    assert dated(changed(NOON)).name == "a"
    assert dated.newest_s == NOON_S
    dated(changed(BEFORE, NOON, AFTER))
    assert dated.newest_s == NOON_S + 5
    dated(changed(BEFORE))
    assert dated.newest_s == NOON_S + 5


def test_what_cannot_be_read_does_not_count() -> None:
    dated = TimestampingReader(read_node, lambda: NOON_S)
    dated(changed(NOON))
    with pytest.raises(BadObject):
        dated(changed(AFTER, cpu="eight"))
    assert dated.newest_s == NOON_S


class Desk:
    """A reader that counts what it reads."""

    def __init__(self) -> None:
        self.read, self.workloads = 0, Workloads()
        self.plain = pod_reader(self.workloads.controllers_of, frozenset({"phasewise"}))
        self.reader = CachingPodReader(self._count, self.workloads.version)

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
    desk.workloads.changed(None, workload_reader("Job")(job))
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
    for number in range(MAX_CACHED + 1):
        desk.reader({"metadata": {"name": f"p{number}", "uid": f"u{number}"}, "spec": {}, "status": {}})
    first = {"metadata": {"name": "p0", "uid": "u0"}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}
    last = {**first, "metadata": {"name": f"p{MAX_CACHED}", "uid": f"u{MAX_CACHED}"}}
    desk.reader(last)
    assert desk.read == MAX_CACHED + 1
    desk.reader(first)
    assert desk.read == MAX_CACHED + 2


@pytest.mark.parametrize("broken", [{"metadata": []}, {"metadata": {"name": "a", "uid": "a"}, "spec": 3}])
def test_what_is_broken_fails_as_it_did(desk: Desk, broken: Json) -> None:
    desk.reader({"metadata": {"name": "a", "uid": "a"}})
    with pytest.raises(BadObject):
        desk.reader(broken)
