"""Progress from annotations and logs, against a small API server that answers as each test says."""

from __future__ import annotations

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from recommender.cluster.access.connection import Api, connect
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.progress import logs as logs_of_pods
from recommender.cluster.progress.annotations import AnnotationProgress
from recommender.cluster.progress.logs import LogProgress
from recommender.cluster.progress.patterns import Search, SearchResult
from recommender.readings import ProgressUpdate, Reading, Stage
from tests.fakes.api_server import FakeServer, kubeconfig, status
from tests.fakes.clock import Clock

NOW_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def a_pod(
    name: str, asks: str | None = "true", *, running: bool = True, namespace: str = "ns", **annotations: str
) -> Pod:
    if asks is not None:
        annotations["phasewise.dev/progress-log"] = asks
    state: dict[str, Any] = {"running": {}} if running else {"waiting": {"reason": "ContainerCreating"}}
    return read_pod(
        {
            "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}", "annotations": annotations},
            "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
            "status": {"containerStatuses": [{"name": "main", "state": state}, {"name": "side", "state": state}]},
        }
    )


@pytest.fixture
def api(server: FakeServer, tmp_path: Path) -> Api:
    return connect(kubeconfig(tmp_path / "config", server.url), user_agent="test")


class Timed(LogProgress):
    """One whose stopwatch goes as the clock does."""

    def __init__(self, api: Api) -> None:
        self.stopwatch = Clock()
        super().__init__(api, None, 12.0, self.stopwatch)

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        self.stopwatch.now_s = now_s
        return super().take(pods, now_s)


def says(*lines: str) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, "".join(f"{line}\n" for line in lines).encode()


def asked(server: FakeServer) -> list[tuple[str, dict[str, list[str]]]]:
    """Path and query of what the server was asked."""
    urls = [urlsplit(path) for _, path, _, _ in server.requests]
    return [(url.path, parse_qs(url.query)) for url in urls]


def test_an_annotation_is_taken_as_what_stands_and_a_broken_one_spoils_no_other() -> None:
    good = a_pod("good", None, **{"phasewise.dev/progress": "loss=0.4 step=7"})
    bad, silent = a_pod("bad", None, **{"phasewise.dev/progress": "well"}), a_pod("silent", None)
    told = AnnotationProgress().take([bad, good, silent], 9.0)
    assert told.readings == {("ns", "good"): [Reading(9.0, 0.4, "loss", 7, event=False)]}
    assert list(told.problems) == ["progress of ns/bad"]


def test_the_log_of_a_pod_that_asks_is_read_and_only_what_is_new(server: FakeServer, api: Api) -> None:
    source, pods = Timed(api), [a_pod("p"), a_pod("other", None)]
    server.answers = [
        says("2025-12-31T23:59:58.123456789Z step=1 loss=2.0", "2025-12-31T23:59:59.5Z reading data"),
        says("2025-12-31T23:59:59.5Z reading data", "2026-01-01T00:00:09.25Z step=2 loss=1.5"),
    ]
    first = source.take(pods, NOW_S)
    assert source.take(pods, NOW_S + 5.0).readings == {}  # not so soon again
    second = source.take(pods, NOW_S + 15.0)
    assert first.readings == {("ns", "p"): [Reading(pytest.approx(NOW_S - 1.876543, abs=1e-5), 2.0, "loss", 1.0)]}
    assert second.readings == {("ns", "p"): [Reading(NOW_S + 9.25, 1.5, "loss", 2.0)]}
    (path, query), (_, later) = asked(server)
    assert path == "/api/v1/namespaces/ns/pods/p/log"
    assert query == {"container": ["main"], "timestamps": ["true"], "tailLines": ["100"], "limitBytes": ["65536"]}
    assert later["sinceTime"] == ["2025-12-31T23:59:59Z"]


def test_a_pattern_of_its_own_and_the_container_people_mean(server: FakeServer, api: Api) -> None:
    pod = a_pod("p", r"L=(?P<loss>\S+)", **{"kubectl.kubernetes.io/default-container": "side"})
    server.answers = [says("2026-01-01T00:00:00Z L=3.5 loss=9")]
    told = Timed(api).take([pod], NOW_S + 60)
    assert told.readings == {("ns", "p"): [Reading(NOW_S, 3.5, "loss")]}
    assert asked(server)[0][1]["container"] == ["side"]


def test_a_bad_pattern_is_said_once_asked_for_no_more_and_taken_up_again_when_it_changes(
    server: FakeServer, api: Api
) -> None:
    source = Timed(api)
    server.answers = [says("2026-01-01T00:00:00Z loss=3")]
    for round_s in (0.0, 60.0):
        told = source.take([a_pod("p", "(?P<loss>")], NOW_S + round_s)
        assert "the pattern of phasewise.dev/progress-log cannot be used" in told.problems["progress of ns/p"]
    assert len(server.requests) == 1
    told = source.take([a_pod("p")], NOW_S + 120.0)
    assert not told.problems
    assert len(told.readings["ns", "p"]) == 1


