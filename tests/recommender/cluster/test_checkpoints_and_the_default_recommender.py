"""The real default recommender reads checkpoints that ours wrote, and ours those that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from recommender.base.records import Block
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.vpas.checkpoints import CHECKPOINTS, Checkpoints
from recommender.policies.histogram import Estimate, HistogramSession
from recommender.policies.histogram_checkpoint import checkpoint_status, session_of
from tests.rig.cluster import Cluster
from tests.rig.waiting import wait_until

MIB = 2**20
START_AGO_S = 3 * 86400


def two_days_of_use() -> HistogramSession:
    """Half a core and 512 MiB, 12 % of the time two cores and 3 GiB; a sample per minute, starting three days ago."""
    session, samples = HistogramSession(), 2880
    busy = (np.arange(samples) % 100 < 12)[:, None]
    usage = np.where(busy, [2.0, 3072.0 * MIB], [0.5, 512.0 * MIB])
    start_s = int(datetime.now(UTC).timestamp()) - START_AGO_S
    session.advance(Block(usage, start_s + 60 * np.arange(samples), np.array([], np.int64)))
    return session


def recommended(api: Api, namespace: str) -> dict[str, Any]:
    vpa = api.get(path_of(VPAS, namespace, "web"))
    entries = ((vpa.get("status") or {}).get("recommendation") or {}).get("containerRecommendations") or []
    return next((entry for entry in entries if entry["containerName"] == "app"), {})


def amounts(entry: dict[str, Any], name: str) -> list[float]:
    return [parse_quantity(entry[name][resource]) for resource in ("cpu", "memory")]


def agrees(entry: dict[str, Any], estimate: Estimate) -> bool:
    return bool(entry) and all(
        amounts(entry, field) == bound.tolist()
        for field, bound in (
            ("target", estimate.target),
            ("lowerBound", estimate.lower),
            ("upperBound", estimate.upper),
        )
    )


@pytest.fixture
def start_default_recommender(cluster: Cluster) -> Iterator[Callable[[], object]]:
    """Restarts the default recommender, which reads checkpoints once; stops it, as it deletes those of other tests."""
    cluster.vpa_resources()
    yield cluster.vpa_recommender
    if "vpa-recommender" in cluster.servers:
        cluster.dismiss("vpa-recommender")


def test_the_default_recommender_and_ours_continue_from_each_others_checkpoints(
    api: Api, namespace: str, start_default_recommender: Callable[[], object]
) -> None:
    web, now_s = ObjectKey(namespace, "web"), datetime.now(UTC).timestamp()
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "none"}]}}
    spec: dict[str, Any] = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "web"}
    api.create(path_of(("apps/v1", "deployments"), namespace), {"metadata": metadata, "spec": spec})
    target = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    vpa = {"apiVersion": VPAS[0], "kind": "VerticalPodAutoscaler", "metadata": metadata, "spec": target}
    api.create(path_of(VPAS, namespace), vpa)  # it names no recommender: the default one takes it

    session = two_days_of_use()
    checkpoints = Checkpoints(api, lambda: 0.0, namespace)
    report = checkpoints.write({web: lambda: {"app": checkpoint_status([session], now_s)}}, deadline_s=1.0)
    assert report.written == 1
    before = api.get(path_of(CHECKPOINTS, namespace, "web-app"))["status"]
    start_default_recommender()
    wait_until(
        lambda: agrees(recommended(api, namespace), session.estimate()),
        f"the default recommender to publish the estimate of our histogram: {session.estimate()}",
        timeout_s=60,
    )
    wait_until(
        lambda: (
            api.get(path_of(CHECKPOINTS, namespace, "web-app"))["status"]["lastUpdateTime"] > before["lastUpdateTime"]
        ),
        "the default recommender to write its own checkpoint",
        timeout_s=90,
    )
    (loaded,) = checkpoints.load({web})
    assert {name: value for name, value in loaded.status.items() if name != "lastUpdateTime"} == {
        name: value for name, value in before.items() if name != "lastUpdateTime"
    }
    assert session_of(loaded.status, str(loaded)).estimate().target.tolist() == session.estimate().target.tolist()
