"""A Prometheus that starts with a history: loaded in seconds, returned exactly, kept through a crash."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import as_file, files
from typing import Any

import numpy as np
import pytest

from local_cluster import observing
from local_cluster.cluster import Cluster
from local_cluster.observing import BasicAuth, Prometheus, history
from local_cluster.observing.exporter import exporter
from local_cluster.waiting import patience
from recommender.records import CPU, MEMORY, UsageSeries
from recommender.sources.files import open_source

HOURS = 2.5
CONTAINERS = 10
SAMPLES = round(HOURS * 3600)
NAMESPACE = "last-night"


@pytest.fixture(scope="module")
def recorded() -> list[UsageSeries]:
    """Runs of training jobs, recorded each second, each repeated for some hours."""
    with (
        as_file(files("recommender") / "data" / "recordings" / "replay.parquet") as file,
        open_source([file]) as source,
    ):
        runs = [run for run, _ in zip(source, range(CONTAINERS), strict=False)]
    return [observing.repeated(run, HOURS * 3600) for run in runs]


@pytest.fixture(scope="module")
def end_s() -> float:
    """Time of the last sample: as late as possible without rejecting scraped samples as older."""
    return float(int(time.time()))


@pytest.fixture(scope="module")
def with_history(cluster: Cluster, recorded: list[UsageSeries], end_s: float) -> Iterator[Prometheus]:
    """A second Prometheus with that history, which serves a single user over HTTPS."""
    began = time.monotonic()
    series = [
        line
        for number, run in enumerate(recorded)
        for line in observing.container_history(
            run, namespace=NAMESPACE, pod=f"job-{number}", container="training", end_s=end_s
        )
    ]
    blocks = observing.history_blocks(cluster.folder / "history", series, cluster.binaries)
    started = observing.start_prometheus(
        cluster,
        scrape_interval_s=0.5,
        history=blocks,
        name="prometheus-with-history",
        access=BasicAuth(),
        tls=True,
    )
    took_s = time.monotonic() - began
    samples = sum(len(line.times_s) for line in series)
    assert took_s < 60.0 * patience(), f"{samples:,} samples took {took_s:.0f} s"
    yield started
    started.server.stop()


def test_queries_return_the_values_of_the_history(
    with_history: Prometheus, recorded: list[UsageSeries], end_s: float
) -> None:
    window = {"start_s": end_s - SAMPLES + 1, "end_s": end_s, "step_s": 1.0}
    memory = with_history.query_range(f'{history.WORKING_SET}{{namespace="{NAMESPACE}"}}', **window)
    cpu = with_history.query_range(f'rate({history.CPU_SECONDS}{{namespace="{NAMESPACE}"}}[2s])', **window)
    assert len(memory) == len(cpu) == CONTAINERS
    for number, run in enumerate(recorded):
        bytes_, cores = (_values(answer, f"job-{number}") for answer in (memory, cpu))
        np.testing.assert_array_equal(bytes_, run.usage[:, MEMORY])
        np.testing.assert_allclose(cores[-SAMPLES + 2 :], run.usage[2:, CPU], rtol=1e-6, atol=1e-9)


def test_a_killed_prometheus_restarts_with_its_data(
    cluster: Cluster, with_history: Prometheus, recorded: list[UsageSeries]
) -> None:
    with exporter(cluster.authority, "scraped-before-the-crash") as scraped:
        with_history.scrape("before-the-crash", f"{scraped.url}/metrics")
        with_history.wait_for("count_over_time(exported_answer[1m]) >= 2", "two scrapes")
        killed_s = time.time()
        cluster.kill(with_history.server.name)
    cluster.restart(with_history.server.name)
    kept = with_history.query_range("exported_answer", killed_s - 1.0, killed_s, 1.0)
    assert [value for _, value in kept[0]["values"]][-1] == 42.0
    oldest = f'min_over_time({history.WORKING_SET}{{namespace="{NAMESPACE}", pod="job-3"}}[3h])'
    assert with_history.query(oldest)[0]["value"] == recorded[3].usage[:, MEMORY].min()


def _values(answer: list[dict[str, Any]], pod: str) -> np.ndarray:
    (series,) = (one for one in answer if one["labels"]["pod"] == pod)
    return np.array([value for _, value in series["values"]])
