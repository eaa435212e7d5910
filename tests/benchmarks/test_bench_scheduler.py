"""bench_scheduler: its caller, its tables, its stubs, and a tiny run on a cluster."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks.scheduler import objects, output, stub
from benchmarks.scheduler.binding import KINDS, Round, classes_of_bursts
from benchmarks.scheduler.calls import Caller, Times
from benchmarks.scheduler.large import ServiceMemory
from benchmarks.scheduler.objects import fill, waiting
from benchmarks.scheduler.place import OURS, BenchCluster, Memory
from extender.pods.pod import pod_reader, profile_reader, read_node
from extender.settings import Settings
from tests.benchmarks.benches import interrupted_script, invoke, servers_of
from tests.rig.cluster import Cluster
from tests.rig.rig import clusters_folder
from tests.rig.waiting import wait_until

NAME = "bench_scheduler"


@pytest.fixture(params=["bare", "flask", "served"])
def stub_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a running stub."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])

    def listens() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    process = subprocess.Popen([sys.executable, stub.__file__, request.param, str(port)])
    try:
        wait_until(listens, "the stub to listen", every_s=0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def test_the_caller_reads_complete_answers_of_any_size_over_one_connection(stub_port: int) -> None:
    body = orjson.dumps({"Pod": {}, "Nodes": None, "NodeNames": ["a", "b"]})
    with Caller(stub_port) as caller:
        filtered = caller.post("filter", body)
        assert (filtered.status, orjson.loads(filtered.body)) == (200, {"NodeNames": ["a", "b"]})
        assert caller.post("prioritize", body).body == b"[]"
        scores = orjson.loads(caller.post("scores/prioritize", body).body)
        assert scores == [{"Host": "a", "Score": 5}, {"Host": "b", "Score": 5}]
        for size in (2, 70_000, 1_000_000):
            assert len(caller.post(f"constant/{size}", body).body) == size
        assert filtered.seconds > 0


def test_the_extender_reads_the_objects_of_the_benchmark() -> None:
    settings = Settings()
    raw = objects.pod("p", 7, node=objects.node_name(3))
    pod = pod_reader(lambda _: (), settings.schedulers)(raw)
    assert (pod.node, pod.workload, pod.ours) == (read_node(objects.node(3)).name, objects.workload_of(7), True)
    profile, status = objects.learned_profile("team-00", 0)
    assert profile_reader(settings.grid)({**profile, **status}).demand.curves["main"].peak[0] > 3.0
    jobs = {(objects.namespace_of(number), objects.job_of(number)) for number in range(2000)}
    assert len(jobs) == 2000 / objects.PODS_OF_A_JOB


class RecordingApi:
    """Records requests instead of sending them to an API server."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def create(self, path: str, body: Any) -> Any:
        self.sent.append((path, body))
        return {**body, "metadata": {**body["metadata"], "uid": "u", "managedFields": [{}]}}


def test_pods_are_bound_evenly_and_waiting_pods_look_as_a_scheduler_sends_them() -> None:
    api = RecordingApi()
    place = BenchCluster(None, api)  # type: ignore[arg-type]
    with Progress(console=Console(file=io.StringIO())) as progress:
        fill(place, progress, range(4), range(12), 4)
        pods = waiting(place, progress, range(100, 103))
    assert Counter(request for request, _ in api.sent)["/api/v1/nodes"] == 4
    nodes = Counter(body["spec"].get("nodeName") for _, body in api.sent if "spec" in body)
    assert nodes == {**{objects.node_name(number): 3 for number in range(4)}, None: 3}
    assert len(pods) == 3
    assert all(pod["metadata"]["uid"] and "managedFields" not in pod["metadata"] for pod in pods)


def test_the_tables_show_relative_rates_times_and_memory(tmp_path: Path) -> None:
    rates = {
        "none": (900.0, 1000.0, 1100.0),
        "flask": (380.0,),
        "served": (400.0,),
        "scores": (395.0,),
        "ours": (390.0, 380.0, 500.0),
        "tuned": (450.0,),
        "installed": (420.0,),
        "alone": (430.0,),
    }
    rounds = [Round(kind, rate, 1.0, 2.0, 3.0, 0.0, 123.0) for kind, each in rates.items() for rate in each]
    times = [Times.of("ours", "filter", 1000, [0.001] * 99 + [0.003], 0.1)]
    held = [ServiceMemory("ours", 5000, 50_000, 30.0, Memory(200.0, 220.0), Memory(210.0, 230.0))]
    facts = {"date": "2026-01-15", "machine": "x, 2 cores", "nodes": 500, "pods": 1000, "share_percent": 100}
    console = Console(width=150, record=True, file=io.StringIO())
    output.show(console, facts, rounds, times, held)
    text = console.export_text()
    assert output.medians(rounds)["ours"] == 390.0
    for cell in ("97.5%", "39.0%", "98.7%", "93.3%", "105.0%", "102.6%", "1.00", "6.00", "123", "210", "381"):
        assert cell in text, cell
    output.write_json(tmp_path / "r.json", facts, rounds, times, held)
    written = orjson.loads((tmp_path / "r.json").read_bytes())
    assert written["memory"][0]["used"] == {"pss_mib": 210.0, "rss_mib": 230.0}
    assert written["binding"]["median_pods_per_s"]["none"] == 1000.0


def test_only_the_classes_of_the_pods_are_created() -> None:
    assert objects.classes_of(range(2)) == [("team-00", 0), ("team-01", 0)]
    assert len(objects.classes_of(range(1000 * 10))) == objects.NAMESPACES * objects.CLASSES
    assert classes_of_bursts(1500) == [("bursts", number) for number in range(objects.CLASSES)]


def test_a_tiny_run_binds_with_every_kind_of_extender(borrowed: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    done = invoke(NAME, "--only", "binding", "--nodes", 4, "--pods", 20, "--rounds", 1, "--json", file, on=borrowed)
    assert done.exit_code == 0, done.output
    written = orjson.loads(file.read_bytes())
    assert tuple(written["binding"]["median_pods_per_s"]) == KINDS


def test_a_tiny_run_measures_calls_and_memory_on_a_growing_cluster(borrowed: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    sizes = ("--sizes", "5,8", "--pods-a-node", 2, "--calls", 20, "--slow", 30)
    done = invoke(NAME, "--only", "calls", "--only", "memory", *sizes, "--json", file, on=borrowed)
    assert done.exit_code == 0, done.output
    written = orjson.loads(file.read_bytes())
    assert [(each["nodes"], each["pods"], each["kind"]) for each in written["memory"]] == [
        (nodes, 2 * nodes, kind) for nodes in (5, 8) for kind in OURS
    ]
    assert {(each["names"], each["slow_clients"], each["server"], each["calls"]) for each in written["calls"]} == {
        (size, slow, server, 20) for size in (5, 8) for slow in (0, 30) for server in (*OURS, "constant")
    }


@pytest.mark.cluster
def test_ctrl_c_leaves_nothing_behind() -> None:
    with interrupted_script(NAME, "--nodes", 6, "--pods", 20) as process:
        wait_until(lambda: servers_of(process, "binding-"), "servers that must not be left behind")
    assert not list(clusters_folder().glob(f"bench-*-{process.pid}"))
