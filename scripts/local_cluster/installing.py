"""Install the extender from its manifests, with processes in place of containers.

Simulated nodes run nothing. So everything in `manifests/extender` except the Deployments is applied, and the commands
of their containers run on this machine with the service accounts of the manifests, listening on loopback.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local_cluster.control_plane import feature_gates, scheduler_flags
from local_cluster.processes import Server
from local_cluster.rig import LOOPBACK, Rig

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"

OURS = ("extender", "controller", "webhook")
"""Containers that run our image."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Extender:
    """The running processes.

    `url`: URL of the extender: `/explain/NAMESPACE/POD`, `/metrics`.
    """

    url: str
    scheduler: Server
    extender: Server
    controller: Server
    webhook: Server

    def stop(self) -> None:
        """End all four, the scheduler first."""
        for server in (self.scheduler, self.webhook, self.controller, self.extender):
            server.stop()


def documents(folder: Path = MANIFESTS / "extender") -> list[Json]:
    files = sorted(file for file in folder.glob("*.yaml") if file.name != "kustomization.yaml")
    return [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]


def install_extender(rig: Rig, *, own_ports: bool = False) -> Extender:
    """Install scheduler, extender, gang controller and webhook, and wait until they are ready.

    `own_ports`: listen on the ports of the manifests (8943 to 8945) instead of free ones.
    """
    objects = documents()
    commands = dict(_commands(objects))
    ports = {name: _port(commands[name]) if own_ports else rig.ports.free() for name in OURS}
    address = {name: f"{LOOPBACK}:{port}" for name, port in ports.items()}
    for each in objects:
        if each["kind"] == "MutatingWebhookConfiguration":
            each["webhooks"][0]["clientConfig"] = {"url": f"https://{address['webhook']}/mutate"}
    left_out = ("Deployment", "Service")
    rig.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", *(each for each in objects if each["kind"] not in left_out))
    accounts = {name: rig.service_account("kube-system", f"phasewise-{name}") for name in OURS}

    def run(name: str, *options: str | Path) -> Server:
        given = [each for each in commands[name][1:] if not each.startswith("--address=")]
        command = [sys.executable, "-m", "extender", *given, f"--address={address[name]}"]
        command += ["--kubeconfig", str(accounts[name]), *map(str, options)]
        probe = f"http://{address[name]}/readyz"
        ready = None if name == "webhook" else rig.answers(probe)
        return rig.start(f"phasewise-{name}", command, ready=ready, environment={"PYTHONPATH": str(ROOT)}, wait=False)

    running = {name: run(name) for name in ("extender", "controller")}
    running["webhook"] = run("webhook", "--name", LOOPBACK)
    file = configured(rig, objects, accounts["extender"], f"http://{address['extender']}")
    running["extender"].wait_ready()
    running["scheduler"] = start_scheduler(rig, objects, file, accounts["extender"])
    for server in running.values():
        server.wait_ready()
    return Extender(url=f"http://{address['extender']}", **running)


def _commands(objects: Sequence[Json]) -> Iterator[tuple[str, list[str]]]:
    return ((name, container["command"]) for name, container in _containers(objects))


def _containers(objects: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    """(name, container) of all Deployments."""
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                yield container["name"], container


def installed_environment() -> dict[str, str]:
    """Environment of the scheduler in the manifests, for other schedulers of benchmarks."""
    return _environment(documents(), "scheduler")


def _environment(objects: Sequence[Json], container: str) -> dict[str, str]:
    found = next(given for name, given in _containers(objects) if name == container)
    return {each["name"]: each["value"] for each in found.get("env", ())}


def _port(command: list[str]) -> int:
    """Port of `--address=`; 0 without it."""
    return next((int(each.rpartition(":")[2]) for each in command if each.startswith("--address=")), 0)


def configuration(objects: Sequence[Json]) -> dict[str, Any]:
    found = next(each["data"]["config.yaml"] for each in objects if "config.yaml" in each.get("data", ()))
    given: dict[str, Any] = yaml.safe_load(found)
    return given


def installed_profile() -> dict[str, Any]:
    """Profile of the scheduler in the manifests, for other schedulers of tests and benchmarks."""
    (profile,) = configuration(documents())["profiles"]
    return {name: given for name, given in profile.items() if name != "schedulerName"}


def configured(rig: Rig, objects: Sequence[Json], kubeconfig: Path, url: str) -> Path:
    """Write the scheduler's configuration of the manifests with the URLs of this cluster."""
    given = configuration(objects)
    given["clientConnection"]["kubeconfig"] = str(kubeconfig)
    given["extenders"][0]["urlPrefix"] = url
    file = rig.folder / "schedulers" / "installed.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(given))
    return file


def start_scheduler(rig: Rig, objects: Sequence[Json], file: Path, kubeconfig: Path) -> Server:
    """Start the scheduler of the manifests; return without waiting."""
    command = dict(_commands(objects))["scheduler"]
    given = [each for each in command[1:] if not each.startswith("--config=")]
    port = rig.ports.free()
    flags = (*given, *scheduler_flags(rig, file, kubeconfig, port), *feature_gates(rig))
    whole = [rig.binaries[command[0]], *flags]
    ready = rig.answers(f"https://{LOOPBACK}:{port}/readyz")
    environment = _environment(objects, "scheduler")
    return rig.start("phasewise-scheduler", whole, ready=ready, environment=environment, wait=False)
