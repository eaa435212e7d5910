"""The default recommender and Phasewise on the same pods: statuses of the same form, and in doubt the same numbers.

Each Deployment has two VPAs that name different recommenders. Both start from the same two days of history; Phasewise
is made to doubt its forecast by a step so long that it has too few samples.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from recommender.base.records import Block
from recommender.cluster.access.connection import connect
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.checkpoints import Checkpoints
from recommender.policies.histogram import HistogramSession
from recommender.policies.histogram_checkpoint import checkpoint_status
from tests.recommender.live.behaviours import BOTH, MIB, Case, policy
from tests.recommender.live.scene import Json, Scene
from tests.rig.cluster import Cluster
from tests.rig.recommender import install
from tests.rig.simulated.nodes import SimulatedNodes

CASES = {
    "plain": Case(),
    "two-containers": Case(containers=BOTH),
    "capped": Case(policies=[policy(maxAllowed={"cpu": "300m", "memory": "1Gi"})]),
    "cpu-only": Case(policies=[policy(controlledResources=["cpu"])]),
    "one-off": Case(containers=BOTH, policies=[policy("side", mode="Off", controlledValues="RequestsOnly")]),
    "no-pods": Case(replicas=0),
    "no-target": Case(spec={"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "missing"}}),
}
WITHOUT_HISTORY = {"no-pods", "no-target"}
OURS, THEIRS = "ours-", "theirs-"
TOLERANCE = 0.03
"""Both take each sample once, but not in the same second; a bucket of the histogram is 5 % wide."""

DOUBT = "LowConfidence"


def two_days_of_use() -> Json:
    """A checkpoint of a sample a minute: half a core and 700 MiB, and 12 % of the time two cores and 1.5 GiB."""
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
        for prefix in (OURS, THEIRS):
            body = case.vpa(name)
            body["metadata"]["name"] = prefix + name
            if prefix == THEIRS:
                del body["spec"]["recommenders"]
            made.create_vpa(body)
            if name not in WITHOUT_HISTORY:
                kept = dict.fromkeys(case.containers, history)
                checkpoints.write({ObjectKey(made.namespace, prefix + name): lambda kept=kept: kept}, deadline_s=1.0)
    vpa.vpa_recommender()  # it reads checkpoints at its start
    made.start("--step", "10m", "--cycle", "1h")
    yield made
    made.stop()
    vpa.dismiss("vpa-recommender")


def form_of(vpa: Json) -> tuple[dict[str, tuple[str, ...]], list[str], int]:
    """Conditions without times and doubts, the fields of each entry, and the generation.

    For an unreadable target the default recommender also reports that there are no pods; Phasewise does not.
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
def test_both_statuses_have_the_same_form(scene: Scene, name: str) -> None:
    def same() -> Any:
        ours, theirs = (form_of(scene.vpa(prefix + name)) for prefix in (OURS, THEIRS))
        assert ours == theirs
        return ours

    scene.wait(same, f"statuses of {name} of the same form")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if name not in WITHOUT_HISTORY])
def test_in_doubt_phasewise_publishes_the_numbers_of_the_default_recommender(scene: Scene, name: str) -> None:
    def same() -> bool:
        assert scene.conditions(OURS + name)[DOUBT]["status"] == "True"
        for container in CASES[name].containers:
            for bound in ("target", "lowerBound", "upperBound", "uncappedTarget"):
                ours, theirs = (scene.target(prefix + name, container, bound) for prefix in (OURS, THEIRS))
                assert ours == pytest.approx(theirs, rel=TOLERANCE), (container, bound)
        return True

    scene.wait(same, f"the same numbers for {name} from both")
