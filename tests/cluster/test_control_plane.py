"""The control plane: versions, access rights, and where it listens."""

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


def test_servers_and_kubectl_have_the_selected_version(cluster: Cluster) -> None:
    wanted = f"v{versions.kubernetes_version()}"
    output = cluster.kubectl("version")
    assert re.findall(r"(?:Client|Server) Version: (\S+)", output) == [wanted, wanted]


def test_the_api_servers_certificate_verifies_only_with_the_clusters_authority(cluster: Cluster) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{cluster.url}/readyz", timeout=10)
    assert requests.get(f"{cluster.url}/readyz", verify=str(cluster.authority.file), timeout=10).text == "ok"


def test_an_anonymous_user_may_not_list_pods(cluster: Cluster) -> None:
    answer = requests.get(f"{cluster.url}/api/v1/pods", verify=str(cluster.authority.file), timeout=10)
    assert answer.status_code == 403
    assert "system:anonymous" in answer.json()["message"]


def test_a_service_account_may_do_only_what_its_role_allows(cluster: Cluster, namespace: str) -> None:
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


def test_a_kubeconfig_is_readable_by_its_owner_only(cluster: Cluster) -> None:
    assert cluster.kubeconfig("admin").stat().st_mode & 0o077 == 0
    assert cluster.folder.stat().st_mode & 0o077 == 0


def test_a_pod_that_fits_no_node_reaches_the_scheduler(cluster: Cluster, namespace: str) -> None:
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