def test_pods_of_namespaces_whose_patterns_take_long_wait_behind_all_others_and_take_turns(
    server: FakeServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str | None]] = []

    def one_a_round(searches: Sequence[Search]) -> list[SearchResult]:
        asked.append([one.pattern for one in searches])
        return [SearchResult([{}], cpu_s=0.19), *[SearchResult(None)] * (len(searches) - 1)]

    monkeypatch.setattr(logs_of_pods, "search", one_a_round)
    source, slow = Timed(api), [a_pod(name, name, namespace="slow") for name in "ab"]
    server.answers = [says("2026-01-01T00:00:00Z x")] * 8
    for turn in range(3):
        source.take([*slow, a_pod("honest", "c")], NOW_S + 60.0 * turn)
        server.answers = [says(f"2026-01-01T00:0{turn + 1}:00Z x")] * 3
    assert asked == [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]]


def test_a_clock_that_is_set_back_silences_no_log(server: FakeServer, api: Api) -> None:
    server.answers = [says("2026-01-01T00:00:00Z loss=2"), says("2026-01-01T00:00:20Z loss=1")]
    source = Timed(api)
    source.take([a_pod("p")], NOW_S + 5.0)
    source.stopwatch.now_s += 15.0
    told = LogProgress.take(source, [a_pod("p")], NOW_S - 3600.0)
    assert [reading.value for reading in told.readings["ns", "p"]] == [1.0]


def test_progress_bars_cut_lines_and_words_of_the_node_do_no_harm(server: FakeServer, api: Api) -> None:
    server.answers = [
        says(
            "unable to retrieve container logs for containerd://abc",
            "2026-01-01T00:00:00Z \r10%| loss=2.0\r20%| loss=1.0\r",
            "2026-01-01T00:00:01Z " + "x" * 5000 + " loss=7",
            "2026-01-01T00:00:02Z loss=nonsense",
            "2026-01-01T0",
        )
    ]
    told = Timed(api).take([a_pod("p")], NOW_S + 60)
    assert told.readings == {("ns", "p"): [Reading(NOW_S, 1.0, "loss")]}


def test_a_node_whose_clock_is_ahead_is_not_believed(server: FakeServer, api: Api) -> None:
    server.answers = [says("2026-01-01T01:00:00Z loss=1")]
    told = Timed(api).take([a_pod("p")], NOW_S)
    assert told.readings == {("ns", "p"): [Reading(NOW_S, 1.0, "loss")]}


def test_a_log_that_cannot_be_read_is_said_and_asked_for_ever_less_often(server: FakeServer, api: Api) -> None:
    source = Timed(api)
    server.answers = [status(500, "the kubelet does not answer")]
    asked_at = []
    for at_s in range(0, 400, 12):
        told = source.take([a_pod("p")], NOW_S + at_s)
        assert "the kubelet does not answer" in told.problems["progress of ns/p"]
        if len(server.requests) > len(asked_at):
            asked_at.append(at_s)
    assert asked_at == [0, 24, 72, 168, 360]
    server.answers = [says("2026-01-01T00:00:00Z loss=1")]
    assert not source.take([a_pod("p")], NOW_S + 900).problems


def test_without_the_right_to_read_logs_it_asks_once_and_says_so(server: FakeServer, api: Api) -> None:
    source, pods = Timed(api), [a_pod(f"p{n}") for n in range(5)]
    server.answers = [status(403, "pods is forbidden: cannot get resource pods/log")]
    for at_s in (0.0, 15.0, 290.0):
        told = source.take(pods, NOW_S + at_s)
        assert "cannot get resource" in told.problems["progress from logs"]
    assert len(server.requests) == 1
    server.answers = [says("2026-01-01T00:00:00Z loss=1")]
    assert len(source.take(pods, NOW_S + 301).readings) == 5


def test_a_round_reads_for_a_bounded_time_and_goes_on_with_those_that_waited(server: FakeServer, api: Api) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        source.stopwatch.now_s += 0.9
        body = b"2026-01-01T00:00:00Z loss=1\n"
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    server.answers = [slow]
    source, pods = Timed(api), [a_pod(f"p{n}") for n in range(5)]
    assert [name for _, name in source.take(pods, NOW_S).readings] == ["p0", "p1", "p2"]
    assert [name for _, name in source.take(pods, NOW_S + 15).readings] == ["p3", "p4"]
    assert [path.split("/")[-2] for path, _ in asked(server)] == ["p0", "p1", "p2", "p3", "p4", "p0"]


def test_a_pod_that_does_not_run_yet_is_not_asked(server: FakeServer, api: Api) -> None:
    assert Timed(api).take([a_pod("p", running=False), a_pod("q", "false")], NOW_S).readings == {}
    assert not server.requests


def test_stages_and_checkpoints_are_read_from_logs_and_annotations(server: FakeServer, api: Api) -> None:
    server.answers = [
        says(
            "2026-01-01T00:00:01Z stage=train",
            "2026-01-01T00:00:02Z loss=2",
            "2026-01-01T00:00:03Z Saving checkpoint",
        )
    ]
    told = Timed(api).take([a_pod("job")], NOW_S + 5.0)
    assert told.readings == {("ns", "job"): [Reading(NOW_S + 2.0, 2.0, "loss")]}
    begun = Stage(NOW_S + 1.0, "train")
    assert told.stages == {("ns", "job"): [begun, Stage(NOW_S + 3.0, "checkpoint", passing=True)]}
    annotated = a_pod("noted", **{"phasewise.dev/stage": " Evaluate "})
    assert AnnotationProgress().take([annotated, a_pod("silent")], NOW_S).stages == {
        ("ns", "noted"): [Stage(NOW_S, "evaluate", event=False)]
    }
