"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.rig.identities import Authority
from tests.rig.processes import Server
from tests.rig.rig import LOOPBACK, Rig
from tests.rig.waiting import wait_until

ADVERTISED = "198.51.100.1"
"""Advertised address of the API server. It must not be a loopback address, and need not be reachable (RFC 5737)."""

SERVICE_RANGE = "10.98.0.0/16"
POD_RANGE = "10.128.0.0/9"
FAST_CLIENT = ("--kube-api-qps=1000", "--kube-api-burst=2000")
"""With the default rate limits of controllers, the first pod of a cluster waits five seconds."""


NODE_GRACE_S = 50.0
"""As upstream."""

OURS = ("recommender", "extender", "controller", "mover", "webhook")
ALONE = "-alone"
"""Suffix of accounts that have the rights of one manifest only."""

AUDITED = tuple(f"system:serviceaccount:kube-system:phasewise-{part}{end}" for part in OURS for end in ("", ALONE))
"""Accounts whose requests the API server audits, so that tests can compare them with their roles."""

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],  # a watch is logged when it begins
    "rules": [{"level": "Metadata", "users": list(AUDITED)}, {"level": "None"}],
}
KUBELET_ACCESS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "apiserver-to-kubelets"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
    "subjects": [{"kind": "User", "name": "apiserver-kubelet-client"}],
}
"""Lets the API server read logs and run commands on real nodes."""


def start_control_plane(rig: Rig, node_grace_s: float, apis: Sequence[str] = ()) -> None:
    """Start all four, and wait until pods can be created.

    Controllers are started once the API server is ready: before it has created its roles, they would be rejected and
    retry seconds later.
    """
    rig.authority.serving("serving", LOOPBACK, "localhost", "metrics-server.kube-system.svc")
    etcd = _start_etcd(rig)
    apiserver = _start_apiserver(rig, apis)
    etcd.wait_ready()
    apiserver.wait_ready()
    rig.apply(KUBELET_ACCESS)
    manager_flags = (
        "--use-service-account-credentials=true",
        f"--root-ca-file={rig.authority.file}",
        f"--service-account-private-key-file={rig.authority.folder / 'service-accounts.key'}",
        f"--node-monitor-grace-period={node_grace_s:g}s",
    )
    manager = _start_controller(rig, "kube-controller-manager", *manager_flags)
    scheduler = _start_controller(rig, "kube-scheduler", *feature_gates(rig))
    manager.wait_ready()
    scheduler.wait_ready()
    wait_until(lambda: rig.core.read_namespaced_service_account("default", "default"), "the first service account")


def serving_certificate(rig: Rig) -> tuple[str, str]:
    """Flags for serving with the certificate for loopback names."""
    return (
        f"--tls-cert-file={rig.authority.folder / 'serving.crt'}",
        f"--tls-private-key-file={rig.authority.folder / 'serving.key'}",
    )


def delegated(rig: Rig, kubeconfig: Path, port: int) -> tuple[str, ...]:
    """Flags of a server on loopback whose callers the API server authenticates and authorizes."""
    return (
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        *serving_certificate(rig),
    )


def scheduler_flags(rig: Rig, file: Path, kubeconfig: Path, port: int) -> tuple[str, ...]:
    """Flags of a further scheduler with its own configuration file."""
    return f"--config={file}", *delegated(rig, kubeconfig, port)


def feature_gates(rig: Rig) -> tuple[str, ...]:
    """The feature gate flag of Kubernetes servers, if any gates are set."""
    return (f"--feature-gates={','.join(f'{name}=true' for name in rig.features)}",) if rig.features else ()


def _start_etcd(rig: Rig) -> Server:
    clients, peers = (f"https://{LOOPBACK}:{port}" for port in (rig.etcd_port, rig.ports.free()))
    certificate, key = rig.authority.folder / "serving.crt", rig.authority.folder / "serving.key"
    command: list[str | Path] = [
        rig.binaries["etcd"],
        f"--data-dir={rig.folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        *(f"--{which}cert-file={certificate}" for which in ("", "peer-")),
        *(f"--{which}key-file={key}" for which in ("", "peer-")),
        *(f"--{which}trusted-ca-file={rig.authority.file}" for which in ("", "peer-")),
        *(f"--{which}client-cert-auth" for which in ("", "peer-")),
        "--unsafe-no-fsync",  # the data need not outlive a power cut
        "--log-level=warn",
    ]
    return rig.start("etcd", command, ready=rig.answers(f"{clients}/health", "etcd-client"), wait=False)


def _start_apiserver(rig: Rig, apis: Sequence[str]) -> Server:
    etcd_certificate, etcd_key = rig.certificate("etcd-client")
    kubelet_certificate, kubelet_key = rig.certificate("apiserver-kubelet-client")
    front_proxy = Authority(rig.folder / "pki" / "front-proxy")
    proxy_certificate, proxy_key = front_proxy.client("front-proxy-client", "front-proxy-client")
    accounts_key = rig.authority.serving("service-accounts", "service-accounts.phasewise.test")[1]
    audit_policy = rig.folder / "audit-policy.json"
    audit_policy.write_text(json.dumps(AUDIT_POLICY))
    command: list[str | Path] = [
        rig.binaries["kube-apiserver"],
        f"--audit-policy-file={audit_policy}",
        f"--audit-log-path={rig.folder / 'logs' / 'audit.jsonl'}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={rig.url.rsplit(':', 1)[1]}",
        f"--advertise-address={ADVERTISED}",
        *serving_certificate(rig),
        f"--client-ca-file={rig.authority.file}",
        "--authorization-mode=Node,RBAC",
        f"--etcd-servers=https://{LOOPBACK}:{rig.etcd_port}",
        f"--etcd-cafile={rig.authority.file}",
        f"--etcd-certfile={etcd_certificate}",
        f"--etcd-keyfile={etcd_key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={accounts_key}",
        f"--service-account-signing-key-file={accounts_key}",
        f"--requestheader-client-ca-file={front_proxy.file}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy_certificate}",
        f"--proxy-client-key-file={proxy_key}",
        f"--kubelet-certificate-authority={rig.authority.file}",
        f"--kubelet-client-certificate={kubelet_certificate}",
        f"--kubelet-client-key={kubelet_key}",
        "--kubelet-preferred-address-types=InternalIP",
        *feature_gates(rig),
        *(f"--runtime-config={api}=true" for api in apis),
    ]
    return rig.start("kube-apiserver", command, ready=rig.answers(f"{rig.url}/readyz", "admin"), wait=False)


def _start_controller(rig: Rig, name: str, *flags: str) -> Server:
    """Start a controller or scheduler on loopback, without leader election, with delegated authentication."""
    port = rig.ports.free()
    kubeconfig = rig.kubeconfig(name, f"system:{name}")
    command: list[str | Path] = [
        rig.binaries[name],
        f"--kubeconfig={kubeconfig}",
        *delegated(rig, kubeconfig, port),
        "--leader-elect=false",
        *FAST_CLIENT,
        *flags,
    ]
    return rig.start(name, command, ready=rig.answers(f"https://{LOOPBACK}:{port}/healthz"), wait=False)
