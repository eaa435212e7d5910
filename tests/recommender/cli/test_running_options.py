"""Each option of the recommender that no target depends on: the whole command runs against a fake API server."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partialmethod
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from recommender.base.heap import MemoryTrimmer
from recommender.cli.recommender import release_lease
from recommender.cluster.lease import LeaderElection
from recommender.engine.classes import Classes
from recommender.engine.journal import pieces_of
from recommender.engine.keys import WorkloadKey
from recommender.live import steady_clock
from recommender.live.health import _Server
from recommender.live.service import Service
from recommender.policies.memory_runs import AGES, RunMemory
from tests.fakes.command_line import CommandResult
from tests.fakes.curves import curve_of
from tests.fakes.records import a_vpa
from tests.fakes.served_commands import FakeApi, fake_api, kubeconfig
from tests.rig.waiting import wait_until

Json = dict[str, Any]
Phasewise = Callable[..., CommandResult]


@dataclass
class Running:
    """A running recommender, and its API server."""

    api: FakeApi
    service: Service
    endpoints: ThreadingHTTPServer
    election: LeaderElection | None

    def get(self, path: str) -> requests.Response:
        host, port = self.endpoints.server_address[:2]
        return requests.get(f"http://{host!s}:{port}{path}", timeout=10)

    def rounds(self, number: int = 3) -> None:
        """Wait for that many rounds."""
        wait_until(
            lambda: self.metric("phasewise_rounds_total") >= number, f"{number} rounds", timeout_s=60, every_s=0.02
        )

    def metric(self, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(self.get("/metrics").text)
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def count(self, method: str, part: str) -> int:
        """The number of requests with this method and this part of the path."""
        return sum(asked == method and part in path for asked, path in self.api.requests)

    def wait_for(self, method: str, part: str, times: int = 1) -> bool:
        """Wait for that many of these requests."""
        return wait_until(lambda: self.count(method, part) >= times, f"{method} {part}", timeout_s=60, every_s=0.02)


Probe = Callable[[Running], Any]


@dataclass
class LiveCommand:
    """Runs the command with some options in addition to those it always gets."""

    phasewise: Phasewise
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    err: str = ""

    def run(self, probe: Probe, *options: object, **objects: list[Mapping[str, Any]]) -> Any:
        """The result of the probe, which ends the run."""
        results: list[Any] = []

        def observe(service: Service, ended: threading.Event, endpoints: Any, election: LeaderElection | None) -> None:
            def call_probe() -> None:
                try:
                    results.append(probe(Running(api, service, endpoints, election)))
                finally:
                    ended.set()
                    service.stop()

            thread = threading.Thread(target=call_probe)
            thread.start()
            service.run()
            thread.join()
            if election:
                release_lease(election)
            endpoints.shutdown()
            endpoints.server_close()

        with fake_api(**(a_cluster() | objects)) as api, self.monkeypatch.context() as patch:
            patch.setattr("recommender.cli.recommender.run_until_stopped", observe)
            patch.setattr("recommender.cli.recommender.warm_up", lambda *_: None)  # a round loads what it needs
            patch.setattr(MemoryTrimmer, "trim", lambda *_: None)  # would traverse all objects of the test session
            patch.setattr(_Server, "serve_forever", partialmethod(_Server.serve_forever, poll_interval=0.02))
            config = [] if "--kubeconfig" in options else ["--kubeconfig", kubeconfig(self.folder, here=api)]
            address = [] if "--address" in options else ["--address", "127.0.0.1:0"]
            ended = self.phasewise("recommender", *config, *address, "--interval", "0.05s", *options)
        self.err = ended.err
        assert results, ended.err
        return results[0]


@pytest.fixture
def live(phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveCommand:
    return LiveCommand(phasewise, tmp_path, monkeypatch)


def a_cluster() -> dict[str, list[Mapping[str, Any]]]:
    """A job with a VPA, its pod and usage, and a job without a VPA."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"namespace": "ns", "name": "job-1", "uid": "pod"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "name": "job", "uid": "job"}
    resources = {"requests": {"cpu": "2", "memory": "4Gi"}}
    pod = {
        "metadata": metadata | {"ownerReferences": [job], "labels": {"job-name": "job"}},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
        "status": {"phase": "Running"},
    }
    pod_metrics = {
        "metadata": metadata,
        "timestamp": now,
        "containers": [{"name": "main", "usage": {"cpu": "500m", "memory": "1Gi"}}],
    }
    jobs = [
        {
            "metadata": {"namespace": "ns", "name": name, "uid": name, "labels": labels},
            "spec": {"selector": {"matchLabels": {"job-name": name}}},
        }
        for name, labels in (("job", {}), ("labelled", {"phasewise.dev/auto": "true"}))
    ]
    return {"verticalpodautoscalers": [a_vpa()], "pods": [pod], "podmetrics": [pod_metrics], "jobs": jobs}


