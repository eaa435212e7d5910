"""The control plane: what it is, who may do what in it, and where it listens."""

from __future__ import annotations

import ipaddress
import re

import psutil
import pytest
import requests
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from local_cluster import versions
from local_cluster.cluster import Cluster
from local_cluster.rig import KubectlFailed
from local_cluster.waiting import wait_until


def test_the_servers_and_kubectl_are_of_the_version_asked_for(cluster: Cluster) -> None:
    wanted = f"v{versions.kubernetes_version()}"
    said = cluster.kubectl("version")
    assert re.findall(r"(?:Client|Server) Version: (\S+)", said) == [wanted, wanted]


def test_the_api_server_is_only_believed_with_the_clusters_own_authority(cluster: Cluster) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{cluster.url}/readyz", timeout=10)
    assert requests.get(f"{cluster.url}/readyz", verify=str(cluster.authority.file), timeout=10).text == "ok"


def test_nobody_without_an_identity_may_read_anything(cluster: Cluster) -> None:
    answer = requests.get(f"{cluster.url}/api/v1/pods", verify=str(cluster.authority.file), timeout=10)
    assert answer.status_code == 403
    assert "system:anonymous" in answer.json()["message"]


def test_a_service_account_may_do_what_its_role_says_and_nothing_else(cluster: Cluster, namespace: str) -> None:
    account = cluster.service_account(namespace, "reader")
    pods = client.CoreV1Api(cluster.client(account))
    with pytest.raises(ApiException, match="Forbidden"):
        pods.list_namespaced_pod(namespace)
    cluster.kubectl("create", "role", "reads-pods", "--verb=list", "--resource=pods", "-n", namespace)
    binding = ("create", "rolebinding", "reader", "--role=reads-pods", f"--serviceaccount={namespace}:reader")
    cluster.kubectl(*binding, "-n", namespace)
    wait_until(lambda: pods.list_namespaced_pod(namespace).items == [], "the API server to know of the role")
    with pytest.raises(KubectlFailed, match=r'cannot create resource "pods"'):
        cluster.kubectl("run", "x", "--image=none", "-n", namespace, identity=account)


def test_a_kubeconfig_can_be_read_by_its_owner_only(cluster: Cluster) -> None:
    assert cluster.kubeconfig("admin").stat().st_mode & 0o077 == 0
    assert cluster.folder.stat().st_mode & 0o077 == 0


def test_a_workload_gets_as_far_as_the_scheduler_without_any_node(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl(
        "run", "waits", "--image=none", "-n", namespace, "--overrides", '{"spec":{"nodeSelector":{"no":"node"}}}'
    )
    wait = ("wait", "pod/waits", "--for=condition=PodScheduled=false", "--timeout=60s", "-n", namespace)
    assert "condition met" in cluster.kubectl(*wait)


def test_no_server_can_be_reached_from_outside_this_machine(cluster: Cluster) -> None:
    listening = {
        (server.name, connection.laddr.ip)
        for server in cluster.servers.values()
        if server.running
        for connection in psutil.Process(server.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    own = {address.address for address in psutil.net_if_addrs()["lo"]}
    outside = {(name, ip) for name, ip in listening if not ipaddress.ip_address(ip).is_loopback and ip not in own}
    assert {"etcd", "kube-apiserver"} <= {name for name, _ in listening}
    assert not outside
