"""The default recommender and ours on the same pods: the same shape, and in doubt the same numbers.

Two VPAs for one Deployment, which differ in the recommender they name. Both start from the same two days of history;
ours is made to doubt its forecast by a grid on which it has too few samples.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from local_cluster.cluster import Cluster
from local_cluster.recommender import install
from local_cluster.simulated.nodes import SimulatedNodes
from recommender.cluster.access.connection import connect
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.checkpoints import Checkpoints
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import checkpoint_status
from recommender.records import Block
from tests.recommender.live.behaviours import BOTH, MIB, Case, policy
from tests.recommender.live.scene import Json, Scene

CASES = {
    "plain": Case(),
    "two-containers": Case(containers=BOTH),
    "capped": Case(policies=[policy(maxAllowed={"cpu": "300m", "memory": "1Gi"})]),
    "cpu-only": Case(policies=[policy(controlledResources=["cpu"])]),
    "one-off": Case(containers=BOTH, policies=[policy("side", mode="Off", controlledValues="RequestsOnly")]),
    "no-pods": Case(replicas=0),
    "no-target": Case(spec={"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"}}),
}
WITHOUT_HISTORY = {"no-pods", "no-target"}
OURS, THEIRS = "ours-", "theirs-"
TOLERANCE = 0.03
"""Both take each sample once, but not in the same second; a bucket of the histogram is 5 % wide."""

DOUBT = "LowConfidence"


def two_days_of_use() -> Json:
    """The checkpoint of half a core and 700 MiB, a tenth of the time two cores and 1.5 GiB, a sample a minute."""
    session, samples = HistogramSession(), 2880
    busy = (np.arange(samples) % 100 < 12)[:, None]
    usage = np.where(busy, [2.0, 1536.0 * MIB], [0.5, 700.0 * MIB])
    start_s = int(datetime.now(UTC).timestamp()) - 2 * 86400 - 3600
    session.advance(Block(usage, start_s + 60 * np.arange(samples), np.array([], np.int64)))
    return checkpoint_status([session], time.time())


@pytest.fixture(scope="module")
def scene(vpa: Cluster, metrics_server: Cluster, simulated_nodes: SimulatedNodes) -> Iterator[Scene]:
    made = Scene(metrics_server, vpa.namespace("side-by-side"), simulated_nodes.selector, install(vpa))
    made.cluster.apply(*(made.deployment(name, case) for name, case in CASES.items()))
    checkpoints = Checkpoints(connect(vpa.kubeconfig("admin"), user_agent="phasewise-tests"), lambda: 0.0)
    history = two_days_of_use()
    for name, case in CASES.items():
        for whose in (OURS, THEIRS):
            body = case.vpa(name)
            body["metadata"]["name"] = whose + name
            if whose == THEIRS:
                del body["spec"]["recommenders"]
            made.create_vpa(body)
            if name not in WITHOUT_HISTORY:
                kept = dict.fromkeys(case.containers, history)
                checkpoints.write({ObjectKey(made.namespace, whose + name): lambda kept=kept: kept}, deadline_s=1.0)
    vpa.vpa_recommender()  # it reads checkpoints at its start
    made.start("--step", "10m", "--cycle", "1h")
    yield made
    made.stop()
    vpa.dismiss("vpa-recommender")


def told(vpa: Json) -> tuple[dict[str, tuple[str, ...]], list[str], int]:
    """Conditions but for times and doubts, the names of the fields in each entry, and the generation.

    Of a target that cannot be read the default recommender says besides that it has no pods; ours says it once.
    """
    status = vpa["status"]
    unreadable = any(found["type"] == "ConfigUnsupported" for found in status["conditions"])
    conditions = {
        found["type"]: (found["status"], "" if unreadable else found.get("reason", ""))
        for found in status["conditions"]
        if found["type"] != DOUBT and not (unreadable and found["type"] == "NoPodsMatched")
    }
    entries = status["recommendation"].get("containerRecommendations", [])
    fields = [
        f"{entry['containerName']} {bound} {sorted(entry[bound])}"
        for entry in entries
        for bound in sorted(entry)
        if bound != "containerName"
    ]
    return conditions, fields, status["observedGeneration"]


@pytest.mark.parametrize("name", CASES)
def test_both_say_the_same_in_the_same_form(scene: Scene, name: str) -> None:
    def same() -> Any:
        ours, theirs = (told(scene.vpa(whose + name)) for whose in (OURS, THEIRS))
        assert ours == theirs
        return ours

    scene.wait(same, f"the same about {name} from both")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if name not in WITHOUT_HISTORY])
def test_in_doubt_ours_says_the_numbers_of_the_default_one(scene: Scene, name: str) -> None:
    def same() -> bool:
        assert scene.conditions(OURS + name)[DOUBT]["status"] == "True"
        for container in CASES[name].containers:
            for bound in ("target", "lowerBound", "upperBound", "uncappedTarget"):
                ours, theirs = (scene.target(whose + name, container, bound) for whose in (OURS, THEIRS))
                assert ours == pytest.approx(theirs, rel=TOLERANCE), (container, bound)
        return True

    scene.wait(same, f"the same numbers for {name} from both")
