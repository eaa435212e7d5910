"""bench_moves --real without real nodes: arrivals, Kubernetes objects, and the table."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from benchmarks.moves import output, real
from benchmarks.moves.jobs import KINDS, Arrival, draw_arrivals, job, vpa
from benchmarks.moves.real import ROWS, JobRecord
from benchmarks.node.interpreter import Interpreter
from tests.benchmarks.benches import invoke
from tests.rig.real_node.node import RealNode

TORCH = Interpreter("/opt/env/bin/python", "torch", ("/usr", "/usr"))
NODE = RealNode(SimpleNamespace(), SimpleNamespace(name="worker-0", cgroup="group"))  # type: ignore[arg-type]


def record(
    name: str, kind: str, arrived_s: float, ended_s: float, *stays: tuple[str, float, float], **fields: object
) -> JobRecord:
    return JobRecord(name, kind, arrived_s, ended_s, list(stays), **fields)  # type: ignore[arg-type]


DEFAULT = [
    record("a", "small", 0.0, 100.0, ("worker-0", 1.0, 100.0)),
    record("b", "large", 10.0, 210.0, ("worker-0", 11.0, 210.0)),
]
MOVED = [
    record("a", "small", 0.0, 120.0, ("worker-0", 1.0, 120.0)),
    record(
        "b", "large", 10.0, 110.0, ("worker-0", 11.0, 50.0), ("worker-2", 60.0, 110.0),
        moves=[{"outcome": "back"}, {"outcome": "late"}],
    ),
]  # fmt: skip
BATCHES = {"default": {1: DEFAULT}, "moves": {1: MOVED}}


def test_arrivals_are_random_but_reproducible_with_equally_many_jobs_of_each_kind() -> None:
    coming = draw_arrivals(12, 3, 120.0, "s3")
    assert coming == draw_arrivals(12, 3, 120.0, "s3") != draw_arrivals(12, 4, 120.0, "s3")
    assert sorted(each.kind for each in coming) == sorted([*KINDS] * 4)
    assert [each.at_s for each in coming] == sorted(each.at_s for each in coming)
    assert all(0.0 <= each.at_s <= 120.0 and 1 <= each.run <= 4 for each in coming)
    assert len({each.name for each in coming}) == 12


@pytest.mark.parametrize("moves", [False, True])
def test_a_job_may_run_on_any_of_the_nodes_and_survives_an_eviction(moves: bool) -> None:
    made = job(Arrival("s1-small-0", "small", 2, 5.0), NODE, TORCH, Path("/kept"), 2.0, moves=moves)
    spec, metadata = made["spec"]["template"]["spec"], made["spec"]["template"]["metadata"]
    (main,) = spec["containers"]
    assert main["command"][:3] == ["/opt/env/bin/python", "-m", "tests.jobs.job"]
    flags = dict(zip(main["command"][3::2], main["command"][4::2], strict=True))
    assert flags == {"--class": "rnn-torch", "--run": "2", "--scale": "0.3", "--checkpoint": "/checkpoints/s1-small-0"}
    assert {"name": "checkpoints", "mountPath": "/checkpoints"} in main["volumeMounts"]
    assert {"name": "checkpoints", "hostPath": {"path": "/kept"}} in spec["volumes"]
    assert "kubernetes.io/hostname" not in spec["nodeSelector"]
    assert made["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert metadata["labels"] == {"phasewise.dev/workload": "small"}
    assert ("schedulingGates" in spec, "phasewise.dev/checkpointable" in metadata["annotations"]) == (moves, moves)


@pytest.mark.parametrize(("shares", "mode"), [("", "Off"), ("flowcon", "InPlaceOrRecreate")])
def test_a_vpa_changes_only_cpu_requests_and_only_for_shares(shares: str, mode: str) -> None:
    made = vpa("s1-small-0", shares)
    assert made["spec"]["updatePolicy"]["updateMode"] == mode
    assert made["metadata"]["annotations"] == ({"phasewise.dev/shares": shares} if shares else {})
    (policy,) = made["spec"]["resourcePolicy"]["containerPolicies"]
    assert (policy["controlledResources"], policy["controlledValues"]) == (["cpu"], "RequestsOnly")


def cells(batches: output.Batches) -> list[list[str]]:
    table = output.table(batches)
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]  # type: ignore[arg-type]


def test_the_table_compares_the_same_jobs_with_the_default_scheduler() -> None:
    """Means 150 and 110 s, ends 210 and 120 s, nodes in use for 209 s, and for 119 and 50 s.

    The small one takes 120 s instead of 100."""
    default, moved = cells(BATCHES)
    assert default == [ROWS["default"].title, "150 s", "1.00 (1.00)", "1.00", "1.00", "0 of 2", "0", "0"]
    assert moved == [ROWS["moves"].title, "110 s", "0.73 (0.73)", "0.57", "0.81", "1 of 2", "2", "1"]


def test_a_policy_that_was_run_alone_is_not_compared() -> None:
    assert cells({"moves": {1: MOVED}}) == [[ROWS["moves"].title, "110 s", "", "", "", "0 of 0", "2", "1"]]


def test_stays_and_moves_are_written_and_drawn(tmp_path: Path) -> None:
    output.write_json(tmp_path / "all.json", {"jobs": 2}, BATCHES)
    written = orjson.loads((tmp_path / "all.json").read_bytes())
    assert written["jobs"] == 2
    assert written["rows"]["moves"]["1"][1]["stays"] == [["worker-0", 11.0, 50.0], ["worker-2", 60.0, 110.0]]
    output.draw(tmp_path / "all.png", BATCHES)
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


class FakeApi:
    """A cluster with these pods and Jobs."""

    def __init__(self, pods: list[tuple[str, str, str]], jobs: list[dict[str, object]]) -> None:
        items = [
            {
                "metadata": {"labels": {"batch.kubernetes.io/job-name": name}},
                "spec": {"nodeName": node},
                "status": {"phase": phase},
            }
            for name, node, phase in pods
        ]
        self._jobs = jobs
        response = SimpleNamespace(data=orjson.dumps({"items": items}))
        self.core = SimpleNamespace(list_namespaced_pod=lambda namespace, **_: response)

    def client(self) -> None:
        """Other APIs are not used."""

    def kubectl(self, *_: str) -> str:
        return orjson.dumps({"items": self._jobs}).decode()


def as_job(name: str, moves: str = "[]", **status: int) -> dict[str, object]:
    return {"metadata": {"name": name, "annotations": {"phasewise.dev/moves": moves}}, "status": status}


def observe(cluster: FakeApi, jobs: dict[str, JobRecord], now_s: float) -> None:
    real._observe(cluster, "jobs", jobs, now_s)  # type: ignore[arg-type]


def test_a_stay_lasts_while_the_pod_runs_on_a_node_and_another_begins_elsewhere() -> None:
    jobs = {"a": JobRecord("a", "small", 0.0)}
    for now_s, node in ((1.0, "worker-0"), (2.0, "worker-0"), (9.0, "worker-1"), (10.0, "worker-1")):
        observe(FakeApi([("a", node, "Running"), ("other", node, "Running")], [as_job("a")]), jobs, now_s)
    observe(FakeApi([("a", "worker-1", "Pending")], [as_job("a", '[{"outcome": "back"}]', succeeded=1)]), jobs, 12.0)
    observe(FakeApi([], [as_job("a", succeeded=1)]), jobs, 13.0)
    assert jobs["a"].stays == [("worker-0", 1.0, 2.0), ("worker-1", 9.0, 10.0)]
    assert jobs["a"].ended_s == 12.0


def test_jobs_do_not_resume_from_checkpoints_of_another_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[dict[str, Any]] = []
    api = SimpleNamespace(create_namespaced_job=lambda _, body: created.append(body.to_dict()))
    monkeypatch.setattr(real, "BatchV1Api", lambda _: api)
    monkeypatch.setattr(real, "POLL_INTERVAL_S", 0.0)
    cluster = FakeApi([], [as_job("a", succeeded=1)])
    bench = real.Bench(cluster, [NODE], tmp_path)  # type: ignore[arg-type]
    for namespace in ("default-1", "shares-2"):
        real._run(bench, ROWS["default"], TORCH, namespace, [Arrival("a", "small", 1, 0.0)], 1.0, "seed 0")
    volumes = [volume for body in created for volume in body["spec"]["template"]["spec"]["volumes"]]
    kept = [Path(volume["host_path"]["path"]) for volume in volumes if volume["name"] == "checkpoints"]
    assert kept == [tmp_path / "default-1", tmp_path / "shares-2"]
    assert all(folder.is_dir() for folder in kept)


def test_a_failed_job_ends_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="a failed"):
        observe(FakeApi([], [as_job("a", failed=1)]), {"a": JobRecord("a", "small", 0.0)}, 1.0)


def test_an_unknown_row_is_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.rig.real_node.node.what_is_missing", lambda: "")
    monkeypatch.setattr("benchmarks.node.interpreter.find", lambda *_: TORCH)
    done = invoke("bench_moves", "--real", "--rows", "default,specom")
    assert done.exit_code == 2
    assert "no specom" in done.output


@pytest.mark.parametrize("mode", ["--real", "--validate"])
def test_an_interpreter_that_does_not_run_is_reported_before_anything_starts(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.rig.real_node.node.what_is_missing", lambda: "")
    done = invoke("bench_moves", mode, "--python", "/nowhere/python")
    assert done.exit_code == 1
    assert "does not run as a Python interpreter" in done.output
