"""`phasewise export`: the file, continuing an interrupted export, and messages when nothing is found."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pandas as pd
import pytest

from recommender.sources import export as exporting
from recommender.sources.files import open_source
from tests.fakes.command_line import CommandResult
from tests.fakes.prometheus import START_S, SmallCluster, cores, failure, matrix, memory_at, success
from tests.rig.played_http import Asked, Played, Reply, played

Phasewise = Callable[..., CommandResult]

HOURS = 20
END_S = START_S + HOURS * 3600
ALWAYS = (0.0, 1e12)
CLUSTER = SmallCluster(
    {
        ("dev", "notebook"): ALWAYS,
        ("ml", "train-1"): (START_S + 1000, START_S + 9000),
        ("ml", "train-2"): (START_S + 3 * 3600, START_S + 9 * 3600),
    }
)
COLUMNS = ["timestamp", "namespace", "pod", "container", "cpu_cores", "memory_bytes"]
REQUESTS = ["cpu_request_cores", "memory_request_bytes"]


@pytest.fixture
def server() -> Iterator[Played]:
    with played(CLUSTER) as running:
        yield running


def options(url: str, output: Path, *more: object) -> list[object]:
    return ["export", "--prometheus", url, "--since", START_S, "--until", END_S, "--step", "60s", "-o", output, *more]


def read(file: Path) -> pd.DataFrame:
    return pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)


def expected() -> pd.DataFrame:
    rows = [
        (at, namespace, pod, "main", cores(number, at), memory_at(number, at), 4.0 + number, 1e9, f"node-{number % 2}")
        for at in range(-(-START_S // 60) * 60, END_S + 1, 60)
        for number, ((namespace, pod), (first, last)) in enumerate(sorted(CLUSTER.lives.items()))
        if first <= at <= last
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, *REQUESTS, "node"])


def assert_same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    texts = ["namespace", "pod", "container", "node"]
    found, wanted = (
        frame.astype(dict.fromkeys([name for name in texts if name in frame], "str")) for frame in (found, wanted)
    )
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False, check_exact=True)


@pytest.mark.option("phasewise export", "-o")
@pytest.mark.parametrize("name", ["week.parquet", "week.csv", "week.csv.gz"])
def test_every_file_format_holds_the_same_rows(phasewise: Phasewise, server: Played, tmp_path: Path, name: str) -> None:
    ended = phasewise(*options(server.url, tmp_path / name))
    assert ended.code == 0, ended.err
    assert "of 3 containers, 20h from 2023-11-14" in ended.err
    assert "CPU over 1m" in ended.err
    assert_same(read(tmp_path / name), expected())
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert ended.out == ""


def test_an_exported_file_can_be_opened_as_a_source(phasewise: Phasewise, server: Played, tmp_path: Path) -> None:
    for name in ("a.parquet", "a.csv.gz"):
        assert phasewise(*options(server.url, tmp_path / name)).code == 0
        with open_source([tmp_path / name]) as source:
            series = {one.container: one for one in source}
        assert list(series) == ["dev/notebook/main", "ml/train-1/main", "ml/train-2/main"]
        one = series["ml/train-1/main"]
        assert (one.step_s, one.node) == (60, "node-1")
        np.testing.assert_array_equal(one.usage, [[cores(1, at), memory_at(1, at)] for at in one.timestamps])


def test_dry_run_accepts_an_exported_file(phasewise: Phasewise, server: Played, tmp_path: Path) -> None:
    file = tmp_path / "week.csv.gz"
    assert phasewise(*options(server.url, file)).code == 0
    ended = phasewise("dry-run", file, "--policies", "static,histogram", "--json", "-")
    assert ended.code == 0, ended.err
    assert orjson.loads(ended.out)["containers"] == 3


def test_without_requests_their_columns_are_left_out_with_a_message(phasewise: Phasewise, tmp_path: Path) -> None:
    with played(SmallCluster(CLUSTER.lives, requests=False, doubled=7)) as server:
        ended = phasewise(*options(server.url, tmp_path / "a.csv", "--namespace", "ml"))
    assert ended.code == 0
    assert list(read(tmp_path / "a.csv").columns) == [*COLUMNS, "node"]
    assert "no requests: " in ended.err
    assert ended.err.count("scraped more than once (by two jobs?): 7 containers") == 1


def test_containers_that_request_only_memory_have_requests(phasewise: Phasewise, tmp_path: Path) -> None:
    def answer(request: Asked) -> Reply:
        reply = CLUSTER(request)
        if "resource=~" not in request.query:
            return reply
        series = orjson.loads(reply.body)["data"]["result"]
        return matrix(*((one["metric"], one["values"]) for one in series if one["metric"]["resource"] == "memory"))

    with played(answer) as server:
        ended = phasewise(*options(server.url, tmp_path / "a.csv"))
    assert "no requests" not in ended.err
    assert [name for name in read(tmp_path / "a.csv").columns if "request" in name] == ["memory_request_bytes"]


def test_facts_about_runs_from_kube_state_metrics_are_exported(phasewise: Phasewise, tmp_path: Path) -> None:
    """Only the last rows of a run have its end; a run in progress has none.

    Before a container completed it was killed and restarted: in the same part of the export, or in an earlier one.
    """
    file, lives = tmp_path / "week.parquet", {**CLUSTER.lives, ("dev", "notebook"): (START_S + 60.0, 1e12)}
    with played(SmallCluster(lives, facts=True, gpus=True)) as server:
        assert phasewise(*options(server.url, file)).code == 0
    with open_source([file]) as source:
        series = {one.container: one for one in source}
    unfinished, one = series["dev/notebook/main"].facts, series["ml/train-1/main"]
    assert (unfinished.started_s, unfinished.ended) == (START_S, False)
    assert (one.workload, one.facts.ended, one.facts.killed) == ("train", True, False)
    assert (one.facts.started_s, one.facts.finished_s, one.facts.exit_code) == (START_S + 940, START_S + 9000, 0)
    assert series["ml/train-2/main"].facts.exit_code == 0
    assert one.facts.limits[1] == 2 * 2**30 and np.isnan(one.facts.limits[0])
    assert unfinished.limits[1] == np.inf, "a known pod without a limit has none"
    assert one.facts.allocatable == (32, 64e9)
    assert one.features["gpu_util"][0] == 0.25


def test_init_containers_and_native_sidecars_are_left_out(phasewise: Phasewise, tmp_path: Path) -> None:
    """The VPA does not size them, and the metrics of requests and limits do not include theirs."""

    def answer(request: Asked) -> Reply:
        if request.parameters.get("match[]", "").startswith("kube_pod_init_container_info"):
            return success([{"namespace": "ml", "pod": "train-2", "container": "main"}])
        return CLUSTER(request)

    with played(answer) as server:
        ended = phasewise(*options(server.url, tmp_path / "a.csv"))
    assert "of 2 containers" in ended.err
    assert set(read(tmp_path / "a.csv")["pod"]) == {"notebook", "train-1"}


def stops_after(count: int) -> Callable[[Asked], Reply]:
    """Answers `count` queries of CPU usage, then fails."""
    cpu_queries: list[Asked] = []

    def answer(request: Asked) -> Reply:
        if "rate(" in request.query:
            cpu_queries.append(request)
        return CLUSTER(request) if len(cpu_queries) <= count else failure(500, "internal", "disk gone")

    return answer


@dataclass
class ReplaceableHandler:
    """A handler of requests that can be replaced while the server runs."""

    current: Callable[[Asked], Reply]

    def __call__(self, request: Asked) -> Reply:
        return self.current(request)


def test_a_failed_export_continues_where_it_stopped(phasewise: Phasewise, server: Played, tmp_path: Path) -> None:
    file = tmp_path / "week.parquet"
    with played(stops_after(2)) as failing:
        ended = phasewise(*options(failing.url, file, "--retries", 0))
    assert ended.code == 1
    assert "disk gone" in ended.err
    assert "2 of 4 parts are kept" in ended.err
    assert not file.exists()
    parts = tmp_path / "week.parquet.parts"
    plan = orjson.loads((parts / "plan.json").read_bytes())
    plan["asked"]["--prometheus"] = server.url  # a real server would be back at the same URL
    (parts / "plan.json").write_bytes(orjson.dumps(plan))
    ended = phasewise(*options(server.url, file))
    assert ended.code == 0
    assert "continuing the export of 2023-11-14T22:15:00Z" in ended.err
    assert len(server.ranges("rate(")) == 2
    assert_same(read(file), expected())
    assert not parts.exists()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_export_can_be_stopped_by_a_signal_and_continued(
    phasewise: Phasewise, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "week.csv"
    reached, released = threading.Event(), threading.Event()

    def answer(request: Asked) -> Reply:
        if "rate(" in request.query and len(server.ranges("rate(")) == 3 and not released.is_set():
            reached.set()
            released.wait(30)
        return CLUSTER(request)

    with played(answer) as server:
        command = [sys.executable, "-m", "recommender", *map(str, options(server.url, file))]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert reached.wait(60)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
        released.set()
        assert not file.exists()
        assert len(list((tmp_path / "week.csv.parts").glob("[0-9]*.parquet"))) == 2
        if number == signal.SIGKILL:
            assert process.returncode == -number
        else:
            assert process.returncode == 130
            assert "2 of 4 parts are kept" in stderr
            assert "the same command continues from there" in stderr
            assert "Traceback" not in stderr
        before = len(server.ranges("rate("))
        assert phasewise(*options(server.url, file)).code == 0
        assert len(server.ranges("rate(")) - before == 2
    assert_same(read(file), expected())
    assert [one.name for one in tmp_path.iterdir()] == ["week.csv"]


def test_a_continued_export_keeps_its_original_end_time(
    phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: float(END_S))
    file = tmp_path / "a.csv"
    handler = ReplaceableHandler(stops_after(1))
    with played(handler) as server:
        command = ["export", "--prometheus", server.url, "--since", "7h", "-o", file, "--retries", 0]
        assert phasewise(*command).code == 1
        monkeypatch.setattr("time.time", lambda: END_S + 5000.0)
        handler.current = CLUSTER
        assert phasewise(*command).code == 0
    times = read(file)["timestamp"]
    assert (times.min(), times.max()) == (END_S - 7 * 3600, END_S)


def test_an_export_cannot_be_continued_with_other_options(phasewise: Phasewise, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    handler = ReplaceableHandler(stops_after(1))
    with played(handler) as server:
        assert phasewise(*options(server.url, file, "--retries", 0)).code == 1
        handler.current = CLUSTER
        ended = phasewise(*options(server.url, file, "--namespace", "ml"))
        assert ended.code == 2
        assert "--namespace was not given, is ml" in ended.err
        assert phasewise(*options(server.url, file, "--namespace", "ml", "--restart")).code == 0
    assert set(read(file)["namespace"]) == {"ml"}


def test_a_damaged_part_is_fetched_again(phasewise: Phasewise, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    handler = ReplaceableHandler(stops_after(2))
    with played(handler) as server:
        assert phasewise(*options(server.url, file, "--retries", 0)).code == 1
        part = tmp_path / "a.parquet.parts" / "000000.parquet"
        part.write_bytes(part.read_bytes()[:-100])
        handler.current = CLUSTER
        assert phasewise(*options(server.url, file)).code == 0
    assert_same(read(file), expected())


@pytest.mark.parametrize("more", [(), ("--restart",)], ids=["continue", "restart"])
def test_a_second_export_to_the_same_file_is_refused_and_the_first_one_completes(
    phasewise: Phasewise, tmp_path: Path, more: tuple[str, ...]
) -> None:
    file = tmp_path / "a.csv"
    second: list[CommandResult] = []

    def answer(request: Asked) -> Reply:
        if "rate(" in request.query and len(first.ranges("rate(")) == 3 and not second:
            second.append(phasewise(*options(first.url, file, *more)))
        return CLUSTER(request)

    with played(answer) as first:
        assert phasewise(*options(first.url, file)).code == 0
        assert len(first.ranges("rate(")) == 4
    assert second[0].code == 2
    assert "another export is writing here" in second[0].err
    assert_same(read(file), expected())


def test_a_parts_folder_without_an_export_is_left_untouched(
    phasewise: Phasewise, server: Played, tmp_path: Path
) -> None:
    folder = tmp_path / "a.csv.parts"
    folder.mkdir()
    (folder / "holiday.jpg").write_bytes(b"x")
    ended = phasewise(*options(server.url, tmp_path / "a.csv"))
    assert ended.code == 2
    assert "holds no export" in ended.err
    assert (folder / "holiday.jpg").exists()


def test_usage_is_read_in_responses_of_bounded_size_and_the_rows_stay_the_same(
    phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_samples: list[int] = []

    def answer(request: Asked) -> Reply:
        reply = CLUSTER(request)
        if "step" in request.parameters:
            n_samples.append(sum(len(one["values"]) for one in orjson.loads(reply.body)["data"]["result"]))
        return reply

    monkeypatch.setattr("recommender.sources.prometheus_usage.MAX_SAMPLES_PER_RESPONSE", 300)
    monkeypatch.setattr("recommender.sources.prometheus_api.MAX_SAMPLES_PER_RESPONSE", 300)
    monkeypatch.setattr(exporting, "PART_ROWS", 1000)
    file = tmp_path / "a.parquet"
    with played(answer) as server:
        assert phasewise(*options(server.url, file)).code == 0
    assert max(n_samples) == 300
    assert_same(read(file), expected())


@pytest.mark.parametrize(
    ("cluster", "arguments", "message"),
    [
        (CLUSTER, ["--namespace", "prod"], "Namespaces here are dev, ml."),
        (CLUSTER, ["--memory-metric", "rss_bytes"], "container_memory_working_set_bytes; choose by --memory-metric"),
        (CLUSTER, ["--label", "pod=pod_name"], "map them: --label pod=LABEL"),
        (SmallCluster({}, metrics=()), [], "is /metrics/cadvisor of the kubelets scraped?"),
        (SmallCluster({("ml", "a"): (0, 1)}), [], "The metrics exist: check --selector"),
        (SmallCluster(CLUSTER.lives, metrics=CLUSTER.metrics[1:]), ["--cpu-metric", "x_total"], "no x_total"),
    ],
)
def test_an_export_that_finds_nothing_explains_why(
    phasewise: Phasewise, tmp_path: Path, cluster: SmallCluster, arguments: list[str], message: str
) -> None:
    def answer(request: Asked) -> Reply:
        unknown = any(word in request.query for word in ("rss_bytes", "x_total", "pod_name"))
        return SmallCluster({}, metrics=cluster.metrics)(request) if unknown else cluster(request)

    with played(answer) as server:
        ended = phasewise(*options(server.url, tmp_path / "a.csv", *arguments))
    assert ended.code == 2, ended.err
    assert message in ended.err
    assert list(tmp_path.iterdir()) == []


def test_url_and_token_can_come_from_the_environment(
    phasewise: Phasewise, server: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("t0ken")
    monkeypatch.setenv("PHASEWISE_PROMETHEUS_URL", server.url)
    monkeypatch.setenv("PHASEWISE_PROMETHEUS_BEARER_TOKEN_FILE", str(tmp_path / "token"))
    span = ["--since", str(START_S), "--until", str(END_S), "--step", "60"]
    assert phasewise("export", *span, "-o", tmp_path / "a.csv.gz").code == 0
    assert {one.headers["Authorization"] for one in server.asked} == {"Bearer t0ken"}
    assert b"t0ken" not in gzip.decompress((tmp_path / "a.csv.gz").read_bytes())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "week.txt"], "the suffix sets the format"),
        (["-o", "folder.csv"], "this is a folder"),
        (["-o", "missing/a.csv"], "cannot write here"),
        (["--step", "1500ms"], "whole seconds"),
        (["--since", "yesterday"], "--since 'yesterday': write a duration"),
        (["--since", "2023-11-16"], "is not before --until"),
        (["--label", "zone=z"], "OURS is one of"),
        (["--rate-window", "20s"], "less than two scrapes"),
        (["--user", "me"], "belong together"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(
    phasewise: Phasewise,
    server: Played,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    ended = phasewise(*options(server.url, Path("a.csv"), *arguments))
    assert ended.code == 2
    assert message in ended.err
    assert [one.name for one in tmp_path.iterdir()] == ["folder.csv"]


@pytest.mark.option("phasewise export", "--since", "--until")
@pytest.mark.parametrize(
    ("since", "until", "first_s", "last_s"),
    [
        ("1h", str(END_S), END_S - 3600, END_S),
        ("2023-11-15T00:00:00Z", "2023-11-15T01:00:00", 1_700_006_400, 1_700_010_000),
        ("2023-11-15T02:00:00+02:00", "2023-11-15 01:00", 1_700_006_400, 1_700_010_000),
    ],
)
def test_since_and_until_accept_times_and_durations(
    phasewise: Phasewise, server: Played, tmp_path: Path, since: str, until: str, first_s: int, last_s: int
) -> None:
    command = ["export", "--prometheus", server.url, "--since", since, "--until", until, "--step", "60"]
    assert phasewise(*command, "-o", tmp_path / "a.csv").code == 0
    times = read(tmp_path / "a.csv")["timestamp"]
    assert (times.min(), times.max()) == (first_s, last_s)


@pytest.mark.option("phasewise export", "--step")
def test_step_sets_the_distance_between_samples(phasewise: Phasewise, server: Played, tmp_path: Path) -> None:
    for step_s in (60, 300):
        assert phasewise(*options(server.url, tmp_path / "a.csv", "--step", f"{step_s}s", "--restart")).code == 0
        times = np.unique(read(tmp_path / "a.csv")["timestamp"])
        assert np.diff(times).min() == step_s


@pytest.mark.option("phasewise export", "--restart")
def test_restart_discards_the_parts_already_fetched(phasewise: Phasewise, server: Played, tmp_path: Path) -> None:
    file = tmp_path / "week.parquet"
    for more, fetched in (((), 2), (("--restart",), 4)):
        with played(stops_after(2)) as failing:
            phasewise(*options(failing.url, file, "--retries", 0, "--restart"))
        plan_file = tmp_path / "week.parquet.parts" / "plan.json"
        plan_file.write_bytes(plan_file.read_bytes().replace(failing.url.encode(), server.url.encode()))
        server.asked.clear()
        assert phasewise(*options(server.url, file, *more)).code == 0
        assert len(server.ranges("rate(")) == fetched


@pytest.mark.option("phasewise export", "--retries", "--timeout")
def test_retries_and_timeout_apply_to_a_busy_and_a_slow_server(phasewise: Phasewise, tmp_path: Path) -> None:
    busy = failure(503, "unavailable", "starting up")
    for retries in (0, 1):
        with played(lambda _: busy) as server:
            assert phasewise(*options(server.url, tmp_path / "a.csv", "--retries", retries)).code == 1
            assert len(server.asked) == 1 + retries
    released = threading.Event()

    def slow(request: Asked) -> Reply:
        released.wait(1.0)
        return CLUSTER(request)

    for timeout, code in (("0.1s", 1), ("10m", 0)):
        with played(slow) as server:
            ended = phasewise(*options(server.url, tmp_path / "a.csv", "--retries", 0, "--timeout", timeout))
            released.set()
        assert ended.code == code
