"""What the recommender survives: SIGKILL at any moment, and loss of the API server, Prometheus or a CRD."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import pytest
from kubernetes import client

from recommender.cluster.access.connection import connect
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.watching.reflector import Reflector
from recommender.engine.persistence import unpack
from tests.recommender.live.behaviours import GIB, PLENTY, Case, published_status
from tests.recommender.live.scene import Scene, target_in
from tests.rig.cluster import Cluster
from tests.rig.observing import Prometheus
from tests.rig.processes import Server
from tests.rig.recommender import FAST, MANIFESTS, NAME, Requests, install, start_recommender, writes
from tests.rig.rig import ROOT
from tests.rig.simulated.nodes import SimulatedNodes
from tests.rig.simulated.usage import Usage, drive_usage
from tests.rig.waiting import NotInTime, wait_until

KILLS, LONGEST_LIFE_S = 20, 2.5
QUICK = ("--step", "2s", "--cycle", "20s", "--rate-window", "10s", "--history", "none", "--shrink-after", "1h")
"""With a Prometheus that scrapes every second. No history is read from it, so that only our own state survives; memory
does not shrink during a test."""

OUR_VPAS, FOREIGN_VPA = ("phased", "clockwork"), "theirs"

Logged = Callable[[str], bool]


@pytest.fixture(scope="module")
def scene(vpa: Cluster, simulated_nodes: SimulatedNodes, prometheus: Prometheus) -> Iterator[Scene]:
    """A workload with phases, its VPA, and a VPA of another recommender."""
    made = Scene(vpa, vpa.namespace("faults"), simulated_nodes.selector, install(vpa))
    made.cluster.apply(*(made.deployment(name, Case()) for name in (*OUR_VPAS, FOREIGN_VPA)))
    (pod,) = wait_until(
        lambda: made.cluster.core.list_namespaced_pod(made.namespace, label_selector="app=phased").items, "the pod"
    )
    cpu = np.repeat([0.2, 1.5, 0.4, 1.5], 8)
    memory = np.repeat([1.0, 2.0, 3.0, 1.5], 8) * GIB
    drive_usage(vpa, made.namespace, pod.metadata.name, Usage(cpu, memory, repeat=True))
    for name in OUR_VPAS:
        made.create_vpa(Case().vpa(name))
    made.create_vpa(Case(spec={"recommenders": [{"name": "another"}]}).vpa(FOREIGN_VPA), published_status())
    prometheus.wait_for(
        f'count_over_time(container_memory_working_set_bytes{{pod="{pod.metadata.name}"}}[1m]) > 20',
        "a known scrape interval",
    )
    yield made
    made.stop()


@dataclass
class PublishedVersions:
    """What was published for the phased workload, version by version, while recommenders came and went.

    Attributes
    ----------
    targets
        Cores and bytes; None without a target.
    samples
        The number of samples of the container in the profile.
    """

    scene: Scene
    targets: list[tuple[float, float] | None] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[PublishedVersions]:
        """Record every version that the API server has."""
        api = connect(self.scene.cluster.kubeconfig("admin"), user_agent="phasewise-tests")
        chosen: Any = {"field_selector": "metadata.name=phased"}
        watches = [
            Reflector(api, path_of(VPAS, self.scene.namespace), self._vpa, **chosen),
            Reflector(api, path_of(PROFILES, self.scene.namespace), self._profile, **chosen),
        ]
        for watch in watches:
            assert watch.start().wait_synced(10)
        try:
            yield self
        finally:
            for watch in watches:
                watch.stop()
        assert not any(watch.broken or watch.lists > 1 for watch in watches), "a version may have been missed"

    def _vpa(self, raw: Any) -> None:
        target = target_in(raw.get("status", {}))
        self.targets.append((target["cpu"], target["memory"]) if target else None)

    def _profile(self, raw: Any) -> None:
        if state := raw.get("status", {}).get("state"):
            members = unpack(state, "the profile").get("members", {})
            self.samples += [int(member["samples"]) for member in members.values()]


@contextlib.contextmanager
def spawning(scene: Scene, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a recommender for each line written to it."""
    command = [sys.executable, "-m", "tests.recommender.live.forking", "recommender", "--kubeconfig", scene.account]
    with (
        (scene.cluster.folder / "logs" / "forking.log").open("ab") as log,
        subprocess.Popen(
            [*map(str, command), *FAST, *options],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        ) as spawner,
    ):  # fmt: skip
        assert spawner.stdout is not None
        assert spawner.stdout.readline() == "ready\n"
        try:
            yield spawner
        finally:
            assert spawner.stdin is not None
            spawner.stdin.close()  # it ends after the last recommender
            for child in psutil.Process(spawner.pid).children():
                child.kill()


def spawn(spawner: subprocess.Popen[str]) -> int:
    assert spawner.stdin is not None
    assert spawner.stdout is not None
    spawner.stdin.write("one more\n")
    spawner.stdin.flush()
    return int(spawner.stdout.readline())


