"""Install the extender from its manifests, with processes in place of containers.

Simulated nodes run nothing. So everything in `manifests/extender` except the Deployments is applied, and the commands
of their containers run on this machine with the service accounts of the manifests, listening on loopback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.rig.control_plane import feature_gates, scheduler_flags
from tests.rig.processes import Server
from tests.rig.rig import LOOPBACK, ROOT, Rig

MANIFESTS = ROOT / "manifests"

OURS = ("extender", "controller", "webhook")
"""Containers that run our image."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Extender:
    """The running processes, and the extender's URL (`/explain/NAMESPACE/POD`, `/metrics`)."""

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
    commands = {name: container["command"] for name, container in _containers(objects).items()}
    address = {}
    for name in OURS:
        given = next((each for each in commands[name] if each.startswith("--address=")), "")
        address[name] = f"{LOOPBACK}:{given.rpartition(':')[2] if own_ports else rig.ports.free()}"
    for each in objects:
        if each["kind"] == "MutatingWebhookConfiguration":
            each["webhooks"][0]["clientConfig"] = {"url": f"https://{address['webhook']}/mutate"}
    left_out = ("Deployment", "Service")
    rig.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", *(each for each in objects if each["kind"] not in left_out))
    accounts = {name: rig.service_account("kube-system", f"phasewise-{name}") for name in OURS}

    def run(name: str, *options: str, ready: str = "/readyz") -> Server:
        given = [each for each in commands[name][1:] if not each.startswith("--address=")]
        command = ("-m", "extender", *given, *options, "--kubeconfig", accounts[name])
        return rig.start_program(f"phasewise-{name}", *command, address=address[name], ready=ready, wait=False)

    running = {name: run(name) for name in ("extender", "controller")}
    running["webhook"] = run("webhook", "--name", LOOPBACK, ready="")
    url = f"http://{address['extender']}"
    file = configured(rig, objects, accounts["extender"], url)
    running["extender"].wait_ready()
    running["scheduler"] = start_scheduler(rig, objects, file, accounts["extender"])
    for server in running.values():
        server.wait_ready()
    return Extender(url=url, **running)


def _containers(objects: Sequence[Json]) -> dict[str, Json]:
    """Containers of all Deployments, by name."""
    deployments = (each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment")
    return {container["name"]: container for spec in deployments for container in spec["containers"]}


def installed_options() -> list[str]:
    """Options of the extender beside the scheduler in the manifests, other than its address."""
    return [each for each in _containers(documents())["extender"]["command"][3:] if not each.startswith("--address=")]


def configuration(objects: Sequence[Json]) -> dict[str, Any]:
    """The scheduler's configuration in the manifests."""
    found = next(each["data"]["config.yaml"] for each in objects if "config.yaml" in each.get("data", ()))
    given: dict[str, Any] = yaml.safe_load(found)
    return given


def installed_profile() -> dict[str, Any]:
    """Profile of the scheduler in the manifests, for other schedulers of tests and benchmarks."""
    (profile,) = configuration(documents())["profiles"]
    return {name: given for name, given in profile.items() if name != "schedulerName"}


def installed_weight() -> int:
    """The extender's weight in the manifests: a tenth of what one point counts beside the scheduler's own scores."""
    return int(configuration(documents())["extenders"][0]["weight"])


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
    program, *given = (
        each for each in _containers(objects)["scheduler"]["command"] if not each.startswith("--config=")
    )
    port = rig.ports.free()
    whole = [rig.binaries[program], *given, *scheduler_flags(rig, file, kubeconfig, port), *feature_gates(rig)]
    ready = rig.answers(f"https://{LOOPBACK}:{port}/readyz")
    return rig.start("phasewise-scheduler", whole, ready=ready, wait=False)
