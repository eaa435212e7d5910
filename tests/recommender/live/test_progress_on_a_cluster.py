"""Progress from where jobs really tell it: the log of a real container, an annotation, an HTTP push."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.cluster.cluster import Cluster
from tests.cluster.processes import Server
from tests.cluster.real_node.node import RealNode
from tests.cluster.simulated.nodes import SimulatedNodes
from tests.cluster.simulated.usage import Usage, drive_usage
from tests.cluster.vpa_objects import create_vpa
from tests.cluster.waiting import wait_until
from tests.cluster.workloads import pod_spec, resources, roll_out
from tests.recommender.live.process import ROOT, address_of, install, start_recommender

TOKEN = "of-the-jobs-of-this-test"  # noqa: S105 - an invented one
LEARNS_THEN_STANDS = """\
step=0; loss=1000
while :; do
  echo "step=$step loss=$loss lr=0.1"
  step=$((step + 1))
  [ $loss -le 200 ] || loss=$((loss - 20))
  sleep 1
done
"""
"""It loses a fiftieth of its first loss a second for forty seconds, and then nothing any more."""


@pytest.fixture(scope="module")
def account(vpa: Cluster, metrics_server: Cluster) -> Path:
    return install(vpa)


@pytest.fixture
def ours(cluster: Cluster, account: Path, tmp_path: Path) -> Iterator[Server]:
    """The recommender, judging progress every five seconds."""
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    server = start_recommender(
        cluster, account, "--progress-interval", "5s", "--progress-token-file", str(token_file), name="progress"
    )
    yield server
    server.stop()


def profile_of(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    return json.loads(cluster.kubectl("get", "pp", name, "-n", namespace, "-o", "json"))["status"]


def wait_for_category(cluster: Cluster, namespace: str, name: str, category: str) -> dict[str, Any]:
    """The profile once its one pod is in a category."""

    def there() -> dict[str, Any] | None:
        status = profile_of(cluster, namespace, name)
        return status if [pod.get("category") for pod in status["pods"]] == [category] else None

    found = wait_until(there, f"{name} to be {category}", timeout_s=180)
    assert found is not None
    return found


def test_the_log_of_a_real_job_tells_that_it_learns_and_then_that_it_has_learned(
    cluster: Cluster, real_node: RealNode, namespace: str, ours: Server
) -> None:
    spec = real_node.pod("none", LEARNS_THEN_STANDS)["spec"]
    del spec["restartPolicy"]
    roll_out(cluster, namespace, "learner", spec, annotations={"phasewise.dev/progress-log": "true"})
    create_vpa(cluster, namespace, "learner", update_mode="Off")

    learning = wait_for_category(cluster, namespace, "learner", "Progressing")
    assert learning["category"] == "Progressing"
    learned = wait_for_category(cluster, namespace, "learner", "Converged")
    assert learned["pods"][0]["progress"] < 0.01
    assert "Converged" in cluster.kubectl("get", "pp", "learner", "-n", namespace)

    version = ("get", "pp", "learner", "-n", namespace, "-o", "jsonpath={.metadata.resourceVersion}")
    ours.kill()
    killed = cluster.kubectl(*version)
    ours.start().wait_ready()
    wait_until(lambda: cluster.kubectl(*version) != killed, "the profile to be written again", timeout_s=60)
    again = wait_for_category(cluster, namespace, "learner", "Converged")
    assert again["pods"][0]["categorySince"] == learned["pods"][0]["categorySince"]
    explain = [sys.executable, "-m", "recommender", "explain", f"{namespace}/learner", "--kubeconfig"]
    told = subprocess.run([*explain, cluster.kubeconfig("admin")], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Converged" in told.stdout, told.stdout


def test_an_annotation_and_a_push_tell_as_much(
    cluster: Cluster, simulated_nodes: SimulatedNodes, namespace: str, ours: Server
) -> None:
    spec = pod_spec(simulated_nodes.selector, resources({"cpu": "1", "memory": "2Gi"}))
    pods = {}
    for name in ("annotated", "pushing"):
        pods[name] = roll_out(cluster, namespace, name, spec)[0].metadata.name
        drive_usage(cluster, namespace, pods[name], Usage(0.4, 2.0**30, averaged_over_s=10))
        create_vpa(cluster, namespace, name, update_mode="Off")
    url = f"http://{address_of(ours)}/progress"
    body = {"namespace": namespace, "pod": pods["pushing"]}
    steps = iter(range(1, 1000))

    def say() -> bool:
        """A loss that halves each time, in both ways; until both are seen to learn."""
        step = next(steps)
        loss = 1000.0 - 5.0 * step
        words = f"phasewise.dev/progress=loss={loss} step={step}"
        cluster.kubectl("annotate", "--overwrite", "pod", pods["annotated"], words, "-n", namespace)
        pushed = requests.post(
            url, json={**body, "loss": loss, "step": step}, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5
        )
        assert pushed.status_code == 204
        statuses = [profile_of(cluster, namespace, name) for name in pods]
        return all(status.get("category") == "Progressing" for status in statuses)

    wait_until(say, "both to be seen to learn", timeout_s=120, every_s=1.0)
    assert requests.post(url, json=body, timeout=5).status_code == 401
