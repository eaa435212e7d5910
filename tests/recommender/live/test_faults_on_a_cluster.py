"""What the recommender survives: its own death at any moment, the API server or Prometheus away, rights taken away."""

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

from local_cluster.cluster import Cluster
from local_cluster.observing import Prometheus
from local_cluster.processes import Server
from local_cluster.recommender import FAST, MANIFESTS, NAME, ROOT, Requests, install, start_recommender, writes
from local_cluster.rights import roles_in
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.simulated.usage import Usage, drive_usage
from local_cluster.waiting import NotInTime, wait_until
from recommender.cluster.access.connection import connect
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.cluster.watching.reflector import Reflector
from recommender.engine.persistence import unpack
from tests.recommender.live.behaviours import GIB, PLENTY, Case, standing
from tests.recommender.live.scene import Scene, target_in

KILLS, LONGEST_LIFE_S = 20, 2.5
QUICK = ("--step", "2s", "--cycle", "20s", "--rate-window", "10s", "--history", "none", "--shrink-after", "1h")
"""With a Prometheus that scrapes each second. Nothing is read back from it, so that what goes on was kept by us; memory
does not fall while a test lasts."""

OURS, THEIRS = ("phased", "clockwork"), "theirs"
MISSING = 'cannot list resource "pods"'

Said = Callable[[str], bool]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def scene(vpa: Cluster, simulated_nodes: SimulatedNodes, prometheus: Prometheus) -> Iterator[Scene]:
    """A workload that goes through phases, its VPA, and one of another recommender."""
    made = Scene(vpa, vpa.namespace("faults"), simulated_nodes.selector, install(vpa))
    made.cluster.apply(*(made.deployment(name, Case()) for name in (*OURS, THEIRS)))
    (pod,) = wait_until(
        lambda: made.cluster.core.list_namespaced_pod(made.namespace, label_selector="app=phased").items, "the pod"
    )
    cpu = np.repeat([0.2, 1.5, 0.4, 1.5], 8)
    memory = np.repeat([1.0, 2.0, 3.0, 1.5], 8) * GIB
    drive_usage(vpa, made.namespace, pod.metadata.name, Usage(cpu, memory, repeat=True))
    for name in OURS:
        made.create_vpa(Case().vpa(name))
    made.create_vpa(Case(spec={"recommenders": [{"name": "another"}]}).vpa(THEIRS), standing())
    prometheus.wait_for(
        f'count_over_time(container_memory_working_set_bytes{{pod="{pod.metadata.name}"}}[1m]) > 20',
        "a Prometheus that can tell how often it scrapes",
    )
    yield made
    made.stop()


@dataclass
class Seen:
    """What stood published of the phased workload, version after version, while a recommender came and went.

    Attributes
    ----------
    targets
        Cores and bytes; None where there was none.
    samples
        How many samples of the container its profile knew of.
    """

    scene: Scene
    targets: list[tuple[float, float] | None] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def following(self) -> Iterator[Seen]:
        """While every version that the API server has is seen."""
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
        assert not any(watch.broken or watch.lists > 1 for watch in watches), "something went unseen"

    def _vpa(self, raw: Any) -> None:
        target = target_in(raw.get("status", {}))
        self.targets.append((target["cpu"], target["memory"]) if target else None)

    def _profile(self, raw: Any) -> None:
        if state := raw.get("status", {}).get("state"):
            members = unpack(state, "the profile").get("members", {})
            self.samples += [int(member["samples"]) for member in members.values()]


