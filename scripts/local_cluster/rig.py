"""The ground every part of a cluster stands on: its folder, ports, authority, binaries, servers, and its API."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import requests
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ConflictException
from urllib3 import Retry

from local_cluster.building import Binaries
from local_cluster.identities import MASTERS, Authority, kubeconfig
from local_cluster.processes import Ports, ProcessRecord, Server, end_processes, go_environment
from local_cluster.waiting import wait_until

LOOPBACK = "127.0.0.1"
ANSWERS_WITHIN_S = 10.0
"""A server that is up may still take seconds for an answer where cores are short."""
AGAIN = Retry(total=3, read=1, allowed_methods=None)
"""The API server ends a connection that was idle for 90 s. A request that is on its way just then has done nothing and
is sent again, whatever it asks for; by default none that writes is."""
GAVE_UP = "Client.Timeout exceeded"
"""What kubectl says when the API server took longer than kubectl itself would wait (32 s, not to be changed)."""


def clusters_folder() -> Path:
    """Where the folders of all running clusters of this user lie. Short, since unix sockets allow 107 bytes of path."""
    return Path(tempfile.gettempdir()) / f"phasewise-cluster-{os.getuid()}"


class KubectlFailed(AssertionError):
    """kubectl ended with an error; the message is what it said."""


class Rig:
    """One cluster's folder, ports, authority, servers and API, without saying which servers there are.

    Attributes
    ----------
    folder
        Everything the cluster writes, logs included. It goes when the cluster goes, unless logs are asked for.
    servers
        The servers started so far by name, in the order of their start.
    features
        Feature gates that are on besides the defaults.
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
        self._clients: dict[str, client.ApiClient] = {}
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
        """Start a server of this cluster and wait until it answers.

        Parameters
        ----------
        name
            Its name in this cluster, and that of its log and process record.
        ready
            True once it answers; None when nothing is known of it.
        inside
            A command that starts it in some place (`nsenter ...`, `cgexec ...`).
        wait
            False to return at once; the caller then calls `wait_ready`.
        """
        server = Server(self.folder, name, command, ready=ready, environment=environment, inside=inside)
        self.servers[name] = server
        server.start()
        return server.wait_ready() if wait else server

    def stop_all(self) -> None:
        """End every server, the last started first."""
        for server in reversed(list(self.servers.values())):
            server.stop()

    def answers(self, url: str, identity: str | None = None) -> Callable[[], bool]:
        """A readiness check: a GET of `url` gives 200; the certificate is verified, our own the identity's."""

        def ready() -> bool:
            pair = self.certificate(identity) if identity else None
            cert = (str(pair[0]), str(pair[1])) if pair else None
            answer = requests.get(url, verify=str(self.authority.file), cert=cert, timeout=ANSWERS_WITHIN_S)
            return answer.status_code == 200

        return ready

    # -- identities ------------------------------------------------------------------------------------------------

    def certificate(self, name: str, user: str | None = None, group: str | None = None) -> tuple[Path, Path]:
        """The client certificate of an identity, made at its first use."""
        certificate = self.authority.folder / f"{name}.crt"
        if not certificate.exists():
            self.authority.client(name, user or name, MASTERS if name == "admin" else group)
        return certificate, certificate.with_suffix(".key")

    def kubeconfig(self, name: str, user: str | None = None, group: str | None = None) -> Path:
        """The kubeconfig of an identity that proves itself by a client certificate (`admin` may do everything)."""
        file = self.folder / "kubeconfig" / name
        if not file.exists():
            kubeconfig(file, self.url, self.authority, client=self.certificate(name, user, group))
        return file

    def service_account(self, namespace: str, name: str, valid_s: int = 24 * 3600) -> Path:
        """The kubeconfig of a service account, by a token that the API server issued for it.

        Rights are whatever the roles bound to it give: none by itself. The account is made when it is not there.
        """
        with contextlib.suppress(ConflictException):
            self.core.create_namespaced_service_account(namespace, {"metadata": {"name": name}})
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": valid_s},
        }
        answer = self.core.create_namespaced_service_account_token(name, namespace, request)
        file = self.folder / "kubeconfig" / f"{namespace}.{name}"
        return kubeconfig(file, self.url, self.authority, token=answer.status.token, namespace=namespace)

    # -- the API ---------------------------------------------------------------------------------------------------

    def client(self, identity: Path | str = "admin") -> client.ApiClient:
        """A client of the official library for an identity's name or a kubeconfig file."""
        file = identity if isinstance(identity, Path) else self.kubeconfig(identity)
        if str(file) not in self._clients:
            settings = client.Configuration()
            config.load_kube_config(str(file), client_configuration=settings, temp_file_path=str(self.folder / "tmp"))
            settings.retries = AGAIN
            self._clients[str(file)] = client.ApiClient(settings)
        return self._clients[str(file)]

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.client())

    @property
    def custom(self) -> client.CustomObjectsApi:
        return client.CustomObjectsApi(self.client())

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, identity: Path | str = "admin") -> str:
        """Run the real kubectl and return what it printed.

        Raises
        ------
        KubectlFailed
            It ended with another exit code than 0.
        """
        file = identity if isinstance(identity, Path) else self.kubeconfig(identity)
        command = [self.binaries["kubectl"], f"--kubeconfig={file}", *arguments]
        environment = go_environment() | os.environ | {"HOME": str(self.folder)}  # its caches belong to this cluster
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def audited(self, user: str) -> Iterator[Any]:
        """The events of the audit log about one of `control_plane.AUDITED`, the oldest first."""
        named = f'"username":"{user}"'.encode()  # most lines are of others, and there are tens of thousands
        with (self.folder / "logs" / "audit.jsonl").open("rb") as log:
            for line in log:
                if named in line and line.endswith(b"\n"):
                    event = orjson.loads(line)
                    if event["user"]["username"] == user:
                        yield event

    def requests_of(self, user: str, agent: str = "") -> set[tuple[str, str, str]]:
        """What one of `control_plane.AUDITED` asked of the API server: (verb, group, resource or resource/part).

        With `agent` only what was asked by a program of that name: some share an account.
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
            if GAVE_UP not in str(error):
                raise
            self.kubectl(*command, stdin=listing)  # what was applied already stays as it is

    def namespace(self, prefix: str = "test", labels: Mapping[str, str] | None = None) -> str:
        """Make a namespace of its own for a test and return its name, once pods can be created in it."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        self.core.create_namespace({"metadata": {"name": name, "labels": dict(labels or {})}})
        wait_until(
            lambda: self.core.read_namespaced_service_account("default", name),
            f"the default service account of namespace {name}",
            every_s=0.05,
        )
        return name

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the clients' connections."""
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
    """The recorded server processes of a cluster's folder by name, whoever started them."""
    files = sorted((folder / "processes").glob("*.json"))
    return {file.stem: record for file in files if (record := ProcessRecord.read(file))}


def end_recorded(folder: Path, names: Iterable[str] | None = None) -> None:
    """Kill servers of a cluster's folder (all of them without `names`) by their records alone.

    Killed and not asked, since nobody needs their data any more.
    """
    records = recorded_processes(folder)
    chosen = records if names is None else {name: records[name] for name in names if name in records}
    end_processes(chosen.values(), signal.SIGKILL)


def remove_folder(folder: Path, logs_to: Path | None = None) -> None:
    """Remove a cluster's folder; its logs go to `logs_to` first when that is given, beside what else is there."""
    if logs_to is not None and (folder / "logs").is_dir():
        shutil.copytree(folder / "logs", logs_to, dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
