"""Metrics of the whole extender, with unreadable objects among others."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from extender.web.server import Server
from tests.fakes.served_commands import fake_api, kubeconfig, run_until
from tests.rig.waiting import wait_until
from tests.worlds.placement import node_json, pod_json


def stamped(raw: dict[str, Any], seconds_ago: float) -> dict[str, Any]:
    raw["metadata"]["creationTimestamp"] = datetime.fromtimestamp(time.time() - seconds_ago, UTC).isoformat(
        "T", "seconds"
    )
    raw["metadata"]["resourceVersion"] = "1"
    return raw


def test_unreadable_objects_and_unknown_nodes_are_counted_and_affect_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [stamped(node_json("a"), 3600.0), stamped(node_json("b", cpu="eight"), 50.0)]
    pods = [
        stamped(pod_json("full", node="a", memory="31Gi"), 100.0),
        stamped(pod_json("odd", node="a", memory="1Q"), 20.0),
    ]
    answers: dict[str, Any] = {}

    def probe(server: Server) -> None:
        url = f"http://127.0.0.1:{server.port}"
        with urllib3.PoolManager() as pool:
            wait_until(lambda: pool.request("GET", f"{url}/readyz").status == 200, "the extender to be ready")
            for name, cpu in (("good", "1"), ("bad", "1Q")):
                args = {"Pod": pod_json(name, cpu=cpu, memory="8Gi"), "NodeNames": ["b", "a", "new"]}
                answer = pool.request("POST", f"{url}/filter", json=args)
                answers[name] = answer.status, answer.json()
            answers["page"] = pool.request("GET", f"{url}/metrics").data.decode()

    with fake_api(nodes=nodes, pods=pods) as api:
        run_until(monkeypatch, probe, "extender", "serve", "--address", "127.0.0.1:0", "--kubeconfig",
                  kubeconfig(tmp_path, here=api))  # fmt: skip
    assert answers["good"][0] == 200
    assert answers["good"][1]["NodeNames"] == ["b", "new"], "node a is full"
    assert answers["bad"][0] == 400
    assert "1Q" in answers["bad"][1]["Error"]
    metrics = dict(line.rsplit(" ", 1) for line in answers["page"].splitlines() if not line.startswith("#"))
    assert metrics["phasewise_extender_unreadable_objects"] == "2.0"
    assert metrics["phasewise_extender_known_nodes"] == "1.0"
    assert metrics["phasewise_extender_unknown_nodes"] == "2.0"
    assert metrics['phasewise_extender_calls_total{status="400",verb="filter"}'] == "1.0"
    assert 99.0 < float(metrics["phasewise_extender_lag_seconds"]) < 3000.0, "`full` is the newest that is readable"