def test_a_recommender_killed_at_any_moment_continues_and_writes_nothing_wrong(
    scene: Scene, prometheus: Prometheus
) -> None:
    chance = random.Random(5)  # noqa: S311 - when it is killed
    address = f"127.0.0.1:{scene.cluster.ports.free()}"
    published = PublishedVersions(scene)
    with spawning(scene, "--address", address, "--prometheus", prometheus.url, *QUICK) as spawner, published.recorded():
        for number in range(KILLS):
            requests, dies_after = Requests(scene.cluster), chance.randint(1, 40)
            pid = spawn(spawner)
            if number == 0:
                scene.wait(lambda: published.samples, "samples in the profile")
            with contextlib.suppress(NotInTime):  # once all is written it sends few requests, and is killed at rest
                wait_until(
                    lambda requests=requests, after=dies_after: requests.count() >= after,
                    "its last request",
                    timeout_s=LONGEST_LIFE_S,
                    every_s=0.02,
                )
            os.kill(pid, signal.SIGKILL)
        spawn(spawner)
        scene.wait(lambda: scene.provided("phased"), "a recommendation by the last recommender")
        scene.wait_for_a_full_round()
        known = published.samples[-1]
        wait_until(lambda: published.samples[-1] > known, "more samples in the profile", timeout_s=120)
        scene.wait(lambda: scene.target("phased")["memory"] >= 3.0 * GIB, "the peak of the workload")

    first = next(number for number, target in enumerate(published.targets) if target is not None)
    targets = [target for target in published.targets[first:] if target is not None]
    assert len(targets) == len(published.targets) - first, "a published target was lost"
    memory = [memory_bytes for _, memory_bytes in targets]
    assert memory == sorted(memory), "memory fell within the hour"
    assert min(cpu_cores for cpu_cores, _ in targets) >= 0.2, "the target fell below the lowest use"
    assert published.samples == sorted(published.samples), "samples in the profile were lost"
    assert_nothing_wrong_was_written(scene)


def assert_nothing_wrong_was_written(scene: Scene, *answers: int) -> None:
    """Check in the audit log that only ours was written, and answered with success, a usual code or one of these."""
    checkpoints = {f"{name}-main" for name in OUR_VPAS}
    allowed = {
        ("patch", "verticalpodautoscalers/status"): set(OUR_VPAS),
        ("patch", "phaseprofiles/status"): set(OUR_VPAS),
        ("create", "phaseprofiles"): {"", *OUR_VPAS},
        ("patch", "verticalpodautoscalercheckpoints"): checkpoints,
        ("create", "verticalpodautoscalercheckpoints"): {"", *checkpoints},
    }
    for write in writes(scene.cluster):
        if write.namespace == scene.namespace:
            assert write.name in allowed[write.verb, write.resource], write
            assert write.status < 400 or write.status in (404, 409, 422, *answers), write
    assert scene.target(FOREIGN_VPA) == {name: parse_quantity(amount) for name, amount in PLENTY.items()}


@pytest.fixture(scope="module")
def running(scene: Scene, prometheus: Prometheus) -> Iterator[Server]:
    server = start_recommender(
        scene.cluster, scene.account, "--prometheus", prometheus.url, *QUICK, name=f"{NAME}-late"
    )
    scene.wait(lambda: scene.provided("phased"), "a recommendation")
    yield server
    server.stop()


@pytest.fixture
def logged(running: Server) -> Callable[[str], bool]:
    """Whether the recommender has logged something since the test began."""
    before = len(running.log.read_text())
    return lambda pattern: bool(re.search(pattern, running.log.read_text()[before:]))


def test_the_recommender_survives_a_kill_of_the_api_server(scene: Scene, running: Server, logged: Logged) -> None:
    pid, before = running.pid, scene.target("phased")["memory"]
    with scene.cluster.without("kube-apiserver"):
        wait_until(lambda: logged("no contact"), "the lost contact to be logged", timeout_s=60)
    wait_until(lambda: logged("in contact again"), "contact to be restored", timeout_s=90)
    scene.wait(lambda: scene.provided("phased"), "the recommendation")
    scene.wait_for_a_full_round()
    assert running.pid == pid
    assert scene.target("phased")["memory"] >= before
    # A server that has just started does not know all rights at once, and one that stops or starts may answer so.
    assert_nothing_wrong_was_written(scene, 403, 503)


def test_without_prometheus_targets_stay_and_rounds_continue(
    scene: Scene, logged: Logged, prometheus: Prometheus
) -> None:
    before = scene.target("phased")["memory"]
    with scene.cluster.without(prometheus.server.name):
        wait_until(lambda: logged("metrics: "), "the problem to be logged", timeout_s=60)
        scene.wait_for_a_full_round()
        assert scene.target("phased")["memory"] >= before
        assert scene.provided("phased")
    wait_until(lambda: logged("metrics: resolved"), "samples again", timeout_s=90)


def test_without_the_crd_of_profiles_rounds_continue_and_profiles_return_with_it(
    scene: Scene, running: Server, logged: Logged
) -> None:
    crds = client.ApiextensionsV1Api(scene.cluster.client())
    with PublishedVersions(scene).recorded() as published:
        scene.wait(lambda: published.samples, "the profile")
    crds.delete_custom_resource_definition("phaseprofiles.phasewise.dev")
    try:
        wait_until(lambda: logged("phaseprofiles: no contact"), "the lost contact to be logged", timeout_s=90)
        scene.wait_for_a_full_round()
        assert scene.provided("phased")
    finally:
        scene.cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml")
    wait_until(lambda: logged("phaseprofiles: in contact again"), "contact to be restored", timeout_s=90)
    with PublishedVersions(scene).recorded() as rewritten:
        scene.wait(lambda: rewritten.samples, "the profile to be written again")
    assert rewritten.samples[-1] >= published.samples[-1], "samples in the profile were lost"
