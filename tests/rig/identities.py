"""Identities in a cluster: its certificate authority, client certificates, and kubeconfigs."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import trustme

NODES = "system:nodes"
MASTERS = "system:masters"


class Authority:
    """A certificate authority with its files in one folder, readable by the owner only."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._authority = trustme.CA()
        self.file = folder / "ca.crt"
        self._authority.cert_pem.write_to_path(str(self.file))

    @property
    def pem(self) -> bytes:
        return self._authority.cert_pem.bytes()

    def serving(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Certificate and key files of a server that answers under `hosts` (names and addresses)."""
        return self._write(name, self._authority.issue_cert(*hosts, common_name=name))

    def client(self, name: str, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Client certificate and key files for `user`, member of `group`."""
        identity = f"{name}.phasewise.test"  # a certificate needs some host name; Kubernetes reads user and group
        return self._write(name, self._authority.issue_cert(identity, common_name=user, organization_name=group))

    def _write(self, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.touch(mode=0o600)
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key


def kubeconfig(
    file: Path,
    server: str,
    authority: Authority,
    *,
    client: tuple[Path, Path] | None = None,
    token: str | None = None,
    namespace: str = "default",
) -> Path:
    """Write a kubeconfig that needs no other file, readable by its owner only."""

    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    user = {"token": token} if token else {}
    if client:
        user = {"client-certificate-data": inline(client[0]), "client-key-data": inline(client[1])}
    cluster = {"server": server, "certificate-authority-data": inline(authority.file)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "phasewise-test", "cluster": cluster}],
        "users": [{"name": file.stem, "user": user}],
        "contexts": [
            {"name": file.stem, "context": {"cluster": "phasewise-test", "user": file.stem, "namespace": namespace}}
        ],
        "current-context": file.stem,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps(content, indent=1))
    return file
