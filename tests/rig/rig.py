"""The base of a cluster: folder, ports, authority, binaries, servers, and API clients."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import requests
import yaml
from kubernetes import config
from kubernetes.client import (
    ApiClient,
    AuthenticationV1TokenRequest,
    Configuration,
    CoreV1Api,
    CustomObjectsApi,
    V1Namespace,
    V1ObjectMeta,
    V1ServiceAccount,
)
from kubernetes.client.exceptions import ConflictException
from urllib3 import Retry

from tests.rig.building import Binaries
from tests.rig.identities import MASTERS, Authority, kubeconfig
from tests.rig.processes import Ports, ProcessRecord, Server, end_processes, go_environment
from tests.rig.required import required
from tests.rig.waiting import wait_until

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
ANSWER_TIMEOUT_S = 10.0
"""Even a server that is up may take seconds to answer on a busy machine."""
RETRY_DROPPED = Retry(total=3, read=1, allowed_methods=None)
"""The API server closes connections after 90 s of idleness. A request sent at that moment had no effect and is
repeated, writes included, which are not repeated by default."""
KUBECTL_TIMEOUT = "Client.Timeout exceeded"
"""kubectl's message when the API server exceeds its fixed timeout of 32 s."""


def clusters_folder() -> Path:
    """Folder of the folders of all clusters of this user. Short, since paths of unix sockets have at most 107 bytes."""
    return Path(tempfile.gettempdir()) / f"phasewise-cluster-{os.getuid()}"


class KubectlFailed(AssertionError):
    """kubectl failed; the message is its output."""