def handled_vpas(running: Running) -> float:
    """The number of VPAs that are handled, after some rounds."""
    running.rounds()
    return running.metric("phasewise_vpas")


@pytest.mark.option("phasewise recommender", "--name", "--ignore-namespace", "--only-namespace")
def test_name_and_namespaces_choose_the_vpas(live: LiveCommand) -> None:
    assert live.run(handled_vpas) == 1
    assert live.run(handled_vpas, "--name", "another") == 0
    assert live.run(handled_vpas, "--ignore-namespace", "ns") == 0
    assert live.run(lambda running: running.wait_for("GET", "/namespaces/ns/pods"), "--only-namespace", "ns")


def test_for_one_namespace_only_nodes_and_that_namespace_are_read_outside_of_it(live: LiveCommand) -> None:
    """So that a RoleBinding and two small ClusterRoles suffice, as documented."""

    def outside(running: Running) -> set[str]:
        running.rounds()
        running.wait_for("GET", "/api/v1/namespaces?")
        return {path for _, path in running.api.requests if "/namespaces/ns/" not in path}

    paths = live.run(outside, "--only-namespace", "ns")
    assert {path.partition("?")[0] for path in paths} <= {"/apis", "/api/v1/nodes", "/api/v1/namespaces"}
    assert all("?fieldSelector=metadata.name%3Dns&" in path for path in paths if path.startswith("/api/v1/namespaces"))


@pytest.mark.option("phasewise recommender", "--auto")
def test_auto_enables_automatic_vpas(live: LiveCommand) -> None:
    def reports_auto_problems(running: Running) -> bool:
        running.rounds()
        return "phasewise_auto_problems" in running.get("/metrics").text

    assert (live.run(reports_auto_problems), live.run(reports_auto_problems, "--no-auto")) == (True, False)


@pytest.mark.option("phasewise recommender", "--interval")
def test_interval_sets_the_time_between_rounds(live: LiveCommand) -> None:
    def rounds_soon_after(running: Running) -> float:
        running.rounds(1)
        time.sleep(0.3)  # six of the intervals that these tests have by default
        return running.metric("phasewise_rounds_total")

    live.run(Running.rounds)  # of a twentieth of a second each
    assert live.run(rounds_soon_after, "--interval", "1h") == 1


@pytest.mark.option("phasewise recommender", "--publish")
def test_publish_observe_writes_profiles_but_no_recommendations(live: LiveCommand) -> None:
    def published(running: Running) -> bool:
        running.wait_for("POST", "/phaseprofiles")
        running.rounds()
        return running.count("PATCH", "/verticalpodautoscalers/") > 0

    assert (live.run(published), live.run(published, "--publish", "observe")) == (True, False)


@pytest.mark.option("phasewise recommender", "--resize-waiting")
def test_resize_waiting_resizes_pending_pods_to_the_current_recommendation(live: LiveCommand) -> None:
    (pod,) = a_cluster()["pods"]
    amount = {"cpu": "1", "memory": "1Gi"}
    entry = {"containerName": "main", "target": amount, "lowerBound": amount, "upperBound": amount}
    status = {"recommendation": {"containerRecommendations": [entry]}}

    def resized(running: Running) -> bool:
        running.rounds()
        return running.count("PATCH", "/pods/job-1/resize") > 0

    pending: dict[str, list[Mapping[str, Any]]] = {
        "pods": [{**pod, "status": {"phase": "Pending"}}],
        "podmetrics": [],
        "verticalpodautoscalers": [a_vpa() | {"status": status}],
    }
    assert (live.run(resized, **pending), live.run(resized, "--resize-waiting", **pending)) == (False, True)


