"""Training progress from its real sources: the log of a real container, an annotation, an HTTP push."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from recommender.cli.main import cli
from tests.recommender.live.written import profile_of
from tests.rig.autoscaling import create_vpa
from tests.rig.cluster import Cluster
from tests.rig.processes import Server
from tests.rig.real_node.node import RealNode
from tests.rig.recommender import address_of, install, start_recommender
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, drive_usage
from tests.rig.waiting import wait_until
from tests.rig.workloads import pod_spec, resources, roll_out

TOKEN = "of-the-jobs-of-this-test"  # noqa: S105 - an invented one
CONVERGING = """\
step=0; loss=1000; echo "stage=train"
while :; do
  echo "step=$step loss=$loss lr=0.1"
  step=$((step + 1))
  [ $step != 20 ] || echo "Saving model checkpoint to out/checkpoint-20"
  [ $loss -le 200 ] || loss=$((loss - 20))
  sleep 1
done
"""
"""Its loss falls by a fiftieth of the first one each second for forty seconds, and then no further."""


@pytest.fixture(scope="module")
def ours(vpa: Cluster, metrics_server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The recommender, judging progress every five seconds."""
    token_file = tmp_path_factory.mktemp("progress") / "token"
    token_file.write_text(TOKEN)
    server = start_recommender(
        vpa, install(vpa), "--progress-interval", "5s", "--progress-token-file", str(token_file), name="progress"
    )
    yield server
    server.stop()


def wait_for_category(cluster: Cluster, namespace: str, name: str, category: str) -> dict[str, Any]:
    """The profile's status once its one pod is in a category."""

    def status_in_category() -> dict[str, Any] | None:
        status: dict[str, Any] = profile_of(cluster, namespace, name)["status"]
        return status if [pod.get("category") for pod in status["pods"]] == [category] else None

    found = wait_until(status_in_category, f"{name} to be {category}", timeout_s=180)
    assert found is not None
    return found


def test_the_log_of_a_real_job_shows_that_it_progresses_and_then_converges(
    cluster: Cluster, real_node: RealNode, namespace: str, ours: Server
) -> None:
    spec = real_node.pod("none", CONVERGING)["spec"]
    del spec["restartPolicy"]
    roll_out(cluster, namespace, "learner", spec, annotations={"phasewise.dev/progress-log": "true"})
    create_vpa(cluster, namespace, "learner", update_mode="Off")

    progressing = wait_for_category(cluster, namespace, "learner", "Progressing")
    assert progressing["category"] == "Progressing"
    converged = wait_for_category(cluster, namespace, "learner", "Converged")
    assert converged["pods"][0]["progress"] < 0.01
    assert converged["pods"][0]["stage"] == "train"
    assert converged["pods"][0]["categorySince"] > converged["pods"][0]["checkpointAt"]
    assert "Converged" in cluster.kubectl("get", "pp", "learner", "-n", namespace)

    ours.kill()
    version = version_of(cluster, namespace, "learner")
    ours.start().wait_ready()
    wait_until(
        lambda: version_of(cluster, namespace, "learner") != version, "the profile to be written again", timeout_s=60
    )
    again = wait_for_category(cluster, namespace, "learner", "Converged")
    for field in ("categorySince", "checkpointAt"):
        assert again["pods"][0][field] == converged["pods"][0][field]
    explain = ["explain", f"{namespace}/learner", "--kubeconfig", str(cluster.kubeconfig("admin"))]
    explained = CliRunner().invoke(cli, explain, catch_exceptions=False)
    assert "Converged" in explained.output, explained.output


def version_of(cluster: Cluster, namespace: str, name: str) -> str:
    return str(profile_of(cluster, namespace, name)["metadata"]["resourceVersion"])


def test_progress_is_read_from_an_annotation_and_from_a_push(
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

    def report_loss() -> bool:
        """Reports a loss that falls each time, in both ways; true once both pods are progressing."""
        step = next(steps)
        loss = 1000.0 - 5.0 * step
        annotations = {"phasewise.dev/progress": f"loss={loss} step={step}"}
        cluster.core.patch_namespaced_pod(pods["annotated"], namespace, {"metadata": {"annotations": annotations}})
        pushed = requests.post(
            url, json={**body, "loss": loss, "step": step}, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=5
        )
        assert pushed.status_code == 204
        statuses = [profile_of(cluster, namespace, name)["status"] for name in pods]
        return all(status.get("category") == "Progressing" for status in statuses)

    wait_until(report_loss, "both to be progressing", timeout_s=120, every_s=1.0)
    assert requests.post(url, json=body, timeout=5).status_code == 401
