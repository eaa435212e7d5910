"""Each option of the recommender that no target depends on, run whole against an API server that is played."""

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

from local_cluster.waiting import wait_until
from recommender.cli.recommender import release_lease
from recommender.cluster.lease import LeaderElection
from recommender.engine.classes import Classes
from recommender.engine.journal import pieces_of
from recommender.engine.keys import WorkloadKey
from recommender.live.health import _Server
from recommender.live.service import Service
from recommender.policies.demand_curve import DemandCurve
from recommender.policies.memory_runs import AGES, RunMemory
from tests.fakes.command_line import CommandResult
from tests.fakes.records import a_vpa
from tests.fakes.served_commands import FakeApi, fake_api, kubeconfig

Json = dict[str, Any]
Phasewise = Callable[..., CommandResult]


@dataclass
class Running:
    """A recommender at work, and the API server that it asks."""

    api: FakeApi
    service: Service
    endpoints: ThreadingHTTPServer
    election: LeaderElection | None

    def get(self, path: str) -> requests.Response:
        host, port = self.endpoints.server_address[:2]
        return requests.get(f"http://{host!s}:{port}{path}", timeout=10)

    def status_of(self, name: str = "job") -> Json:
        """What was written of a VPA, once something was."""

        def written() -> Json:
            found = [body for _, path, body in self.api.written if f"/verticalpodautoscalers/{name}/status" in path]
            return found[-1] if found else {}

        return wait_until(written, f"the status of {name}", timeout_s=60, every_s=0.02)

    def rounds(self, number: int = 3) -> None:
        """Wait until so many are over."""
        wait_until(
            lambda: self.metric("phasewise_rounds_total") >= number, f"{number} rounds", timeout_s=60, every_s=0.02
        )

    def metric(self, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(self.get("/metrics").text)
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def times(self, method: str, part: str) -> int:
        """How often the API server was asked."""
        return sum(asked == method and part in path for asked, path in self.api.requests)

    def asks(self, method: str, part: str, times: int = 1) -> bool:
        """Wait until the API server was asked for something so often."""
        return wait_until(lambda: self.times(method, part) >= times, f"{method} {part}", timeout_s=60, every_s=0.02)


Probe = Callable[[Running], Any]


@dataclass
class Stage:
    """Runs the command with some options beside those that it always gets."""

    phasewise: Phasewise
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    err: str = ""

    def run(self, probe: Probe, *options: object, **objects: list[Mapping[str, Any]]) -> Any:
        """What the probe found."""
        found: list[Any] = []

        def until(service: Service, ended: threading.Event, endpoints: Any, election: LeaderElection | None) -> None:
            def look() -> None:
                try:
                    found.append(probe(Running(api, service, endpoints, election)))
                finally:
                    ended.set()
                    service.stop()

            looks = threading.Thread(target=look)
            looks.start()
            service.run()
            looks.join()
            if election:
                release_lease(election)
            endpoints.shutdown()
            endpoints.server_close()

        with fake_api(**(a_cluster() | objects)) as api, self.monkeypatch.context() as patch:
            patch.setattr("recommender.cli.recommender.run_until_stopped", until)
            patch.setattr("recommender.cli.recommender.warm_up", lambda *_: None)  # what a round needs it loads itself
            patch.setattr(_Server, "serve_forever", partialmethod(_Server.serve_forever, poll_interval=0.02))
            given = [] if "--kubeconfig" in options else ["--kubeconfig", kubeconfig(self.folder, here=api)]
            address = [] if "--address" in options else ["--address", "127.0.0.1:0"]
            ended = self.phasewise("recommender", *given, *address, "--interval", "0.05s", *options)
        self.err = ended.err
        assert found, ended.err
        return found[0]


@pytest.fixture
def stage(phasewise: Phasewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(phasewise, tmp_path, monkeypatch)


def a_cluster() -> dict[str, list[Mapping[str, Any]]]:
    """A job with a VPA, one pod, what it uses, and a job without a VPA."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"namespace": "ns", "name": "job-1", "uid": "pod"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "controller": True, "name": "job", "uid": "job"}
    resources = {"requests": {"cpu": "2", "memory": "4Gi"}}
    pod = {
        "metadata": metadata | {"ownerReferences": [job], "labels": {"job-name": "job"}},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
        "status": {"phase": "Running"},
    }
    used = {
        "metadata": metadata,
        "timestamp": moment,
        "containers": [{"name": "main", "usage": {"cpu": "500m", "memory": "1Gi"}}],
    }
    jobs = [
        {
            "metadata": {"namespace": "ns", "name": name, "uid": name, "labels": labels},
            "spec": {"selector": {"matchLabels": {"job-name": name}}},
        }
        for name, labels in (("job", {}), ("labelled", {"phasewise.dev/auto": "true"}))
    ]
    return {"verticalpodautoscalers": [a_vpa()], "pods": [pod], "podmetrics": [used], "jobs": jobs}


def spoken_of(running: Running) -> float:
    """VPAs that are ours, after some rounds."""
    running.rounds()
    return running.metric("phasewise_vpas")


@pytest.mark.option("phasewise recommender", "--name", "--ignore-namespace", "--only-namespace")
def test_whose_vpas_are_ours(stage: Stage) -> None:
    assert stage.run(spoken_of) == 1
    assert stage.run(spoken_of, "--name", "another") == 0
    assert stage.run(spoken_of, "--ignore-namespace", "ns") == 0
    assert stage.run(lambda running: running.asks("GET", "/namespaces/ns/pods"), "--only-namespace", "ns")


@pytest.mark.option("phasewise recommender", "--auto")
def test_whether_vpas_are_made(stage: Stage) -> None:
    def looks_for_them(running: Running) -> bool:
        running.rounds()
        return "phasewise_auto_problems" in running.get("/metrics").text

    assert (stage.run(looks_for_them), stage.run(looks_for_them, "--no-auto")) == (True, False)


@pytest.mark.option("phasewise recommender", "--interval")
def test_how_long_it_waits_between_rounds(stage: Stage) -> None:
    def in_a_while(running: Running) -> float:
        running.rounds(1)
        time.sleep(0.3)  # six of those that are waited for here by default
        return running.metric("phasewise_rounds_total")

    assert stage.run(lambda running: running.rounds(3)) is None
    assert stage.run(in_a_while, "--interval", "1h") == 1


@pytest.mark.option("phasewise recommender", "--publish")
def test_who_only_observes_shows_a_profile_and_publishes_nothing(stage: Stage) -> None:
    def published(running: Running) -> bool:
        running.asks("POST", "/phaseprofiles")
        running.rounds()
        return running.times("PATCH", "/verticalpodautoscalers/") > 0

    assert (stage.run(published), stage.run(published, "--publish", "observe")) == (True, False)


@pytest.mark.option("phasewise recommender", "--resize-waiting")
def test_pods_that_have_no_node_yet_are_given_what_stands(stage: Stage) -> None:
    (pod,) = a_cluster()["pods"]
    amount = {"cpu": "1", "memory": "1Gi"}
    entry = {"containerName": "main", "target": amount, "lowerBound": amount, "upperBound": amount}
    status = {"recommendation": {"containerRecommendations": [entry]}}

    def resized(running: Running) -> bool:
        running.rounds()
        return running.times("PATCH", "/pods/job-1/resize") > 0

    waits: dict[str, list[Mapping[str, Any]]] = {
        "pods": [{**pod, "status": {"phase": "Pending"}}],
        "podmetrics": [],
        "verticalpodautoscalers": [a_vpa() | {"status": status}],
    }
    assert (stage.run(resized, **waits), stage.run(resized, "--resize-waiting", **waits)) == (False, True)


@pytest.mark.option("phasewise recommender", "--update-worker-count")
def test_so_many_statuses_are_written_at_a_time(stage: Stage) -> None:
    vpas = [a_vpa(f"vpa-{number}") for number in range(48)]

    def at_once(running: Running) -> int:
        running.asks("PATCH", "/verticalpodautoscalers/", times=len(vpas))
        return running.api.max_concurrent_writes

    assert stage.run(at_once, "--update-worker-count", "1", verticalpodautoscalers=vpas) == 1
    assert stage.run(at_once, "--update-worker-count", "12", verticalpodautoscalers=vpas) > 1


@pytest.mark.option("phasewise recommender", "--profile-ttl")
def test_a_class_is_forgotten_after_so_long(stage: Stage) -> None:
    metadata = {"namespace": "ns", "name": "class.nightly", "uid": "c"}
    state = Classes()
    curve, memory = DemandCurve(15.0, np.ones((40, 2))), RunMemory(1.0, np.ones(AGES), False)
    assert state.learn(WorkloadKey("ns", "nightly"), "main", curve, memory, 600.0, 0.0)
    status = state.status(WorkloadKey("ns", "nightly")) | {"updated": "2020-01-01T00:00:00Z"}
    known = [{"metadata": metadata, "spec": {"class": True}, "status": status}]

    def forgotten(running: Running) -> bool:
        running.rounds()
        return running.times("DELETE", "/phaseprofiles/") > 0

    assert stage.run(forgotten, "--profile-ttl", "1h", phaseprofiles=known)
    assert not stage.run(forgotten, "--profile-ttl", "100000d", phaseprofiles=known)


@pytest.mark.option("phasewise recommender", "--kubeconfig", "--context")
def test_which_api_server_is_asked(stage: Stage) -> None:
    with fake_api(**a_cluster()) as one, fake_api(**a_cluster()) as two:
        file = kubeconfig(stage.folder, one=one, two=two)
        stage.run(lambda running: running.rounds(1), "--kubeconfig", file)
        assert one.requests and not two.requests
        one.requests.clear()
        stage.run(lambda running: running.rounds(1), "--kubeconfig", file, "--context", "two")
        assert two.requests and not one.requests


@pytest.mark.option("phasewise recommender", "--kube-api-qps", "--kube-api-burst")
def test_how_often_the_api_server_is_asked(stage: Stage) -> None:
    """Ten statuses beside what is listed at first: twenty a second and no more, or sooner than one a second would."""
    vpas = [a_vpa(f"vpa-{number}") for number in range(10)]

    def is_faster(than_qps: float, qps: int, burst: int) -> bool:
        began_s = time.monotonic()

        def probe(running: Running) -> bool:
            running.asks("PATCH", "/verticalpodautoscalers/", times=len(vpas))
            asked = len(running.api.requests)
            return asked > 1 + than_qps * (time.monotonic() - began_s)

        options = ("--kube-api-qps", qps, "--kube-api-burst", burst)
        return bool(stage.run(probe, *options, verticalpodautoscalers=vpas))

    assert not is_faster(20.0, qps=20, burst=1)
    assert is_faster(1.0, qps=500, burst=1)
    assert is_faster(1.0, qps=1, burst=500)


@pytest.mark.option("phasewise recommender", "--address")
def test_where_it_answers(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert stage.run(lambda running: running.endpoints.server_address[1], "--address", f"127.0.0.1:{port}") == port


@pytest.mark.option("phasewise recommender", "--checkpoints-timeout", "--checkpoints-gc-interval")
def test_checkpoints_are_written_and_cleared_away_as_is_said(stage: Stage) -> None:
    def written(running: Running) -> bool:
        running.rounds()
        return running.times("POST", "/verticalpodautoscalercheckpoints") > 0

    assert (stage.run(written), stage.run(written, "--checkpoints-timeout", "0.000001s")) == (True, False)
    listed = "/autoscaling.k8s.io/v1/verticalpodautoscalercheckpoints"
    assert stage.run(lambda running: running.asks("GET", listed, times=3), "--checkpoints-gc-interval", "0.001s")
    assert stage.run(lambda running: (running.rounds(5), running.times("GET", listed))[1]) == 1


@pytest.mark.option("phasewise recommender", "--checkpoint-interval")
def test_how_often_a_checkpoint_is_written(stage: Stage) -> None:
    def written(running: Running) -> int:
        return sum("/verticalpodautoscalercheckpoints" in path for _, path, _ in running.api.written)

    def several(running: Running) -> bool:
        return wait_until(lambda: written(running) > 2, "several checkpoints", timeout_s=60, every_s=0.02)

    assert stage.run(several, "--checkpoint-interval", "0.1s")
    assert stage.run(lambda running: (running.rounds(6), written(running))[1], "--checkpoint-interval", "1h") == 1


@pytest.mark.option("phasewise recommender", "--log-format", "--log-level")
def test_what_is_logged_and_how(stage: Stage) -> None:
    stage.run(lambda running: running.rounds(1), "--log-format", "json")
    assert json.loads(stage.err.splitlines()[0])["level"] == "info"
    stage.run(lambda running: running.rounds(1), "--log-level", "error")
    assert "INFO" not in stage.err


@pytest.mark.option("phasewise recommender", "--record", "--record-size", "--record-files")
def test_where_rounds_are_recorded_and_how_large_a_file_becomes(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    stage.run(lambda running: running.rounds(3), "--record", file)
    assert pieces_of(file) == [file]
    small = tmp_path / "b.rec"
    stage.run(lambda running: running.rounds(3), "--record", small, "--record-size", "0.000001")
    assert len(pieces_of(small)) > 1
    few = tmp_path / "c.rec"
    stage.run(lambda running: running.rounds(4), "--record", few, "--record-size", "0.000001", "--record-files", "2")
    assert len(pieces_of(few)) == 2
    assert "the record ends here: it has its 2 files, all of full size" in stage.err


LEASE = ("--leader-elect", "--leader-elect-lease-duration", "2000s", "--leader-elect-renew-deadline", "1000s")


def lease_of(running: Running) -> tuple[str, Json]:
    """Where the first one was made, and what it says."""
    running.asks("POST", "/leases")
    return next((path, body) for _, path, body in running.api.written if "/leases" in path)


@pytest.mark.option("phasewise recommender", "--leader-elect", "--leader-elect-resource-namespace", "--shard")
@pytest.mark.option("phasewise recommender", "--leader-elect-resource-name", "--leader-elect-lease-duration")
def test_which_lease_it_holds(stage: Stage) -> None:
    path, lease = stage.run(lease_of, *LEASE)
    assert ("/namespaces/kube-system/" in path, lease["metadata"]["name"]) == (True, "phasewise-recommender")
    assert lease["spec"]["leaseDurationSeconds"] == 2000
    assert "/namespaces/here/" in stage.run(lease_of, *LEASE, "--leader-elect-resource-namespace", "here")[0]
    named = ("--leader-elect-resource-name", "ours", "--shard", "1/3")
    assert stage.run(lease_of, *LEASE, *named)[1]["metadata"]["name"] == "ours-1-of-3"
    assert stage.run(lambda running: (running.rounds(1), running.times("POST", "/leases"))[1]) == 0


@pytest.mark.option("phasewise recommender", "--leader-elect-retry-period")
def test_how_often_the_lease_is_asked_for(stage: Stage) -> None:
    stage.run(lambda running: running.asks("GET", "/leases/", times=4), *LEASE, "--leader-elect-retry-period", "0.05s")

    def soon(running: Running) -> int:
        running.asks("GET", "/leases/")
        time.sleep(0.3)
        return running.times("GET", "/leases/")

    assert stage.run(soon, *LEASE, "--leader-elect-retry-period", "400s") == 1


@pytest.mark.option("phasewise recommender", "--leader-elect-renew-deadline")
def test_how_long_it_leads_without_a_word_of_the_server(stage: Stage) -> None:
    def gives_up(running: Running) -> bool:
        leads = lambda: running.election is not None and running.election.is_leader  # noqa: E731
        wait_until(leads, "it to lead", timeout_s=60, every_s=0.02)
        running.api.silent = True
        time.sleep(1.0)
        return wait_until(lambda: not leads(), "it to give up", timeout_s=20) if short else not leads()

    for short, times in ((True, ("15s", "1s", "0.2s")), (False, ("2000s", "1000s", "0.2s"))):
        names = ("lease-duration", "renew-deadline", "retry-period")
        options = [word for name, value in zip(names, times, strict=True) for word in (f"--leader-elect-{name}", value)]
        assert stage.run(gives_up, "--leader-elect", *options) is short