class Rig:
    """A cluster's folder, ports, authority, servers and API, whichever servers it has.

    `folder`: Everything the cluster writes, including logs; removed with the cluster.
    `servers`: Servers by name, in the order of their start.
    `features`: Feature gates that are enabled in addition to the defaults.
    """

    def __init__(self, name: str, binaries: Binaries) -> None:
        self.folder = clusters_folder() / name
        self.folder.mkdir(parents=True, mode=0o700)
        self.binaries = binaries
        self.ports = Ports()
        self.authority = Authority(self.folder / "pki")
        self.servers: dict[str, Server] = {}
        self.features: tuple[str, ...] = ()
        self.etcd_port = self.ports.free()
        self.url = f"https://{LOOPBACK}:{self.ports.free()}"
        self._clients: dict[str, ApiClient] = {}
        ProcessRecord.of(os.getpid()).write(self.folder / "owner.json")

    # -- servers ---------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        ready: Callable[[], object] | None = None,
        environment: Mapping[str, str] | None = None,
        inside: Sequence[str | Path] = (),
        wait: bool = True,
    ) -> Server:
        """Start a server of this cluster, and wait until it is ready.

        `name`: Name in this cluster, of its log, and of its process record.
        `ready`: True once it is ready; None if that cannot be checked.
        `inside`: Command prefix that starts it in another context (`nsenter ...`, `cgexec ...`).
        `wait`: False to return at once; the caller then calls `wait_ready`.
        """
        server = Server(self.folder, name, command, ready=ready, environment=environment, inside=inside)
        self.servers[name] = server
        server.start()
        return server.wait_ready() if wait else server

    def start_program(
        self,
        name: str,
        *command: str | Path,
        address: str = "",
        ready: str = "/readyz",
        environment: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> Server:
        """Start a Python program of ours with `--address`, by default a free port of loopback.

        `ready`: Path that answers once it is ready; empty if that cannot be checked.
        """
        address = address or f"{LOOPBACK}:{self.ports.free()}"
        whole = [sys.executable, *command, "--address", address]
        check = self.answers(f"http://{address}{ready}") if ready else None
        return self.start(
            name, whole, ready=check, environment={"PYTHONPATH": str(ROOT), **(environment or {})}, wait=wait
        )

    def stop_all(self) -> None:
        for server in reversed(list(self.servers.values())):
            server.stop()

    def answers(self, url: str, identity: str | None = None) -> Callable[[], bool]:
        """Readiness check: a GET of `url`, with the identity's client certificate, has status 200."""

        def ready() -> bool:
            pair = self.certificate(identity) if identity else None
            cert = (str(pair[0]), str(pair[1])) if pair else None
            answer = requests.get(url, verify=str(self.authority.file), cert=cert, timeout=ANSWER_TIMEOUT_S)
            return answer.status_code == 200

        return ready

    # -- identities ------------------------------------------------------------------------------------------------

    def certificate(self, name: str, user: str | None = None, group: str | None = None) -> tuple[Path, Path]:
        """Client certificate of an identity, created on first use."""
        certificate = self.authority.folder / f"{name}.crt"
        if not certificate.exists():
            self.authority.client(name, user or name, MASTERS if name == "admin" else group)
        return certificate, certificate.with_suffix(".key")

    def kubeconfig(self, name: str, user: str | None = None, group: str | None = None) -> Path:
        """Kubeconfig of an identity with a client certificate (`admin` may do everything)."""
        file = self.folder / "kubeconfig" / name
        if not file.exists():
            kubeconfig(file, self.url, self.authority, client=self.certificate(name, user, group))
        return file

    def service_account(self, namespace: str, name: str) -> Path:
        """Kubeconfig of a service account with a token and the roles bound to it; the account is created if missing."""
        with contextlib.suppress(ConflictException):
            self.core.create_namespaced_service_account(namespace, V1ServiceAccount(metadata=V1ObjectMeta(name=name)))
        kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        request = AuthenticationV1TokenRequest.model_validate({**kind, "spec": {"expirationSeconds": 24 * 3600}})
        answer = self.core.create_namespaced_service_account_token(name, namespace, request)
        file = self.folder / "kubeconfig" / f"{namespace}.{name}"
        return kubeconfig(file, self.url, self.authority, token=required(answer.status).token, namespace=namespace)

    # -- the API ---------------------------------------------------------------------------------------------------

    def client(self, identity: Path | str = "admin") -> ApiClient:
        """Client of the official library for the name of an identity, or a kubeconfig file."""
        file = identity if isinstance(identity, Path) else self.kubeconfig(identity)
        if str(file) not in self._clients:
            settings = Configuration()
            config.load_kube_config(str(file), client_configuration=settings, temp_file_path=str(self.folder / "tmp"))
            settings.retries = RETRY_DROPPED
            self._clients[str(file)] = ApiClient(settings)
        return self._clients[str(file)]

    @property
    def core(self) -> CoreV1Api:
        return CoreV1Api(self.client())

    @property
    def custom(self) -> CustomObjectsApi:
        return CustomObjectsApi(self.client())

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, identity: Path | str = "admin") -> str:
        """Run the real kubectl and return what it printed. Raises KubectlFailed: its exit code is not 0."""
        file = identity if isinstance(identity, Path) else self.kubeconfig(identity)
        command = [self.binaries["kubectl"], f"--kubeconfig={file}", *arguments]
        environment = go_environment() | os.environ | {"HOME": str(self.folder)}  # its caches belong to this cluster
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def audited(self, user: str) -> Iterator[Any]:
        """Events of the audit log about one of `control_plane.AUDITED`, oldest first."""
        named = f'"username":"{user}"'.encode()  # most lines are of others, and there are tens of thousands
        with (self.folder / "logs" / "audit.jsonl").open("rb") as log:
            for line in log:
                if named in line and line.endswith(b"\n"):
                    event = orjson.loads(line)
                    if event["user"]["username"] == user:
                        yield event

    def requests_of(self, user: str, agent: str = "") -> set[tuple[str, str, str]]:
        """Requests of one of `control_plane.AUDITED`: (verb, group, resource or resource/subresource).

        With `agent`, only those by a program of that name: some share an account.
        """
        asked = set()
        for event in self.audited(user):
            if (about := event.get("objectRef")) and event.get("userAgent", "").startswith(agent):
                part = f"/{about['subresource']}" if "subresource" in about else ""
                asked.add((event["verb"], about.get("apiGroup", ""), f"{about['resource']}{part}"))
        return asked

    def apply(self, *objects: Mapping[str, Any] | Path | str) -> None:
        """`kubectl apply --server-side` of objects, YAML texts, files and folders of them."""
        documents = [document for given in objects for document in _documents(given)]
        listing = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        command = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        try:
            self.kubectl(*command, stdin=listing)
        except KubectlFailed as error:
            if KUBECTL_TIMEOUT not in str(error):
                raise
            self.kubectl(*command, stdin=listing)  # what was applied already stays as it is

    def namespace(self, prefix: str = "test") -> str:
        """Create a namespace, wait until pods can be created in it, and return its name."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        self.core.create_namespace(V1Namespace(metadata=V1ObjectMeta(name=name)))
        wait_until(
            lambda: self.core.read_namespaced_service_account("default", name),
            f"the default service account of namespace {name}",
            every_s=0.05,
        )
        return name

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for open_client in self._clients.values():
            open_client.close()
        self._clients.clear()


def _documents(given: Mapping[str, Any] | Path | str) -> list[Mapping[str, Any]]:
    if isinstance(given, Mapping):
        return [given]
    if isinstance(given, Path) and given.is_dir():
        return [document for file in sorted(given.glob("*.yaml")) for document in _documents(file)]
    text = given.read_text() if isinstance(given, Path) else given
    return [document for document in yaml.safe_load_all(text) if document]


def recorded_processes(folder: Path) -> dict[str, ProcessRecord]:
    files = sorted((folder / "processes").glob("*.json"))
    return {file.stem: record for file in files if (record := ProcessRecord.read(file))}


def end_recorded(folder: Path, names: Iterable[str] | None = None) -> None:
    """Kill the recorded servers in a cluster's folder; all of them without `names`."""
    records = recorded_processes(folder)
    chosen = records if names is None else {name: records[name] for name in names if name in records}
    end_processes(chosen.values(), signal.SIGKILL)


def remove_folder(folder: Path, logs_to: Path | None = None) -> None:
    """Remove a cluster's folder; copy its logs to `logs_to` first."""
    if logs_to is not None and (folder / "logs").is_dir():
        shutil.copytree(folder / "logs", logs_to, dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