@pytest.mark.option("phasewise recommender", "--update-worker-count")
def test_update_worker_count_limits_concurrent_status_writes(live: LiveCommand) -> None:
    vpas = [a_vpa(f"vpa-{number}") for number in range(48)]

    def concurrent_writes(running: Running) -> int:
        running.wait_for("PATCH", "/verticalpodautoscalers/", times=len(vpas))
        return running.api.max_concurrent_writes

    assert live.run(concurrent_writes, "--update-worker-count", "1", verticalpodautoscalers=vpas) == 1
    assert live.run(concurrent_writes, "--update-worker-count", "12", verticalpodautoscalers=vpas) > 1


@pytest.mark.option("phasewise recommender", "--profile-ttl")
def test_profile_ttl_removes_old_classes(live: LiveCommand) -> None:
    metadata = {"namespace": "ns", "name": "class.nightly", "uid": "c"}
    classes = Classes()
    curve, memory = curve_of(15.0, np.ones((40, 2))), RunMemory(1.0, np.ones(AGES), False)
    assert classes.learn(WorkloadKey("ns", "nightly"), "main", curve, memory, 600.0, 0.0)
    status = classes.status(WorkloadKey("ns", "nightly")) | {"updated": "2020-01-01T00:00:00Z"}
    profiles = [{"metadata": metadata, "spec": {"class": True}, "status": status}]

    def removed(running: Running) -> bool:
        running.rounds()
        return running.count("DELETE", "/phaseprofiles/") > 0

    live.monkeypatch.setattr(steady_clock, "STEADY_S", 0.0)  # elsewhere nothing is deleted in the first hour

    assert live.run(removed, "--profile-ttl", "1h", phaseprofiles=profiles)
    assert not live.run(removed, "--profile-ttl", "100000d", phaseprofiles=profiles)


@pytest.mark.option("phasewise recommender", "--kubeconfig", "--context")
def test_kubeconfig_and_context_choose_the_api_server(live: LiveCommand) -> None:
    with fake_api(**a_cluster()) as one, fake_api(**a_cluster()) as two:
        file = kubeconfig(live.folder, one=one, two=two)
        live.run(lambda running: running.rounds(1), "--kubeconfig", file)
        assert one.requests and not two.requests
        one.requests.clear()
        live.run(lambda running: running.rounds(1), "--kubeconfig", file, "--context", "two")
        assert two.requests and not one.requests


@pytest.mark.option("phasewise recommender", "--kube-api-qps", "--kube-api-burst")
def test_qps_and_burst_limit_the_request_rate(live: LiveCommand) -> None:
    """Over the initial lists and ten status writes; Lease, logs and auto VPAs have a limit each of their own."""
    vpas, at_once = [a_vpa(f"vpa-{number}") for number in range(10)], 4

    def is_faster(than_qps: float, qps: int, burst: int) -> bool:
        began_s = time.monotonic()

        def probe(running: Running) -> bool:
            running.wait_for("PATCH", "/verticalpodautoscalers/", times=len(vpas))
            sent = len(running.api.requests)
            return sent > at_once + than_qps * (time.monotonic() - began_s)

        options = ("--kube-api-qps", qps, "--kube-api-burst", burst)
        return bool(live.run(probe, *options, verticalpodautoscalers=vpas))

    assert not is_faster(40.0, qps=20, burst=1)
    assert is_faster(1.0, qps=500, burst=1)
    assert is_faster(1.0, qps=1, burst=500)


