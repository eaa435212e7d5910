"""What the CronJob of manifests/recommender/training.yaml does, container by container, with its account's rights."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import as_file, files
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import yaml

from recommender.records import UsageSeries
from recommender.sources.files import open_source
from tests.cluster import observing
from tests.cluster.cluster import Cluster
from tests.cluster.observing import Prometheus
from tests.cluster.waiting import wait_until
from tests.recommender.live.process import MANIFESTS, ROOT, install, metric, start_recommender

TRAINING = MANIFESTS / "recommender" / "training.yaml"
MODEL = "configmap:kube-system/phasewise-model"
STEP_S, LONG_S, RUNS = 15.0, 2 * 3600, 8


@pytest.fixture(scope="module")
def recorded(cluster: Cluster) -> Iterator[Prometheus]:
    """A Prometheus that remembers two hours of several training jobs."""
    series = []
    with (
        as_file(files("recommender") / "data" / "recordings" / "replay.parquet") as file,
        open_source([file]) as source,
    ):
        for number, run in enumerate(islice(source, RUNS)):
            usage = np.nan_to_num(run.usage[:: round(STEP_S)], nan=0.1)
            thinned = UsageSeries("run", run.timestamps[:: round(STEP_S)], STEP_S, usage)
            long = observing.repeated(thinned, LONG_S)
            end_s = int(time.time()) - 600
            series += observing.container_history(
                long, namespace="lab", pod=f"job-{number}", container="main", end_s=end_s
            )
    started = observing.start_prometheus(
        cluster,
        targets={},
        scrape_interval_s=60,
        history=observing.history_blocks(cluster.folder / "lab", series, cluster.binaries),
        name="prometheus-of-the-lab",
    )
    yield started
    started.server.stop()


def containers() -> Iterator[tuple[str, list[str]]]:
    """Names and arguments of the CronJob's containers that are ours, in the order in which they run."""
    (job,) = (found for found in yaml.safe_load_all(TRAINING.read_text()) if found["kind"] == "CronJob")
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        if "args" in container:
            yield container["name"], [str(argument) for argument in container["args"]]


def test_what_a_prometheus_recorded_becomes_the_model_of_a_running_recommender(
    cluster: Cluster, vpa: Cluster, recorded: Prometheus, tmp_path: Path
) -> None:
    account = install(vpa)
    cluster.apply(TRAINING)
    trainer = cluster.service_account("kube-system", "phasewise-trainer")
    ours = start_recommender(cluster, account, "--model", MODEL, name="of-a-trained-model")
    try:
        assert metric(ours, "phasewise_model_info", origin="bundled") == 1.0
        for name, arguments in containers():
            words = [
                argument.replace("http://prometheus.monitoring.svc:9090", recorded.url).replace("/data", str(tmp_path))
                for argument in arguments
            ]
            ended = subprocess.run(
                [sys.executable, "-m", "recommender", *words],
                env={
                    "PYTHONPATH": str(ROOT),
                    "KUBECONFIG": str(trainer),
                    "PATH": "/usr/bin:/bin",
                    "HOME": str(tmp_path),
                },
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert ended.returncode == 0, f"{name}: {ended.stderr}"
        wait_until(lambda: metric(ours, "phasewise_model_info", origin=MODEL) == 1.0, "the new model", timeout_s=30)
        assert metric(ours, "phasewise_model_refused") == 0.0
    finally:
        ours.stop()
