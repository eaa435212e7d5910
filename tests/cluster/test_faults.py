"""Faults that a cluster survives, and what clients see: API server and etcd down for a while, a scheduler killed.

Each test restores the cluster and waits until it works again, since other tests share it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes import client, watch
from urllib3.exceptions import HTTPError

from local_cluster.cluster import Cluster
from local_cluster.simulated.nodes import SimulatedNodes
from local_cluster.vpa_objects import create_vpa, recommend
from local_cluster.waiting import wait_until
from local_cluster.workloads import create_pod, node_of, pod_spec, pods_of, resources, roll_out

NEEDS = resources({"cpu": "500m", "memory": "256Mi"}, {"cpu": "1", "memory": "512Mi"})


class FollowedConfigMaps:
    """Follows the ConfigMaps of a namespace like a controller: lists, watches, and lists again when the watch fails.

    Attributes
    ----------
    seen
        Names of all ConfigMaps in any list or event.
    lists
        Number of lists: one, and one more after each failed watch.
    expired
        Whether the API server refused to continue from the last version seen (410).
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.seen: set[str] = set()
        self.lists = 0
        self.expired = False
        self._api = cluster.core
        self._namespace = namespace
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(timeout=30)

    def _follow(self) -> None:
        version = None
        while not self._ended.is_set():
            try:
                version = version or self._list()
                for event in self._events(version):
                    self.seen.add(event["object"].metadata.name)
                    version = event["object"].metadata.resource_version
            except client.ApiException as error:
                self.expired |= error.status == 410
                version = None
            except (HTTPError, OSError):  # the server is down; what is missed comes with a later list or watch
                self._ended.wait(0.1)

    def _list(self) -> str:
        self.lists += 1
        listed = self._api.list_namespaced_config_map(self._namespace, _request_timeout=5)
        self.seen |= {item.metadata.name for item in listed.items}
        return str(listed.metadata.resource_version)

    def _events(self, version: str) -> Iterator[dict[str, Any]]:
        return watch.Watch().stream(
            self._api.list_namespaced_config_map,
            self._namespace,
            resource_version=version,
            timeout_seconds=1,
            _request_timeout=30,
        )


def config_map(cluster: Cluster, namespace: str, name: str) -> Any:
    return cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": name}}, _request_timeout=60)


def config_maps(cluster: Cluster, namespace: str) -> dict[str, str]:
    listed = cluster.core.list_namespaced_config_map(namespace, _request_timeout=60).items
    return {item.metadata.name: item.metadata.uid for item in listed}


@pytest.fixture
def healthy_after(cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes) -> Iterator[None]:
    """After the test, check that controllers, scheduler and nodes run a Deployment again."""
    yield
    roll_out(cluster, namespace, "healthy", pod_spec(simulated_nodes.selector, NEEDS), replicas=2)


@pytest.mark.usefixtures("healthy_after")
def test_a_watch_loses_nothing_when_the_api_server_is_killed(cluster: Cluster, namespace: str) -> None:
    config_map(cluster, namespace, "before")
    followed = FollowedConfigMaps(cluster, namespace)
    wait_until(lambda: "before" in followed.seen, "the watch to begin")
    kept = config_maps(cluster, namespace)
    cluster.core.patch_namespace(namespace, {"metadata": {"labels": {"moved": "on"}}})  # a newer resource version

    with cluster.without("kube-apiserver"):
        pass
    wait_until(lambda: config_map(cluster, namespace, "after"), "a write after the restart", timeout_s=60)
    wait_until(lambda: "after" in followed.seen, "the watch to bring what was written after the restart", timeout_s=60)
    assert kept.items() <= config_maps(cluster, namespace).items()
    assert followed.expired, "the server was expected to refuse the old version, as it does after each restart"
    assert followed.lists > 1
    followed.end()


@pytest.mark.usefixtures("healthy_after")
def test_controllers_scheduler_and_updater_work_after_the_api_server_was_killed(
    vpa: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    (pod,) = roll_out(vpa, namespace, "job", pod_spec(simulated_nodes.selector, NEEDS))
    create_vpa(vpa, namespace, "job")
    pids = {name: server.pid for name, server in vpa.servers.items() if name != "kube-apiserver"}

    with vpa.without("kube-apiserver"):
        pass
    target = {"cpu": "250m", "memory": "512Mi"}
    wait_until(lambda: recommend(vpa, namespace, "job", target), "a write after the restart", timeout_s=60)
    roll_out(vpa, namespace, "later", pod_spec(simulated_nodes.selector, NEEDS))

    def resized() -> bool:
        (same,) = pods_of(vpa, namespace, "job")
        granted = same.status.container_statuses[0].resources.requests
        assert granted == target
        return bool(same.metadata.uid == pod.metadata.uid)

    wait_until(resized, "the updater to resize the pod in place", timeout_s=90)
    assert {name: vpa.servers[name].pid for name in pids} == pids, "none of them was restarted"


@pytest.mark.usefixtures("healthy_after")
def test_requests_hang_while_etcd_is_down_and_complete_afterwards(cluster: Cluster, namespace: str) -> None:
    config_map(cluster, namespace, "before")
    kept = config_maps(cluster, namespace)
    with ThreadPoolExecutor(2) as pool:
        with cluster.without("etcd"):
            write = pool.submit(config_map, cluster, namespace, "meanwhile")
            read = pool.submit(config_maps, cluster, namespace)
            with pytest.raises(TimeoutError):
                write.result(timeout=3.0)
            assert not read.done()
        assert write.result(timeout=60).metadata.name == "meanwhile"
        assert kept.items() <= read.result(timeout=60).items()
    assert kept.items() <= config_maps(cluster, namespace).items()


def test_a_pod_waits_for_its_killed_scheduler_and_is_placed_after_its_restart(
    cluster: Cluster, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    scheduler = cluster.scheduler("mortal")
    try:
        cluster.kill(scheduler.name)
        spec = pod_spec(simulated_nodes.selector, NEEDS)
        create_pod(cluster, namespace, "waits", {**spec, "schedulerName": "mortal"})
        create_pod(cluster, namespace, "placed", spec)
        node_of(cluster, namespace, "placed")  # by the default scheduler, which was not killed
        assert cluster.core.read_namespaced_pod("waits", namespace).spec.node_name is None
        cluster.restart(scheduler.name)
        node_of(cluster, namespace, "waits")
    finally:
        scheduler.stop()
