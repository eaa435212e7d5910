"""Checkpoints on a real API server: written, loaded, and those of other VPAs never overwritten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recommender.cluster.access.connection import Api, connect
from recommender.cluster.access.credentials import Credentials
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import path_of
from recommender.cluster.vpas.checkpoints import CHECKPOINTS, CheckpointKey, Checkpoints
from recommender.policies.histogram_checkpoint import session_of
from tests.fakes.clock import Clock
from tests.recommender.cluster.checkpointing import (
    NOW_S,
    make_checkpoint,
    session,
    status,
    stored,
    write,
)
from tests.rig.cluster import Cluster


class UnreachableApi(Api):
    """An API server to which no connection can be made."""

    def _send(self, *_: Any, **__: Any) -> Any:
        raise Unreachable("no route")


@pytest.fixture(autouse=True)
def resources(cluster: Cluster) -> None:
    cluster.vpa_resources()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def checkpoints(api: Api, namespace: str, clock: Clock) -> Checkpoints:
    return Checkpoints(api, clock, namespace)


def test_a_written_checkpoint_is_loaded_with_the_same_estimate(
    api: Api, namespace: str, checkpoints: Checkpoints, clock: Clock
) -> None:
    web = ObjectKey(namespace, "web")
    report = write(checkpoints, {web: {"app": status(), "side": status(0.1)}})
    assert (report.written, report.failed, report.left) == (2, 0, 0)
    objects = stored(api, namespace)
    assert set(objects) == {"web-app", "web-side"}
    assert objects["web-app"]["spec"] == {"vpaObjectName": "web", "containerName": "app"}
    assert objects["web-app"]["status"] == status(), "nothing was pruned"

    loaded = Checkpoints(api, clock, namespace).load({web})
    assert {found.key for found in loaded} == {CheckpointKey(web, "app"), CheckpointKey(web, "side")}
    (app,) = (found for found in loaded if found.key.container == "app")
    restored = session_of(app.status, str(app))
    assert restored.estimate().target.tolist() == session().estimate().target.tolist()
    assert restored.confidence() == session().confidence()


def test_a_second_write_replaces_the_whole_status(api: Api, namespace: str, checkpoints: Checkpoints) -> None:
    """A merge would keep buckets that the new histogram does not have."""
    web = ObjectKey(namespace, "web")
    write(checkpoints, {web: {"app": status(0.1)}})
    write(checkpoints, {web: {"app": status(2.0)}})
    assert stored(api, namespace)["web-app"]["status"]["cpuHistogram"]["bucketWeights"] == {"49": 10000}


def test_the_default_recommenders_checkpoint_is_taken_over_with_its_history(
    api: Api, namespace: str, checkpoints: Checkpoints
) -> None:
    web = ObjectKey(namespace, "web")
    make_checkpoint(api, namespace, "web-app", "web", "app", status=status(2.0))
    (loaded,) = checkpoints.load({web})
    assert session_of(loaded.status, str(loaded)).estimate().target[0] == 2.406
    write(checkpoints, {web: {"app": status()}})
    (checkpoint,) = stored(api, namespace).values()
    assert checkpoint["status"] == status()


def test_a_checkpoint_without_status_is_filled(api: Api, namespace: str, checkpoints: Checkpoints) -> None:
    web = ObjectKey(namespace, "web")
    make_checkpoint(api, namespace, "web-app", "web", "app", labels={"kept": "yes"})
    write(checkpoints, {web: {"app": status()}})
    checkpoint = stored(api, namespace)["web-app"]
    assert checkpoint["status"] == status()
    assert checkpoint["metadata"]["labels"] == {"kept": "yes"}


def test_only_the_latest_checkpoint_of_given_vpas_is_loaded(api: Api, namespace: str, checkpoints: Checkpoints) -> None:
    make_checkpoint(api, namespace, "web-app", "web", "app", status=status(0.1, NOW_S))
    make_checkpoint(api, namespace, "web-app-x", "web", "app", status=status(2.0, NOW_S + 60))
    make_checkpoint(api, namespace, "other-app", "other", "app", status=status())
    (loaded,) = checkpoints.load({ObjectKey(namespace, "web")})
    assert loaded.name == "web-app-x"
    write(checkpoints, {ObjectKey(namespace, "web"): {"app": status(4.0)}})
    assert stored(api, namespace)["web-app-x"]["status"] == status(4.0)
    assert stored(api, namespace)["web-app"]["status"] == status(0.1, NOW_S)


def test_a_malformed_checkpoint_is_skipped_and_logged(
    api: Api, namespace: str, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"apiVersion": CHECKPOINTS[0], "kind": "VerticalPodAutoscalerCheckpoint", "metadata": {"name": "empty"}}
    api.create(path_of(CHECKPOINTS, namespace), body)
    make_checkpoint(api, namespace, "web-app", "web", "app", status=status())
    assert len(checkpoints.load({ObjectKey(namespace, "web")})) == 1
    assert "empty: spec.vpaObjectName is missing" in caplog.text


def test_colliding_names_are_made_unique(api: Api, namespace: str, checkpoints: Checkpoints, clock: Clock) -> None:
    both = {ObjectKey(namespace, "a-b"): {"c": status(0.1)}, ObjectKey(namespace, "a"): {"b-c": status(2.0)}}
    for _ in range(3):
        assert write(checkpoints, both).failed == 0
    objects = stored(api, namespace)
    assert len(objects) == 2
    assert "a-b-c" in objects
    loaded = Checkpoints(api, clock, namespace).load(set(both))
    assert {(found.key.vpa.name, found.key.container, found.status == both[found.key.vpa][found.key.container])
            for found in loaded} == {("a-b", "c", True), ("a", "b-c", True)}  # fmt: skip


def test_the_checkpoint_of_another_vpa_is_not_overwritten(api: Api, namespace: str, checkpoints: Checkpoints) -> None:
    make_checkpoint(api, namespace, "a-b-c", "a-b", "c", status=status(4.0))
    write(checkpoints, {ObjectKey(namespace, "a"): {"b-c": status()}})
    assert stored(api, namespace)["a-b-c"]["status"] == status(4.0)


def test_a_name_that_is_too_long_is_shortened(api: Api, namespace: str, checkpoints: Checkpoints) -> None:
    long = ObjectKey(namespace, "v" * 230)
    assert write(checkpoints, {long: {"c" * 60: status()}}).failed == 0
    (name,) = stored(api, namespace)
    assert len(name) == 253
    assert write(checkpoints, {long: {"c" * 60: status(2.0)}}).failed == 0
    assert len(stored(api, namespace)) == 1


def test_a_deleted_checkpoint_is_created_again(api: Api, namespace: str, checkpoints: Checkpoints) -> None:
    web = ObjectKey(namespace, "web")
    write(checkpoints, {web: {"app": status()}})
    api.delete(path_of(CHECKPOINTS, namespace, "web-app"))
    assert write(checkpoints, {web: {"app": status()}}).failed == 0
    assert set(stored(api, namespace)) == {"web-app"}


def test_vpas_that_waited_longest_are_written_first_until_the_deadline(
    namespace: str, checkpoints: Checkpoints, clock: Clock
) -> None:
    vpas = [ObjectKey(namespace, name) for name in "abcde"]
    order: list[str] = []

    def statuses() -> dict[ObjectKey, Any]:
        return {vpa: lambda vpa=vpa: order.append(vpa.name) or {"app": status()} for vpa in vpas}

    clock.per_call_s = 1.0
    assert checkpoints.write(statuses(), clock() + 4).left == 3
    clock.per_call_s, clock.now_s = 0.0, clock.now_s + 10
    assert checkpoints.write(statuses(), clock() + 1).left == 0
    assert "".join(order) == "ab" + "cdeab"
    assert checkpoints.write(statuses(), clock() - 1).left == 5, "the deadline is over before the first"


def test_the_limit_per_round_applies_to_repeated_writes_and_not_to_first_ones(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_api: Any = None
    checkpoints, order = Checkpoints(no_api, clock), list[str]()
    monkeypatch.setattr(checkpoints, "_put", lambda *_: None)

    def write(names: str) -> int:
        clock.now_s += 10.0
        statuses = {ObjectKey("n", name): lambda name=name: order.append(name) or {"app": {}} for name in names}
        return checkpoints.write(statuses, clock() + 1, max_writes=2).left

    assert [write(names) for names in ("abc", "abc", "abcde", "abcde")] == [0, 1, 3, 3]
    assert "".join(order) == "abc" + "ab" + "de" + "ca"


def test_a_vpa_is_written_at_most_once_per_interval(namespace: str, checkpoints: Checkpoints, clock: Clock) -> None:
    a, b = ObjectKey(namespace, "a"), ObjectKey(namespace, "b")
    order: list[str] = []

    def statuses(*vpas: ObjectKey) -> dict[ObjectKey, Any]:
        return {vpa: lambda vpa=vpa: order.append(vpa.name) or {"app": status()} for vpa in vpas}

    checkpoints.write(statuses(a), clock() + 1, interval_s=60.0)
    clock.now_s += 30
    assert checkpoints.write(statuses(a, b), clock() + 1, interval_s=60.0).left == 0
    clock.now_s += 30
    checkpoints.write(statuses(a, b), clock() + 1, interval_s=60.0)
    assert "".join(order) == "a" + "b" + "a"


def test_the_interval_grows_with_the_time_of_writing_up_to_ten_minutes(
    api: Api, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, vpa = Checkpoints(api, clock), ObjectKey(namespace, "a")
    monkeypatch.setattr(checkpoints, "_put", lambda *_: None)
    written_s = []
    for _ in range(5 * 360):
        clock.now_s += 10.0
        if checkpoints.write({vpa: lambda: {"app": {}}}, clock() + 1, interval_s=60.0).written:
            written_s.append(clock.now_s)
    waits_s = np.diff(written_s)
    assert waits_s[0] == 60.0 and waits_s[-1] == 600.0
    assert (waits_s <= 10.0 + np.maximum(60.0, 0.1 * (np.array(written_s[:-1]) - written_s[0]))).all()
    assert checkpoints.write({vpa: lambda: {"app": {}}}, clock() + 1).written == 1, "at shutdown there is no interval"


def test_a_failed_write_is_counted_and_the_others_continue(
    cluster: Cluster, namespace: str, checkpoints: Checkpoints
) -> None:
    statuses = {"app": {"lastUpdateTime": "no time"}, "side": status()}
    report = write(checkpoints, {ObjectKey(namespace, "web"): statuses})
    assert (report.written, report.failed) == (1, 1)
    assert f"checkpoint of {namespace}/web, container app: " in report.problems[0]
    powerless = connect(cluster.service_account(namespace, "powerless"), user_agent="phasewise-tests")
    refused = write(Checkpoints(powerless, lambda: 0.0), {ObjectKey(namespace, "web"): {"app": status()}})
    assert (refused.written, refused.failed) == (0, 1)
    assert "cannot create resource" in refused.problems[0]


def test_checkpoints_are_listed_by_namespace_for_few_vpas_and_at_once_for_many(
    cluster: Cluster, api: Api, namespace: str, clock: Clock
) -> None:
    listed: list[str] = []
    counting = connect(cluster.kubeconfig("admin"), user_agent="phasewise-tests")
    list_pages = counting.list_pages
    counting.list_pages = lambda path, *options: (listed.append(path), list_pages(path, *options))[1]
    checkpoints = Checkpoints(counting, clock)
    make_checkpoint(api, namespace, "late-app", "late", "app", status=status(2.0))
    (loaded,) = checkpoints.load({ObjectKey(namespace, "late")})
    assert loaded.status == status(2.0)
    assert listed == [path_of(CHECKPOINTS, namespace)]
    assert checkpoints.load({ObjectKey(f"none-{n}", "v") for n in range(30)}) == []
    assert listed[1:] == [path_of(CHECKPOINTS)]


def test_writing_stops_once_the_server_is_unreachable(cluster: Cluster, namespace: str, clock: Clock) -> None:
    credentials = Credentials(cluster.kubeconfig("admin"))
    unreachable = UnreachableApi(credentials, TokenBucket(1000, 1000), user_agent="phasewise-tests")
    checkpoints = Checkpoints(unreachable, clock)
    report = write(checkpoints, {ObjectKey(namespace, name): {"app": status()} for name in "abcde"})
    assert (report.written, report.failed, report.left) == (0, 1, 4)
