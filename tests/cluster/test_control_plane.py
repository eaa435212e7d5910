"""The control plane: versions, access rights, and where it listens."""

from __future__ import annotations

import ipaddress
import re

import psutil

from tests.rig import versions
from tests.rig.cluster import Cluster


def test_servers_and_kubectl_have_the_selected_version(cluster: Cluster) -> None:
    wanted = f"v{versions.kubernetes_version()}"
    output = cluster.kubectl("version")
    assert re.findall(r"(?:Client|Server) Version: (\S+)", output) == [wanted, wanted]


def test_a_kubeconfig_is_readable_by_its_owner_only(cluster: Cluster) -> None:
    assert cluster.kubeconfig("admin").stat().st_mode & 0o077 == 0
    assert cluster.folder.stat().st_mode & 0o077 == 0


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
