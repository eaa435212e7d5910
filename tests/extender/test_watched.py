"""Readers of watch events: in batches, with a cache of pending pods, and with the time of the newest change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from extender.pods.pod import MEMORY_REASON, Pod, pod_reader, read_node
from extender.view.cache import BATCH_S, MAX_CACHED, BatchingReader, CachingPodReader, TimestampingReader
from recommender.cluster.errors import BadObject
from recommender.cluster.workloads.ownership import Workloads, workload_reader
from tests.worlds.placement import Json, node_json, pod_json


class Watch:
    """Events at given times; each is read as soon as it is there and the previous one is done."""

    def __init__(self, *, watching: bool = True) -> None:
        self.now_s, self.pauses, self.read_s = 100.0, 0, list[float]()
        self._reader = BatchingReader(self._read, lambda: watching, clock=lambda: self.now_s, sleep=self._pause)

    def _read(self, event: float) -> float:
        if event < 0:
            raise ValueError(event)
        self.now_s += 0.0002
        self.read_s.append(self.now_s)
        return event

    def _pause(self, duration_s: float) -> None:
        self.pauses += 1
        self.now_s += duration_s

    def take(self, *times_s: float) -> list[float]:
        """How long each event waited until it was read."""
        for time_s in times_s:
            self.now_s = max(self.now_s, 100.0 + time_s)
            assert self._reader(time_s) == time_s
        return [at_s - 100.0 - time_s for at_s, time_s in zip(self.read_s, times_s, strict=True)]


def test_single_events_are_read_at_once() -> None:
    watch = Watch()
    assert max(watch.take(1.0, 2.0, 2.05, 3.0)) < 0.001
    assert watch.pauses == 0


def test_frequent_events_are_read_in_batches_and_none_waits_longer_than_a_pause() -> None:
    """One every 6 ms: about every fourth is preceded by a pause."""
    watch = Watch()
    waited_s = watch.take(*(0.006 * number for number in range(100)))
    assert max(waited_s) <= BATCH_S + 0.002
    assert 20 <= watch.pauses <= 30


def test_a_backlog_and_listed_objects_are_read_without_a_pause() -> None:
    backlog = Watch()
    assert len(backlog.take(*[1.0] * 1000)) == 1000
    listed = Watch(watching=False)
    listed.take(*(0.006 * number for number in range(100)))
    assert (backlog.pauses, listed.pauses) == (0, 0)


def test_an_error_in_reading_is_passed_on() -> None:
    watch = Watch()
    with pytest.raises(ValueError, match="-1"):
        watch.take(-1.0)
    watch.now_s += 0.01
    watch._reader(1.0)
    assert watch.pauses == 1, "the failed event counts"


NOON_S = 1_800_000_000.0
NOON, BEFORE, AFTER = "2027-01-15T08:00:00Z", "2027-01-15T07:59:00Z", "2027-01-15T08:00:05Z"


def node_changed_at(created: str, *written: str, **fields: str) -> Json:
    raw = node_json("a", **fields)
    raw["metadata"] |= {"creationTimestamp": created, "managedFields": [{"time": each} for each in written]}
    return raw


def test_the_newest_change_is_the_last_write_or_creation_of_any_object() -> None:
    reader = TimestampingReader(read_node, lambda: NOON_S)
    assert math.isnan(reader.newest_s)
    assert reader(node_changed_at(NOON)).name == "a"
    assert reader.newest_s == NOON_S
    reader(node_changed_at(BEFORE, NOON, AFTER))
    assert reader.newest_s == NOON_S + 5
    reader(node_changed_at(BEFORE))
    assert reader.newest_s == NOON_S + 5


def test_an_unreadable_object_does_not_count_as_the_newest_change() -> None:
    reader = TimestampingReader(read_node, lambda: NOON_S)
    reader(node_changed_at(NOON))
    with pytest.raises(BadObject):
        reader(node_changed_at(AFTER, cpu="eight"))
    assert reader.newest_s == NOON_S


class CountingReader:
    """Reads pods with and without the cache, and counts those that are parsed."""

    def __init__(self) -> None:
        self.parsed, self.workloads = 0, Workloads()
        self.uncached = pod_reader(self.workloads.controllers_of, frozenset({"phasewise"}))
        self.cached = CachingPodReader(self._count, self.workloads.version)

    def _count(self, raw: Mapping[str, Any]) -> Pod:
        self.parsed += 1
        return self.uncached(raw)


@pytest.fixture
def reader() -> CountingReader:
    return CountingReader()


def bound(raw: Json, node: str = "n", **status: object) -> Json:
    return {
        **raw,
        "metadata": {**raw["metadata"], "resourceVersion": "2"},
        "spec": {**raw["spec"], "nodeName": node},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}], **status},
    }


def test_a_pending_pod_is_not_parsed_again_when_it_is_bound(reader: CountingReader) -> None:
    pending = pod_json("a", workload="w", annotations={"phasewise.dev/size": "2-V100"}, preemptionPolicy="Never")
    refused = {"type": "PodScheduled", "status": "False", "message": MEMORY_REASON, "lastTransitionTime": BEFORE}
    pending["status"] |= {"conditions": [refused], "nominatedNodeName": "m"}
    reader.cached(pending)
    pod = reader.cached(bound(pending))
    assert reader.parsed == 1
    assert pod == reader.uncached(bound(pending))
    assert (pod.node, pod.version, pod.started_s != pod.started_s) == ("n", "", True)


def test_a_new_version_of_a_pending_pod_is_a_change_so_that_calls_need_not_parse_it(reader: CountingReader) -> None:
    pending = pod_json("a")
    pending["metadata"]["resourceVersion"] = "1"
    newer = {**pending, "metadata": {**pending["metadata"], "resourceVersion": "2"}}
    assert reader.uncached(pending) != reader.uncached(newer)
    assert reader.uncached(bound(pending)) == reader.uncached(bound(newer)), "once bound, versions are not kept"


@pytest.mark.parametrize(
    "change",
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
def test_a_pod_with_any_other_change_is_parsed_again(reader: CountingReader, change: Mapping[str, Json]) -> None:
    pending = pod_json("a", workload="w")
    reader.cached(pending)
    changed = bound(pending)
    changed = {part: {**changed[part], **change.get(part, {})} for part in ("metadata", "spec", "status")}
    assert reader.cached(changed) == reader.uncached(changed)
    assert reader.parsed == 2


def pod_of_a_nightly_job() -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "bert-17", "uid": "u", "controller": True}
    pending = pod_json("a")
    pending["metadata"]["ownerReferences"] = [owner]
    return pending


def show_its_job(workloads: Workloads) -> None:
    cron_job = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "c", "controller": True}
    job = {"metadata": {"namespace": "team", "name": "bert-17", "uid": "u", "ownerReferences": [cron_job]}}
    workloads.changed(None, workload_reader("Job")(job))


def test_controllers_that_became_known_in_the_meantime_count(reader: CountingReader) -> None:
    pending = pod_of_a_nightly_job()
    assert reader.cached(pending).workload.startswith("bert-")
    show_its_job(reader.workloads)
    assert reader.cached(bound(pending)).workload.startswith("nightly-")


def test_controllers_that_become_known_while_a_pod_is_parsed_count(reader: CountingReader) -> None:
    """Each watch has a thread of its own."""

    def read(raw: Mapping[str, Any]) -> Pod:
        pod = reader.uncached(raw)
        show_its_job(reader.workloads)
        return pod

    cached, pending = CachingPodReader(read, reader.workloads.version), pod_of_a_nightly_job()
    assert cached(pending).workload.startswith("bert-")
    assert cached(bound(pending)).workload.startswith("nightly-")


def test_a_pod_is_parsed_at_each_change_while_pending_and_once_more_after_it_is_bound(reader: CountingReader) -> None:
    pending = pod_json("a")
    for _ in range(3):
        reader.cached(pending)
    reader.cached(bound(pending))
    assert reader.parsed == 3
    assert reader.cached(bound(pending)) == reader.uncached(bound(pending))
    assert reader.parsed == 4


def test_the_cache_drops_the_oldest_pods_beyond_its_maximum(reader: CountingReader) -> None:
    for number in range(MAX_CACHED + 1):
        reader.cached({"metadata": {"name": f"p{number}", "uid": f"u{number}"}, "spec": {}, "status": {}})
    first = {"metadata": {"name": "p0", "uid": "u0"}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}
    last = {**first, "metadata": {"name": f"p{MAX_CACHED}", "uid": f"u{MAX_CACHED}"}}
    reader.cached(last)
    assert reader.parsed == MAX_CACHED + 1
    reader.cached(first)
    assert reader.parsed == MAX_CACHED + 2


@pytest.mark.parametrize("broken", [{"metadata": []}, {"metadata": {"name": "a", "uid": "a"}, "spec": 3}])
def test_a_malformed_pod_is_an_error_with_the_cache_too(reader: CountingReader, broken: Json) -> None:
    reader.cached({"metadata": {"name": "a", "uid": "a"}})
    with pytest.raises(BadObject):
        reader.cached(broken)
