"""A real node runs real containers in real control groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests.rig.cluster import Cluster
from tests.rig.real_node.cgroups import Cgroup
from tests.rig.real_node.node import RealNode, start_real_node
from tests.rig.waiting import wait_until

MIB = 2**20
BUSY = "while :; do :; done"
GROWS_FOREVER = ["awk", 'BEGIN { text = "0123456789abcdef"; while (1) text = text text }']
HOLDS_32_MIB = ["awk", 'BEGIN { t = "0123456789abcdef"; while (length(t) < 33554432) t = t t; system("sleep 3600") }']
BUSY_WITH_4_MIB = ["awk", 'BEGIN { t = "0123456789abcdef"; while (length(t) < 4194304) t = t t; while (1) n++ }']
CAPPED_CORES, CAPPED_BYTES = 0.2, 64 * MIB
Scrape = Callable[[str], str]


@pytest.fixture(scope="module")
def capped_node(cluster: Cluster, real_node: RealNode) -> Iterator[RealNode]:
    """A second node on the machine, with a fifth of a core and 64 MiB."""
    node = start_real_node(cluster, "real-capped", cpu_cores=CAPPED_CORES, memory_bytes=CAPPED_BYTES)
    yield node
    node.stop()


@pytest.fixture(scope="module")
def busy_pod(cluster: Cluster, real_node: RealNode) -> Iterator[tuple[str, Cgroup]]:
    """A throttled pod that holds 4 MiB: its namespace and its control group."""
    namespace = cluster.namespace("busy")
    real_node.run(namespace, real_node.pod("busy", BUSY_WITH_4_MIB, limits={"cpu": "100m", "memory": "32Mi"}))
    cgroup = real_node.cgroup_of(namespace, "busy")
    wait_until(lambda: cgroup.working_set_bytes > 4.2 * MIB, "the pod to hold its memory", timeout_s=60)
    yield namespace, cgroup
    cluster.core.delete_namespace(namespace)


@pytest.fixture(scope="module")
def scrape(cluster: Cluster, real_node: RealNode) -> Scrape:
    """GET a path of the kubelet as a user who may read metrics and nothing else."""
    version, name = "rbac.authorization.k8s.io/v1", "reads-node-metrics"
    rules = [{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "User", "name": "metrics-reader"}]
    header = {"apiVersion": version, "metadata": {"name": name}}
    cluster.apply(
        {**header, "kind": "ClusterRole", "rules": rules},
        {**header, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects},
    )
    certificate = tuple(map(str, cluster.certificate("metrics-reader")))

    def get(path: str) -> str:
        answer = requests.get(real_node.url + path, verify=str(cluster.authority.file), cert=certificate, timeout=10)
        answer.raise_for_status()
        return answer.text

    return get


def cores_over(cgroup: Cgroup, window_s: float) -> float:
    """Cores that a control group uses, measured over a window."""
    began, used_s = time.monotonic(), cgroup.cpu_usage_s
    time.sleep(window_s)
    return (cgroup.cpu_usage_s - used_s) / (time.monotonic() - began)


def sample(text: str, series: str, namespace: str, pod: str) -> float:
    """The value of a container's series in the text of a kubelet's answer."""
    labels = ('container="main"', f'namespace="{namespace}"', f'pod="{pod}"')
    lines = (line for line in text.splitlines() if line.startswith(f"{series}{{"))
    return next(float(line.split()[-2]) for line in lines if all(label in line for label in labels))


def test_a_command_in_a_pod_sees_only_the_pods_processes_and_no_default_route(
    real_node: RealNode, namespace: str
) -> None:
    real_node.run(namespace, real_node.pod("alone"))
    processes = real_node.execute(namespace, "alone", "ps", "-o", "args").splitlines()
    assert processes == ["COMMAND", "sleep 3600", "ps -o args"]
    assert "default" not in real_node.execute(namespace, "alone", "ip", "route")  # no way out of the machine


def test_a_pod_above_its_memory_limit_is_oom_killed(cluster: Cluster, real_node: RealNode, namespace: str) -> None:
    pod = real_node.pod("grows", GROWS_FOREVER, limits={"memory": "32Mi"}, restart="Always")
    real_node.run(namespace, pod)

    def restarted() -> Any:
        status = cluster.core.read_namespaced_pod("grows", namespace).status.container_statuses[0]
        return status if status.restart_count >= 1 else None

    killed = wait_until(restarted, "the container to be killed and started again", timeout_s=90).last_state.terminated
    assert (killed.reason, killed.exit_code) == ("OOMKilled", 137)


@pytest.mark.parametrize("path", ["/metrics/resource", "/metrics/cadvisor"])
def test_the_kubelet_reports_the_usage_of_the_control_group(
    scrape: Scrape, busy_pod: tuple[str, Cgroup], path: str
) -> None:
    namespace, cgroup = busy_pod
    used_s = cgroup.cpu_usage_s

    def reported() -> float | None:
        found = sample(scrape(path), "container_cpu_usage_seconds_total", namespace, "busy")
        return found if found >= used_s else None

    assert wait_until(reported, f"at least {used_s} s of CPU in {path}", timeout_s=60) <= cgroup.cpu_usage_s
    working_set = sample(scrape(path), "container_memory_working_set_bytes", namespace, "busy")
    assert 4 * MIB < working_set <= cgroup.memory_limit_bytes


def test_cadvisor_reports_throttling_and_resident_memory(scrape: Scrape, busy_pod: tuple[str, Cgroup]) -> None:
    namespace, cgroup = busy_pod
    text = scrape("/metrics/cadvisor")
    assert 0 < sample(text, "container_cpu_cfs_throttled_periods_total", namespace, "busy") <= cgroup.throttled_periods
    assert 4 * MIB < sample(text, "container_memory_rss", namespace, "busy") <= cgroup.memory_usage_bytes


def test_a_node_reports_its_size_and_is_limited_to_it(cluster: Cluster, capped_node: RealNode) -> None:
    allocatable = cluster.core.read_node(capped_node.name).status.allocatable
    assert (allocatable["cpu"], allocatable["memory"]) == ("200m", "64Mi")
    assert capped_node.cgroup.cpu_limit_cores == CAPPED_CORES
    assert capped_node.cgroup.memory_limit_bytes == CAPPED_BYTES


def test_busy_pods_share_the_cap_of_their_node_and_leave_another_node_alone(
    real_node: RealNode, capped_node: RealNode, namespace: str
) -> None:
    for node, name in ((capped_node, "first"), (capped_node, "second"), (real_node, "other")):
        node.run(namespace, node.pod(name, BUSY))
    first, second = (capped_node.cgroup_of(namespace, name) for name in ("first", "second"))
    other = real_node.cgroup_of(namespace, "other")
    began = time.monotonic()
    before = [cgroup.cpu_usage_s for cgroup in (first, second)]
    throttled = capped_node.cgroup.throttled_periods
    wait_until(lambda: capped_node.cgroup.throttled_periods >= throttled + 20, "20 throttled periods", timeout_s=60)
    took_s = time.monotonic() - began
    cores = [(cgroup.cpu_usage_s - used) / took_s for cgroup, used in zip((first, second), before, strict=True)]
    assert sum(cores) < CAPPED_CORES * 1.15
    assert min(cores) > 0.3 * sum(cores)
    # Under the same cap its share would be a third. A machine that is busy with other work takes a while to give more.
    wait_until(lambda: cores_over(other, 0.5) > CAPPED_CORES * 0.6, "the other node's pod to get more", timeout_s=90)
    assert real_node.cgroup.throttled_periods == 0


def test_a_small_node_divides_its_cpu_by_the_requests_of_pods(capped_node: RealNode, namespace: str) -> None:
    """With a quota alone, both pods would use it up alike on different CPUs of the machine."""
    for name, cpu in (("much", "160m"), ("little", "20m")):
        capped_node.run(namespace, capped_node.pod(name, BUSY, cpu=cpu))
    much, little = (capped_node.cgroup_of(namespace, name) for name in ("much", "little"))
    wait_until(lambda: cores_over(much, 2.0) > 4.0 * cores_over(little, 2.0), "much to get much more", timeout_s=60)


def test_an_overcommitted_node_kills_a_pod_even_if_no_pod_has_a_limit(
    cluster: Cluster, capped_node: RealNode, namespace: str
) -> None:
    for name in ("holds", "wants-more"):
        capped_node.run(namespace, capped_node.pod(name, HOLDS_32_MIB, memory="8Mi"))

    def killed() -> Any:
        statuses = (pod.status.container_statuses[0] for pod in cluster.core.list_namespaced_pod(namespace).items)
        return next((status.state.terminated for status in statuses if status.state.terminated), None)

    terminated = wait_until(killed, "one of two pods that together exceed the node to be killed", timeout_s=90)
    assert terminated.exit_code == 137
    pods = cluster.core.list_namespaced_pod(namespace).items
    assert not any(pod.spec.containers[0].resources.limits for pod in pods)


def test_a_node_cannot_be_larger_than_the_machine(cluster: Cluster, real_node: RealNode) -> None:
    with pytest.raises(ValueError, match="4096 cores on a machine of"):
        start_real_node(cluster, "real-huge", cpu_cores=4096)
