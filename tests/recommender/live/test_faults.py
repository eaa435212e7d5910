"""Failures of samples and of profiles: nothing is lost, the failure is reported, and work resumes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson
import pytest

from recommender.base.records import ContainerKey, Sample
from recommender.cluster.access.connection import connect
from recommender.cluster.errors import Invalid
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.paths import path_of
from recommender.cluster.profiles import PROFILES, Profile, ProfileStore, read_profile
from recommender.cluster.usage.metrics_api import read_usage
from recommender.cluster.watching.reflector import Reflector
from recommender.live.view.scope import Scope
from tests.fakes.api_server import FakeServer, kubeconfig, status
from tests.fakes.profiles import profile_store
from tests.fakes.records import FakeView, a_pod, a_vpa, recommender, rounds, target_of


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


class Measured(FakeView):
    """A cluster whose samples come from a metrics API."""

    def __init__(self, server: FakeServer, folder: Path) -> None:
        super().__init__()
        self.raw["job"], self.pods["job"] = a_vpa(), [a_pod("job-1")]
        api = connect(kubeconfig(folder / "config", server.url), user_agent="phasewise-tests")
        self._api = api

    def samples(self) -> Iterable[tuple[ContainerKey, Sample]]:
        yield from super().samples()
        yield from read_usage(self._api).samples


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (status(500, "the metrics are gone"), "the metrics are gone (500)"),
        (status(404, "no such resource"), "no such resource (404)"),
        ((200, {}, b"<html>a proxy's page</html>"), "the answer is not JSON"),
    ],
)
def test_while_the_metrics_api_fails_targets_stay_and_everything_else_continues(
    server: FakeServer, tmp_path: Path, answer: tuple[int, dict[str, str], bytes], problem: str
) -> None:
    cluster = Measured(server, tmp_path)
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    before = target_of(cluster)
    server.answers[:] = [answer]
    cluster.raw["new"] = a_vpa("new")
    report = rounds(ours, cluster, 3)
    assert list(report.problems) == ["metrics"]
    assert problem in report.problems["metrics"]
    assert target_of(cluster) == before
    assert cluster.raw["new"]["status"]["observedGeneration"] == 3
    server.answers[:] = [(200, {}, b'{"items": []}')]
    report = rounds(ours, cluster, 3)
    assert not report.problems
    assert report.samples == 1


def test_a_vpa_and_a_class_with_the_same_profile_name_do_not_overwrite_each_other(
    server: FakeServer, tmp_path: Path
) -> None:
    """The VPA `class.job` and the class `job`: each patch first tests whose profile it is."""
    api = connect(kubeconfig(tmp_path / "config", server.url), user_agent="t")
    named, of_another = read_vpa(a_vpa("class.job")), Profile(ObjectKey("ns", "class.job"), "")
    store = profile_store(api, of_another)
    server.answers[:] = [status(422, "the server rejected our request: testing value /spec/class failed")]
    with pytest.raises(Invalid, match="that of a workload class's profile"):
        store.write(named, {"phase": "1"})
    with pytest.raises(Invalid, match="testing value"):
        store.write_class(ObjectKey("ns", "job"), {"state": ""})
    server.answers[:] = [status(409, "it is there"), *server.answers]
    with pytest.raises(Invalid, match="that of a workload class's profile"):
        profile_store(api).write(named, {"phase": "1"})
    bodies = [orjson.loads(body) for method, _, _, body in server.requests if method == "PATCH"]
    assert [body[0] for body in bodies] == [
        {"op": "test", "path": "/spec/class", "value": of_class} for of_class in (False, True, False)
    ]


def test_many_new_vpas_of_a_namespace_do_not_have_the_profiles_of_all_others_listed(
    server: FakeServer, tmp_path: Path
) -> None:
    """A tenant could make a hundred in each round."""
    api = connect(kubeconfig(tmp_path / "config", server.url), user_agent="t")
    watch: Reflector[Profile] = Reflector(api, path_of(PROFILES), read_profile)
    ProfileStore(api, watch, None, Scope().covers).load([ObjectKey("ns", f"job-{n}") for n in range(100)])
    (path,) = [path for _, path, _, _ in server.requests]
    assert path.startswith(path_of(PROFILES, "ns"))


def test_the_profile_of_a_vpa_with_the_name_of_a_class_is_not_deleted_with_the_class(
    server: FakeServer, tmp_path: Path
) -> None:
    api = connect(kubeconfig(tmp_path / "config", server.url), user_agent="t")
    watch: Reflector[Profile] = Reflector(api, path_of(PROFILES), read_profile)
    store = ProfileStore(api, watch, None, Scope().covers)
    for name, owners in (("class.a", [{"uid": "u"}]), ("class.b", [])):
        watch._put({"metadata": {"namespace": "ns", "name": name, "ownerReferences": owners}})
    for name in ("a", "b"):
        store.write_class(ObjectKey("ns", name), None)
    assert [(how, path) for how, path, *_ in server.requests] == [("DELETE", path_of(PROFILES, "ns", "class.b"))]


def test_a_forbidden_list_of_profiles_is_logged_once_and_counted_each_time(
    server: FakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    codes: list[int] = []
    file = kubeconfig(tmp_path / "config", server.url)
    api = connect(file, user_agent="t", observe=lambda method, code, seconds: codes.append(code))
    watch: Reflector[Profile] = Reflector(api, path_of(PROFILES), read_profile)
    store = ProfileStore(api, watch, None, Scope().covers)
    server.answers[:] = [status(403, "phaseprofiles is forbidden")]
    for _ in range(2):
        store.load([ObjectKey("ns", "job")])
        assert store.saved_classes(0.0) == {}
    assert caplog.text.count("PhaseProfiles cannot be read") == 1
    assert "phaseprofiles is forbidden" in caplog.text
    assert codes == [403] * 4