@pytest.mark.option("phasewise recommender", "--address")
def test_address_sets_where_it_listens(live: LiveCommand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert live.run(lambda running: running.endpoints.server_address[1], "--address", f"127.0.0.1:{port}") == port


@pytest.mark.option("phasewise recommender", "--checkpoints-timeout", "--checkpoints-gc-interval")
def test_checkpoint_timeout_and_gc_interval_apply(live: LiveCommand) -> None:
    def written(running: Running) -> bool:
        running.rounds()
        return running.count("POST", "/verticalpodautoscalercheckpoints") > 0

    assert (live.run(written), live.run(written, "--checkpoints-timeout", "0.000001s")) == (True, False)
    listed = "/autoscaling.k8s.io/v1/verticalpodautoscalercheckpoints"
    assert live.run(lambda running: running.wait_for("GET", listed, times=3), "--checkpoints-gc-interval", "0.001s")
    assert live.run(lambda running: (running.rounds(5), running.count("GET", listed))[1]) == 1


@pytest.mark.option("phasewise recommender", "--checkpoint-interval")
def test_checkpoint_interval_sets_how_often_checkpoints_are_written(live: LiveCommand) -> None:
    def written(running: Running) -> int:
        return sum("/verticalpodautoscalercheckpoints" in path for _, path, _ in running.api.written)

    def several(running: Running) -> bool:
        return wait_until(lambda: written(running) > 2, "several checkpoints", timeout_s=60, every_s=0.02)

    assert live.run(several, "--checkpoint-interval", "0.1s")
    assert live.run(lambda running: (running.rounds(6), written(running))[1], "--checkpoint-interval", "1h") == 1


@pytest.mark.option("phasewise recommender", "--log-format", "--log-level")
def test_log_format_and_level_apply(live: LiveCommand) -> None:
    live.run(lambda running: running.rounds(1), "--log-format", "json")
    assert json.loads(live.err.splitlines()[0])["level"] == "info"
    live.run(lambda running: running.rounds(1), "--log-level", "error")
    assert "INFO" not in live.err


@pytest.mark.option("phasewise recommender", "--record", "--record-size", "--record-files")
def test_record_options_set_the_file_its_size_and_the_number_of_files(live: LiveCommand, tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    live.run(lambda running: running.rounds(3), "--record", file)
    assert pieces_of(file) == [file]
    small = tmp_path / "b.rec"
    live.run(lambda running: running.rounds(3), "--record", small, "--record-size", "0.000001")
    assert len(pieces_of(small)) > 1
    few = tmp_path / "c.rec"
    live.run(lambda running: running.rounds(4), "--record", few, "--record-size", "0.000001", "--record-files", "2")
    assert len(pieces_of(few)) == 2
    assert "the record ends here: it has its 2 files, all of full size" in live.err


LEASE = ("--leader-elect", "--leader-elect-lease-duration", "2000s", "--leader-elect-renew-deadline", "1000s")


def lease_of(running: Running) -> tuple[str, Json]:
    """Path and body of the first lease that is created."""
    running.wait_for("POST", "/leases")
    return next((path, body) for _, path, body in running.api.written if "/leases" in path)


@pytest.mark.option("phasewise recommender", "--leader-elect", "--leader-elect-resource-namespace", "--shard")
@pytest.mark.option("phasewise recommender", "--leader-elect-resource-name", "--leader-elect-lease-duration")
def test_leader_election_options_set_the_lease(live: LiveCommand) -> None:
    path, lease = live.run(lease_of, *LEASE)
    assert ("/namespaces/kube-system/" in path, lease["metadata"]["name"]) == (True, "phasewise-recommender")
    assert lease["spec"]["leaseDurationSeconds"] == 2000
    assert "/namespaces/here/" in live.run(lease_of, *LEASE, "--leader-elect-resource-namespace", "here")[0]
    named = ("--leader-elect-resource-name", "ours", "--shard", "1/3")
    assert live.run(lease_of, *LEASE, *named)[1]["metadata"]["name"] == "ours-1-of-3"
    assert live.run(lambda running: (running.rounds(1), running.count("POST", "/leases"))[1]) == 0


@pytest.mark.option("phasewise recommender", "--leader-elect-retry-period")
def test_retry_period_sets_how_often_the_lease_is_read(live: LiveCommand) -> None:
    live.run(
        lambda running: running.wait_for("GET", "/leases/", times=4), *LEASE, "--leader-elect-retry-period", "0.05s"
    )

    def reads_soon_after(running: Running) -> int:
        running.wait_for("GET", "/leases/")
        time.sleep(0.3)
        return running.count("GET", "/leases/")

    assert live.run(reads_soon_after, *LEASE, "--leader-elect-retry-period", "400s") == 1


@pytest.mark.option("phasewise recommender", "--leader-elect-renew-deadline")
def test_renew_deadline_sets_how_long_it_leads_without_the_api_server(live: LiveCommand) -> None:
    def gives_up(running: Running) -> bool:
        leads = lambda: running.election is not None and running.election.is_leader  # noqa: E731
        wait_until(leads, "it to lead", timeout_s=60, every_s=0.02)
        running.api.silent = True
        time.sleep(1.0)
        return wait_until(lambda: not leads(), "it to give up", timeout_s=20) if short else not leads()

    for short, times in ((True, ("15s", "1s", "0.2s")), (False, ("2000s", "1000s", "0.2s"))):
        names = ("lease-duration", "renew-deadline", "retry-period")
        options = [word for name, value in zip(names, times, strict=True) for word in (f"--leader-elect-{name}", value)]
        assert live.run(gives_up, "--leader-elect", *options) is short
