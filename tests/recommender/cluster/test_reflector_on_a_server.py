"""A reflector on a real API server, also while that is down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.access.credentials import Credentials
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.watching.reflector import Reflector
from tests.rig.cluster import Cluster
from tests.rig.waiting import patience, wait_until

CONFIG_MAPS = ("v1", "configmaps")


def data_of(raw: Any) -> str:
    if raw["data"]["text"] == "broken":
        raise ValueError("this one is broken")
    return str(raw["data"]["text"])


def config_map(name: str, text: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}


class FlakyApi(Api):
    """The API server over a connection that a test can interrupt."""

    interrupted = False

    def get(self, *arguments: Any, **options: Any) -> Any:
        self._check()
        return super().get(*arguments, **options)

    def watch_lines(self, *arguments: Any, **options: Any) -> Any:
        self._check()
        return super().watch_lines(*arguments, **options)

    def _check(self) -> None:
        if self.interrupted:
            raise Unreachable("interrupted by the test")


@pytest.fixture
def flaky(cluster: Cluster) -> FlakyApi:
    return FlakyApi(Credentials(cluster.kubeconfig("admin")), TokenBucket(1000, 1000), user_agent="phasewise-tests")


@pytest.fixture
def start(api: Api) -> Iterator[Callable[..., Reflector[Any]]]:
    running: list[Reflector[Any]] = []

    def started(path: str, parse: Callable[[Any], Any], **options: Any) -> Reflector[Any]:
        options = {"min_backoff_s": 0.05, "max_backoff_s": 0.2} | options
        running.append(Reflector(options.pop("api", api), path, parse, **options).start())
        assert running[-1].wait_synced(10)
        return running[-1]

    yield started
    for reflector in running:
        reflector.stop()


def texts(reflector: Reflector[str]) -> dict[str, str]:
    return {key.name: text for key, text in reflector.snapshot().items() if key.name != "kube-root-ca.crt"}


@pytest.fixture
def maps(namespace: str) -> str:
    return path_of(CONFIG_MAPS, namespace)


def some_text(raw: Any) -> str | None:
    return None if raw["metadata"]["name"] == "kube-root-ca.crt" else data_of(raw)


def test_a_reflector_lists_in_pages_and_then_follows_every_change(api: Api, maps: str, start: Any) -> None:
    for number in range(7):
        api.create(maps, config_map(f"m{number}", "old"))
    changes: list[tuple[str | None, str | None]] = []
    reflector = start(maps, some_text, page_size=3, on_change=lambda old, new: changes.append((old, new)))
    assert texts(reflector) == {f"m{n}": "old" for n in range(7)}
    assert changes == [(None, "old")] * 7
    before, version = reflector.snapshot(), reflector.version

    api.patch(f"{maps}/m0", {"data": {"text": "new"}})
    api.delete(f"{maps}/m1")
    api.create(maps, config_map("m7", "late"))
    wait_until(lambda: len(changes) == 10, "three changes", timeout_s=5)
    assert changes[7:] == [("old", "new"), ("old", None), (None, "late")]
    assert texts(reflector) == {"m0": "new", **{f"m{n}": "old" for n in range(2, 7)}, "m7": "late"}
    assert len(before) == 7, "a snapshot stays as it was"
    assert reflector.version == version + 3
    assert reflector.snapshot() is reflector.snapshot()
    assert reflector.lists == 1


def test_changes_and_deletions_around_an_outage_are_seen_afterwards(
    cluster: Cluster, api: Api, maps: str, start: Any, flaky: FlakyApi
) -> None:
    """One reflector reconnects at once, the other after all changes: it must find the deletion by listing."""
    for name in ("stays", "changes", "goes"):
        api.create(maps, config_map(name, "old"))
    changes: list[tuple[str | None, str | None]] = []
    quick = start(maps, some_text)
    late = start(maps, some_text, api=flaky, on_change=lambda old, new: changes.append((old, new)))
    wait_until(lambda: quick._watch and late._watch, "both watches")
    changes.clear()
    flaky.interrupted = True
    with cluster.without("kube-apiserver"):
        wait_until(lambda: quick.problem and late.problem, "both to notice", timeout_s=5)
        assert texts(quick) == texts(late) == {"stays": "old", "changes": "old", "goes": "old"}
    late._resource_version = "1"  # from before the restart, as after a long outage: the server no longer has it

    api.patch(f"{maps}/changes", {"data": {"text": "new"}})
    api.delete(f"{maps}/goes")
    api.create(maps, config_map("comes", "late"))
    flaky.interrupted = False
    wanted = {"stays": "old", "changes": "new", "comes": "late"}
    for reflector in (quick, late):
        wait_until(lambda reflector=reflector: texts(reflector) == wanted, "the present state", timeout_s=20)
        wait_until(lambda reflector=reflector: not reflector.problem, "contact", timeout_s=20)
        assert reflector.staleness_s() < 20 * patience()
    assert late.lists == 2, "after a 410 it had to list again"
    assert sorted(map(str, changes)) == ["('old', 'new')", "('old', None)", "(None, 'late')"]


def test_label_and_field_selectors_are_applied_by_the_server(api: Api, namespace: str, start: Any) -> None:
    pods = path_of(PODS, namespace)
    for name, app in (("a", "web"), ("b", "db")):
        api.create(
            pods,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": app}},
                "spec": {"containers": [{"name": "c", "image": "none"}], "schedulerName": "nobody"},
            },
        )
    reflector: Reflector[Pod] = start(pods, read_pod, label_selector="app=web", field_selector="status.phase=Pending")
    assert list(reflector.snapshot()) == [ObjectKey(namespace, "a")]
    assert reflector.snapshot()[ObjectKey(namespace, "a")].resizability.qos == "BestEffort"