@contextlib.contextmanager
def mortal(scene: Scene, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A source of recommenders: one for each line written to it."""
    command = [sys.executable, "-m", "tests.recommender.live.forking", "recommender", "--kubeconfig", scene.account]
    with (
        (scene.cluster.folder / "logs" / "mortal.log").open("ab") as log,
        subprocess.Popen(
            [*map(str, command), *FAST, *options],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        ) as source,
    ):  # fmt: skip
        assert source.stdout is not None
        assert source.stdout.readline() == "ready\n"
        try:
            yield source
        finally:
            assert source.stdin is not None
            source.stdin.close()  # it ends after the last one
            for child in psutil.Process(source.pid).children():
                child.kill()


def spawn(source: subprocess.Popen[str]) -> int:
    assert source.stdin is not None
    assert source.stdout is not None
    source.stdin.write("one more\n")
    source.stdin.flush()
    return int(source.stdout.readline())


def test_killed_twenty_times_at_any_moment_it_goes_on_and_writes_nothing_wrong(
    scene: Scene, prometheus: Prometheus
) -> None:
    chance = random.Random(5)  # noqa: S311 - when it dies
    address = f"127.0.0.1:{scene.cluster.ports.free()}"
    seen = Seen(scene)
    with mortal(scene, "--address", address, "--prometheus", prometheus.url, *QUICK) as source, seen.following():
        for number in range(KILLS):
            asked, dies_after = Requests(scene.cluster), chance.randint(1, 40)
            pid = spawn(source)
            if number == 0:
                scene.wait(lambda: seen.samples, "the profile to know it")
            with contextlib.suppress(NotInTime):  # when all is said, it asks for little: then it dies at rest
                wait_until(
                    lambda asked=asked, after=dies_after: asked.count() >= after,
                    "its last request",
                    timeout_s=LONGEST_LIFE_S,
                    every_s=0.02,
                )
            os.kill(pid, signal.SIGKILL)
        spawn(source)
        scene.wait(lambda: scene.provided("phased"), "the last one to be at work")
        scene.a_whole_round_passes()
        known = seen.samples[-1]
        wait_until(lambda: seen.samples[-1] > known, "the profile to go on", timeout_s=120)
        scene.wait(lambda: scene.target("phased")["memory"] >= 3.0 * GIB, "what the workload uses at its most")

    first = next(number for number, target in enumerate(seen.targets) if target is not None)
    targets = [target for target in seen.targets[first:] if target is not None]
    assert len(targets) == len(seen.targets) - first, "what stood published went away"
    memory = [memory_bytes for _, memory_bytes in targets]
    assert memory == sorted(memory), "memory fell within the hour"
    assert min(cpu_cores for cpu_cores, _ in targets) >= 0.2, "what the workload uses at its least"
    assert seen.samples == sorted(seen.samples), "what the profile knew was lost"
    nothing_wrong_was_written(scene)


def nothing_wrong_was_written(scene: Scene, *answers: int) -> None:
    """The audit log names only what is ours; it was taken, or answered with one of these or of the usual codes."""
    checkpoints = {f"{name}-main" for name in OURS}
    allowed = {
        ("patch", "verticalpodautoscalers/status"): set(OURS),
        ("patch", "phaseprofiles/status"): set(OURS),
        ("create", "phaseprofiles"): {"", *OURS},
        ("patch", "verticalpodautoscalercheckpoints"): checkpoints,
        ("create", "verticalpodautoscalercheckpoints"): {"", *checkpoints},
    }
    for write in writes(scene.cluster):
        if write.namespace == scene.namespace:
            assert write.name in allowed[write.verb, write.resource], write
            assert write.status < 400 or write.status in (404, 409, 422, *answers), write
    assert scene.target(THEIRS) == {name: parse_quantity(amount) for name, amount in PLENTY.items()}


@contextlib.contextmanager
def without(scene: Scene, verb: str, resource: str) -> Iterator[None]:
    """While the role of the manifest has one verb less on one resource."""
    (role,) = (one for one in roles_in(MANIFESTS / "recommender" / "rbac.yaml") if one["kind"] == "ClusterRole")
    rbac, name = client.RbacAuthorizationV1Api(scene.cluster.client()), role["metadata"]["name"]
    rbac.patch_cluster_role(name, {"rules": rules_without(role["rules"], verb, resource)})
    try:
        yield
    finally:
        rbac.patch_cluster_role(name, {"rules": role["rules"]})


def rules_without(rules: list[Json], verb: str, resource: str) -> list[Json]:
    """Rules of a role with one verb less on one resource."""
    left = []
    for rule in rules:
        rest = [one for one in rule["resources"] if one != resource]
        left.append(rule | {"resources": rest})
        if len(rest) < len(rule["resources"]):
            left.append(rule | {"resources": [resource], "verbs": [one for one in rule["verbs"] if one != verb]})
    return [rule for rule in left if rule["resources"] and rule["verbs"]]


@pytest.fixture(scope="module")
def running(scene: Scene, prometheus: Prometheus) -> Iterator[Server]:
    """A recommender at work. At its start it had to wait for a right to read."""
    with without(scene, "list", "pods"):
        server = start_recommender(
            scene.cluster, scene.account, "--prometheus", prometheus.url, *QUICK, name=f"{NAME}-late", wait=False
        )
        wait_until(lambda: MISSING in server.log.read_text(), "it to name the missing right", timeout_s=60)
    server.wait_ready()
    scene.wait(lambda: scene.provided("phased"), "a recommendation")
    yield server
    server.stop()


@pytest.fixture
def said(running: Server) -> Callable[[str], bool]:
    """Whether it has said something since the test began."""
    before = len(running.log.read_text())
    return lambda pattern: bool(re.search(pattern, running.log.read_text()[before:]))


def test_after_the_api_server_was_killed_it_goes_on_where_it_was(scene: Scene, running: Server, said: Said) -> None:
    pid, before = running.pid, scene.target("phased")["memory"]
    with scene.cluster.without("kube-apiserver"):
        wait_until(lambda: said("no contact"), "it to notice", timeout_s=60)
    wait_until(lambda: said("in contact again"), "it to be in contact again", timeout_s=90)
    scene.wait(lambda: scene.provided("phased"), "the recommendation")
    scene.a_whole_round_passes()
    assert running.pid == pid
    assert scene.target("phased")["memory"] >= before
    # A server that has just come back does not know all rights at once, and one that goes or comes may say so.
    nothing_wrong_was_written(scene, 403, 503)


def test_while_prometheus_is_away_what_stands_is_kept_and_rounds_go_on(
    scene: Scene, said: Said, prometheus: Prometheus
) -> None:
    before = scene.target("phased")["memory"]
    with scene.cluster.without(prometheus.server.name):
        wait_until(lambda: said("metrics: "), "it to say so", timeout_s=60)
        scene.a_whole_round_passes()
        assert scene.target("phased")["memory"] >= before
        assert scene.provided("phased")
    wait_until(lambda: said("metrics: resolved"), "samples again", timeout_s=90)


@pytest.mark.parametrize(
    ("verb", "resource"),
    [("patch", "verticalpodautoscalers/status"), ("patch", "phaseprofiles/status")],
)
def test_without_a_right_to_write_it_says_which_and_goes_on_when_it_has_it(
    scene: Scene, said: Said, verb: str, resource: str
) -> None:
    with without(scene, verb, resource):
        scene.patch_vpa("phased", {"spec": {"updatePolicy": {"updateMode": "Off", "minReplicas": 3}}})
        wait_until(lambda: said(f'cannot {verb} resource "{resource}"'), "it to name the missing right", timeout_s=60)
    again = rf"{scene.namespace}/\S+: resolved"  # whichever of the VPAs was due meanwhile
    wait_until(lambda: said(again), "it to go on", timeout_s=60)
    scene.a_whole_round_passes()


def test_without_a_right_to_read_it_says_which_and_begins_when_it_has_it(scene: Scene, running: Server) -> None:
    assert MISSING in running.log.read_text()
    scene.a_whole_round_passes()


def test_while_the_kind_of_the_profiles_is_gone_rounds_go_on_and_with_it_the_profiles_are_back(
    scene: Scene, running: Server, said: Said
) -> None:
    kinds = client.ApiextensionsV1Api(scene.cluster.client())
    with Seen(scene).following() as seen:
        scene.wait(lambda: seen.samples, "the profile")
    kinds.delete_custom_resource_definition("phaseprofiles.phasewise.dev")
    try:
        wait_until(lambda: said("phaseprofiles: no contact"), "it to notice", timeout_s=90)
        scene.a_whole_round_passes()
        assert scene.provided("phased")
    finally:
        scene.cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml")
    wait_until(lambda: said("phaseprofiles: in contact again"), "it to be in contact again", timeout_s=90)
    with Seen(scene).following() as again:
        scene.wait(lambda: again.samples, "the profile to be written anew")
    assert again.samples[-1] >= seen.samples[-1], "what the profile knew was lost"
