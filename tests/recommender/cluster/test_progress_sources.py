"""Progress from annotations and logs, against a scripted API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from recommender.cluster.access.connection import Api, connect
from recommender.cluster.errors import ApiError
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.progress import sources
from recommender.cluster.progress.sources import AnnotationProgress, LogProgress
from recommender.progress.readings import ProgressUpdate, Reading, Stage
from tests.fakes.api_server import FakeServer, kubeconfig, status
from tests.fakes.clock import Clock

NOW_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def a_pod(
    name: str, progress_log: str | None = "true", *, running: bool = True, namespace: str = "ns", **annotations: str
) -> Pod:
    if progress_log is not None:
        annotations["phasewise.dev/progress-log"] = progress_log
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


class TimedLogProgress(LogProgress):
    """A source whose stopwatch follows the times of its rounds."""

    def __init__(self, api: Api) -> None:
        self.stopwatch = Clock()
        super().__init__(api, None, 12.0, self.stopwatch)

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        self.stopwatch.now_s = now_s
        return super().take(pods, now_s)


def log_of(*lines: str) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, "".join(f"{line}\n" for line in lines).encode()


def requests_to(server: FakeServer) -> list[tuple[str, dict[str, list[str]]]]:
    """Path and query of each request."""
    urls = [urlsplit(path) for _, path, _, _ in server.requests]
    return [(url.path, parse_qs(url.query)) for url in urls]


def test_a_malformed_annotation_is_reported_and_does_not_affect_others() -> None:
    good = a_pod("good", None, **{"phasewise.dev/progress": "loss=0.4 step=7"})
    bad, silent = a_pod("bad", None, **{"phasewise.dev/progress": "well"}), a_pod("silent", None)
    update = AnnotationProgress().take([bad, good, silent], 9.0)
    assert update.readings == {("ns", "good"): [Reading(9.0, 0.4, "loss", 7, event=False)]}
    assert list(update.problems) == ["progress of ns/bad"]


def test_only_annotated_pods_have_their_logs_read_and_only_new_lines(server: FakeServer, api: Api) -> None:
    source, pods = TimedLogProgress(api), [a_pod("p"), a_pod("other", None)]
    server.answers = [
        log_of("2025-12-31T23:59:58.123456789Z step=1 loss=2.0", "2025-12-31T23:59:59.5Z reading data"),
        log_of("2025-12-31T23:59:59.5Z reading data", "2026-01-01T00:00:09.25Z step=2 loss=1.5"),
    ]
    first = source.take(pods, NOW_S)
    assert source.take(pods, NOW_S + 5.0).readings == {}  # too soon
    second = source.take(pods, NOW_S + 15.0)
    assert first.readings == {("ns", "p"): [Reading(pytest.approx(NOW_S - 1.876543, abs=1e-5), 2.0, "loss", 1.0)]}
    assert second.readings == {("ns", "p"): [Reading(NOW_S + 9.25, 1.5, "loss", 2.0)]}
    (path, query), (_, later) = requests_to(server)
    assert path == "/api/v1/namespaces/ns/pods/p/log"
    assert query == {"container": ["main"], "timestamps": ["true"], "tailLines": ["100"], "limitBytes": ["65536"]}
    assert later["sinceTime"] == ["2025-12-31T23:59:59Z"]


def test_the_pattern_and_the_default_container_of_a_pod_are_used(server: FakeServer, api: Api) -> None:
    pod = a_pod("p", r"L=(?P<loss>\S+)", **{"kubectl.kubernetes.io/default-container": "side"})
    server.answers = [log_of("2026-01-01T00:00:00Z L=3.5 loss=9")]
    update = TimedLogProgress(api).take([pod], NOW_S + 60)
    assert update.readings == {("ns", "p"): [Reading(NOW_S, 3.5, "loss")]}
    assert requests_to(server)[0][1]["container"] == ["side"]


def test_a_log_with_an_unusable_pattern_is_not_read_again_until_the_pattern_changes(
    server: FakeServer, api: Api
) -> None:
    source = TimedLogProgress(api)
    server.answers = [log_of("2026-01-01T00:00:00Z loss=3")]
    for round_s in (0.0, 60.0):
        update = source.take([a_pod("p", "(?P<loss>")], NOW_S + round_s)
        assert "the pattern of phasewise.dev/progress-log cannot be used" in update.problems["progress of ns/p"]
    assert len(server.requests) == 1
    update = source.take([a_pod("p")], NOW_S + 120.0)
    assert not update.problems
    assert len(update.readings["ns", "p"]) == 1


def test_a_pattern_with_a_lookahead_does_not_keep_other_pods_from_being_searched(server: FakeServer, api: Api) -> None:
    server.answers = [log_of("2026-01-01T00:00:00Z L=3")] * 2
    pods = [a_pod("ahead", r"(?=L)L=(?P<loss>\d)"), a_pod("good", r"L=(?P<loss>\d)")]
    update = TimedLogProgress(api).take(pods, NOW_S)
    assert len(update.readings["ns", "good"]) == 1
    assert "its syntax is RE2's: no lookarounds" in update.problems["progress of ns/ahead"]


def test_pods_of_namespaces_with_slow_patterns_are_searched_last_and_in_turn(
    server: FakeServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str | None] = []
    cpu = Clock()

    def search_slowly(pattern: str | None, lines: Sequence[str]) -> list[dict[str, str]]:
        searched.append(pattern)
        cpu.now_s += 2.0
        return [{} for _ in lines]

    monkeypatch.setattr(sources, "search", search_slowly)
    monkeypatch.setattr(sources, "thread_time", cpu)
    source, slow = TimedLogProgress(api), [a_pod(name, name, namespace="slow") for name in "ab"]
    server.answers = [log_of("2026-01-01T00:00:00Z x")] * 8
    for turn in range(3):
        source.take([*slow, a_pod("honest", "c")], NOW_S + 60.0 * turn)
        server.answers = [log_of(f"2026-01-01T00:0{turn + 1}:00Z x")] * 3
    assert searched == ["a", "c", "b"]  # one a round


def test_logs_are_read_after_the_clock_is_set_back(server: FakeServer, api: Api) -> None:
    server.answers = [log_of("2026-01-01T00:00:00Z loss=2"), log_of("2026-01-01T00:00:20Z loss=1")]
    source = TimedLogProgress(api)
    source.take([a_pod("p")], NOW_S + 5.0)
    source.stopwatch.now_s += 15.0
    update = LogProgress.take(source, [a_pod("p")], NOW_S - 3600.0)
    assert [reading.value for reading in update.readings["ns", "p"]] == [1.0]


def test_progress_bars_cut_lines_and_messages_of_the_node_are_tolerated(server: FakeServer, api: Api) -> None:
    server.answers = [
        log_of(
            "unable to retrieve container logs for containerd://abc",
            "2026-01-01T00:00:00Z \r10%| loss=2.0\r20%| loss=1.0\r",
            "2026-01-01T00:00:01Z " + "x" * 5000 + " loss=7",
            "2026-01-01T00:00:02Z loss=nonsense",
            "2026-01-01T0",
        )
    ]
    update = TimedLogProgress(api).take([a_pod("p")], NOW_S + 60)
    assert update.readings == {("ns", "p"): [Reading(NOW_S, 1.0, "loss")]}


def test_a_line_from_the_future_counts_as_written_now(server: FakeServer, api: Api) -> None:
    server.answers = [log_of("2026-01-01T01:00:00Z loss=1")]
    update = TimedLogProgress(api).take([a_pod("p")], NOW_S)
    assert update.readings == {("ns", "p"): [Reading(NOW_S, 1.0, "loss")]}


def test_a_log_that_has_failed_for_a_week_keeps_no_other_log_from_being_read(
    server: FakeServer, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ApiError("the kubelet does not answer", status=500)

    source, broken = TimedLogProgress(api), a_pod("broken")
    with monkeypatch.context() as patch:
        patch.setattr(sources, "read_log", fails)
        for minutes in range(0, 7 * 24 * 60, 8):
            source.take([broken], NOW_S + 60.0 * minutes)
    server.answers = [log_of("2026-01-01T00:00:00Z loss=1"), status(500, "the kubelet does not answer")]
    update = source.take([broken, a_pod("good")], NOW_S + 7 * 86400.0)
    assert update.readings["ns", "good"] and update.problems.keys() == {"progress of ns/broken"}


def test_an_unreadable_log_is_reported_and_requested_with_backoff(server: FakeServer, api: Api) -> None:
    source = TimedLogProgress(api)
    server.answers = [status(500, "the kubelet does not answer")]
    requested_at = []
    for at_s in range(0, 400, 12):
        update = source.take([a_pod("p")], NOW_S + at_s)
        assert "the kubelet does not answer" in update.problems["progress of ns/p"]
        if len(server.requests) > len(requested_at):
            requested_at.append(at_s)
    assert requested_at == [0, 24, 72, 168, 360]
    server.answers = [log_of("2026-01-01T00:00:00Z loss=1")]
    assert not source.take([a_pod("p")], NOW_S + 900).problems


def test_without_the_right_to_read_logs_there_is_one_request_and_a_problem(server: FakeServer, api: Api) -> None:
    source, pods = TimedLogProgress(api), [a_pod(f"p{n}") for n in range(5)]
    server.answers = [status(403, "pods is forbidden: cannot get resource pods/log")]
    for at_s in (0.0, 15.0, 290.0):
        update = source.take(pods, NOW_S + at_s)
        assert "cannot get resource" in update.problems["progress from logs"]
    assert len(server.requests) == 1
    server.answers = [log_of("2026-01-01T00:00:00Z loss=1")]
    assert len(source.take(pods, NOW_S + 301).readings) == 5


def test_a_round_reads_for_a_limited_time_and_the_next_continues_with_the_rest(server: FakeServer, api: Api) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        source.stopwatch.now_s += 0.9
        body = b"2026-01-01T00:00:00Z loss=1\n"
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    server.answers = [slow]
    source, pods = TimedLogProgress(api), [a_pod(f"p{n}") for n in range(5)]
    assert [name for _, name in source.take(pods, NOW_S).readings] == ["p0", "p1", "p2"]
    assert [name for _, name in source.take(pods, NOW_S + 15).readings] == ["p3", "p4"]
    assert [path.split("/")[-2] for path, _ in requests_to(server)] == ["p0", "p1", "p2", "p3", "p4", "p0"]


def test_logs_of_pods_that_do_not_run_or_opt_out_are_not_requested(server: FakeServer, api: Api) -> None:
    assert TimedLogProgress(api).take([a_pod("p", running=False), a_pod("q", "false")], NOW_S).readings == {}
    assert not server.requests


@pytest.mark.parametrize(
    ("label", "annotation", "requests"), [("true", None, 1), ("true", "false", 0), ("false", None, 0)]
)
def test_the_log_of_a_pod_is_read_if_its_label_says_so_unless_its_annotation_opts_out(
    server: FakeServer, api: Api, label: str, annotation: str | None, requests: int
) -> None:
    pod = replace(a_pod("p", annotation), labels={"phasewise.dev/progress-log": label})
    TimedLogProgress(api).take([pod], NOW_S)
    assert len(server.requests) == requests


def test_stages_and_checkpoints_are_read_from_logs_and_annotations(server: FakeServer, api: Api) -> None:
    server.answers = [
        log_of(
            "2026-01-01T00:00:01Z stage=train",
            "2026-01-01T00:00:02Z loss=2",
            "2026-01-01T00:00:03Z Saving checkpoint",
        )
    ]
    update = TimedLogProgress(api).take([a_pod("job")], NOW_S + 5.0)
    assert update.readings == {("ns", "job"): [Reading(NOW_S + 2.0, 2.0, "loss")]}
    training = Stage(NOW_S + 1.0, "train")
    assert update.stages == {("ns", "job"): [training, Stage(NOW_S + 3.0, "checkpoint", passing=True)]}
    annotated = a_pod("noted", **{"phasewise.dev/stage": " Evaluate "})
    assert AnnotationProgress().take([annotated, a_pod("silent")], NOW_S).stages == {
        ("ns", "noted"): [Stage(NOW_S, "evaluate", event=False)]
    }
