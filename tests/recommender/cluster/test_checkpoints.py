"""Checkpoints on a real API server: written, read again, never over somebody else's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from local_cluster.cluster import Cluster
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


class Away(Api):
    """A server to which no connection can be made."""

    def _send(self, *_: Any, **__: Any) -> Any:
        raise Unreachable("no route")


@pytest.fixture(autouse=True)
def resources(cluster: Cluster) -> None:
    cluster.vpa_resources()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ours(api: Api, namespace: str, clock: Clock) -> Checkpoints:
    return Checkpoints(api, clock, namespace)


def test_what_is_written_is_read_again_and_gives_the_same_estimate(
    api: Api, namespace: str, ours: Checkpoints, clock: Clock
) -> None:
    web = ObjectKey(namespace, "web")
    report = write(ours, {web: {"app": status(), "side": status(0.1)}})
    assert (report.written, report.failed, report.left) == (2, 0, 0)
    made = stored(api, namespace)
    assert set(made) == {"web-app", "web-side"}
    assert made["web-app"]["spec"] == {"vpaObjectName": "web", "containerName": "app"}
    assert made["web-app"]["status"] == status(), "nothing was pruned"

    loaded = Checkpoints(api, clock, namespace).load({web})
    assert {found.key for found in loaded} == {CheckpointKey(web, "app"), CheckpointKey(web, "side")}
    (app,) = (found for found in loaded if found.key.container == "app")
    again = session_of(app.status, str(app))
    assert again.estimate().target.tolist() == session().estimate().target.tolist()
    assert again.confidence() == session().confidence()


def test_a_second_write_replaces_the_whole_status(api: Api, namespace: str, ours: Checkpoints) -> None:
    """A merge would leave buckets behind that the new histogram does not have."""
    web = ObjectKey(namespace, "web")
    write(ours, {web: {"app": status(0.1)}})
    write(ours, {web: {"app": status(2.0)}})
    assert stored(api, namespace)["web-app"]["status"]["cpuHistogram"]["bucketWeights"] == {"49": 10000}


def test_the_default_recommenders_checkpoint_is_taken_over_with_its_history(
    api: Api, namespace: str, ours: Checkpoints
) -> None:
    web = ObjectKey(namespace, "web")
    make_checkpoint(api, namespace, "web-app", "web", "app", status=status(2.0))
    (loaded,) = ours.load({web})
    assert session_of(loaded.status, str(loaded)).estimate().target[0] == 2.406
    write(ours, {web: {"app": status()}})
    (checkpoint,) = stored(api, namespace).values()
    assert checkpoint["status"] == status()


def test_a_checkpoint_without_status_is_filled(api: Api, namespace: str, ours: Checkpoints) -> None:
    web = ObjectKey(namespace, "web")
    make_checkpoint(api, namespace, "web-app", "web", "app", labels={"kept": "yes"})
    write(ours, {web: {"app": status()}})
    checkpoint = stored(api, namespace)["web-app"]
    assert checkpoint["status"] == status()
    assert checkpoint["metadata"]["labels"] == {"kept": "yes"}


def test_only_our_vpas_are_loaded_and_of_two_the_latest(api: Api, namespace: str, ours: Checkpoints) -> None:
    make_checkpoint(api, namespace, "web-app", "web", "app", status=status(0.1, NOW_S))
    make_checkpoint(api, namespace, "web-app-x", "web", "app", status=status(2.0, NOW_S + 60))
    make_checkpoint(api, namespace, "other-app", "other", "app", status=status())
    (loaded,) = ours.load({ObjectKey(namespace, "web")})
    assert loaded.name == "web-app-x"
    write(ours, {ObjectKey(namespace, "web"): {"app": status(4.0)}})
    assert stored(api, namespace)["web-app-x"]["status"] == status(4.0)
    assert stored(api, namespace)["web-app"]["status"] == status(0.1, NOW_S)


def test_a_checkpoint_that_cannot_be_read_is_passed_over(
    api: Api, namespace: str, ours: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"apiVersion": CHECKPOINTS[0], "kind": "VerticalPodAutoscalerCheckpoint", "metadata": {"name": "empty"}}
    api.create(path_of(CHECKPOINTS, namespace), body)
    make_checkpoint(api, namespace, "web-app", "web", "app", status=status())
    assert len(ours.load({ObjectKey(namespace, "web")})) == 1
    assert "empty: spec.vpaObjectName is missing" in caplog.text


def test_names_that_collide_are_told_apart(api: Api, namespace: str, ours: Checkpoints, clock: Clock) -> None:
    both = {ObjectKey(namespace, "a-b"): {"c": status(0.1)}, ObjectKey(namespace, "a"): {"b-c": status(2.0)}}
    for _ in range(3):
        assert write(ours, both).failed == 0
    made = stored(api, namespace)
    assert len(made) == 2
    assert "a-b-c" in made
    loaded = Checkpoints(api, clock, namespace).load(set(both))
    assert {(found.key.vpa.name, found.key.container, found.status == both[found.key.vpa][found.key.container])
            for found in loaded} == {("a-b", "c", True), ("a", "b-c", True)}  # fmt: skip


def test_the_checkpoint_of_somebody_elses_vpa_is_not_written_over(api: Api, namespace: str, ours: Checkpoints) -> None:
    make_checkpoint(api, namespace, "a-b-c", "a-b", "c", status=status(4.0))
    write(ours, {ObjectKey(namespace, "a"): {"b-c": status()}})
    assert stored(api, namespace)["a-b-c"]["status"] == status(4.0)


def test_a_name_that_is_too_long_is_shortened(api: Api, namespace: str, ours: Checkpoints) -> None:
    long = ObjectKey(namespace, "v" * 230)
    assert write(ours, {long: {"c" * 60: status()}}).failed == 0
    (name,) = stored(api, namespace)
    assert len(name) == 253
    assert write(ours, {long: {"c" * 60: status(2.0)}}).failed == 0
    assert len(stored(api, namespace)) == 1


def test_a_checkpoint_that_was_deleted_meanwhile_is_made_again(api: Api, namespace: str, ours: Checkpoints) -> None:
    web = ObjectKey(namespace, "web")
    write(ours, {web: {"app": status()}})
    api.delete(path_of(CHECKPOINTS, namespace, "web-app"))
    assert write(ours, {web: {"app": status()}}).failed == 0
    assert set(stored(api, namespace)) == {"web-app"}


def test_those_that_waited_longest_come_first_until_the_time_is_up(
    api: Api, namespace: str, ours: Checkpoints, clock: Clock
) -> None:
    vpas = [ObjectKey(namespace, name) for name in "abcde"]
    asked: list[str] = []

    def statuses() -> dict[ObjectKey, Any]:
        return {vpa: lambda vpa=vpa: asked.append(vpa.name) or {"app": status()} for vpa in vpas}

    clock.per_call_s = 1.0
    assert ours.write(statuses(), clock() + 4).left == 3
    clock.per_call_s, clock.now_s = 0.0, clock.now_s + 10
    assert ours.write(statuses(), clock() + 1).left == 0
    assert "".join(asked) == "ab" + "cdeab"
    assert ours.write(statuses(), clock() - 1).left == 5, "the time is up before the first"


def test_a_few_are_written_again_in_a_round_but_all_for_the_first_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody: Any = None
    ours, asked = Checkpoints(nobody, clock), list[str]()
    monkeypatch.setattr(ours, "_put", lambda *_: None)

    def write(names: str) -> int:
        clock.now_s += 10.0
        told = {ObjectKey("n", name): lambda name=name: asked.append(name) or {"app": {}} for name in names}
        return ours.write(told, clock() + 1, max_writes=2).left

    assert [write(names) for names in ("abc", "abc", "abcde", "abcde")] == [0, 1, 3, 3]
    assert "".join(asked) == "abc" + "ab" + "de" + "ca"


def test_a_vpa_whose_turn_was_lately_is_left_for_later(
    api: Api, namespace: str, ours: Checkpoints, clock: Clock
) -> None:
    a, b = ObjectKey(namespace, "a"), ObjectKey(namespace, "b")
    asked: list[str] = []

    def statuses(*vpas: ObjectKey) -> dict[ObjectKey, Any]:
        return {vpa: lambda vpa=vpa: asked.append(vpa.name) or {"app": status()} for vpa in vpas}

    ours.write(statuses(a), clock() + 1, interval_s=60.0)
    clock.now_s += 30
    assert ours.write(statuses(a, b), clock() + 1, interval_s=60.0).left == 0
    clock.now_s += 30
    ours.write(statuses(a, b), clock() + 1, interval_s=60.0)
    assert "".join(asked) == "a" + "b" + "a"


def test_what_was_written_for_long_is_written_less_often_but_every_ten_minutes(
    api: Api, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, vpa = Checkpoints(api, clock), ObjectKey(namespace, "a")
    monkeypatch.setattr(ours, "_put", lambda *_: None)
    written_s = []
    for _ in range(5 * 360):
        clock.now_s += 10.0
        if ours.write({vpa: lambda: {"app": {}}}, clock() + 1, interval_s=60.0).written:
            written_s.append(clock.now_s)
    waits_s = np.diff(written_s)
    assert waits_s[0] == 60.0 and waits_s[-1] == 600.0
    assert (waits_s <= 10.0 + np.maximum(60.0, 0.1 * (np.array(written_s[:-1]) - written_s[0]))).all()
    assert ours.write({vpa: lambda: {"app": {}}}, clock() + 1).written == 1, "all, when the process ends"


def test_a_failure_is_counted_and_the_others_go_on(
    cluster: Cluster, api: Api, namespace: str, ours: Checkpoints
) -> None:
    statuses = {"app": {"lastUpdateTime": "no time"}, "side": status()}
    report = write(ours, {ObjectKey(namespace, "web"): statuses})
    assert (report.written, report.failed) == (1, 1)
    assert f"checkpoint of {namespace}/web, container app: " in report.problems[0]
    nobody = connect(cluster.service_account(namespace, "nobody"), user_agent="phasewise-tests")
    refused = write(Checkpoints(nobody, lambda: 0.0), {ObjectKey(namespace, "web"): {"app": status()}})
    assert (refused.written, refused.failed) == (0, 1)
    assert "cannot create resource" in refused.problems[0]


def test_a_vpa_that_comes_to_us_later_brings_its_history(
    cluster: Cluster, api: Api, namespace: str, clock: Clock
) -> None:
    """Of the whole cluster only its namespace is listed for it."""
    listed: list[str] = []
    counting = connect(cluster.kubeconfig("admin"), user_agent="phasewise-tests")
    list_pages = counting.list_pages
    counting.list_pages = lambda path, *more: (listed.append(path), list_pages(path, *more))[1]
    everywhere = Checkpoints(counting, clock)
    make_checkpoint(api, namespace, "late-app", "late", "app", status=status(2.0))
    (loaded,) = everywhere.load({ObjectKey(namespace, "late")})
    assert loaded.status == status(2.0)
    assert listed == [path_of(CHECKPOINTS, namespace)]
    assert everywhere.load({ObjectKey(f"none-{n}", "v") for n in range(30)}) == []
    assert listed[1:] == [path_of(CHECKPOINTS)]


def test_a_server_that_is_away_is_not_waited_for_vpa_after_vpa(cluster: Cluster, namespace: str, clock: Clock) -> None:
    credentials = Credentials(cluster.kubeconfig("admin"))
    away = Away(credentials, TokenBucket(1000, 1000), user_agent="phasewise-tests")
    checkpoints = Checkpoints(away, clock)
    report = write(checkpoints, {ObjectKey(namespace, name): {"app": status()} for name in "abcde"})
    assert (report.written, report.failed, report.left) == (0, 1, 4)
